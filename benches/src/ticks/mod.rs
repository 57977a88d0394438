//! Schedules that are due every second, on three processes over one store, and their starts. The
//! programs that measure allora and its peers share these files, so that all are counted alike.

#![expect(clippy::disallowed_methods, reason = "it measures the clocks' passing")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on says so")]

mod count;
mod log;

pub use log::Log;

use crate::{process::cpu_of_tree, report::at as quantile};
use count::Counted;
use std::{
    os::unix::process::parent_id,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio, id},
    time::{Duration, Instant, SystemTime},
};

/// The number of processes.
const NODES: usize = 3;
/// The time in which the processes start and see each other.
const WARM_UP: u64 = 6;
/// The longest wait after the last second for what has not started.
const LAST_STARTS: Duration = Duration::from_secs(5);
/// The time after a full second at which a process is killed: it starts runs then.
const AMID_STARTS: Duration = Duration::from_millis(10);
/// The variable with the path of the log, which only the processes that run the schedules have.
const LOG: &str = "ALLORA_BENCH_TICKS_LOG";
const MICROS: u64 = 1_000_000;

/// Schedules, all due every second.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The number of schedules.
    pub schedules: usize,
    /// The number of seconds whose starts are counted.
    pub seconds: u64,
    /// True if one of the processes is killed by SIGKILL in the middle.
    pub is_killed: bool,
}

/// The log of this process, if [`measure`] has started it.
pub fn log_of_node() -> Option<Log> {
    std::env::var_os(LOG).map(|path| Log::open(path.as_ref()))
}

/// Returns when the process that has started this one has ended.
pub async fn until_alone() {
    let parent = parent_id();
    while parent_id() == parent {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Starts this program three times with the same words, and counts the starts of their runs.
/// `transactions` returns the number of transactions that the server has ended so far.
///
/// Figures: the occurrences that started `once`, that started more than once (`repeated`), and that
/// never did (`lost`); the lateness of first starts; the longest time without a start of one schedule
/// (`gap_s`); transactions and processor time for each occurrence that started in its time.
///
/// # Panics
/// If a process ends by itself, or if none starts anything.
pub async fn measure(load: Load, transactions: impl AsyncFn() -> u64) -> Vec<(&'static str, f64)> {
    let log = Scratch(std::env::temp_dir().join(format!("allora-bench-ticks-{}", id())));
    drop(Log::open(&log.0));
    let mut nodes = Nodes((0..NODES).map(|_| start(&log.0)).collect());
    let first = micros() / MICROS + WARM_UP;
    let last = first + load.seconds;
    until(Duration::from_secs(first)).await;
    let before = Usage::now(&transactions).await;
    if load.is_killed {
        until(Duration::from_secs(first + load.seconds / 2) + AMID_STARTS).await;
        nodes.0[0].kill().unwrap();
        nodes.0.remove(0).wait().unwrap();
    }
    until(Duration::from_secs(last)).await;
    let after = Usage::now(&transactions).await;
    let count = || Counted::of(&log::read(&log.0), load.schedules, first..last);
    let mut counted = count();
    let in_time = counted.late_ms.len() as f64;
    let begun = Instant::now();
    while counted.lost > 0 && begun.elapsed() < LAST_STARTS {
        tokio::time::sleep(Duration::from_millis(250)).await;
        counted = count();
    }
    nodes.assert_alive();
    assert!(in_time > 0.0, "nothing was started");
    let late = |part| quantile(counted.late_ms.iter().copied(), part);
    let each = |now: Duration, then: Duration| (now - then).as_secs_f64() * 1e6 / in_time;
    let mut figures = vec![
        ("once", counted.once as f64),
        ("repeated", counted.repeated as f64),
        ("lost", counted.lost as f64),
        ("p50_ms", late(0.5)),
        ("p99_ms", late(0.99)),
        ("gap_s", counted.longest_gap.as_secs_f64()),
        ("transactions", (after.transactions - before.transactions) as f64 / in_time),
        ("client_us", each(after.client, before.client)),
    ];
    let server = after.server.zip(before.server).map(|(now, then)| each(now, then));
    figures.extend(server.map(|server| ("server_us", server)));
    figures
}

/// The processes that run the schedules, killed when the measurement ends in any way.
struct Nodes(Vec<Child>);

impl Nodes {
    fn assert_alive(&mut self) {
        for node in &mut self.0 {
            let ended = node.try_wait().unwrap();
            assert!(ended.is_none(), "a process has ended by itself: {ended:?}");
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for node in &mut self.0 {
            drop(node.kill());
            drop(node.wait());
        }
    }
}

/// A file that is removed.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

fn start(log: &Path) -> Child {
    let mut node = Command::new(std::env::current_exe().unwrap());
    node.args(std::env::args_os().skip(1)).env(LOG, log).stdout(Stdio::null()).spawn().unwrap()
}

/// The processor time of all processes and of the server, and the transactions of the server, so far.
struct Usage {
    client: Duration,
    server: Option<Duration>,
    transactions: u64,
}

impl Usage {
    async fn now(transactions: impl AsyncFn() -> u64) -> Self {
        let server = std::env::var("ALLORA_BENCH_SERVER_PID").ok();
        Self {
            client: cpu_of_tree(id()),
            server: server.map(|pid| cpu_of_tree(pid.parse().unwrap())),
            transactions: transactions().await,
        }
    }
}

/// Microseconds since 1970.
fn micros() -> u64 {
    u64::try_from(SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros()).unwrap()
}

/// Waits until so long after 1970.
async fn until(at: Duration) {
    tokio::time::sleep(at.saturating_sub(Duration::from_micros(micros()))).await;
}
