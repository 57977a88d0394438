//! The nodes of one test, each in a process of its own, and the check of what they wrote down.

use super::{FaultWorkload, LEAST, Node, ONCE, claims, wall};
use crate::{
    environment::patiently,
    history::{Claims, Event, Outcome, Violation, What},
};
use allora_core::{
    Backend, Runtime,
    backend::{Batch, HistoryEntry, HistoryQuery, JobState, Operation, TimeSource},
};
use std::{
    collections::HashSet,
    env, fs,
    ops::{Deref, RangeInclusive},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// The names of the values that a node's process receives.
const VALUES: [&str; 5] = ["STORE", "LOG", "PERIOD", "WORK", "LEASE"];

/// A store to which each node connects from a process of its own.
pub trait NodeStore: 'static {
    /// The type of a connected store.
    type Store: Backend + 'static;

    /// The name of the test that calls [`is_node`].
    const TEST: &str;

    /// The text from which [`from_text`](Self::from_text) makes this value in another process.
    fn to_text(&self) -> String;

    /// The value of this text.
    fn from_text(text: &str) -> Self;

    /// A connected store, as soon as its servers answer.
    fn connect(&self) -> impl Future<Output = Self::Store>;

    /// Drives a future, also from inside another call of this function.
    fn block_on<T>(work: impl Future<Output = T>) -> T;

    /// The runtime of a node, inside [`block_on`](Self::block_on).
    fn runtime() -> Arc<dyn Runtime>;
}

/// The nodes of one test, their jobs, and their log.
#[derive(Debug)]
pub struct Fleet<S: NodeStore> {
    store: S,
    /// The connection by which the test itself reads.
    reader: Option<S::Store>,
    workload: FaultWorkload,
    lease: Duration,
    folder: PathBuf,
    nodes: Vec<Node>,
    /// When the store had no primary that keeps what it acknowledges.
    failed_over: Option<RangeInclusive<i64>>,
}

impl<S: NodeStore> Drop for Fleet<S> {
    fn drop(&mut self) {
        self.nodes.clear();
        // Files that stay harm no other test.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl<S: NodeStore> Deref for Fleet<S> {
    type Target = FaultWorkload;

    fn deref(&self) -> &FaultWorkload {
        &self.workload
    }
}

impl<S: NodeStore> Fleet<S> {
    /// No nodes yet; their jobs have this period, and their runs leases of 3 s.
    ///
    /// # Panics
    /// If there is no place for the log.
    pub fn new(store: S, period: Duration) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("allora-faults-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let workload = FaultWorkload::new(folder.join("log"), period);
        let (lease, nodes) = (Duration::from_secs(3), Vec::new());
        Self { store, reader: None, workload, lease, folder, nodes, failed_over: None }
    }

    /// Sets the lease of the runs of nodes that are started from now on.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Does a failover, to a replica that has every claim, but not the last ends: a run at least once whose
    /// end it does not have is run again after its lease. It is over when no node writes to the former primary.
    pub fn fails_over(&mut self, failover: impl FnOnce()) {
        let begun = wall();
        failover();
        self.failed_over = Some(begun - 1_000..=wall());
    }

    /// The violation is the second run of an occurrence whose first end was forgotten.
    fn is_of_forgotten_end(&self, violation: &Violation) -> bool {
        let (Violation::Duplicate { job, occurrence, .. }
        | Violation::FinishedTwice { job, occurrence }) = violation
        else {
            return false;
        };
        let lost = |at: i64| self.failed_over.as_ref().is_some_and(|range| range.contains(&at));
        let is_its_end = |event: &Event| {
            matches!(event.what, What::End { occurrence: of, .. } if of == *occurrence)
                && event.job == *job
                && lost(event.at)
        };
        job == LEAST && self.log().iter().any(is_its_end)
    }

    /// Starts two nodes, and waits until each has ended several runs.
    #[must_use]
    pub fn at_work(mut self) -> Self {
        for work in [0, 20] {
            self.start(Duration::from_millis(work));
        }
        patiently("the nodes are ready", || self.reported("Ready") >= 2);
        self.more_ends(5);
        self
    }

    /// Starts a node whose runs take this long.
    pub fn start(&mut self, work: Duration) {
        let ms = |duration: Duration| duration.as_millis().to_string();
        let log = self.path().display().to_string();
        let values = [self.store.to_text(), log, ms(self.period()), ms(work), ms(self.lease)];
        let values: Vec<_> = VALUES.into_iter().zip(values).collect();
        self.nodes.push(Node::start(S::TEST, &values));
    }

    /// The nodes, in the order in which they were started.
    pub fn nodes(&mut self) -> &mut Vec<Node> {
        &mut self.nodes
    }

    /// Stops the nodes.
    ///
    /// # Panics
    /// If one of them does not end well.
    pub fn stop(&mut self) {
        self.nodes.drain(..).for_each(Node::stop);
    }

    /// Waits for this number of further ends of runs of each job.
    ///
    /// # Panics
    /// If there are too few in time.
    #[track_caller]
    pub fn more_ends(&self, more: usize) {
        for job in [LEAST, ONCE] {
            let before = self.ends(job);
            patiently("runs go on", || self.ends(job) >= before + more);
        }
    }

    /// Waits until the occurrence is taken over; returns the number of the new attempt.
    ///
    /// # Panics
    /// If it is not taken over in time.
    pub fn attempt_after(&self, occurrence: i64) -> u32 {
        patiently("the occurrence is taken over", || self.taken_over(occurrence).is_some());
        self.taken_over(occurrence).unwrap().1.attempt
    }

    /// Does `read` on the test's own connection until it succeeds.
    fn read<T>(&mut self, mut read: impl AsyncFnMut(&S::Store) -> Option<T>) -> T {
        if self.reader.is_none() {
            self.reader = Some(S::block_on(self.store.connect()));
        }
        let reader = self.reader.as_ref().unwrap();
        let mut found = None;
        patiently("the store is read", || {
            found = S::block_on(read(reader));
            found.is_some()
        });
        found.unwrap()
    }

    /// The store's history of a job, with its active runs; `None` if it keeps none.
    pub fn entries(&mut self, job: &str) -> Option<Vec<HistoryEntry>> {
        self.read(async |store| {
            let Some(history) = store.history() else { return Some(None) };
            let state = store.queries()?.get(job).await.ok()?;
            let entries = history.entries(HistoryQuery::new(50_000).name(job)).await.ok()?;
            Some(Some(state.with_active_runs(entries)))
        })
    }

    fn record(&mut self, job: &str) -> JobState {
        self.read(async |store| {
            let operations = [Operation::read(job)];
            let time = TimeSource::Store { fallback: S::runtime().wall() };
            let applied = store.reschedule(Batch::new("reader", time, &operations)).await;
            applied.ok()?.single().ok()?.state()
        })
    }

    /// Waits until each run in the records is one that a node wrote down: a claim whose reply was
    /// lost is sent again. A node that is stopped before leaves such a claim to its lease.
    fn all_resolve_their_claims(&mut self) {
        for job in [LEAST, ONCE] {
            patiently("each claim is resolved", || {
                let leases = self.record(job).leases;
                let log = self.log();
                let claimed: HashSet<i64> =
                    claims(&log).filter(|of| of.0.job == job).map(|of| of.1.fence).collect();
                leases.iter().all(|lease| claimed.contains(&lease.fence))
            });
        }
    }

    /// Stops the nodes and checks what they wrote down; returns the store's history.
    ///
    /// With a history, every scheduled time up to the last one that was claimed ran as it should,
    /// or is recorded as lost, missed or skipped. One more node gets time to run, or to record, the
    /// occurrences that were left open. Without a history, the log alone is checked.
    ///
    /// # Panics
    /// If there is a violation.
    #[expect(clippy::disallowed_methods, reason = "other processes do the work")]
    pub fn judge(mut self) -> Vec<HistoryEntry> {
        if self.entries(ONCE).is_none() {
            self.all_resolve_their_claims();
            self.stop();
            let log = self.log();
            let mut found = [LEAST, ONCE].map(|job| self.violations_in_log(&log, job)).concat();
            found.retain(|violation| !self.is_of_forgotten_end(violation));
            assert!(found.is_empty(), "{}", self.about(&found));
            return Vec::new();
        }
        self.stop();
        let jobs = [LEAST, ONCE].map(|job| (job, self.entries(job).unwrap_or_default()));
        let until = jobs.each_ref().map(|(job, entries)| (*job, self.last_claimed(job, entries)));
        self.start(Duration::ZERO);
        // The leases of dead nodes must end, and then their runs must be read.
        let end = Instant::now() + Duration::from_secs(120);
        loop {
            let mut found = Vec::new();
            for (job, until) in until {
                let entries = self.entries(job).unwrap_or_default();
                found.extend(self.violations(&self.log(), job, &entries, until));
            }
            let open = |violation: &Violation| matches!(violation, Violation::Unsettled { .. });
            if !found.iter().any(open) || Instant::now() >= end {
                assert!(found.is_empty(), "as the nodes were stopped: {}", self.about(&found));
                break;
            }
            thread::sleep(Duration::from_millis(200));
        }
        self.stop();
        jobs.into_iter().flat_map(|(_, entries)| entries).collect()
    }

    /// The violations, and the part of the log around the first one.
    fn about(&self, found: &[Violation]) -> String {
        let text = format!("{:?}", found.first());
        let is_in = |number: i64| text.contains(&number.to_string());
        let named = |event: &Event| match event.what {
            What::Claim(Claims { occurrence, fence, .. })
            | What::Start { occurrence, fence }
            | What::End { occurrence, fence, .. }
            | What::Lost { occurrence, fence } => is_in(occurrence) || is_in(fence),
            What::Extend { fence, .. } | What::Answered { fence } => is_in(fence),
            _ => false,
        };
        let events: Vec<Event> = self.log().into_iter().filter(named).collect();
        format!("{found:?}, the failover in {:?}: {events:#?}", self.failed_over)
    }
}

/// Runs a node if this process was started as one, until it is to stop; then it returns true.
///
/// # Panics
/// If the node cannot be built.
pub fn is_node<S: NodeStore>() -> bool {
    let Some([store, log, period, work, lease]) = Node::values(VALUES) else { return false };
    let ms = |text: String| Duration::from_millis(text.parse().unwrap());
    S::block_on(async {
        let store = S::from_text(&store).connect().await;
        let scheduler = FaultWorkload::new(log, ms(period))
            .scheduler(store, S::runtime(), ms(lease), ms(work))
            // Runs that hang must not use up the node's capacity.
            .concurrency(1_000)
            .grace(Duration::from_secs(2))
            .build()
            .unwrap();
        scheduler.run_until(Node::stop_request()).await;
    });
    true
}

/// A test of the nodes themselves: one runs both jobs, and stops when it is to.
///
/// # Panics
/// If that does not hold.
pub fn a_node_runs_and_stops<S: NodeStore>(mut fleet: Fleet<S>) {
    fleet.start(Duration::ZERO);
    fleet.more_ends(3);
    fleet.stop();
    assert_eq!((fleet.reported("Ready"), fleet.reported("Stopped")), (1, 1));
    let succeeded =
        |event: &Event| matches!(event.what, What::End { outcome: Outcome::Succeeded, .. });
    assert!(fleet.log().iter().any(succeeded));
    fleet.judge();
}
