//! Tests of stores that the suite cannot make: with a clock of the store's own, a damaged record,
//! and names that were deleted long ago.

use allora_core::{
    Backend, ErrorKind, Time,
    backend::{
        Action, Batch, Claim, Completion, Cursor, DueQuery, JobState, NewSchedule, OnExpiry,
        Operation, Page, Queries, Reply, Sharing, TimeSource,
    },
    time::from_millis,
};
use std::time::Duration;

const DAY: i64 = 86_400_000;

fn at(millis: i64) -> Time {
    from_millis(millis).unwrap()
}

async fn apply(
    store: &dyn Backend,
    time: TimeSource,
    name: &str,
    action: Action<'_>,
) -> allora_core::Result<Reply> {
    let operations = [Operation::new(name, action)];
    store.reschedule(Batch::new("node", time, &operations)).await.unwrap().single()
}

async fn create(store: &dyn Backend, time: TimeSource, name: &str) -> JobState {
    let new = NewSchedule::new("mail", "def", Some(at(1_000).into()));
    apply(store, time, name, Action::Create(new)).await.unwrap().state().unwrap()
}

/// A record that cannot be read is shown as such, harms no other, and is replaced by a deletion and
/// a creation. `damage` makes the record of the given name unreadable. The store is empty, and has
/// an index of due records, which shows an unreadable one once.
///
/// # Panics
/// If that does not hold.
pub async fn an_unreadable_record_harms_no_other(
    store: &dyn Backend,
    damage: impl AsyncFnOnce(&str),
) {
    let queries: &dyn Queries = store.queries().expect("the store has queries");
    let time = TimeSource::Fixed(at(5_000));
    let before = create(store, time, "bad").await;
    create(store, time, "good").await;
    damage("bad").await;
    let found = async || {
        let due = queries.find_due(DueQuery::new(&["mail"], at(5_000), 9), time).await.unwrap();
        let mut found: Vec<(String, bool)> =
            due.found.into_iter().map(|state| (state.name, state.unreadable.is_some())).collect();
        found.sort();
        found
    };
    let (bad, good) = (("bad".to_owned(), true), ("good".to_owned(), false));
    assert_eq!(found().await, [bad, good.clone()], "shown");
    assert_eq!(found().await, [good], "once, and no longer before the others");
    let claim = Claim::at_least_once(1, before.fence, at(1_000).into(), Duration::from_secs(30));
    for action in [Action::Read, Action::Reap, Action::Claim(claim)] {
        let operations = [Operation::new("bad", action), Operation::read("good")];
        let applied = store.reschedule(Batch::new("node", time, &operations)).await.unwrap();
        for (name, reply) in ["bad", "good"].into_iter().zip(applied.replies) {
            let state = reply.unwrap().state().unwrap();
            assert_eq!(state.unreadable.is_some(), name == "bad", "{state:?}");
        }
    }
    let release = Action::Release { fence: before.fence };
    assert_eq!(apply(store, time, "bad", release).await.unwrap(), Reply::LeaseLost);
    assert!(queries.get("bad").await.unwrap().unreadable.is_some());
    assert_eq!(queries.list(Page::first(9)).await.unwrap().len(), 2);
    for action in [
        Action::Pause { note: "", until: None },
        Action::Create(NewSchedule::new("mail", "def", None)),
    ] {
        let error = apply(store, time, "bad", action).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Other, "{error}");
    }
    assert_eq!(apply(store, time, "bad", Action::Delete).await.unwrap(), Reply::Deleted);
    assert_eq!(queries.get("bad").await.unwrap_err().kind(), ErrorKind::NotFound);
    let after = create(store, time, "bad").await;
    assert!(after.incarnation > before.incarnation, "{after:?} after {before:?}");
}

/// The store's own clock decides, and the node's wall clock does not.
///
/// # Panics
/// If that does not hold.
pub async fn the_stores_clock_decides(store: &dyn Backend) {
    // A node whose clock is in 1970.
    let wrong = TimeSource::Store { fallback: at(1) };
    let now = async || store.reschedule(Batch::new("node", wrong, &[])).await.unwrap().now;
    let first = now().await;
    assert!(first > at(50 * 365 * DAY), "{first}");
    assert!(now().await >= first);
    assert!(create(store, wrong, "a").await.fence >= first.timestamp_micros());
    for action in [Action::Read, Action::Reap] {
        let operations = [Operation::new("a", action)];
        let applied = store.reschedule(Batch::new("node", wrong, &operations)).await.unwrap();
        assert!(applied.now >= first);
    }
    if let Some(queries) = store.queries() {
        let query = DueQuery::new(&["mail"], at(5_000), 9);
        assert!(queries.find_due(query, wrong).await.unwrap().now >= first);
    }
}

/// A claim that is decided by the store's own clock returns the fence that ends its run. Many are in
/// one batch: a clock that is read twice seldom shows the same time for all of them.
///
/// # Panics
/// If that does not hold.
pub async fn a_claim_by_the_stores_clock_returns_the_fence_that_ends_it(store: &dyn Backend) {
    let time = TimeSource::Store { fallback: at(1) };
    let lease = Duration::from_secs(60);
    let next = Cursor::To(Some(at(2_000).into()));
    for (id, on_expiry) in (1..).zip([OnExpiry::Retry, OnExpiry::Lost]) {
        let mut created = Vec::new();
        for i in 0..100 {
            let name = format!("job-{i}-{id}");
            let fence = create(store, time, &name).await.fence;
            created.push((name, fence));
        }
        let claim = |(name, fence): &'_ (String, i64)| {
            let occurrence = at(1_000).into();
            let claim = match on_expiry {
                OnExpiry::Retry => Claim::at_least_once(id, *fence, occurrence, lease),
                OnExpiry::Lost => {
                    Claim::at_most_once(id, *fence, occurrence, next, lease, Sharing::Shared)
                }
            };
            (name.clone(), claim)
        };
        let claims: Vec<(String, Claim)> = created.iter().map(claim).collect();
        let operations: Vec<Operation<'_>> =
            claims.iter().map(|(name, claim)| Operation::claim(name, claim.clone())).collect();
        let applied = store.reschedule(Batch::new("node", time, &operations)).await.unwrap();
        let then = if on_expiry == OnExpiry::Retry { next } else { Cursor::Keep };
        let complete = created.iter().zip(applied.replies).map(|((name, _), reply)| {
            let claimed = reply.unwrap().claimed().expect("what is due is claimed");
            Operation::complete(name, claimed.fence, then, Completion::Succeeded)
        });
        let operations: Vec<Operation<'_>> = complete.collect();
        let applied = store.reschedule(Batch::new("node", time, &operations)).await.unwrap();
        assert!(applied.replies.iter().flatten().all(Reply::is_accepted), "{applied:?}");
        assert_eq!(applied.replies.iter().flatten().count(), created.len());
    }
}

/// A deleted name is forgotten after seven days, and its fence is not.
///
/// # Panics
/// If that does not hold.
pub async fn deleted_names_are_forgotten_after_seven_days_and_their_fences_are_not(
    store: &dyn Backend,
) {
    let day = |days: i64| TimeSource::Fixed(at(days * DAY));
    let read = async |time| apply(store, time, "a", Action::Read).await.unwrap();
    let before = create(store, day(9), "a").await;
    apply(store, day(9), "a", Action::Delete).await.unwrap();
    assert_eq!(read(day(10)).await, Reply::Deleted);
    assert_eq!(read(day(16)).await, Reply::Absent);
    store.prune(day(17)).await.unwrap();
    assert_eq!(read(day(10)).await, Reply::Absent);
    // By a clock that went back, the name still gets a higher fence.
    let after = create(store, day(1), "a").await;
    assert!(after.fence > before.fence, "{after:?} after {before:?}");
}
