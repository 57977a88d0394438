//! The lateness of the jobs in code whose first node was killed just before their time. The nodes are
//! processes of this program.

use crate::{Figures, figure, place::Place};
use allora_core::{Run, Scheduler, Time, cron, job};
use std::{
    collections::HashSet,
    io::{BufRead, BufReader, stdin},
    process::{Child, Command, Stdio, exit},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, Instant, SystemTime},
};

/// The measurement of one such process, which runs the jobs until its standard input ends.
pub(crate) const NODE: &str = "killed-node";
/// The nodes see each other in the registry.
const WARM_UP: Duration = Duration::from_secs(6);
/// The time between the kill and the instant.
const BEFORE: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(30);

/// A run: its node, its job, its second, and its lateness in milliseconds.
#[derive(Clone, Copy)]
struct Started {
    node: usize,
    job: usize,
    second: i64,
    late: f64,
}

/// The runs of all nodes.
type AllStarted = Arc<Mutex<Vec<Started>>>;

/// The latest start of an instant of so many jobs, of which another process was the first node for
/// some.
pub(crate) async fn measure(store: &str, jobs: usize) -> Figures {
    let all = AllStarted::default();
    let of = |second: i64| -> Vec<Started> {
        all.lock().unwrap().iter().filter(|started| started.second == second).copied().collect()
    };
    let [mut first, _survivor] = [0, 1].map(|number| Node::start(number, store, jobs, &all));
    tokio::time::sleep(WARM_UP).await;
    let second = now().timestamp() + 2;
    let instant = Time::from_timestamp(second, 0).unwrap();
    let wait = (instant - now()).to_std().unwrap();
    tokio::time::sleep(wait.checked_sub(BEFORE).unwrap()).await;
    first.kill();
    assert!(now() < instant, "the kill came too late");
    let begun = Instant::now();
    while of(second).len() < jobs {
        let started = of(second).len();
        assert!(begun.elapsed() < LONGEST, "{started} of {jobs} runs were started");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let before = of(second - 1);
    assert_eq!(before.len(), jobs, "not every job ran one second before the kill");
    let taken_over = before.iter().filter(|started| started.node == 0).count();
    assert!((1..jobs).contains(&taken_over), "the nodes had not seen each other");
    let after = of(second);
    let different: HashSet<usize> = after.iter().map(|started| started.job).collect();
    assert!(different.len() == jobs && after.len() == jobs, "an occurrence was run twice");
    assert!(after.iter().all(|started| started.node == 1), "a killed node has run a job");
    let latest = after.iter().map(|started| started.late).fold(0.0, f64::max);
    Figures::from_iter([figure("latest_ms", latest), figure("taken_over", taken_over as f64)])
}

/// A process that runs the jobs. It ends with this value.
struct Node(Child);

impl Node {
    fn start(number: usize, store: &str, jobs: usize, all: &AllStarted) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([NODE, store, &jobs.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let all = all.clone();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // A process that is killed may leave half a line.
                let words: Vec<f64> = line.split(' ').map_while(|word| word.parse().ok()).collect();
                let [job, second, late, _] = words[..] else { continue };
                let (job, second) = (job as usize, second as i64);
                all.lock().unwrap().push(Started { node: number, job, second, late });
            }
        });
        Self(child)
    }

    /// Kills it by SIGKILL.
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One node, in a process of its own: prints each run as its job, its second, its lateness, and a 0,
/// which shows that the line is whole.
pub(crate) async fn node(place: &Place, jobs: usize) {
    let (runs, all) = mpsc::channel::<(usize, Time, f64)>();
    thread::spawn(move || {
        for (job, at, late) in all {
            println!("{job} {} {late} 0", at.timestamp());
        }
    });
    thread::spawn(|| {
        // Ends when the process that measures does.
        let _ = stdin().read_line(&mut String::new());
        exit(0);
    });
    let heartbeat = Duration::from_secs(1);
    let mut builder = Scheduler::builder(place.open().await).concurrency(jobs).heartbeat(heartbeat);
    for i in 0..jobs {
        let runs = runs.clone();
        let note = async move |run: Run| {
            let late = (now() - run.scheduled_at()).as_seconds_f64() * 1_000.0;
            runs.send((i, run.scheduled_at(), late)).unwrap();
        };
        builder = builder.add(format!("killed-{i}"), job(cron("* * * * * *").unwrap(), note));
    }
    builder.build().unwrap().run().await;
}

fn now() -> Time {
    SystemTime::now().into()
}
