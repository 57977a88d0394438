//! Triggers, each accepted once by its id.

use crate::{Capability, cluster::*};
use allora_core::{
    Error, ErrorKind, Result, Time,
    backend::{Action, Completion, Cursor, Occurrence, Operation, Reply, TriggerStatus},
    record::MAX_REMEMBERED,
};
use futures::future::{join, join_all};
use std::time::Duration;

const DAY: i64 = 24 * 60 * 60;

/// Runs the head of the job, and ends it.
async fn run(node: &Node, now: Time, claim: u128) -> Occurrence {
    let run = won(node.lease(now, "job", claim).await);
    assert_eq!(node.end(now, "job", run.fence, ran_and_stay()).await, Reply::Accepted);
    run.occurrence
}

/// The effect of a trigger whose id is remembered for a day.
async fn status(node: &Node, now: i64, id: &str) -> TriggerStatus {
    node.trigger_for(t(now), "job", id, DAY.unsigned_abs()).await.status
}

pub(super) async fn a_trigger_is_not_run_again_within_its_retention(w: &Cluster) {
    let (one, other) = (w.node(), &w.join("other").await);
    one.register(t(0), "job", t(10 * DAY)).await;
    let first = one.trigger_for(t(30), "job", "order-7", DAY.unsigned_abs()).await;
    assert!(first.is_new());
    assert_eq!(first.occurrence, head(&first.state));
    for node in [one, other] {
        let again = node.trigger_for(t(31), "job", "order-7", DAY.unsigned_abs()).await;
        assert_eq!(again.status, TriggerStatus::Pending);
        assert_eq!(
            (again.occurrence, again.state),
            (first.occurrence.clone(), first.state.clone())
        );
    }
    let run = won(one.lease(t(32), "job", 1).await);
    assert_eq!(status(other, 33, "order-7").await, TriggerStatus::Pending, "it runs");
    assert_eq!(one.end(t(34), "job", run.fence, ran_and_stay()).await, Reply::Accepted);
    let seen = one.read("job").await;
    for node in [one, other, &w.join("a third").await] {
        let again = node.trigger_for(t(DAY + 29), "job", "order-7", DAY.unsigned_abs()).await;
        assert_eq!(again.status, TriggerStatus::Ended);
        assert_eq!((again.occurrence, again.state), (first.occurrence.clone(), seen.clone()));
    }
    assert_eq!(one.read("job").await, seen, "nothing was added");
    assert_eq!(status(other, 35, "order-8").await, TriggerStatus::New, "another id");
}

/// The effect of a trigger with this data.
async fn with(node: &Node, now: i64, id: &str, data: Option<&[u8]>) -> Result<TriggerStatus> {
    let retention = Duration::from_secs(DAY.unsigned_abs());
    let action = Action::Trigger { id, scheduled_at: None, retention, data };
    let reply = node.apply(t(now), &[Operation::new("job", action)]).await.single()?;
    Ok(fine(reply.triggered().ok_or_else(|| Error::invalid("another reply"))).status)
}

pub(super) async fn the_data_of_a_trigger_is_that_of_its_runs(w: &Cluster) {
    let (one, other) = (w.node(), &w.join("other").await);
    one.register(t(0), "job", t(10 * DAY)).await;
    let data = Some(&b"\0\xff'{\"a\": 1}"[..]);
    assert_eq!(fine(with(one, 30, "a", data).await), TriggerStatus::New);
    let same = |status| async move {
        for data in [data, None] {
            assert_eq!(fine(with(other, 31, "a", data).await), status);
        }
        let differs = with(other, 31, "a", Some(b"other")).await.unwrap_err();
        assert_eq!(differs.kind(), ErrorKind::AlreadyExists);
    };
    same(TriggerStatus::Pending).await;
    let first = won(one.lease(t(32), "job", 1).await);
    let retry = RunAction::Retry { not_before: t(34), error: "x" };
    assert_eq!(one.end(t(33), "job", first.fence, retry).await, Reply::Accepted);
    let again = won(other.lease(t(34), "job", 2).await);
    let dead = RunAction::Complete { then: Cursor::Keep, completion: Completion::Dead("x") };
    assert_eq!(other.end(t(35), "job", again.fence, dead).await, Reply::Accepted);
    let letter = Action::Rerun { occurrence: &first.occurrence };
    fine(one.modify(t(36), "job", letter).await);
    let rerun = won(one.lease(t(37), "job", 3).await);
    let runs = [&first, &again, &rerun].map(|run| (run.attempt, run.data.as_deref()));
    assert_eq!(runs, [(1, data), (2, data), (1, data)]);
    assert_eq!(one.end(t(38), "job", rerun.fence, ran_and_stay()).await, Reply::Accepted);
    same(TriggerStatus::Ended).await;
    assert_eq!(fine(with(one, 40, "b", None).await), TriggerStatus::New);
    assert_eq!(won(one.lease(t(41), "job", 4).await).data, None);
}

pub(super) async fn after_the_retention_a_trigger_is_a_new_one(w: &Cluster) {
    let (one, other) = (w.node(), &w.join("other").await);
    one.register(t(0), "job", t(10 * DAY)).await;
    for (now, node, claim) in [(30, one, 1), (DAY + 30, other, 2), (2 * DAY + 31, one, 3)] {
        assert_eq!(status(node, now, "order-7").await, TriggerStatus::New, "{now}");
        assert_eq!(run(node, t(now), claim).await.scheduled_at, t(now));
        assert_eq!(status(one, now + 1, "order-7").await, TriggerStatus::Ended, "{now}");
    }
}

pub(super) async fn a_trigger_without_retention_is_a_new_one_when_it_has_ended(w: &Cluster) {
    w.node().register(t(0), "job", t(10 * DAY)).await;
    for claim in 1..3 {
        assert!(w.node().trigger_for(t(30), "job", "order-7", 0).await.is_new());
        assert!(!w.node().trigger_for(t(30), "job", "order-7", 0).await.is_new());
        run(w.node(), t(30), claim).await;
    }
}

pub(super) async fn two_clients_that_trigger_at_once_run_the_job_once(w: &Cluster) {
    const IDS: u128 = 20;
    let nodes = [w.join("one").await, w.join("other").await];
    w.node().register(t(0), "job", t(10 * DAY)).await;
    for i in 0..IDS {
        let id = format!("order-{i}");
        let [one, other] = nodes.each_ref().map(|node| status(node, 30, &id));
        let (one, other) = join(one, other).await;
        let new = [one, other].into_iter().filter(|status| *status == TriggerStatus::New);
        match new.count() {
            1 => {}
            // One has finished the write of the other.
            0 if w.unsupported().contains(&Capability::ExactReplies) => {}
            count => panic!("{id}: {count} of the two are new: {one:?}, {other:?}"),
        }
        assert_eq!(run(w.node(), t(31), i).await.trigger, Some(id.clone()));
        let both = join_all(nodes.iter().map(|node| status(node, 32, &id))).await;
        assert_eq!(both, [TriggerStatus::Ended; 2]);
    }
    let after = w.node().read("job").await;
    assert_eq!((after.head, after.counters.succeeded), (Some(t(10 * DAY).into()), IDS as u64));
}

pub(super) async fn the_oldest_triggers_are_forgotten_first(w: &Cluster) {
    w.node().register(t(0), "job", t(10 * DAY)).await;
    let ids: Vec<String> = (0..=MAX_REMEMBERED).map(|i| format!("order-{i}")).collect();
    let operations: Vec<Operation<'_>> =
        ids.iter().map(|id| Operation::new("job", Action::trigger(id))).collect();
    let (last, first) = operations.split_last().expect("there are ids");
    w.node().replies(t(30), first).await;
    for claim in 0..2 {
        assert_eq!(run(w.node(), t(31), claim).await.trigger, Some(ids[claim as usize].clone()));
    }
    assert_eq!(status(w.node(), 32, &ids[0]).await, TriggerStatus::Ended);
    w.node().replies(t(32), std::slice::from_ref(last)).await;
    assert_eq!(status(w.node(), 33, &ids[1]).await, TriggerStatus::Ended);
    assert_eq!(status(w.node(), 33, &ids[0]).await, TriggerStatus::New);
}

/// Other cold parts do not displace the ids of triggers, nor do claims and completions, which read
/// neither.
pub(super) async fn a_trigger_is_remembered_beside_runs_and_dead_letters(w: &Cluster) {
    let (one, other) = (w.node(), &w.join("other").await);
    one.add(t(0), "job", "mail", t(60)).await;
    assert_eq!(status(one, 30, "order-7").await, TriggerStatus::New);
    run(one, t(30), 1).await;
    let mut letter = None;
    for (node, minute) in [(one, 1), (other, 2), (one, 3), (other, 4)] {
        let now = t(60 * minute);
        let run = won(node.lease(now, "job", u128::from(minute.unsigned_abs()) + 1).await);
        let completion = match minute {
            2 => Completion::Dead("no such host"),
            _ => Completion::Succeeded,
        };
        let then = Cursor::To(Some(t(60 * (minute + 1)).into()));
        let end = RunAction::Complete { then, completion };
        assert_eq!(node.end(now, "job", run.fence, end).await, Reply::Accepted);
        letter = letter.or((minute == 2).then_some(run.occurrence));
        for node in [one, other] {
            assert_eq!(
                status(node, 60 * minute, "order-7").await,
                TriggerStatus::Ended,
                "{minute}"
            );
        }
    }
    let letter = letter.expect("one run has failed");
    assert_eq!(one.read("job").await.dead.len(), 1);
    let dismiss = Action::Dismiss { occurrence: &letter };
    assert_eq!(fine(one.modify(t(250), "job", dismiss).await).dead, []);
    assert_eq!(status(other, 250, "order-7").await, TriggerStatus::Ended);
    assert_eq!(status(&w.join("a third").await, 250, "order-7").await, TriggerStatus::Ended);
}

pub(super) async fn a_job_is_not_pruned_while_it_remembers_triggers(w: &Cluster) {
    let node = w.node();
    node.register(t(0), "job", t(10 * DAY)).await;
    assert_eq!(status(node, 30, "order-7").await, TriggerStatus::New);
    run(node, t(30), 1).await;
    let seen = node.read("job").await;
    let prune = Action::Prune { fence: seen.fence, cursor: Some(t(10 * DAY)) };
    assert_eq!(state(node.act(t(DAY + 29), "job", prune.clone()).await), seen);
    assert_eq!(status(&w.join("other").await, DAY + 29, "order-7").await, TriggerStatus::Ended);
    assert_eq!(node.act(t(DAY + 30), "job", prune).await, Reply::Deleted);
}

/// A new job does not inherit the triggers of a deleted one.
pub(super) async fn a_deleted_job_forgets_its_triggers(w: &Cluster) {
    w.node().add(t(0), "job", "mail", t(10 * DAY)).await;
    assert_eq!(status(w.node(), 30, "order-7").await, TriggerStatus::New);
    run(w.node(), t(30), 1).await;
    w.node().delete(t(31), "job").await;
    w.node().add(t(32), "job", "mail", t(10 * DAY)).await;
    assert_eq!(status(w.node(), 33, "order-7").await, TriggerStatus::New);
}
