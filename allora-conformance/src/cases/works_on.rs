//! Runs that complete themselves and work on: the result is final, and the lease keeps others waiting.

use crate::cluster::*;
use allora_core::backend::{
    Action, CancelScope, Claimed, Completion, Cursor, JobState, Operation, Outcome, Reply, Sharing,
    TriggerStatus,
};
use std::time::Duration;

/// Completes a run that works on; the cursor goes there.
async fn complete(node: &Node, now: i64, run: &Claimed, then: RunAction<'_>) {
    let operation = Operation::new("job", then.under(run.fence)).works_on();
    let reply = fine(node.apply(t(now), &[operation]).await.single());
    assert_eq!(reply, Reply::Accepted);
}

/// A run since 60 s that has completed itself at 61 s, with a lease until 120 s.
async fn completed(w: &Cluster) -> Claimed {
    w.node().register(t(0), "job", t(60)).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    complete(w.node(), 61, &run, ran(t(90))).await;
    run
}

fn counted(seen: &JobState) -> (u64, u64, u64, u64) {
    let counters = &seen.counters;
    (counters.started, counters.succeeded, counters.lost, counters.expired)
}

pub(super) async fn a_run_that_has_completed_itself_keeps_others_waiting_until_it_returns(
    w: &Cluster,
) {
    let (run, other) = (completed(w).await, w.join("other").await);
    let seen = other.read("job").await;
    assert_eq!((head(&seen), seen.due_at), (t(90).into(), Some(t(90))));
    assert_eq!((leases(&seen), seen.leases[0].completed), (vec![(run.fence, t(120))], true));
    assert_eq!((counted(&seen), seen.last.clone()), ((1, 1, 0, 0), Some(Outcome::Succeeded)));
    lost(other.claim(t(90), "job", leased(&seen, 2)).await);
    // A repetition, and two extensions.
    complete(w.node(), 91, &run, ran(t(90))).await;
    for now in [100, 150] {
        let extended = w.node().end(t(now), "job", run.fence, extend()).await;
        assert_eq!(extended, Reply::Completed(t(now + 60)));
        lost(other.claim(t(now + 59), "job", leased(&seen, 3)).await);
    }
    assert_eq!(w.node().end(t(210), "job", run.fence, ran(t(90))).await, Reply::Accepted);
    assert_eq!(counted(&other.read("job").await), (1, 1, 0, 0));
    let next = won(other.claim(t(210), "job", leased(&seen, 4)).await);
    assert_eq!((next.occurrence, next.attempt), (t(90).into(), 1));
    assert_eq!(w.node().end(t(211), "job", run.fence, extend()).await, Reply::LeaseLost);
}

pub(super) async fn whatever_a_completed_run_returns_its_result_stays(w: &Cluster) {
    w.node().register(t(0), "job", t(60)).await;
    let ends = [RunAction::Release, RunAction::Retry { not_before: t(70), error: "x" }];
    for (now, end) in [60, 90].into_iter().zip(ends) {
        let run = won(w.node().lease(t(now), "job", now as u128).await);
        complete(w.node(), now, &run, ran(t(now + 30))).await;
        for _ in 0..2 {
            assert_eq!(w.node().end(t(now + 1), "job", run.fence, end).await, Reply::LeaseLost);
        }
        let seen = w.node().read("job").await;
        assert_eq!((head(&seen), leases(&seen)), (t(now + 30).into(), vec![]));
        assert_eq!((seen.counters.failed, seen.last), (0, Some(Outcome::Succeeded)));
    }
    assert_eq!(w.node().read("job").await.counters.succeeded, 2);
}

pub(super) async fn a_completed_run_whose_node_dies_is_over_with_its_lease(w: &Cluster) {
    let (run, other) = (completed(w).await, w.join("other").await);
    let seen = other.read("job").await;
    lost(other.claim(ms(119_999), "job", leased(&seen, 2)).await);
    let over = other.reap(t(120), "job").await;
    assert_eq!((leases(&over), counted(&over)), (vec![], (1, 1, 0, 0)));
    assert_eq!(over.last, Some(Outcome::Succeeded));
    assert_eq!(w.node().end(t(121), "job", run.fence, extend()).await, Reply::LeaseLost);
    let next = won(other.claim(t(121), "job", leased(&over, 3)).await);
    assert_eq!((next.occurrence, next.attempt), (t(90).into(), 1));
}

pub(super) async fn runs_that_may_overlap_start_beside_a_completed_one(w: &Cluster) {
    let seen = w.node().register(t(0), "job", t(60)).await;
    let run = won(w.node().claim(t(60), "job", marked(&seen, 1, t(90), Sharing::Shared)).await);
    complete(w.node(), 61, &run, ran_and_stay()).await;
    let seen = w.node().read("job").await;
    won(w.node().claim(t(90), "job", marked(&seen, 2, t(120), Sharing::Shared)).await);
    let seen = w.node().read("job").await;
    assert_eq!((seen.leases.len(), counted(&seen)), (2, (2, 1, 0, 0)));
    lost(w.node().claim(t(120), "job", marked(&seen, 3, t(150), Sharing::Exclusive)).await);
    assert_eq!(w.node().end(t(121), "job", run.fence, ran_and_stay()).await, Reply::Accepted);
    assert_eq!(counted(&w.node().read("job").await), (2, 1, 0, 0));
}

pub(super) async fn a_completed_run_can_be_cancelled_and_its_job_deleted(w: &Cluster) {
    let run = completed(w).await;
    fine(w.node().modify(t(62), "job", Action::Cancel(CancelScope::All)).await);
    let told = w.node().end(t(63), "job", run.fence, extend()).await;
    assert_eq!(told, Reply::CancelRequested(t(123)));
    let end = RunAction::Complete { then: Cursor::Keep, completion: Completion::Cancelled };
    assert_eq!(w.node().end(t(64), "job", run.fence, end).await, Reply::Accepted);
    let seen = w.node().read("job").await;
    assert_eq!((seen.counters.cancelled, leases(&seen)), (0, vec![]));
    let run = won(w.node().lease(t(90), "job", 2).await);
    complete(w.node(), 91, &run, ran(t(120))).await;
    w.node().delete(t(92), "job").await;
    let told = w.node().end(t(93), "job", run.fence, extend()).await;
    assert!(matches!(told, Reply::CancelRequested(_)), "{told:?}");
}

pub(super) async fn a_trigger_has_ended_while_its_completed_run_works_on(w: &Cluster) {
    w.node().register(t(0), "job", t(600)).await;
    let seen = w.node().trigger(t(10), "job", "id").await;
    let run = won(w.node().claim(t(10), "job", triggered(&seen, 1)).await);
    complete(w.node(), 11, &run, ran_and_stay()).await;
    let (retention, data) = (Duration::from_secs(60), None);
    let again = Action::Trigger { id: "id", scheduled_at: None, retention, data };
    let reply = w.node().act(t(12), "job", again).await;
    assert_eq!(reply.triggered().map(|triggered| triggered.status), Some(TriggerStatus::Ended));
}
