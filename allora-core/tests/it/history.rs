//! When the history is pruned: by requests of their own, from processes that write it.

use allora_core::{
    Backend, Time,
    backend::{
        Action, Batch, Claim, Completion, Cursor, HistoryLimits, HistoryQuery, Operation, Reply,
        TimeSource,
    },
    time::from_millis,
};
use allora_memory::Memory;
use futures::executor::block_on;
use std::time::Duration;

fn at(seconds: i64) -> Time {
    from_millis(1_893_456_000_000 + seconds * 1_000).unwrap()
}

fn apply(store: &Memory, seconds: i64, action: Action<'_>) -> Reply {
    let operations = [Operation::new("job", action)];
    let batch = Batch::new("n", TimeSource::Fixed(at(seconds)), &operations);
    block_on(store.reschedule(batch)).unwrap().single().unwrap()
}

/// Runs the job once a second, so many times.
fn run(store: &Memory, seconds: std::ops::Range<i64>) {
    let first = Some(at(seconds.start).into());
    apply(store, seconds.start, Action::Register { definition: "d", version: 0, first });
    for second in seconds {
        let state = apply(store, second, Action::Read).state().unwrap();
        let lease = Duration::from_secs(60);
        let claim = Claim::at_least_once(1, state.fence, state.head.unwrap(), lease);
        let fence = apply(store, second, Action::Claim(claim)).claimed().unwrap().fence;
        let then = Cursor::To(Some(at(second + 1).into()));
        let end = Action::Complete { fence, then, completion: Completion::Succeeded };
        assert!(apply(store, second, end).is_accepted());
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
    let store = Memory::new().with_history(HistoryLimits::from(50).per_job(20));
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
    let writer = Memory::new().with_history(100_000);
    run(&writer, 0..200);
    let other = writer.clone().with_history(50);
    prune(&other, 200);
    assert_eq!(entries(&writer), 200);
    run(&other, 200..201);
    prune(&other, 201);
    assert_eq!(entries(&writer), 50);
}

#[test]
fn the_size_is_counted_and_has_the_total_of_the_connection() {
    let store = Memory::new().with_history(50);
    run(&store, 0..70);
    let size = block_on(store.history().unwrap().size()).unwrap();
    assert_eq!((size.entries, size.total), (70, 50));
    let store = Memory::new().with_history(HistoryLimits::default());
    assert_eq!(block_on(store.history().unwrap().size()).unwrap().total, 100_000);
    assert!(Memory::new().with_history(0).history().is_none());
}
