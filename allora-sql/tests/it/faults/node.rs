//! A node in a process of its own: the test binary, run once more.

use super::patiently;
use crate::stores::{Db, Place, patiently_opened, runtime};
use allora_conformance::faults::{Log, Witness, wall};
use allora_conformance::history::{
    self, Claims, Event, Law, Outcome, Violation, What, check, told,
};
use allora_core::{Backend, CatchUp, Run, Runtime, Scheduler, backend, every, job, runtime::Tokio};
use std::{
    env, fs,
    io::{BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// How long a silent node keeps what it has.
pub(super) const LEASE: Duration = Duration::from_secs(2);

/// At least once.
pub(super) const LEAST: &str = "at-least-once";

/// At most once.
pub(super) const ONCE: &str = "at-most-once";

/// What a node is told by its environment.
const VARIABLES: [&str; 5] = ["URL", "PREFIX", "LOG", "PERIOD", "WORK"];

fn variable(name: &str) -> String {
    format!("ALLORA_FAULTS_{name}")
}

/// The nodes of one test, what they do, and what they wrote down.
pub(super) struct Fleet {
    pub(super) place: Place,
    folder: tempfile::TempDir,
    period: Duration,
}

/// A process that runs both jobs; dropped, it is killed.
pub(super) struct Node(pub(super) Child);

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Node {
    /// SIGKILL.
    pub(super) fn kill(&mut self) {
        // One that has ended already is as dead.
        let _ = self.0.kill();
        self.0.wait().unwrap();
    }

    pub(super) fn signal(&self, signal: &str) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Stops it as a deployment does; it must end well.
    pub(super) fn stop(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Fleet {
    pub(super) fn new(place: Place, period: Duration) -> Self {
        Self { place, folder: tempfile::tempdir().unwrap(), period }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Starts a node whose runs take so long.
    pub(super) fn start(&self, work: Duration) -> Node {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["faults::node::a_node_runs_and_stops", "--exact", "--nocapture"]);
        let path = self.path().display().to_string();
        let (period, work) = (self.period.as_millis().to_string(), work.as_millis().to_string());
        let values = [&self.place.url, &self.place.prefix, &path, &period, &work];
        command.envs(VARIABLES.iter().map(|name| variable(name)).zip(values));
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        Node(command.spawn().unwrap())
    }

    /// What was written down so far.
    pub(super) fn log(&self) -> Vec<Event> {
        match fs::File::open(self.path()) {
            Ok(file) => history::read(BufReader::new(file)).unwrap(),
            Err(_) => Vec::new(),
        }
    }

    /// What nodes said about themselves.
    pub(super) fn said(&self, word: &str) -> usize {
        let said = fs::read_to_string(self.path().with_extension("said")).unwrap_or_default();
        said.lines().filter(|line| line.starts_with(word)).count()
    }

    /// The ends of runs of a job so far.
    pub(super) fn ends(&self, job: &str) -> usize {
        let ended = |event: &&Event| event.job == job && matches!(event.what, What::End { .. });
        self.log().iter().filter(ended).count()
    }

    /// Waits for so many more.
    pub(super) fn more_ends(&self, more: usize) {
        for job in [LEAST, ONCE] {
            let before = self.ends(job);
            patiently("runs go on", || self.ends(job) >= before + more);
        }
    }

    /// What the store remembers of a job.
    pub(super) fn past(&self, job: &str) -> Vec<backend::Past> {
        runtime().block_on(async {
            let store = self.place.builder().history(100_000).connect(&self.place.url).await;
            let store = store.unwrap();
            let past = store.history().unwrap().past(Some(job), None, 10_000).await.unwrap();
            store.close().await;
            past
        })
    }

    /// Judges what nodes wrote down that were stopped or killed: every nominal instant up to the last
    /// that was taken ran as it should, or is recorded as lost or as passed over. What they left
    /// open, one more node gets time to run or to record.
    pub(super) fn judge(&self) {
        let until = [LEAST, ONCE].map(|job| {
            let log = self.told(job);
            assert!(log.iter().any(|event| matches!(event.what, What::Start { .. })), "{job}");
            (job, claims(&log).map(|(_, claims)| claims.occurrence).max().unwrap())
        });
        let last = self.start(Duration::ZERO);
        let end = Instant::now() + Duration::from_secs(30);
        let open = |violation: &Violation| matches!(violation, Violation::Unsettled { .. });
        loop {
            let found = until.map(|(job, until)| self.violations(job, until)).concat();
            if !found.iter().any(open) || Instant::now() >= end {
                assert_eq!(found, []);
                break;
            }
            thread::sleep(Duration::from_millis(200));
        }
        last.stop();
    }

    /// What was written down about a job, and what only the store tells.
    fn told(&self, job: &str) -> Vec<Event> {
        // The history first: what is in it, nodes have written down before.
        let past = self.past(job);
        let mut log = self.log();
        log.retain(|event| event.job == job);
        log.extend(told(&log, job, &past));
        log
    }

    fn violations(&self, job: &str, until: i64) -> Vec<Violation> {
        let period = i64::try_from(self.period.as_millis()).unwrap();
        let following = |_: &str, at| Some(at + period);
        let law = Law::new(&following).until(until).settled();
        let law = if job == ONCE { law.at_most_once() } else { law };
        check(&self.told(job), &law)
    }
}

/// The takes in a log, with their nodes.
pub(super) fn claims(log: &[Event]) -> impl Iterator<Item = (&Event, Claims)> {
    log.iter().filter_map(|event| match event.what {
        What::Claim(claims) => Some((event, claims)),
        _ => None,
    })
}

/// Without its environment, a test of itself; with it, the node that the other tests start.
#[test]
fn a_node_runs_and_stops() {
    let values: Vec<_> = VARIABLES.iter().map_while(|name| env::var(variable(name)).ok()).collect();
    if let Ok([url, prefix, log, period, work]) = <[String; 5]>::try_from(values) {
        let ms = |text: String| Duration::from_millis(text.parse().unwrap());
        runtime().block_on(node(&url, prefix, Path::new(&log), ms(period), ms(work)));
        return;
    }
    let Some(place) = Db::Sqlite.place() else { return };
    let fleet = Fleet::new(place, Duration::from_millis(200));
    let node = fleet.start(Duration::ZERO);
    fleet.more_ends(3);
    node.stop();
    assert_eq!((fleet.said("Ready"), fleet.said("Stopped")), (1, 1));
    fleet.judge();
    let finished = |event: &Event| matches!(event.what, What::End { outcome: Outcome::Ran, .. });
    assert!(fleet.log().iter().any(finished));
}

async fn node(url: &str, prefix: String, path: &Path, period: Duration, work: Duration) {
    let builder = allora_sql::Sql::builder().prefix(prefix).history(100_000);
    let store = patiently_opened(builder, url).await;
    let log = Log::append(path);
    let said = Log::append(&path.with_extension("said"));
    let runtime = Tokio::current().unwrap();
    let work = {
        let (log, runtime) = (log.clone(), runtime.clone());
        async move |run: Run| {
            let occurrence = run.scheduled_at().timestamp_millis();
            let what = What::Start { occurrence, fence: run.fence() };
            log.write(run.name(), run.node(), wall(), what);
            runtime.sleep_until(runtime.now() + work).await;
        }
    };
    let all = CatchUp::All { limit: 1_000 };
    let least = job(every(period), work.clone()).at_least_once(LEASE).catch_up(all);
    let once = job(every(period), work).catch_up(all);
    let scheduler = Scheduler::builder(Witness::new(store, log))
        .runtime(runtime)
        .mark(LEASE)
        .safety_poll(Duration::from_millis(500))
        .grace(Duration::from_secs(1))
        .add(LEAST, least)
        .add(ONCE, once)
        .on_event(move |event| said.say(event))
        .build()
        .unwrap();
    let (tell, told) = tokio::sync::oneshot::channel();
    // The node lives as long as the other end of its standard input.
    thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = tell.send(());
    });
    scheduler.run_until(async move { told.await.unwrap() }).await;
}
