//! Nodes in processes of their own, the test binary run once more, and how they are judged.

use super::{members::Members, patiently};
use crate::stores::{now, patient, pause, runtime};
use allora_conformance::{
    faults::{Log, Witness, wall},
    history::{self, Claims, Event, Law, Outcome, Violation, What, check, told},
};
use allora_core::{
    Backend, CatchUp, Run, Runtime, Scheduler, backend::Past, every, job, runtime::Tokio,
};
use allora_etcd::Etcd;
use std::{
    env, fs,
    io::{BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

/// At least once.
pub(super) const LEAST: &str = "at-least-once";

/// At most once.
pub(super) const ONCE: &str = "at-most-once";

/// How long a run is believed to live; a node's lease in etcd cannot be shorter than 15 s.
const LEASE: Duration = Duration::from_secs(3);

/// Between two occurrences of a job, where a test needs no other.
const PERIOD: Duration = Duration::from_millis(100);

/// What a node is told by its environment.
const VARIABLES: [&str; 4] = ["URLS", "LOG", "PERIOD", "WORK"];

fn variable(name: &str) -> String {
    format!("ALLORA_FAULTS_{name}")
}

/// The nodes of one test, what they do, and what they wrote down.
pub(super) struct Fleet {
    folder: tempfile::TempDir,
    urls: Vec<String>,
    period: Duration,
    pub(super) nodes: Vec<Node>,
}

/// A process that runs both jobs; dropped, it is killed.
pub(super) struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        // SIGKILL, which also ends a frozen one; one that has ended already is as dead.
        let _ = self.0.kill();
        self.0.wait().unwrap();
    }
}

impl Node {
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
    /// Nodes that will reach the members so.
    pub(super) fn new(urls: Vec<String>) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), urls, period: PERIOD, nodes: Vec::new() }
    }

    /// With so long between two occurrences of a job.
    pub(super) fn every(mut self, period: Duration) -> Self {
        self.period = period;
        self
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Starts a node whose runs take so long.
    pub(super) fn start(&mut self, work: Duration) {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["faults::node::a_node_runs_and_stops", "--exact", "--nocapture"]);
        let path = self.path().display().to_string();
        let (period, work) = (self.period.as_millis().to_string(), work.as_millis().to_string());
        let values = [self.urls.join(","), path, period, work];
        command.envs(VARIABLES.iter().map(|name| variable(name)).zip(values));
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        self.nodes.push(Node(command.spawn().unwrap()));
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

    fn ends(&self, job: &str) -> usize {
        let ended = |event: &&Event| event.job == job && matches!(event.what, What::End { .. });
        self.log().iter().filter(ended).count()
    }

    /// Waits for so many more ends of runs.
    pub(super) async fn more_ends(&self, more: usize) {
        for job in [LEAST, ONCE] {
            let before = self.ends(job);
            patiently("runs go on", async || self.ends(job) >= before + more).await;
        }
    }

    /// What the store remembers of a job.
    pub(super) async fn past(&self, job: &str) -> Vec<Past> {
        let store = patient(Etcd::builder().history(50_000));
        let store = store.connect(self.urls.clone()).await.unwrap();
        store.history().unwrap().past(Some(job), None, 50_000).await.unwrap()
    }

    /// Stops the nodes and judges what they wrote down: every nominal instant up to the last that
    /// was taken ran as it should, or is recorded as lost or as passed over. What they gave back or
    /// left open, one more node gets time to run or to record as lost.
    pub(super) async fn judge(mut self) -> Vec<Past> {
        self.nodes.drain(..).for_each(Node::stop);
        let mut remembered = Vec::new();
        let mut until = Vec::new();
        for job in [LEAST, ONCE] {
            let past = self.past(job).await;
            let mut log = self.log();
            log.extend(told(&log, job, &past));
            let of_job: Vec<Event> = log.into_iter().filter(|event| event.job == job).collect();
            assert!(of_job.iter().any(|event| matches!(event.what, What::Start { .. })), "{job}");
            until.push((job, claims(&of_job).map(|(_, claims)| claims.occurrence).max().unwrap()));
            remembered.extend(past);
        }
        self.start(Duration::ZERO);
        // The dead nodes' leases in etcd have to end, and their runs to be looked at after that.
        let end = now() + Duration::from_secs(90);
        loop {
            let mut found = Vec::new();
            for (job, until) in &until {
                found.extend(self.violations(job, *until).await);
            }
            let open = |violation: &Violation| matches!(violation, Violation::Unsettled { .. });
            if !found.iter().any(open) || now() >= end {
                assert_eq!(found, [], "as the nodes were stopped: {:#?}", self.about(&found));
                break;
            }
            pause(500).await;
        }
        self.nodes.drain(..).for_each(Node::stop);
        remembered
    }

    async fn violations(&self, job: &str, until: i64) -> Vec<Violation> {
        // The history first: what is in it, nodes have written down before.
        let past = self.past(job).await;
        let mut log = self.log();
        log.retain(|event| event.job == job);
        log.extend(told(&log, job, &past));
        let period = i64::try_from(self.period.as_millis()).unwrap();
        let following = |_: &str, at| Some(at + period);
        let law = Law::new(&following).until(until).settled();
        let law = if job == ONCE { law.at_most_once() } else { law };
        check(&log, &law)
    }

    /// What was written down around the first of what was found.
    fn about(&self, found: &[Violation]) -> Vec<Event> {
        let said = format!("{:?}", found.first());
        let named = |event: &Event| match event.what {
            What::Claim(Claims { occurrence, .. })
            | What::Start { occurrence, .. }
            | What::End { occurrence, .. }
            | What::Lost { occurrence, .. } => said.contains(&occurrence.to_string()),
            What::Extend { fence, .. } => said.contains(&fence.to_string()),
            _ => false,
        };
        self.log().into_iter().filter(named).collect()
    }
}

/// The takes in a log, with their events.
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
    if let Ok([urls, log, period, work]) = <[String; 4]>::try_from(values) {
        let urls = urls.split(',').map(str::to_owned).collect();
        let ms = |text: String| Duration::from_millis(text.parse().unwrap());
        runtime().block_on(node(urls, Path::new(&log), ms(period), ms(work)));
        return;
    }
    runtime().block_on(async {
        let Some(members) = Members::start(1, &[]).await else { return };
        let mut fleet = Fleet::new(members.urls());
        fleet.start(Duration::ZERO);
        fleet.more_ends(3).await;
        fleet.nodes.drain(..).for_each(Node::stop);
        assert_eq!((fleet.said("Ready"), fleet.said("Stopped")), (1, 1));
        let finished =
            |event: &Event| matches!(event.what, What::End { outcome: Outcome::Ran, .. });
        assert!(fleet.log().iter().any(finished));
        fleet.judge().await;
    });
}

async fn node(urls: Vec<String>, path: &Path, period: Duration, work: Duration) {
    // A store that is just being changed may need a second try, as a deployment would.
    let mut store = None;
    patiently("a node connects", async || {
        store = Etcd::builder().history(50_000).connect(urls.clone()).await.ok();
        store.is_some()
    })
    .await;
    let (log, said) = (Log::append(path), Log::append(&path.with_extension("said")));
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
    let scheduler = Scheduler::builder(Witness::new(store.unwrap(), log))
        .runtime(runtime)
        .mark(LEASE)
        .slots(1_000)
        .safety_poll(Duration::from_millis(500))
        .grace(Duration::from_secs(2))
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
