//! Leases of runs at most once: overlap, and silent runs that are lost.

use crate::cluster::*;
use allora_core::{
    Time,
    backend::{Action, Claimed, Completion, Cursor, JobState, OnExpiry, Outcome, Reply, Sharing},
    record::{KEEP_LOST, MAX_LOST},
};
use std::time::Duration;

async fn job(w: &Cluster) -> JobState {
    w.node().register(t(0), "job", t(60)).await
}

pub(super) async fn a_lease_stays_while_the_run_is_active_and_the_cursor_moves_on(w: &Cluster) {
    let seen = job(w).await;
    let run = won(w.node().claim(t(60), "job", marked(&seen, 1, t(120), Sharing::Shared)).await);
    assert_eq!((run.attempt, run.until), (1, t(120)));
    let runs = w.node().read("job").await;
    assert_eq!((runs.head.clone(), runs.due_at), (Some(t(120).into()), Some(t(120))));
    let [hold] = &runs.leases[..] else { panic!("one run: {runs:?}") };
    assert_eq!((hold.fence, hold.on_expiry, &*hold.node), (run.fence, OnExpiry::Lost, "node-1"));
    assert_eq!(w.node().end(t(61), "job", run.fence, ran_and_stay()).await, Reply::Accepted);
    let after = w.node().read("job").await;
    assert_eq!((leases(&after), after.counters.succeeded), (vec![], 1));
    assert_eq!(after.head, Some(t(120).into()));
}

pub(super) async fn shared_runs_overlap(w: &Cluster) {
    let seen = job(w).await;
    let one = won(w.node().claim(t(60), "job", marked(&seen, 1, t(90), Sharing::Shared)).await);
    let seen = w.node().read("job").await;
    let two = won(w.node().claim(t(90), "job", marked(&seen, 2, t(150), Sharing::Shared)).await);
    let both = w.node().read("job").await;
    assert_eq!(leases(&both), [(one.fence, t(120)), (two.fence, t(150))]);
    assert_eq!(w.node().end(t(91), "job", two.fence, ran_and_stay()).await, Reply::Accepted);
    assert_eq!(w.node().end(t(91), "job", one.fence, ran_and_stay()).await, Reply::Accepted);
}

pub(super) async fn an_exclusive_run_waits_for_the_one_before(w: &Cluster) {
    let seen = job(w).await;
    let one = won(w.node().claim(t(60), "job", marked(&seen, 1, t(90), Sharing::Exclusive)).await);
    let seen = w.node().read("job").await;
    let other = w.join("other").await;
    let state = lost(other.claim(t(90), "job", marked(&seen, 2, t(120), Sharing::Exclusive)).await);
    assert_eq!(state, seen);
    lost(other.claim(t(90), "job", leased(&seen, 2)).await);
    assert_eq!(w.node().end(t(91), "job", one.fence, ran_and_stay()).await, Reply::Accepted);
    won(other.claim(t(91), "job", marked(&seen, 3, t(120), Sharing::Exclusive)).await);
}

/// A job whose next occurrence is due ten seconds after the end of a run, and its run of the first one.
async fn runs_after_end(w: &Cluster) -> Claimed {
    let first = Some(t(60).into());
    let register = Action::Register { definition: "@after_end 10s", version: 0, first };
    let seen = state(w.node().act(t(0), "job", register).await);
    let mut claim = marked(&seen, 1, t(600), Sharing::Exclusive);
    claim.then = Cursor::AfterEnd;
    let run = won(w.node().claim(t(60), "job", claim).await);
    let runs = w.node().read("job").await;
    assert_eq!((runs.head, runs.next), (None, Some(t(60).into())), "it waits for the end");
    run
}

pub(super) async fn what_follows_an_end_is_due_the_delay_after_it_was_recorded(w: &Cluster) {
    let run = runs_after_end(w).await;
    let end = RunAction::Complete { then: Cursor::AfterEnd, completion: Completion::Succeeded };
    assert_eq!(w.node().end(t(71), "job", run.fence, end).await, Reply::Accepted);
    let after = w.node().read("job").await;
    assert_eq!((after.next, after.head), (Some(t(81).into()), Some(t(81).into())));
}

pub(super) async fn what_follows_an_end_is_due_the_delay_after_a_loss(w: &Cluster) {
    runs_after_end(w).await;
    let lost = w.node().reap(t(125), "job").await;
    assert_eq!((lost.counters.lost, lost.next), (1, Some(t(135).into())));
}

pub(super) async fn a_silent_run_is_lost_when_its_lease_ends(w: &Cluster) {
    let seen = job(w).await;
    let run = won(w.node().claim(t(60), "job", marked(&seen, 1, t(600), Sharing::Exclusive)).await);
    let before = w.node().reap(ms(119_999), "job").await;
    assert_eq!((before.counters.lost, leases(&before)), (0, vec![(run.fence, t(120))]));
    let after = w.node().reap(t(120), "job").await;
    assert_eq!((after.counters.lost, leases(&after)), (1, vec![]));
    assert_eq!(after.last, Some(Outcome::Lost));
    assert_eq!(after.head, Some(t(600).into()), "it is not run again");
    assert_eq!(w.node().reap(t(130), "job").await, after, "and is lost once");
    for end in [extend(), ran_and_stay(), RunAction::Release] {
        assert_eq!(w.node().end(t(131), "job", run.fence, end).await, Reply::LeaseLost);
    }
}

pub(super) async fn the_next_run_does_not_wait_for_a_lease_that_has_ended(w: &Cluster) {
    let seen = job(w).await;
    won(w.node().claim(t(60), "job", marked(&seen, 1, t(90), Sharing::Exclusive)).await);
    let seen = w.node().read("job").await;
    lost(w.node().claim(ms(119_999), "job", marked(&seen, 2, t(150), Sharing::Exclusive)).await);
    let two =
        won(w.node().claim(t(120), "job", marked(&seen, 3, t(150), Sharing::Exclusive)).await);
    let after = w.node().read("job").await;
    assert_eq!((after.counters.lost, leases(&after)), (1, vec![(two.fence, t(180))]));
}

pub(super) async fn an_extended_lease_keeps_the_run(w: &Cluster) {
    let seen = job(w).await;
    let run = won(w.node().claim(t(60), "job", marked(&seen, 1, t(600), Sharing::Exclusive)).await);
    assert_eq!(w.node().end(t(100), "job", run.fence, extend()).await, Reply::Extended(t(160)));
    assert_eq!(w.node().reap(t(120), "job").await.counters.lost, 0);
    let short = RunAction::Extend { duration: Duration::from_secs(1) };
    assert_eq!(w.node().end(t(121), "job", run.fence, short).await, Reply::Extended(t(160)));
    assert_eq!(w.node().reap(t(160), "job").await.counters.lost, 1);
}

pub(super) async fn a_late_completion_is_accepted_if_the_run_is_not_lost(w: &Cluster) {
    let seen = job(w).await;
    let run = won(w.node().claim(t(60), "job", marked(&seen, 1, t(600), Sharing::Exclusive)).await);
    assert_eq!(w.node().end(t(300), "job", run.fence, ran_and_stay()).await, Reply::Accepted);
    let after = w.node().reap(t(301), "job").await;
    assert_eq!((after.counters.succeeded, after.counters.lost), (1, 0));
}

pub(super) async fn only_silent_runs_are_lost(w: &Cluster) {
    let seen = job(w).await;
    won(w.node().claim(t(60), "job", marked(&seen, 1, t(90), Sharing::Shared)).await);
    let seen = w.node().read("job").await;
    let two = won(w.node().claim(t(90), "job", marked(&seen, 2, t(600), Sharing::Shared)).await);
    let after = w.node().reap(t(120), "job").await;
    assert_eq!((after.counters.lost, leases(&after)), (1, vec![(two.fence, t(150))]));
}

/// A run beside others that was recorded as lost at 120 s.
async fn lost_beside_others(w: &Cluster) -> Claimed {
    let seen = job(w).await;
    let run = won(w.node().claim(t(60), "job", marked(&seen, 1, t(600), Sharing::Shared)).await);
    let after = w.join("other").await.reap(t(120), "job").await;
    assert_eq!((after.counters.lost, leases(&after)), (1, vec![]));
    run
}

pub(super) async fn a_lost_run_that_shares_the_job_is_active_again_when_it_is_extended(
    w: &Cluster,
) {
    let run = lost_beside_others(w).await;
    assert_eq!(w.node().end(t(130), "job", run.fence, extend()).await, Reply::Extended(t(190)));
    let after = w.node().read("job").await;
    assert_eq!((after.counters.lost, leases(&after)), (0, vec![(run.fence, t(190))]));
    let [lease] = &after.leases[..] else { panic!("one run: {after:?}") };
    assert_eq!((&lease.occurrence, lease.sharing), (&t(60).into(), Sharing::Shared));
    assert_eq!((lease.due_at, lease.started_at, lease.attempt), (t(60), t(60), 1));
    assert_eq!(w.node().reap(t(190), "job").await.counters.lost, 1, "silent again");
    assert_eq!(w.node().end(t(200), "job", run.fence, extend()).await, Reply::Extended(t(260)));
    assert_eq!(w.node().end(t(201), "job", run.fence, ran_and_stay()).await, Reply::Accepted);
    let after = w.node().reap(t(300), "job").await;
    assert_eq!((after.counters.lost, after.counters.succeeded, leases(&after)), (0, 1, vec![]));
}

pub(super) async fn the_end_of_a_lost_run_that_shares_the_job_replaces_the_loss(w: &Cluster) {
    let run = lost_beside_others(w).await;
    let moves = RunAction::Complete {
        then: Cursor::To(Some(t(60).into())),
        completion: Completion::Succeeded,
    };
    assert_eq!(w.node().end(t(130), "job", run.fence, moves).await, Reply::Invalid);
    assert_eq!(w.node().read("job").await.counters.lost, 1, "nothing was changed");
    assert_eq!(w.node().end(t(130), "job", run.fence + 1, ran_and_stay()).await, Reply::LeaseLost);
    for _ in 0..2 {
        assert_eq!(w.node().end(t(131), "job", run.fence, ran_and_stay()).await, Reply::Accepted);
        let after = w.node().read("job").await;
        assert_eq!((after.counters.lost, after.counters.succeeded), (0, 1));
        assert_eq!((after.last, after.head), (Some(Outcome::Succeeded), Some(t(600).into())));
    }
    assert_eq!(w.node().end(t(132), "job", run.fence, extend()).await, Reply::LeaseLost);
}

/// Claims the cursor's occurrence beside others, one millisecond after the last one.
async fn beside(w: &Cluster, now: Time, i: i64) -> i64 {
    let seen = w.node().read("job").await;
    let claim = marked(&seen, i as u128, ms(60_001 + i), Sharing::Shared);
    won(w.node().claim(now, "job", claim).await).fence
}

pub(super) async fn the_lost_runs_whose_ends_are_accepted_are_limited(w: &Cluster) {
    job(w).await;
    let mut fences = Vec::new();
    for i in 0..MAX_LOST as i64 {
        fences.push(beside(w, t(61), i).await);
    }
    w.node().reap(t(121), "job").await;
    fences.push(beside(w, t(122), MAX_LOST as i64).await);
    let after = w.node().reap(t(182), "job").await;
    assert_eq!((after.counters.lost, leases(&after)), (MAX_LOST as u64 + 1, vec![]));
    let extend_at = async |at, fence| w.node().end(at, "job", fence, extend()).await;
    assert_eq!(extend_at(t(183), fences[0]).await, Reply::LeaseLost, "the oldest");
    assert_eq!(extend_at(t(183), fences[1]).await, Reply::Extended(t(243)));
    let end = t(243) + KEEP_LOST;
    let after = w.node().reap(end, "job").await;
    assert_eq!(after.counters.lost, MAX_LOST as u64 + 1);
    for fence in fences {
        assert_eq!(extend_at(end, fence).await, Reply::LeaseLost, "after a day");
    }
}

pub(super) async fn a_claim_is_granted_while_ends_of_lost_runs_are_accepted(w: &Cluster) {
    let run = lost_beside_others(w).await;
    let seen = w.node().read("job").await;
    let claim = marked(&seen, 2, t(660), Sharing::Shared);
    let next = won(w.node().claim(t(600), "job", claim.clone()).await);
    assert_eq!(won(w.node().claim(t(600), "job", claim).await), next, "a lost reply");
    assert_eq!(w.node().end(t(601), "job", run.fence, extend()).await, Reply::Extended(t(661)));
    let after = w.node().read("job").await;
    assert_eq!(leases(&after), [(run.fence, t(661)), (next.fence, t(660))]);
    for fence in [next.fence, run.fence] {
        assert_eq!(w.node().end(t(602), "job", fence, ran_and_stay()).await, Reply::Accepted);
    }
    let after = w.node().reap(t(700), "job").await;
    assert_eq!((after.counters.lost, after.counters.succeeded, leases(&after)), (0, 2, vec![]));
}

pub(super) async fn a_claim_at_most_once_whose_reply_was_lost_has_the_same_reply_again(
    w: &Cluster,
) {
    let seen = job(w).await;
    let claim = marked(&seen, 7, t(120), Sharing::Exclusive);
    let run = won(w.node().claim(t(60), "job", claim.clone()).await);
    assert_eq!(won(w.node().claim(t(61), "job", claim.clone()).await), run);
    let later = w.node().read("job").await;
    let two = won(w.node().claim(t(120), "job", marked(&later, 8, t(180), Sharing::Shared)).await);
    assert_ne!(two.fence, run.fence);
    w.node().end(t(121), "job", two.fence, ran_and_stay()).await;
    lost(w.node().claim(t(122), "job", claim).await);
}

/// A store that remembered only the last claim would take it for another node's.
pub(super) async fn a_claim_whose_reply_was_lost_is_granted_however_many_follow(w: &Cluster) {
    let seen = job(w).await;
    let claim = marked(&seen, 1_000, ms(60_001), Sharing::Shared);
    let run = won(w.node().claim(t(61), "job", claim.clone()).await);
    let other = w.join("other").await;
    for i in 1..20 {
        let seen = other.read("job").await;
        let next = marked(&seen, i, ms(60_001 + i as i64), Sharing::Shared);
        let next = won(other.claim(t(61), "job", next).await);
        if i % 2 == 0 {
            let end = other.end(t(61), "job", next.fence, ran_and_stay()).await;
            assert_eq!(end, Reply::Accepted);
        }
        assert_eq!(won(w.node().claim(t(62), "job", claim.clone()).await), run);
    }
}

pub(super) async fn a_released_occurrence_runs_again_beside_the_cursor(w: &Cluster) {
    let seen = job(w).await;
    let run = won(w.node().claim(t(60), "job", marked(&seen, 1, t(120), Sharing::Exclusive)).await);
    assert_eq!(w.node().end(t(61), "job", run.fence, RunAction::Release).await, Reply::Accepted);
    let free = w.node().read("job").await;
    assert_eq!((free.head.clone(), free.attempts), (Some(t(60).into()), 0));
    assert_eq!(free.next, Some(t(120).into()));
    lost(w.node().claim(t(61), "job", once(&free, 2, Some(t(180).into()))).await);
    let again = won(w.node().claim(t(61), "job", triggered(&free, 3)).await);
    assert_eq!((again.occurrence, again.attempt), (t(60).into(), 1));
    let after = w.node().read("job").await;
    assert_eq!((after.head, after.counters.started), (Some(t(120).into()), 1));
}

pub(super) async fn the_number_of_overlapping_runs_is_limited(w: &Cluster) {
    use allora_core::record::MAX_LEASES;
    job(w).await;
    for i in 0..MAX_LEASES as i64 {
        let seen = w.node().read("job").await;
        let claim = marked(&seen, i as u128, ms(60_001 + i), Sharing::Shared);
        won(w.node().claim(t(61), "job", claim).await);
    }
    let full = w.node().read("job").await;
    assert_eq!(full.leases.len(), MAX_LEASES);
    let state =
        lost(w.node().claim(t(61), "job", marked(&full, 999, t(70), Sharing::Shared)).await);
    assert_eq!(state, full);
    let fence = full.leases[5].fence;
    assert_eq!(w.node().end(t(61), "job", fence, ran_and_stay()).await, Reply::Accepted);
    won(w.node().claim(t(61), "job", marked(&full, 999, t(70), Sharing::Shared)).await);
}
