//! Cancellation of active runs: by an operator, and by the deletion of their job.

use crate::cluster::*;
use allora_core::{
    ErrorKind,
    backend::{
        Action, CancelScope, Claim, Completion, Cursor, JobState, NotRunReason, Outcome, Reply,
        Sharing, TriggerStatus,
    },
};

const ALONE: Sharing = Sharing::Exclusive;

/// Completes a run as cancelled; the cursor goes there.
fn cancelled(then: i64) -> RunAction<'static> {
    let then = Cursor::To(Some(t(then).into()));
    RunAction::Complete { then, completion: Completion::Cancelled }
}

async fn cancel(w: &Cluster, now: i64, name: &str, fence: Option<i64>) -> JobState {
    let scope = fence.map_or(CancelScope::All, CancelScope::Run);
    fine(w.node().modify(t(now), name, Action::Cancel(scope)).await)
}

/// The fences of the leases whose runs are to be cancelled.
fn asked(seen: &JobState) -> Vec<i64> {
    let leases = seen.leases.iter().filter(|lease| lease.cancel_requested);
    leases.map(|lease| lease.fence).collect()
}

pub(super) async fn a_run_learns_of_its_cancellation_when_it_is_extended(w: &Cluster) {
    let seen = w.node().register(t(0), "job", t(60)).await;
    assert_eq!(seen.leases, []);
    let run = won(w.node().lease(t(60), "job", 1).await);
    assert_eq!(w.node().end(t(70), "job", run.fence, extend()).await, Reply::Extended(t(130)));
    let after = cancel(w, 80, "job", None).await;
    assert_eq!(asked(&after), [run.fence]);
    assert_eq!(w.node().shown("job").await, after, "every reader sees it");
    let told = w.node().end(t(90), "job", run.fence, extend()).await;
    assert_eq!(told, Reply::CancelRequested(t(150)));
    let end = cancelled(120);
    for _ in 0..2 {
        assert_eq!(w.node().end(t(91), "job", run.fence, end).await, Reply::Accepted);
    }
    let after = w.node().read("job").await;
    assert_eq!((after.next, after.leases.clone()), (Some(t(120).into()), vec![]));
    assert_eq!((after.last, after.counters.cancelled), (Some(Outcome::Cancelled), 1));
    won(w.node().lease(t(120), "job", 2).await);
}

pub(super) async fn a_run_that_is_cancelled_is_neither_retried_nor_released(w: &Cluster) {
    w.node().register(t(0), "job", t(60)).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    let after = cancel(w, 61, "job", Some(run.fence)).await;
    let not_before = t(70);
    for end in [
        RunAction::Retry { not_before, error: "no" },
        RunAction::Interrupted { not_before },
        RunAction::Release,
    ] {
        let told = w.node().end(t(62), "job", run.fence, end).await;
        assert_eq!(told, Reply::CancelRequested(t(120)), "{end:?}");
        assert_eq!(w.node().read("job").await, after, "{end:?}");
    }
    // It ended before its node received that.
    assert_eq!(w.node().end(t(63), "job", run.fence, ran(t(120))).await, Reply::Accepted);
    let after = w.node().read("job").await;
    assert_eq!((after.last, after.counters.cancelled), (Some(Outcome::Succeeded), 0));
}

pub(super) async fn a_cancelled_run_whose_node_has_died_does_not_run_again(w: &Cluster) {
    w.node().register(t(0), "job", t(60)).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    cancel(w, 61, "job", None).await;
    let then = Cursor::To(Some(t(180).into()));
    let occurrence = || run.occurrence.clone();
    let give_up =
        || Action::GiveUp { fence: run.fence, occurrence: occurrence(), then, error: "unused" };
    let live = state(w.node().act(t(100), "job", give_up()).await);
    assert_eq!(asked(&live), [run.fence], "its lease lasts");
    let over = lost(w.node().lease(t(121), "job", 2).await);
    assert_eq!((asked(&over), over.counters.expired), (vec![run.fence], 0));
    assert_eq!(w.node().act(t(122), "job", give_up()).await, Reply::Accepted);
    let after = w.node().read("job").await;
    assert_eq!((after.next, after.dead.len()), (Some(t(180).into()), 0));
    assert_eq!((after.last.clone(), after.counters.cancelled), (Some(Outcome::Cancelled), 1));
    assert_eq!(w.node().end(t(123), "job", run.fence, ran(t(120))).await, Reply::LeaseLost);
    assert_eq!(w.node().read("job").await, after);
    won(w.node().lease(t(180), "job", 3).await);
}

pub(super) async fn a_cancelled_run_at_most_once_is_not_recorded_as_lost(w: &Cluster) {
    for (name, sharing) in [("shared", Sharing::Shared), ("alone", Sharing::Exclusive)] {
        let seen = w.node().register(t(0), name, t(60)).await;
        let claim = marked(&seen, 1, t(120), sharing);
        let run = won(w.node().claim(t(60), name, claim).await);
        cancel(w, 61, name, None).await;
        let after = w.node().reap(t(121), name).await;
        assert_eq!((after.counters.cancelled, after.counters.lost), (1, 0), "{name}");
        assert_eq!((after.last.clone(), after.leases.len()), (Some(Outcome::Cancelled), 0));
        for late in [extend(), ran_and_stay()] {
            assert_eq!(w.node().end(t(122), name, run.fence, late).await, Reply::LeaseLost);
        }
        assert_eq!(w.node().read(name).await, after);
    }
}

pub(super) async fn only_the_named_run_is_cancelled(w: &Cluster) {
    let seen = w.node().register(t(0), "job", t(60)).await;
    let first = won(w.node().claim(t(60), "job", once(&seen, 1, Some(t(120).into()))).await);
    let seen = w.node().read("job").await;
    let second = won(w.node().claim(t(120), "job", once(&seen, 2, Some(t(180).into()))).await);
    // The first has ended by then, unless it is extended.
    let duration = 2 * MINUTE;
    let longer = RunAction::Extend { duration };
    assert_eq!(w.node().end(t(119), "job", first.fence, longer).await, Reply::Extended(t(239)));
    assert_eq!(asked(&cancel(w, 121, "job", Some(second.fence)).await), [second.fence]);
    assert_eq!(w.node().end(t(122), "job", first.fence, extend()).await, Reply::Extended(t(239)));
    let told = w.node().end(t(122), "job", second.fence, extend()).await;
    assert_eq!(told, Reply::CancelRequested(t(182)));
    assert_eq!(asked(&cancel(w, 123, "job", None).await), [first.fence, second.fence]);
}

pub(super) async fn a_cancellation_without_an_active_run_changes_nothing(w: &Cluster) {
    let missing = w.node().modify(t(0), "job", Action::Cancel(CancelScope::All)).await;
    assert_eq!(missing.expect_err("there is no job").kind(), ErrorKind::NotFound);
    let seen = w.node().register(t(0), "job", t(60)).await;
    assert_eq!(cancel(w, 1, "job", None).await, seen);
    let run = won(w.node().lease(t(60), "job", 1).await);
    let active = w.node().read("job").await;
    assert_eq!(cancel(w, 61, "job", Some(run.fence - 1)).await, active, "no run has this fence");
    let after = cancel(w, 62, "job", None).await;
    assert_eq!(cancel(w, 63, "job", None).await, after, "again");
    w.node().end(t(64), "job", run.fence, ran(t(120))).await;
    let next = won(w.node().lease(t(120), "job", 2).await);
    assert_eq!(w.node().end(t(130), "job", next.fence, extend()).await, Reply::Extended(t(190)));
}

pub(super) async fn triggers_that_wait_end_as_cancelled(w: &Cluster) {
    use allora_core::record::MAX_TRIGGERS;
    let node = w.node();
    let seen = node.register(t(0), "job", t(60)).await;
    node.trigger_often(t(10), "job", MAX_TRIGGERS).await;
    let kept = cancel(w, 11, "job", Some(seen.fence)).await;
    assert_eq!(head(&kept).trigger.as_deref(), Some("id 0"), "no run has this fence");
    let after = cancel(w, 12, "job", None).await;
    assert_eq!((after.head.clone(), after.next), (Some(t(60).into()), seen.next));
    assert_eq!((after.counters.cancelled, after.last.clone()), (MAX_TRIGGERS as u64, None));
    assert_eq!(node.shown("job").await, after);
    lost(node.claim(t(13), "job", triggered(&kept, 1)).await);
    let again = node.trigger_for(t(13), "job", "id 7", 60).await;
    assert_eq!(again.status, TriggerStatus::Ended);
    won(node.claim(t(61), "job", once(&after, 2, Some(t(120).into()))).await);
}

pub(super) async fn the_triggers_of_one_id_are_cancelled(w: &Cluster) {
    let node = w.node();
    node.register(t(0), "job", t(600)).await;
    let cancel = async |now, id| {
        fine(node.modify(t(now), "job", Action::Cancel(CancelScope::Trigger(id))).await)
    };
    node.trigger(t(10), "job", "a").await;
    node.trigger(t(11), "job", "b").await;
    let run = won(node.lease(t(12), "job", 1).await);
    node.trigger(t(13), "job", "c").await;
    let after = cancel(14, "b").await;
    assert_eq!((head(&after).trigger.as_deref(), after.counters.cancelled), (Some("a"), 1));
    assert!(asked(&after).is_empty());
    assert_eq!(node.shown("job").await, after);
    assert_eq!(asked(&cancel(15, "a").await), [run.fence], "it is active");
    assert_eq!(node.end(t(16), "job", run.fence, cancelled_in_place()).await, Reply::Accepted);
    let none = cancel(17, "no such").await;
    assert_eq!((head(&none).trigger.as_deref(), none.counters.cancelled), (Some("c"), 2));
    assert_eq!(node.trigger_for(t(18), "job", "b", 60).await.status, TriggerStatus::Ended);
}

/// Completes a run of a trigger as cancelled.
fn cancelled_in_place() -> RunAction<'static> {
    RunAction::Complete { then: Cursor::Keep, completion: Completion::Cancelled }
}

pub(super) async fn a_trigger_that_waits_for_another_attempt_ends_as_cancelled(w: &Cluster) {
    let node = w.node();
    node.register(t(0), "job", t(60)).await;
    node.trigger(t(10), "job", "id").await;
    let run = won(node.lease(t(11), "job", 1).await);
    let retry = RunAction::Retry { not_before: t(20), error: "x" };
    assert_eq!(node.end(t(12), "job", run.fence, retry).await, Reply::Accepted);
    let after = cancel(w, 13, "job", None).await;
    assert_eq!((after.head.clone(), after.leases.len()), (Some(t(60).into()), 0));
    assert_eq!((after.counters.cancelled, after.last.clone()), (1, Some(Outcome::Cancelled)));
    assert_eq!(node.shown("job").await, after);
    assert_eq!(node.trigger_for(t(30), "job", "id", 60).await.status, TriggerStatus::Ended);
}

pub(super) async fn an_occurrence_that_waits_for_another_attempt_is_given_up_as_cancelled(
    w: &Cluster,
) {
    for (name, paused) in [("job", false), ("paused", true)] {
        let node = w.node();
        node.add(t(0), name, "mail", t(60)).await;
        let run = won(node.lease(t(61), name, 1).await);
        let retry = RunAction::Retry { not_before: t(600), error: "x" };
        assert_eq!(node.end(t(62), name, run.fence, retry).await, Reply::Accepted);
        if paused {
            node.pause(t(62), name).await;
        }
        let asked = cancel(w, 63, name, None).await;
        let [lease] = &asked.leases[..] else { panic!("one lease is over: {asked:?}") };
        assert_eq!((&lease.occurrence, lease.until), (&run.occurrence, t(63)), "{name}");
        assert!(lease.cancel_requested && lease.fence > run.fence);
        assert_eq!(node.shown(name).await, asked);
        assert_eq!(node.found(&["mail"], t(64), 9).await.0, [name], "a node finds it at once");
        let again = Claim::at_least_once(2, asked.fence, run.occurrence.clone(), MINUTE);
        lost(node.claim(t(601), name, again).await);
        let then = Cursor::To(Some(t(120).into()));
        let (fence, occurrence) = (lease.fence, run.occurrence.clone());
        let give_up = Action::GiveUp { fence, occurrence, then, error: "unused" };
        assert_eq!(node.act(t(64), name, give_up).await, Reply::Accepted);
        let after = node.read(name).await;
        assert_eq!((after.next, after.leases.len()), (Some(t(120).into()), 0));
        assert_eq!((after.counters.cancelled, after.dead.len()), (1, 0));
        assert_eq!(after.last, Some(Outcome::Cancelled));
        if paused {
            node.resume(t(65), name).await;
        }
        won(node.lease(t(121), name, 3).await);
    }
}

pub(super) async fn a_cancelled_run_of_a_paused_schedule_is_found_when_its_lease_ends(w: &Cluster) {
    w.node().add(t(0), "job", "mail", t(60)).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    w.node().pause(t(61), "job").await;
    cancel(w, 62, "job", None).await;
    assert_eq!(w.node().found(&["mail"], t(999), 9).await.0, ["job"]);
    // A trigger does not take the place of the lease, which shows the cancellation.
    w.node().trigger(t(63), "job", "x").await;
    let seen = w.node().read("job").await;
    lost(w.node().claim(t(121), "job", leased(&seen, 2)).await);
    let then = Cursor::To(Some(t(120).into()));
    let (fence, occurrence) = (run.fence, run.occurrence.clone());
    let give_up = Action::GiveUp { fence, occurrence, then, error: "unused" };
    assert_eq!(w.node().act(t(122), "job", give_up).await, Reply::Accepted);
    let after = w.node().read("job").await;
    assert_eq!((after.next, after.last.clone()), (Some(t(120).into()), Some(Outcome::Cancelled)));
    won(w.node().claim(t(123), "job", leased(&after, 3)).await);
}

/// The request that the occurrence of this second replaces the active runs.
async fn replace(w: &Cluster, now: i64, name: &str, generation: i64, at: i64) -> JobState {
    let (expected, by) = (t(at), t(at));
    state(w.node().act(t(now), name, Action::Replace { generation, expected, by }).await)
}

pub(super) async fn a_due_occurrence_replaces_the_active_runs(w: &Cluster) {
    for (name, told) in [("told", true), ("silent", false)] {
        let seen = w.node().register(t(0), name, t(60)).await;
        let run = won(w.node().claim(t(60), name, marked(&seen, 1, t(120), ALONE)).await);
        let kept = RunAction::Extend { duration: 2 * MINUTE };
        assert_eq!(w.node().end(t(61), name, run.fence, kept).await, Reply::Extended(t(181)));
        let seen = replace(w, 120, name, seen.generation, 120).await;
        assert_eq!(asked(&seen), [run.fence]);
        assert_eq!(seen.leases[0].replaced_by, Some(t(120)));
        lost(w.node().claim(t(121), name, marked(&seen, 2, t(180), ALONE)).await);
        let end = match told {
            true => {
                let reply = w.node().end(t(122), name, run.fence, extend()).await;
                assert_eq!(reply, Reply::CancelRequested(t(182)));
                let completion = Completion::Cancelled;
                let end = RunAction::Complete { then: Cursor::Keep, completion };
                assert_eq!(w.node().end(t(123), name, run.fence, end).await, Reply::Accepted);
                t(123)
            }
            false => {
                w.node().reap(t(181), name).await;
                t(181)
            }
        };
        let seen = w.node().read(name).await;
        assert_eq!((seen.counters.cancelled, seen.counters.lost), (1, 0), "{name}");
        assert_eq!((seen.last.clone(), seen.leases.len()), (Some(Outcome::Cancelled), 0));
        let next = marked(&seen, 3, t(240), ALONE);
        let claimed = won(w.node().claim(t(182), name, next).await);
        assert_eq!(claimed.occurrence, t(120).into(), "{name}");
        if w.node().backend.history().is_some() {
            let past = w.node().history_entries(name).await;
            let first = past.iter().find(|past| past.fence == run.fence).expect("it has an entry");
            assert_eq!((first.ended_at, &first.outcome), (Some(end), &Outcome::Cancelled));
            assert_eq!(first.reason, Some(NotRunReason::Replaced { by: t(120) }), "{name}");
        }
    }
}

pub(super) async fn only_what_is_due_replaces_runs(w: &Cluster) {
    let seen = w.node().register(t(0), "job", t(60)).await;
    let run = won(w.node().claim(t(60), "job", marked(&seen, 1, t(120), ALONE)).await);
    let active = w.node().read("job").await;
    let generation = active.generation;
    assert_eq!(replace(w, 119, "job", generation, 120).await, active, "it is not due");
    assert_eq!(replace(w, 60, "job", generation, 60).await, active, "it was started");
    w.node().end(t(61), "job", run.fence, RunAction::Extend { duration: 9 * MINUTE }).await;
    let active = w.node().read("job").await;
    assert_eq!(replace(w, 121, "job", generation - 1, 120).await, active, "another generation");
    assert_eq!(replace(w, 121, "job", generation, 119).await, active, "another occurrence");
    cancel(w, 122, "job", None).await;
    let seen = replace(w, 123, "job", generation, 120).await;
    assert_eq!(seen.leases[0].replaced_by, None, "an operator's request keeps its reason");
    w.node().end(t(124), "job", run.fence, ran_and_stay()).await;
    let idle = w.node().read("job").await;
    assert_eq!(replace(w, 125, "job", generation, 120).await, idle, "no run is active");
    let absent =
        w.node().act(t(126), "other", Action::Replace { generation, expected: t(120), by: t(120) });
    assert_eq!(absent.await, Reply::Absent);
    // An attempt at an at-least-once occurrence keeps the cursor, which replaces nothing.
    let first = won(w.node().lease(t(126), "job", 2).await);
    let leased = w.node().read("job").await;
    assert_eq!(replace(w, 127, "job", generation, 120).await, leased);
    assert_eq!(w.node().end(t(128), "job", first.fence, ran(t(180))).await, Reply::Accepted);
}

pub(super) async fn what_is_created_again_waits_for_the_run_of_the_deleted_job(w: &Cluster) {
    w.node().add(t(0), "job", "mail", t(60)).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    w.node().delete(t(61), "job").await;
    let told = w.node().end(t(62), "job", run.fence, extend()).await;
    assert_eq!(told, Reply::CancelRequested(t(122)));
    let new = w.node().add(t(63), "job", "mail", t(60)).await;
    assert_eq!((asked(&new), new.head.clone()), (vec![run.fence], Some(t(60).into())));
    lost(w.node().claim(t(64), "job", leased(&new, 2)).await);
    let alone = marked(&new, 3, t(120), Sharing::Exclusive);
    lost(w.node().claim(t(64), "job", alone.clone()).await);
    let told = w.node().end(t(65), "job", run.fence, extend()).await;
    assert_eq!(told, Reply::CancelRequested(t(125)));
    // The same nominal time is another occurrence: the cursor stays.
    assert_eq!(w.node().end(t(66), "job", run.fence, ran(t(120))).await, Reply::Accepted);
    let after = w.node().read("job").await;
    assert_eq!((after.leases.len(), after.next, after.counters), (0, new.next, new.counters));
    let claimed = won(w.node().claim(t(67), "job", alone).await);
    assert_eq!(claimed.incarnation, new.incarnation);
}

pub(super) async fn what_is_created_again_waits_until_a_silent_lease_ends(w: &Cluster) {
    w.node().register(t(0), "job", t(60)).await;
    won(w.node().lease(t(60), "job", 1).await);
    w.node().delete(t(61), "job").await;
    let new = w.node().register(t(62), "job", t(60)).await;
    lost(w.node().claim(t(119), "job", leased(&new, 2)).await);
    won(w.node().claim(t(120), "job", leased(&new, 3)).await);
    let after = w.node().read("job").await;
    assert_eq!((after.leases.len(), after.counters.lost, after.counters.cancelled), (1, 0, 0));
}

pub(super) async fn a_run_that_may_overlap_starts_beside_that_of_the_deleted_job(w: &Cluster) {
    let seen = w.node().register(t(0), "job", t(60)).await;
    let old = won(w.node().claim(t(60), "job", once(&seen, 1, Some(t(120).into()))).await);
    w.node().delete(t(61), "job").await;
    let new = w.node().register(t(62), "job", t(60)).await;
    // The claim of the deleted job is no claim of this one.
    lost(w.node().claim(t(63), "job", once(&seen, 1, Some(t(120).into()))).await);
    let run = won(w.node().claim(t(63), "job", once(&new, 2, Some(t(120).into()))).await);
    assert!(run.fence > old.fence);
    assert_eq!(w.node().end(t(64), "job", run.fence, extend()).await, Reply::Extended(t(124)));
    let told = w.node().end(t(64), "job", old.fence, extend()).await;
    assert_eq!(told, Reply::CancelRequested(t(124)));
}
