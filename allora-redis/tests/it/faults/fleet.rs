//! Two nodes that run a job of each delivery, and write down what they do.

use crate::{
    server::patiently,
    stores::{Place, runtime},
};
use allora_conformance::{
    faults::{Log, RecordingBackend, claims, wall},
    history::{self, Event, Invariant, What, check},
};
use allora_core::{
    Backend, CatchUp, Handle, Run, Runtime as _, Scheduler,
    backend::{Batch, Operation, TimeSource},
    every, job,
    runtime::Tokio,
};
use allora_redis::{Builder, Redis};
use std::{collections::HashSet, fs, io::BufReader, path::PathBuf, time::Duration};
use tokio::task::JoinHandle;

/// At least once.
pub(super) const LEAST: &str = "at-least-once";

/// At most once.
pub(super) const ONCE: &str = "at-most-once";

/// Longer than any outage here: nobody is given up.
const LEASE: Duration = Duration::from_secs(60);

const PERIOD: Duration = Duration::from_millis(100);

pub(super) struct Fleet {
    folder: tempfile::TempDir,
    /// The store by which the test reads the records.
    reader: Redis,
    handles: Vec<Handle>,
    nodes: Vec<JoinHandle<()>>,
}

impl Fleet {
    /// Starts both nodes.
    pub(super) fn start(place: &Place, builder: &Builder) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let reader = runtime().block_on(place.connect(builder.clone())).unwrap();
        let mut fleet = Self { folder, reader, handles: Vec::new(), nodes: Vec::new() };
        for _ in 0..2 {
            let scheduler = runtime().block_on(fleet.scheduler(place, builder.clone()));
            fleet.handles.push(scheduler.handle());
            fleet.nodes.push(runtime().spawn(async move {
                scheduler.run().await;
            }));
        }
        patiently("the nodes are ready", || fleet.said("Ready") == 2);
        fleet
    }

    async fn scheduler(&self, place: &Place, builder: Builder) -> Scheduler {
        let store: Redis = place.connect(builder).await.unwrap();
        let (log, said) = (self.log_file(), Log::append(&self.path("said")));
        let work = {
            let log = log.clone();
            async move |run: Run| {
                let occurrence = run.scheduled_at().timestamp_millis();
                let what = What::Start { occurrence, fence: run.fence() };
                log.write(run.name(), run.node(), wall(), what);
            }
        };
        let all = CatchUp::All { limit: 1_000 };
        Scheduler::builder(RecordingBackend::new(store, log))
            .runtime(Tokio::current().unwrap())
            .lost_after(LEASE)
            .poll_interval(Duration::from_millis(500))
            .add(LEAST, job(every(PERIOD), work.clone()).at_least_once(LEASE).catch_up(all))
            .add(ONCE, job(every(PERIOD), work).catch_up(all))
            .on_event(move |event| said.say(event))
            .build()
            .unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn log_file(&self) -> Log {
        Log::append(&self.path("log"))
    }

    /// The entries of the log so far.
    pub(super) fn log(&self) -> Vec<Event> {
        history::read(BufReader::new(fs::File::open(self.path("log")).unwrap())).unwrap()
    }

    /// The number of events of the nodes with this word.
    pub(super) fn said(&self, word: &str) -> usize {
        let said = fs::read_to_string(self.path("said")).unwrap_or_default();
        said.lines().filter(|line| line.contains(word)).count()
    }

    fn ends(&self, job: &str) -> usize {
        let ended = |event: &&Event| event.job == job && matches!(event.what, What::End { .. });
        self.log().iter().filter(ended).count()
    }

    /// Waits for so many more ends of runs of each job.
    pub(super) fn more_ends(&self, more: usize) {
        for job in [LEAST, ONCE] {
            let before = self.ends(job);
            patiently("runs go on", || self.ends(job) >= before + more);
        }
    }

    /// Waits until each run in the records is one that a node claimed and wrote down: a claim whose
    /// reply was lost is sent again. A node that is stopped before leaves such a claim to its lease.
    fn all_resolve_their_claims(&self) {
        let leases = async |job: &str| {
            let operations = [Operation::read(job)];
            let time = TimeSource::Store { fallback: Tokio::current().unwrap().wall() };
            let applied = self.reader.reschedule(Batch::new("reader", time, &operations)).await;
            applied.ok()?.single().ok()?.state().map(|state| state.leases)
        };
        for job in [LEAST, ONCE] {
            patiently("each claim is resolved", || {
                let Some(leases) = runtime().block_on(leases(job)) else { return false };
                let log = self.log();
                let claimed: HashSet<i64> =
                    claims(&log).filter(|of| of.0.job == job).map(|of| of.1.fence).collect();
                leases.iter().all(|lease| claimed.contains(&lease.fence))
            });
        }
    }

    /// Stops both nodes.
    pub(super) fn stop(&mut self) {
        self.handles.iter().for_each(Handle::stop);
        for node in self.nodes.drain(..) {
            runtime().block_on(node).unwrap();
        }
    }

    /// Stops, and judges what was written down: every instant of each job is accounted for, and no
    /// occurrence was taken or started twice.
    pub(super) fn stop_and_judge(mut self) {
        self.all_resolve_their_claims();
        self.stop();
        let log = self.log();
        let period = i64::try_from(PERIOD.as_millis()).unwrap();
        let following = |_: &str, at| Some(at + period);
        for job in [LEAST, ONCE] {
            let log: Vec<Event> = log.iter().filter(|event| event.job == job).cloned().collect();
            assert!(log.iter().any(|event| matches!(event.what, What::Start { .. })), "{job}");
            let law = Invariant::new(&following);
            let law = if job == ONCE { law.at_most_once() } else { law };
            assert_eq!(check(&log, &law), [], "{job}: {log:#?}");
        }
    }
}

/// Lets real time pass: servers have clocks of their own.
pub(super) fn pause(ms: u64) {
    runtime().block_on(async {
        let runtime = Tokio::current().unwrap();
        runtime.sleep_until(runtime.now() + Duration::from_millis(ms)).await;
    });
}
