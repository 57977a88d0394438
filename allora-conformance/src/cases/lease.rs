//! Leases of runs at least once: extension, expiry, and the fence that decides.

use crate::cluster::*;
use allora_core::{
    Time,
    backend::{
        Action, Checkpoint, Claimed, Completion, Cursor, JobState, NextRun, NotRun, NotRunReason,
        OnExpiry, Operation, Outcome, Reply, Sharing,
    },
};
use std::time::Duration;

async fn job(w: &Cluster) -> JobState {
    w.node().register(t(0), "job", t(60)).await
}

fn to(at: Time) -> Option<NextRun> {
    Some(at.into())
}

pub(super) async fn a_leased_occurrence_stays_until_it_is_completed(w: &Cluster) {
    job(w).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    assert_eq!((run.occurrence.clone(), run.attempt, run.until), (t(60).into(), 1, t(120)));
    let held = w.node().read("job").await;
    assert_eq!((held.next, held.head.clone()), (to(t(60)), Some(t(60).into())));
    assert_eq!((held.due_at, held.attempts, held.last_started), (Some(t(120)), 1, Some(t(60))));
    let [hold] = &held.leases[..] else { panic!("one run: {held:?}") };
    assert_eq!((&*hold.node, hold.fence, hold.attempt), ("node-1", run.fence, 1));
    assert_eq!(
        (&hold.occurrence, hold.until, hold.on_expiry),
        (&run.occurrence, t(120), OnExpiry::Retry)
    );
    assert_eq!(w.node().end(t(61), "job", run.fence, ran(t(180))).await, Reply::Accepted);
    let after = w.node().read("job").await;
    assert_eq!((after.next, after.head.clone()), (to(t(180)), Some(t(180).into())));
    assert_eq!((after.attempts, leases(&after)), (0, vec![]));
    assert_eq!((after.counters.succeeded, after.counters.started), (1, 1));
    assert_eq!(after.last, Some(Outcome::Succeeded));
}

pub(super) async fn no_other_node_claims_a_leased_occurrence(w: &Cluster) {
    job(w).await;
    won(w.node().lease(t(60), "job", 1).await);
    let other = w.join("other").await;
    let seen = other.read("job").await;
    let state = lost(other.claim(ms(119_999), "job", leased(&seen, 2)).await);
    assert_eq!(state.due_at, Some(t(120)));
    lost(other.claim(ms(119_999), "job", once(&seen, 2, to(t(120)))).await);
    lost(other.claim(ms(119_999), "job", marked(&seen, 2, t(120), Sharing::Shared)).await);
}

pub(super) async fn a_silent_nodes_run_expires_and_runs_again(w: &Cluster) {
    job(w).await;
    let first = won(w.node().lease(t(60), "job", 1).await);
    let other = w.join("other").await;
    let second = won(other.lease(t(120), "job", 2).await);
    assert_eq!((second.occurrence.clone(), second.attempt), (first.occurrence, 2));
    assert!(second.fence > first.fence);
    assert_eq!(second.until, t(180));
    let seen = w.node().read("job").await;
    assert_eq!(leases(&seen), [(second.fence, t(180))]);
    assert_eq!((seen.counters.expired, seen.counters.started), (1, 1), "started once");
    let third = won(w.node().lease(t(180), "job", 3).await);
    assert_eq!((third.occurrence, third.attempt), (second.occurrence, 3));
    assert!(third.fence > second.fence);
}

pub(super) async fn every_end_of_a_run_that_was_taken_over_is_refused(w: &Cluster) {
    job(w).await;
    let old = won(w.node().lease(t(60), "job", 1).await);
    won(w.join("other").await.lease(t(120), "job", 2).await);
    let before = w.node().read("job").await;
    for end in [
        extend(),
        ran(t(180)),
        RunAction::Retry { not_before: t(130), error: "x" },
        RunAction::Release,
    ] {
        assert_eq!(w.node().end(t(121), "job", old.fence, end).await, Reply::LeaseLost);
    }
    assert_eq!(w.node().read("job").await, before);
}

pub(super) async fn a_fence_that_was_never_given_is_refused(w: &Cluster) {
    job(w).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    let before = w.node().read("job").await;
    for fence in [run.fence + 1, run.fence - 1, 0, -1, i64::MAX, i64::MIN] {
        for end in [extend(), ran(t(180)), RunAction::Release] {
            assert_eq!(w.node().end(t(61), "job", fence, end).await, Reply::LeaseLost, "{fence}");
        }
    }
    assert_eq!(w.node().read("job").await, before);
}

pub(super) async fn a_late_completion_is_accepted_if_the_run_was_not_taken_over(w: &Cluster) {
    job(w).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    assert_eq!(w.node().end(t(500), "job", run.fence, extend()).await, Reply::Extended(t(560)));
    assert_eq!(w.node().end(t(9_000), "job", run.fence, ran(t(9_060))).await, Reply::Accepted);
    assert_eq!(w.node().read("job").await.next, to(t(9_060)));
}

pub(super) async fn an_extended_lease_keeps_other_nodes_away(w: &Cluster) {
    job(w).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    assert_eq!(w.node().end(t(100), "job", run.fence, extend()).await, Reply::Extended(t(160)));
    let other = w.join("other").await;
    let seen = other.read("job").await;
    lost(other.claim(t(120), "job", leased(&seen, 2)).await);
    lost(other.claim(ms(159_999), "job", leased(&seen, 2)).await);
    won(other.claim(t(160), "job", leased(&seen, 2)).await);
}

pub(super) async fn a_lease_never_shrinks(w: &Cluster) {
    job(w).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    let short = RunAction::Extend { duration: Duration::from_secs(1) };
    assert_eq!(w.node().end(t(61), "job", run.fence, short).await, Reply::Extended(t(120)));
    assert_eq!(w.node().end(t(0), "job", run.fence, extend()).await, Reply::Extended(t(120)));
    assert_eq!(leases(&w.node().read("job").await), [(run.fence, t(120))]);
}

pub(super) async fn a_completion_whose_reply_was_lost_has_the_same_reply_again(w: &Cluster) {
    job(w).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    assert_eq!(w.node().end(t(61), "job", run.fence, ran(t(120))).await, Reply::Accepted);
    let before = w.node().read("job").await;
    for seconds in [61, 500] {
        let again = w.node().end(t(seconds), "job", run.fence, ran(t(120))).await;
        assert_eq!(again, Reply::Accepted);
    }
    assert_eq!(w.node().read("job").await, before, "and counts nothing twice");
    assert_eq!(w.node().end(t(62), "job", run.fence, extend()).await, Reply::LeaseLost);
    assert_eq!(w.node().end(t(62), "job", run.fence, RunAction::Release).await, Reply::LeaseLost);
}

pub(super) async fn every_repeated_end_has_the_same_reply(w: &Cluster) {
    job(w).await;
    for (claim, end) in (1..).zip([
        RunAction::Retry { not_before: t(60), error: "x" },
        RunAction::Release,
        RunAction::Complete { then: Cursor::To(to(t(120))), completion: Completion::Failed("y") },
    ]) {
        let run = won(w.node().lease(t(60), "job", claim).await);
        assert_eq!(w.node().end(t(60), "job", run.fence, end).await, Reply::Accepted);
        let before = w.node().read("job").await;
        assert_eq!(w.node().end(t(61), "job", run.fence, end).await, Reply::Accepted);
        assert_eq!(w.node().read("job").await, before);
    }
}

/// The network has delivered it twice, or very late.
pub(super) async fn a_claim_that_arrives_after_its_run_was_released_is_refused(w: &Cluster) {
    let mut seen = job(w).await;
    let other = w.join("other").await;
    let mut sent = Vec::new();
    let again = |error| RunAction::Retry { not_before: t(60), error };
    for (id, end) in (1..).zip([RunAction::Release, again("a"), again("b"), RunAction::Release]) {
        let claim = leased(&seen, id);
        let node = if id % 2 == 0 { &other } else { w.node() };
        let run = won(node.claim(t(62), "job", claim.clone()).await);
        sent.push(claim);
        assert_eq!(node.end(t(61), "job", run.fence, end).await, Reply::Accepted);
        seen = node.read("job").await;
        assert_eq!(seen.head, Some(t(60).into()), "offered again");
        for late in &sent {
            let state = lost(node.claim(t(62), "job", late.clone()).await);
            assert_eq!((leases(&state), state.fence), (vec![], run.fence));
        }
    }
    won(other.claim(t(63), "job", leased(&seen, 9)).await);
}

pub(super) async fn a_completed_occurrence_stays_completed(w: &Cluster) {
    let mut seen = job(w).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    w.node().end(t(61), "job", run.fence, ran(t(120))).await;
    let other = w.join("other").await;
    seen.fence = other.read("job").await.fence;
    for (claim, seconds) in (2..).zip([61, 120, 999]) {
        lost(other.claim(t(seconds), "job", leased(&seen, claim)).await);
    }
}

pub(super) async fn a_completion_that_does_not_move_forward_is_refused(w: &Cluster) {
    job(w).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    let before = w.node().read("job").await;
    for end in [ran(t(60)), ran(t(59)), ran(t(0)), ran_and_stay()] {
        assert_eq!(w.node().end(t(61), "job", run.fence, end).await, Reply::Invalid);
    }
    assert_eq!(w.node().read("job").await, before);
    assert_eq!(w.node().end(t(61), "job", run.fence, ran(ms(60_001))).await, Reply::Accepted);
}

pub(super) async fn the_last_completion_ends_the_schedule(w: &Cluster) {
    job(w).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    let end = RunAction::Complete { then: Cursor::To(None), completion: Completion::Succeeded };
    assert_eq!(w.node().end(t(61), "job", run.fence, end).await, Reply::Accepted);
    let after = w.node().read("job").await;
    assert_eq!((after.next, after.head, after.due_at), (None, None, None));
}

pub(super) async fn outcomes_are_counted_and_the_last_is_kept(w: &Cluster) {
    job(w).await;
    let mut at = 60;
    for (claim, (completion, expected)) in (1..).zip([
        (Completion::Succeeded, Outcome::Succeeded),
        (Completion::Failed("b\u{e4}d"), Outcome::Failed("b\u{e4}d".into())),
        (Completion::Dead(""), Outcome::Dead(String::new())),
        (Completion::Cancelled, Outcome::Cancelled),
        (Completion::Failed("'; --"), Outcome::Failed("'; --".into())),
    ]) {
        let run = won(w.node().lease(t(at), "job", claim).await);
        at += 60;
        let end = RunAction::Complete { then: Cursor::To(to(t(at))), completion };
        assert_eq!(w.node().end(t(at - 59), "job", run.fence, end).await, Reply::Accepted);
        assert_eq!(w.node().read("job").await.last, Some(expected));
    }
    let counters = w.node().read("job").await.counters;
    assert_eq!((counters.started, counters.succeeded), (5, 1));
    assert_eq!((counters.failed, counters.cancelled), (3, 1));
}

pub(super) async fn a_retry_is_the_same_occurrence_later(w: &Cluster) {
    job(w).await;
    let first = won(w.node().lease(t(60), "job", 1).await);
    let retry = RunAction::Retry { not_before: t(90), error: "broken" };
    assert_eq!(w.node().end(t(61), "job", first.fence, retry).await, Reply::Accepted);
    let waits = w.node().read("job").await;
    assert_eq!((waits.head.clone(), waits.due_at), (Some(t(60).into()), Some(t(90))));
    assert_eq!((waits.attempts, waits.next), (1, to(t(60))));
    assert_eq!(
        (waits.counters.failed, waits.last.clone()),
        (1, Some(Outcome::Retried("broken".into())))
    );
    lost(w.node().claim(ms(89_999), "job", leased(&waits, 2)).await);
    let other = w.join("other").await;
    let second = won(other.claim(t(90), "job", leased(&waits, 3)).await);
    assert_eq!((second.occurrence, second.attempt), (t(60).into(), 2));
    assert_eq!(other.end(t(91), "job", second.fence, ran(t(120))).await, Reply::Accepted);
    let after = w.node().read("job").await;
    assert_eq!((after.next, after.counters.started), (to(t(120)), 1));
}

pub(super) async fn an_interrupted_run_is_retried_and_counts_as_cancelled(w: &Cluster) {
    job(w).await;
    let first = won(w.node().lease(t(60), "job", 1).await);
    let again = RunAction::Interrupted { not_before: t(61) };
    for _ in 0..2 {
        assert_eq!(w.node().end(t(61), "job", first.fence, again).await, Reply::Accepted);
    }
    let waits = w.node().read("job").await;
    assert_eq!((waits.head.clone(), waits.due_at), (Some(t(60).into()), Some(t(61))));
    assert_eq!((waits.attempts, waits.last), (1, Some(Outcome::Interrupted)));
    assert_eq!((waits.counters.failed, waits.counters.cancelled), (0, 1));
}

fn give_up(occurrence: Time, fence: i64) -> Action<'static> {
    let occurrence = occurrence.into();
    Action::GiveUp { fence, occurrence, then: Cursor::To(to(t(120))), error: "killed" }
}

pub(super) async fn an_occurrence_whose_lease_has_ended_can_be_given_up(w: &Cluster) {
    job(w).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    let other = w.join("other").await;
    assert_eq!(other.act(t(120), "job", give_up(t(60), run.fence)).await, Reply::Accepted);
    for _ in 0..2 {
        let after = state(other.act(t(121), "job", give_up(t(60), run.fence)).await);
        assert_eq!((after.head.clone(), leases(&after)), (Some(t(120).into()), vec![]));
        let [letter] = &after.dead[..] else { panic!("one dead letter: {after:?}") };
        assert_eq!((&letter.occurrence, letter.attempts), (&t(60).into(), 1));
        assert_eq!((letter.died_at, &*letter.error), (t(120), "killed"));
        assert_eq!(after.last, Some(Outcome::Dead("killed".into())));
        assert_eq!((after.counters.failed, after.counters.expired), (1, 0));
    }
    for end in [extend(), ran(t(120)), RunAction::Release] {
        let reply = w.node().end(t(121), "job", run.fence, end).await;
        assert_eq!(reply, Reply::LeaseLost, "the run is over");
    }
    won(other.lease(t(121), "job", 2).await);
}

pub(super) async fn a_live_run_is_not_given_up(w: &Cluster) {
    let seen = job(w).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    let active = w.node().read("job").await;
    for fence in [run.fence, run.fence + 1, seen.fence] {
        assert_eq!(state(w.node().act(ms(119_999), "job", give_up(t(60), fence)).await), active);
    }
    assert_eq!(w.node().end(t(100), "job", run.fence, extend()).await, Reply::Extended(t(160)));
    let extended = w.node().read("job").await;
    assert_eq!(state(w.node().act(t(120), "job", give_up(t(60), run.fence)).await), extended);
    assert_eq!(w.node().end(t(121), "job", run.fence, ran(t(180))).await, Reply::Accepted);
    let ended = w.node().read("job").await;
    assert_eq!(state(w.node().act(t(200), "job", give_up(t(60), run.fence)).await), ended);
    let lost = marked(&ended, 2, t(240), Sharing::Exclusive);
    let run = won(w.node().claim(t(200), "job", lost).await);
    let active = w.node().read("job").await;
    assert_eq!(state(w.node().act(t(300), "job", give_up(t(60), run.fence)).await), active);
}

pub(super) async fn an_occurrence_that_waits_for_another_attempt_can_be_given_up(w: &Cluster) {
    job(w).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    let again = RunAction::Retry { not_before: t(90), error: "no" };
    assert_eq!(w.node().end(t(61), "job", run.fence, again).await, Reply::Accepted);
    let waits = w.node().read("job").await;
    let other = w.join("other").await;
    let early = other.act(ms(89_999), "job", give_up(t(60), waits.fence)).await;
    assert_eq!(state(early), waits, "it is not due");
    for (occurrence, fence) in [(t(120), waits.fence), (t(60), waits.fence + 1)] {
        let reply = other.act(t(90), "job", give_up(occurrence, fence)).await;
        assert_eq!(state(reply), waits, "another occurrence or state");
    }
    let given_up = other.act(t(90), "job", give_up(t(60), waits.fence)).await;
    assert_eq!(given_up, Reply::Accepted);
    for _ in 0..2 {
        let after = state(other.act(t(91), "job", give_up(t(60), waits.fence)).await);
        assert_eq!((after.head.clone(), leases(&after)), (Some(t(120).into()), vec![]));
        let [letter] = &after.dead[..] else { panic!("one dead letter: {after:?}") };
        assert_eq!((&letter.occurrence, letter.attempts), (&t(60).into(), 1));
        assert_eq!((letter.died_at, &*letter.error), (t(90), "killed"));
        assert_eq!(after.last, Some(Outcome::Dead("killed".into())));
        assert_eq!(after.counters.failed, 1, "the attempt failed once");
    }
    won(other.lease(t(120), "job", 2).await);
}

pub(super) async fn a_released_run_does_not_count_and_can_be_claimed_at_once(w: &Cluster) {
    job(w).await;
    let first = won(w.node().lease(t(60), "job", 1).await);
    assert_eq!(w.node().end(t(61), "job", first.fence, RunAction::Release).await, Reply::Accepted);
    let free = w.node().read("job").await;
    assert_eq!((free.attempts, free.due_at, leases(&free)), (0, Some(t(60)), vec![]));
    let second = won(w.join("other").await.lease(t(61), "job", 2).await);
    assert_eq!((second.occurrence, second.attempt), (t(60).into(), 1));
    assert!(second.fence > first.fence);
    assert_eq!(w.node().end(t(62), "job", first.fence, ran(t(120))).await, Reply::LeaseLost);
    assert_eq!(w.node().read("job").await.counters.started, 1);
}

pub(super) async fn an_active_occurrence_is_not_skipped(w: &Cluster) {
    job(w).await;
    won(w.node().lease(t(60), "job", 1).await);
    let seen = w.node().read("job").await;
    let passed = NotRun { count: Some(3), last: t(240), reason: NotRunReason::CatchUp };
    let later = leased(&seen, 2).starting(t(300).into(), passed);
    assert_eq!(lost(w.node().claim(t(301), "job", later).await), seen);
    let run = won(w.node().claim(t(301), "job", leased(&seen, 3)).await);
    assert_eq!((run.occurrence, run.attempt), (t(60).into(), 2));
}

pub(super) async fn an_active_occurrence_may_be_claimed_at_most_once_if_the_cursor_moves(
    w: &Cluster,
) {
    job(w).await;
    won(w.node().lease(t(60), "job", 1).await);
    let seen = w.node().read("job").await;
    // Left where it is, the cursor would offer nothing for ever.
    lost(w.node().claim(t(120), "job", triggered(&seen, 2)).await);
    let run = won(w.node().claim(t(120), "job", once(&seen, 3, to(t(180)))).await);
    assert_eq!((run.occurrence, run.attempt), (t(60).into(), 2));
    let after = w.node().read("job").await;
    assert_eq!(
        (after.head.clone(), leases(&after)),
        (Some(t(180).into()), vec![(run.fence, t(180))])
    );
}

pub(super) async fn a_leased_claim_whose_reply_was_lost_has_the_same_reply_again(w: &Cluster) {
    let seen = job(w).await;
    let run = won(w.node().claim(t(60), "job", leased(&seen, 7)).await);
    assert_eq!(won(w.node().claim(t(70), "job", leased(&seen, 7)).await), run);
    w.node().end(t(80), "job", run.fence, extend()).await;
    let again = won(w.node().claim(t(90), "job", leased(&seen, 7)).await);
    assert_eq!((again.fence, again.attempt, again.until), (run.fence, 1, t(140)));
    let other = w.join("other").await;
    won(other.lease(t(140), "job", 8).await);
    let seen = w.node().read("job").await;
    lost(w.node().claim(t(141), "job", leased(&seen, 7)).await);
}

pub(super) async fn each_end_of_a_batch_is_applied_alone(w: &Cluster) {
    let mut fences = Vec::new();
    for (claim, name) in (1..).zip(["one", "two", "three", "four"]) {
        w.node().register(t(0), name, t(60)).await;
        fences.push(won(w.node().lease(t(60), name, claim).await).fence);
    }
    let other = w.join("other").await;
    won(other.lease(t(120), "two", 9).await);
    let end = |name, fence, action: RunAction<'static>| Operation::new(name, action.under(fence));
    let operations = [
        end("three", fences[2], extend()),
        end("missing", 1, ran(t(180))),
        end("two", fences[1], ran(t(180))),
        end("one", fences[0], ran(t(180))),
        end("four", fences[3], ran(t(60))),
    ];
    let replies = w.node().replies(t(121), &operations).await;
    let (until, done) = (Reply::Extended(t(181)), Reply::Accepted);
    assert_eq!(replies, [until, Reply::Absent, Reply::LeaseLost, done, Reply::Invalid]);
}

pub(super) async fn a_lease_ends_with_the_last_instant_at_the_latest(w: &Cluster) {
    let seen = job(w).await;
    let mut claim = leased(&seen, 1);
    claim.lease.duration = Duration::MAX;
    let run = won(w.node().claim(t(60), "job", claim).await);
    assert_eq!(run.until, allora_core::time::end_of_time());
    let forever = RunAction::Extend { duration: Duration::MAX };
    let until = Reply::Extended(allora_core::time::end_of_time());
    assert_eq!(w.node().end(t(61), "job", run.fence, forever).await, until);
}

pub(super) async fn a_lease_ends_by_the_millisecond(w: &Cluster) {
    let seen = job(w).await;
    let mut claim = leased(&seen, 1);
    claim.lease.duration = Duration::from_millis(1);
    assert_eq!(won(w.node().claim(t(60), "job", claim).await).until, ms(60_001));
    let seen = w.node().read("job").await;
    lost(w.node().claim(t(60), "job", leased(&seen, 2)).await);
    won(w.node().claim(ms(60_001), "job", leased(&seen, 3)).await);
}

pub(super) async fn fences_grow_through_every_end_of_a_lease(w: &Cluster) {
    job(w).await;
    let mut fence = 0;
    let mut grows = |claimed: &allora_core::backend::Claimed| {
        assert!(claimed.fence > fence, "{} after {fence}", claimed.fence);
        fence = claimed.fence;
    };
    // The clock stands still or goes back all the while.
    let run = won(w.node().lease(t(500), "job", 1).await);
    grows(&run);
    w.node().end(t(500), "job", run.fence, RunAction::Release).await;
    let run = won(w.node().lease(t(500), "job", 2).await);
    grows(&run);
    w.node()
        .end(t(400), "job", run.fence, RunAction::Retry { not_before: t(61), error: "x" })
        .await;
    let run = won(w.node().lease(t(61), "job", 3).await);
    grows(&run);
    let run = won(w.node().lease(t(121), "job", 4).await);
    grows(&run);
    w.node().end(t(121), "job", run.fence, ran(t(122))).await;
    grows(&won(w.node().lease(t(122), "job", 5).await));
    let last = w.node().act(t(122), "job", Action::Read).await;
    assert!(state(last).fence >= fence);
}

/// An operation on the run that leaves a checkpoint.
async fn leave(node: &Node, now: i64, run: &Claimed, how: RunAction<'_>, what: &[u8]) -> Reply {
    let operation = Operation::new("job", how.under(run.fence)).checkpoint(Some(what));
    fine(node.apply(t(now), &[operation]).await.single())
}

pub(super) async fn a_checkpoint_is_handed_to_the_next_attempt(w: &Cluster) {
    job(w).await;
    let (one, other) = (w.node(), &w.join("other").await);
    let first = won(one.lease(t(60), "job", 1).await);
    leave(one, 61, &first, extend(), b"old").await;
    let whole = [&b"\0\xff'{"[..], &[7; 60_000]].concat();
    leave(one, 62, &first, extend(), &whole).await;
    assert_eq!(one.end(t(63), "job", first.fence, RunAction::Release).await, Reply::Accepted);
    let second = won(other.lease(t(64), "job", 2).await);
    let retry = RunAction::Retry { not_before: t(66), error: "x" };
    assert_eq!(other.end(t(65), "job", second.fence, retry).await, Reply::Accepted);
    let third = won(one.lease(t(66), "job", 3).await);
    let dead = RunAction::Complete {
        then: Cursor::To(Some(t(120).into())),
        completion: Completion::Dead("x"),
    };
    assert_eq!(leave(one, 67, &third, dead, b"last").await, Reply::Accepted);
    let rerun = Action::Rerun { occurrence: &first.occurrence };
    fine(one.modify(t(68), "job", rerun).await);
    let fourth = won(other.lease(t(69), "job", 4).await);
    let shown = state(one.act(t(69), "job", Action::Read).await).checkpoints;
    let [Checkpoint { occurrence, saved_at, value }] = &*shown else { panic!("{shown:?}") };
    assert_eq!((occurrence, *saved_at, &**value), (&first.occurrence, t(67), &b"last"[..]));
    let left = [&first, &second, &third, &fourth].map(|run| run.checkpoint.as_deref());
    assert_eq!(left, [None, Some(&*whole), Some(&*whole), Some(&b"last"[..])]);
    assert_eq!(other.end(t(70), "job", fourth.fence, ran_and_stay()).await, Reply::Accepted);
    let next = won(one.lease(t(120), "job", 5).await);
    assert_eq!((next.occurrence, next.checkpoint), (t(120).into(), None), "another occurrence");
}

pub(super) async fn a_checkpoint_of_a_run_that_was_taken_over_is_refused(w: &Cluster) {
    job(w).await;
    let (one, other) = (w.node(), &w.join("other").await);
    let first = won(one.lease(t(60), "job", 1).await);
    leave(one, 61, &first, extend(), b"kept").await;
    let second = won(other.lease(t(121), "job", 2).await);
    assert_eq!((second.attempt, second.checkpoint.as_deref()), (2, Some(&b"kept"[..])));
    assert_eq!(leave(one, 122, &first, extend(), b"late").await, Reply::LeaseLost);
    assert_eq!(leave(one, 122, &first, RunAction::Release, b"late").await, Reply::LeaseLost);
    assert_eq!(other.end(t(123), "job", second.fence, RunAction::Release).await, Reply::Accepted);
    let third = won(one.lease(t(124), "job", 3).await);
    assert_eq!(third.checkpoint.as_deref(), Some(&b"kept"[..]));
}

pub(super) async fn a_run_that_is_released_for_a_while_does_not_count(w: &Cluster) {
    job(w).await;
    for (claim, now) in [(1, 60), (2, 90)] {
        let run = won(w.node().lease(t(now), "job", claim).await);
        assert_eq!((run.occurrence, run.attempt), (t(60).into(), 1));
        let later = RunAction::ReleaseUntil { not_before: t(now + 30) };
        for _ in 0..2 {
            assert_eq!(w.node().end(t(now), "job", run.fence, later).await, Reply::Accepted);
        }
        let waits = w.node().read("job").await;
        assert_eq!((waits.due_at, waits.attempts), (Some(t(now + 30)), 0));
        assert_eq!((waits.last, waits.counters.failed, waits.counters.cancelled), (None, 0, 0));
        lost(w.node().lease(t(now + 29), "job", 9).await);
    }
}
