//! When the history is pruned: by requests of their own, from processes that write it.

use allora_core::{
    Backend, Error, ErrorKind, Result, Time,
    backend::{
        Action, Batch, Claim, Completion, Cursor, HistoryLimits, HistoryQuery, Operation, Reply,
        TimeSource,
    },
    record::Record,
    store::{Commit, HistoryStore, Load, Outcome, RecordStore, Snapshot},
    time::from_millis,
};
use allora_memory::Memory;
use async_trait::async_trait;
use futures::executor::block_on;
use std::time::Duration;

fn at(seconds: i64) -> Time {
    from_millis(1_893_456_000_000 + seconds * 1_000).unwrap()
}

fn apply(store: &Memory, (name, seconds): (&str, i64), action: Action<'_>) -> Reply {
    let operations = [Operation::new(name, action)];
    let batch = Batch::new("n", TimeSource::Fixed(at(seconds)), &operations);
    block_on(store.reschedule(batch)).unwrap().single().unwrap()
}

/// Runs the job once a second, so many times.
fn run(store: &Memory, seconds: std::ops::Range<i64>) {
    run_job(store, "job", seconds);
}

fn run_job(store: &Memory, name: &str, seconds: std::ops::Range<i64>) {
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

fn entries(store: &Memory) -> usize {
    block_on(store.history().unwrap().entries(HistoryQuery::new(10_000))).unwrap().len()
}

fn prune(store: &Memory, seconds: i64) {
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
fn a_process_that_writes_no_history_leaves_it_to_others() {
    let writer = Memory::new().with_history(1_000);
    run(&writer, 0..200);
    let other = writer.clone().with_history(50);
    prune(&other, 200);
    assert_eq!(entries(&writer), 200);
    run(&other, 200..201);
    prune(&other, 201);
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

/// A store whose tombstones cannot be removed.
#[derive(Debug)]
struct Stuck(Memory);

#[async_trait]
impl RecordStore for Stuck {
    type Version = <Memory as RecordStore>::Version;

    async fn load(&self, load: Load<'_>) -> Result<Snapshot<Self::Version>> {
        self.0.load(load).await
    }

    async fn commit(
        &self,
        commit: Commit<'_, Self::Version>,
    ) -> Result<Vec<Result<Outcome<Self::Version>>>> {
        self.0.commit(commit).await
    }

    async fn scan(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Result<Record, String>)>> {
        self.0.scan(prefix, after, limit).await
    }

    fn history_store(&self) -> Option<&dyn HistoryStore> {
        self.0.history_store()
    }

    async fn prune(&self, _: Time) -> Result {
        Err(Error::new(ErrorKind::Unavailable, "a part does not answer"))
    }
}

#[test]
fn tombstones_that_cannot_be_removed_keep_no_history() {
    let store = Memory::new().with_history(20);
    run(&store, 0..100);
    let pruned = block_on(Backend::prune(&Stuck(store.clone()), TimeSource::Fixed(at(100))));
    assert_eq!(pruned.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(entries(&store), 20);
}
