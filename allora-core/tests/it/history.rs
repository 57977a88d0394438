//! When the history is pruned: by requests of their own, from processes that write it.

use allora_core::{
    Backend, Error, ErrorKind, Result, Time,
    backend::{
        Action, Batch, Claim, Completion, Cursor, HistoryEntry, HistoryLimits, HistoryQuery,
        HistoryTrim, Operation, Reply, TimeSource,
    },
    record::Record,
    store::{Commit, HistoryPruning, HistoryStore, Load, Outcome, RecordStore, Snapshot},
    time::from_millis,
};
use allora_memory::Memory;
use async_trait::async_trait;
use futures::executor::block_on;
use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

pub(crate) fn at(seconds: i64) -> Time {
    from_millis(1_893_456_000_000 + seconds * 1_000).unwrap()
}

pub(crate) fn apply(store: &Memory, (name, seconds): (&str, i64), action: Action<'_>) -> Reply {
    let operations = [Operation::new(name, action)];
    let batch = Batch::new("n", TimeSource::Fixed(at(seconds)), &operations);
    block_on(store.reschedule(batch)).unwrap().single().unwrap()
}

/// Runs the job once a second, so many times.
pub(crate) fn run(store: &Memory, seconds: std::ops::Range<i64>) {
    run_job(store, "job", seconds);
}

pub(crate) fn run_job(store: &Memory, name: &str, seconds: std::ops::Range<i64>) {
    let first = Some(at(seconds.start).into());
    let register = Action::Register { definition: "d", version: 0, first };
    apply(store, (name, seconds.start), register);
    for second in seconds {
        let apply = |action| apply(store, (name, second), action);
        let state = apply(Action::Read).state().unwrap();
        let lease = Duration::from_secs(60);
        let claim = Claim::at_least_once(1, state.fence, state.head.unwrap(), lease);
        let fence = apply(Action::Claim(claim)).claimed().unwrap().fence;
        let then = Cursor::To(Some(at(second + 1).into()));
        let end = Action::Complete { fence, then, completion: Completion::Succeeded };
        assert!(apply(end).is_accepted());
    }
}

pub(crate) fn entries(store: &Memory) -> usize {
    block_on(store.history().unwrap().entries(HistoryQuery::new(10_000))).unwrap().len()
}

pub(crate) fn prune(store: &Memory, seconds: i64) {
    block_on(Backend::prune(store, TimeSource::Fixed(at(seconds)))).unwrap();
}

#[test]
fn claims_and_completions_remove_nothing() {
    let store = Memory::new().with_history(HistoryLimits::from(20));
    run(&store, 0..200);
    assert_eq!(entries(&store), 200);
    prune(&store, 200);
    assert_eq!(entries(&store), 20);
}

#[test]
fn a_job_is_pruned_when_a_tenth_of_its_limit_was_appended() {
    let store = Memory::new().with_history(HistoryLimits::default().per_job(100));
    run(&store, 0..105);
    prune(&store, 105);
    assert_eq!(entries(&store), 100);
    run(&store, 105..114);
    prune(&store, 114);
    assert_eq!(entries(&store), 109, "nine are not worth it");
    run(&store, 114..115);
    prune(&store, 115);
    assert_eq!(entries(&store), 100);
}

#[test]
fn a_job_with_limits_of_its_own_keeps_less_than_the_store() {
    let store = Memory::new().with_history(HistoryLimits::from(50));
    let register =
        |definition| Action::Register { definition, version: 0, first: Some(at(0).into()) };
    apply(&store, ("job", 0), register("@every 1s; history 3 1h"));
    run_job(&store, "job", 0..10);
    run_job(&store, "other", 0..10);
    prune(&store, 10);
    assert_eq!(entries(&store), 3 + 10);
}

#[test]
fn a_process_that_writes_no_history_leaves_it_to_others() {
    let writer = Memory::new().with_history(1_000);
    run(&writer, 0..200);
    let other = writer.clone().with_history(50);
    prune(&other, 200);
    assert_eq!(entries(&writer), 200);
    // A tenth of its limit.
    run(&other, 200..205);
    prune(&other, 205);
    assert_eq!(entries(&writer), 50);
}

#[test]
fn a_store_shows_its_limits_and_a_limit_of_zero_keeps_no_history() {
    let limits = |store: &Memory| store.history().unwrap().limits();
    let shown = limits(&Memory::new().with_history(50));
    assert_eq!((shown.per_job, shown.failures_per_job), (Some(50), Some(50)));
    let shown = limits(&Memory::new().with_history(HistoryLimits::default()));
    assert_eq!((shown.per_job, shown.failures_per_job), (Some(100), Some(100)));
    assert!(Memory::new().with_history(0).history().is_none());
    assert!(Memory::new().with_history(HistoryLimits::default().per_job(0)).history().is_none());
}

/// More entries than one request reads, of more jobs than one trims.
#[test]
fn everything_that_is_too_old_is_removed_in_one_pass() {
    let hour = Duration::from_secs(3_600);
    let store = Memory::new().with_history(HistoryLimits::from(1_000).age(hour));
    for job in 0..40 {
        run_job(&store, &format!("job {job}"), 0..30);
    }
    run(&store, 3_700..3_701);
    assert_eq!(entries(&store), 1_201);
    prune(&store, 3_701);
    assert_eq!(entries(&store), 1);
}

/// A store whose tombstones cannot be removed, and the entries of some jobs only now and then.
#[derive(Debug)]
struct Stuck {
    store: Memory,
    /// The job whose entries are never removed.
    rejected: &'static str,
    /// The number of jobs that are trimmed before the store is silent.
    answers: AtomicUsize,
}

impl Stuck {
    fn around(store: &Memory) -> Self {
        Self { store: store.clone(), rejected: "", answers: AtomicUsize::new(usize::MAX) }
    }

    fn prune(&self, seconds: i64) -> ErrorKind {
        let pruned = block_on(Backend::prune(self, TimeSource::Fixed(at(seconds))));
        pruned.unwrap_err().kind()
    }
}

#[async_trait]
impl HistoryStore for Stuck {
    fn pruning(&self) -> &HistoryPruning {
        self.store.pruning()
    }

    async fn history_entries(&self, query: HistoryQuery<'_>) -> Result<Vec<HistoryEntry>> {
        self.store.history_entries(query).await
    }

    async fn trim_history(&self, name: &str, kept: HistoryTrim) -> Result {
        if self.answers.fetch_sub(1, Relaxed) == 0 {
            self.answers.store(0, Relaxed);
            return Err(Error::new(ErrorKind::Unavailable, "it does not answer in time"));
        }
        if name == self.rejected {
            return Err(Error::new(ErrorKind::Other, "its entries are damaged"));
        }
        self.store.trim_history(name, kept).await
    }
}

#[async_trait]
impl RecordStore for Stuck {
    type Version = <Memory as RecordStore>::Version;

    async fn load(&self, load: Load<'_>) -> Result<Snapshot<Self::Version>> {
        self.store.load(load).await
    }

    async fn commit(
        &self,
        commit: Commit<'_, Self::Version>,
    ) -> Result<Vec<Result<Outcome<Self::Version>>>> {
        self.store.commit(commit).await
    }

    async fn scan(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Result<Record, String>)>> {
        self.store.scan(prefix, after, limit).await
    }

    fn history_store(&self) -> Option<&dyn HistoryStore> {
        Some(self)
    }

    async fn prune(&self, _: Time) -> Result {
        Err(Error::new(ErrorKind::Unavailable, "a part does not answer"))
    }
}

#[test]
fn tombstones_that_cannot_be_removed_keep_no_history() {
    let store = Memory::new().with_history(20);
    run(&store, 0..100);
    assert_eq!(Stuck::around(&store).prune(100), ErrorKind::Unavailable);
    assert_eq!(entries(&store), 20);
}

/// Forty jobs with 30 entries each, of which 20 are kept.
fn forty_jobs() -> Memory {
    let store = Memory::new().with_history(20);
    for job in 0..40 {
        run_job(&store, &format!("job {job:02}"), 0..30);
    }
    store
}

#[test]
fn a_store_that_is_silent_after_each_third_job_trims_all_of_them_in_the_end() {
    let store = forty_jobs();
    let slow = Stuck::around(&store);
    for call in 1..=13 {
        slow.answers.store(3, Relaxed);
        slow.prune(30);
        assert_eq!(entries(&store), 40 * 30 - call * 3 * 10);
    }
    slow.answers.store(3, Relaxed);
    slow.prune(30);
    assert_eq!(entries(&store), 40 * 20);
}

#[test]
fn a_job_whose_entries_cannot_be_removed_keeps_those_of_no_other() {
    let store = forty_jobs();
    let broken = Stuck { rejected: "job 00", ..Stuck::around(&store) };
    broken.prune(30);
    assert_eq!(entries(&store), 39 * 20 + 30);
}
