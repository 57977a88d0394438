//! At least once: an occurrence is somebody's for a while, and the fence decides.

use crate::world::*;
use allora_core::{
    Time,
    backend::{
        Act, Beside, Cursor, Deliver, End, Ended, Ending, Next, Outcome, Passed, Settled, State,
    },
};
use std::time::Duration;

async fn job(w: &World) -> State {
    w.node().register(t(0), "job", t(60)).await
}

fn to(at: Time) -> Option<Next> {
    Some(at.into())
}

pub(super) async fn a_leased_occurrence_stays_until_it_is_finished(w: &World) {
    job(w).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    assert_eq!((run.run.clone(), run.attempt, run.until), (t(60).into(), 1, Some(t(120))));
    let held = w.node().look("job").await;
    assert_eq!((held.cursor, held.head.clone()), (to(t(60)), Some(t(60).into())));
    assert_eq!((held.due_at, held.attempts, held.last_started), (Some(t(120)), 1, Some(t(60))));
    let [hold] = &held.holds[..] else { panic!("one run: {held:?}") };
    assert_eq!((&*hold.node, hold.fence, hold.attempt), ("node-1", run.fence, 1));
    assert_eq!((&hold.run, hold.until, hold.at_least_once), (&run.run, t(120), true));
    assert_eq!(w.node().end(t(61), "job", run.fence, ran(t(180))).await, Settled::Done);
    let after = w.node().look("job").await;
    assert_eq!((after.cursor, after.head.clone()), (to(t(180)), Some(t(180).into())));
    assert_eq!((after.attempts, holds(&after)), (0, vec![]));
    assert_eq!((after.counters.ran, after.counters.started), (1, 1));
    assert_eq!(after.last, Some(Outcome::Ran));
}

pub(super) async fn nobody_else_takes_what_is_leased(w: &World) {
    job(w).await;
    won(w.node().lease(t(60), "job", 1).await);
    let other = w.join("other").await;
    let seen = other.look("job").await;
    let told = lost(other.take(ms(119_999), "job", leased(&seen, 2)).await);
    assert_eq!(told.due_at, Some(t(120)));
    lost(other.take(ms(119_999), "job", once(&seen, 2, to(t(120)))).await);
    lost(other.take(ms(119_999), "job", marked(&seen, 2, t(120), Beside::Others)).await);
}

pub(super) async fn a_silent_nodes_occurrence_is_run_again_when_its_lease_ends(w: &World) {
    job(w).await;
    let first = won(w.node().lease(t(60), "job", 1).await);
    let other = w.join("other").await;
    let second = won(other.lease(t(120), "job", 2).await);
    assert_eq!((second.run.clone(), second.attempt), (first.run, 2));
    assert!(second.fence > first.fence);
    assert_eq!(second.until, Some(t(180)));
    let seen = w.node().look("job").await;
    assert_eq!(holds(&seen), [(second.fence, t(180))]);
    assert_eq!((seen.counters.abandoned, seen.counters.started), (1, 1), "started once");
    let third = won(w.node().lease(t(180), "job", 3).await);
    assert_eq!((third.run, third.attempt), (second.run, 3));
    assert!(third.fence > second.fence);
}

pub(super) async fn once_taken_over_every_ending_is_refused(w: &World) {
    job(w).await;
    let old = won(w.node().lease(t(60), "job", 1).await);
    won(w.join("other").await.lease(t(120), "job", 2).await);
    let before = w.node().look("job").await;
    for end in [extend(), ran(t(180)), End::Retry { at: t(130), error: "x" }, End::Release] {
        assert_eq!(w.node().end(t(121), "job", old.fence, end).await, Settled::Lost);
    }
    assert_eq!(w.node().look("job").await, before);
}

pub(super) async fn a_fence_that_was_never_given_is_refused(w: &World) {
    job(w).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    let before = w.node().look("job").await;
    for fence in [run.fence + 1, run.fence - 1, 0, -1, i64::MAX, i64::MIN] {
        for end in [extend(), ran(t(180)), End::Release] {
            assert_eq!(w.node().end(t(61), "job", fence, end).await, Settled::Lost, "{fence}");
        }
    }
    assert_eq!(w.node().look("job").await, before);
}

pub(super) async fn late_but_not_taken_over_is_accepted(w: &World) {
    job(w).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    assert_eq!(w.node().end(t(500), "job", run.fence, extend()).await, Settled::Until(t(560)));
    assert_eq!(w.node().end(t(9_000), "job", run.fence, ran(t(9_060))).await, Settled::Done);
    assert_eq!(w.node().look("job").await.cursor, to(t(9_060)));
}

pub(super) async fn an_extended_lease_keeps_others_away(w: &World) {
    job(w).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    assert_eq!(w.node().end(t(100), "job", run.fence, extend()).await, Settled::Until(t(160)));
    let other = w.join("other").await;
    let seen = other.look("job").await;
    lost(other.take(t(120), "job", leased(&seen, 2)).await);
    lost(other.take(ms(159_999), "job", leased(&seen, 2)).await);
    won(other.take(t(160), "job", leased(&seen, 2)).await);
}

pub(super) async fn a_lease_never_shrinks(w: &World) {
    job(w).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    let short = End::Extend { lasts: Duration::from_secs(1) };
    assert_eq!(w.node().end(t(61), "job", run.fence, short).await, Settled::Until(t(120)));
    assert_eq!(w.node().end(t(0), "job", run.fence, extend()).await, Settled::Until(t(120)));
    assert_eq!(holds(&w.node().look("job").await), [(run.fence, t(120))]);
}

pub(super) async fn a_finish_whose_answer_was_lost_is_answered_alike(w: &World) {
    job(w).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    assert_eq!(w.node().end(t(61), "job", run.fence, ran(t(120))).await, Settled::Done);
    let before = w.node().look("job").await;
    for seconds in [61, 500] {
        let again = w.node().end(t(seconds), "job", run.fence, ran(t(120))).await;
        assert_eq!(again, Settled::Done);
    }
    assert_eq!(w.node().look("job").await, before, "and counts nothing twice");
    assert_eq!(w.node().end(t(62), "job", run.fence, extend()).await, Settled::Lost);
    assert_eq!(w.node().end(t(62), "job", run.fence, End::Release).await, Settled::Lost);
}

pub(super) async fn every_ending_is_answered_alike_when_repeated(w: &World) {
    job(w).await;
    for (claim, end) in (1..).zip([
        End::Retry { at: t(60), error: "x" },
        End::Release,
        End::Finish { then: Cursor::To(to(t(120))), outcome: Ended::Failed("y") },
    ]) {
        let run = won(w.node().lease(t(60), "job", claim).await);
        assert_eq!(w.node().end(t(60), "job", run.fence, end.clone()).await, Settled::Done);
        let before = w.node().look("job").await;
        assert_eq!(w.node().end(t(61), "job", run.fence, end).await, Settled::Done);
        assert_eq!(w.node().look("job").await, before);
    }
}

/// The network has delivered it twice, or very late.
pub(super) async fn a_take_that_arrives_after_its_run_was_given_back_is_refused(w: &World) {
    let mut seen = job(w).await;
    let other = w.join("other").await;
    let mut sent = Vec::new();
    let again = |error| End::Retry { at: t(60), error };
    for (claim, end) in (1..).zip([End::Release, again("a"), again("b"), End::Release]) {
        let take = leased(&seen, claim);
        let node = if claim % 2 == 0 { &other } else { w.node() };
        let run = won(node.take(t(62), "job", take.clone()).await);
        sent.push(take);
        assert_eq!(node.end(t(61), "job", run.fence, end).await, Settled::Done);
        seen = node.look("job").await;
        assert_eq!(seen.head, Some(t(60).into()), "offered again");
        for late in &sent {
            let told = lost(node.take(t(62), "job", late.clone()).await);
            assert_eq!((holds(&told), told.fence), (vec![], run.fence));
        }
    }
    won(other.take(t(63), "job", leased(&seen, 9)).await);
}

pub(super) async fn finished_is_finished(w: &World) {
    let mut seen = job(w).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    w.node().end(t(61), "job", run.fence, ran(t(120))).await;
    let other = w.join("other").await;
    seen.fence = other.look("job").await.fence;
    for (claim, seconds) in (2..).zip([61, 120, 999]) {
        lost(other.take(t(seconds), "job", leased(&seen, claim)).await);
    }
}

pub(super) async fn a_finish_that_would_not_go_forward_is_refused(w: &World) {
    job(w).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    let before = w.node().look("job").await;
    for end in [ran(t(60)), ran(t(59)), ran(t(0)), ran_and_stay()] {
        assert_eq!(w.node().end(t(61), "job", run.fence, end).await, Settled::Refused);
    }
    assert_eq!(w.node().look("job").await, before);
    assert_eq!(w.node().end(t(61), "job", run.fence, ran(ms(60_001))).await, Settled::Done);
}

pub(super) async fn the_last_finish_ends_the_schedule(w: &World) {
    job(w).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    let end = End::Finish { then: Cursor::To(None), outcome: Ended::Ran };
    assert_eq!(w.node().end(t(61), "job", run.fence, end).await, Settled::Done);
    let after = w.node().look("job").await;
    assert_eq!((after.cursor, after.head, after.due_at), (None, None, None));
}

pub(super) async fn outcomes_are_counted_and_remembered(w: &World) {
    job(w).await;
    let mut at = 60;
    for (claim, (outcome, expected)) in (1..).zip([
        (Ended::Ran, Outcome::Ran),
        (Ended::Failed("b\u{e4}d"), Outcome::Failed("b\u{e4}d".into())),
        (Ended::Dead(""), Outcome::Dead(String::new())),
        (Ended::Cancelled, Outcome::Cancelled),
        (Ended::Failed("'; --"), Outcome::Failed("'; --".into())),
    ]) {
        let run = won(w.node().lease(t(at), "job", claim).await);
        at += 60;
        let end = End::Finish { then: Cursor::To(to(t(at))), outcome };
        assert_eq!(w.node().end(t(at - 59), "job", run.fence, end).await, Settled::Done);
        assert_eq!(w.node().look("job").await.last, Some(expected));
    }
    let counters = w.node().look("job").await.counters;
    assert_eq!((counters.started, counters.ran), (5, 1));
    assert_eq!((counters.failed, counters.cancelled), (3, 1));
}

pub(super) async fn a_retry_is_the_same_occurrence_later(w: &World) {
    job(w).await;
    let first = won(w.node().lease(t(60), "job", 1).await);
    let retry = End::Retry { at: t(90), error: "broken" };
    assert_eq!(w.node().end(t(61), "job", first.fence, retry).await, Settled::Done);
    let waits = w.node().look("job").await;
    assert_eq!((waits.head.clone(), waits.due_at), (Some(t(60).into()), Some(t(90))));
    assert_eq!((waits.attempts, waits.cursor), (1, to(t(60))));
    assert_eq!(
        (waits.counters.failed, waits.last.clone()),
        (1, Some(Outcome::Failed("broken".into())))
    );
    lost(w.node().take(ms(89_999), "job", leased(&waits, 2)).await);
    let other = w.join("other").await;
    let second = won(other.take(t(90), "job", leased(&waits, 3)).await);
    assert_eq!((second.run, second.attempt), (t(60).into(), 2));
    assert_eq!(other.end(t(91), "job", second.fence, ran(t(120))).await, Settled::Done);
    let after = w.node().look("job").await;
    assert_eq!((after.cursor, after.counters.started), (to(t(120)), 1));
}

pub(super) async fn what_is_released_can_be_taken_at_once_and_did_not_count(w: &World) {
    job(w).await;
    let first = won(w.node().lease(t(60), "job", 1).await);
    assert_eq!(w.node().end(t(61), "job", first.fence, End::Release).await, Settled::Done);
    let free = w.node().look("job").await;
    assert_eq!((free.attempts, free.due_at, holds(&free)), (0, Some(t(60)), vec![]));
    let second = won(w.join("other").await.lease(t(61), "job", 2).await);
    assert_eq!((second.run, second.attempt), (t(60).into(), 1));
    assert!(second.fence > first.fence);
    assert_eq!(w.node().end(t(62), "job", first.fence, ran(t(120))).await, Settled::Lost);
    assert_eq!(w.node().look("job").await.counters.started, 1);
}

pub(super) async fn a_begun_occurrence_is_not_passed_over(w: &World) {
    job(w).await;
    won(w.node().lease(t(60), "job", 1).await);
    let seen = w.node().look("job").await;
    let passed = Passed { count: Some(3), last: t(240), overlap: false };
    let later = leased(&seen, 2).starting(t(300).into(), passed);
    assert_eq!(lost(w.node().take(t(301), "job", later).await), seen);
    let run = won(w.node().take(t(301), "job", leased(&seen, 3)).await);
    assert_eq!((run.run, run.attempt), (t(60).into(), 2));
}

pub(super) async fn a_begun_occurrence_may_be_taken_at_most_once_if_the_cursor_moves(w: &World) {
    job(w).await;
    won(w.node().lease(t(60), "job", 1).await);
    let seen = w.node().look("job").await;
    // Left where it is, the cursor would offer nothing for ever.
    lost(w.node().take(t(120), "job", triggered(&seen, 2)).await);
    let run = won(w.node().take(t(120), "job", once(&seen, 3, to(t(180)))).await);
    assert_eq!((run.run, run.attempt), (t(60).into(), 2));
    let after = w.node().look("job").await;
    assert_eq!((after.head.clone(), holds(&after)), (Some(t(180).into()), vec![]));
}

pub(super) async fn a_leased_take_whose_answer_was_lost_is_answered_again(w: &World) {
    let seen = job(w).await;
    let run = won(w.node().take(t(60), "job", leased(&seen, 7)).await);
    assert_eq!(won(w.node().take(t(70), "job", leased(&seen, 7)).await), run);
    w.node().end(t(80), "job", run.fence, extend()).await;
    let again = won(w.node().take(t(90), "job", leased(&seen, 7)).await);
    assert_eq!((again.fence, again.attempt, again.until), (run.fence, 1, Some(t(140))));
    let other = w.join("other").await;
    won(other.lease(t(140), "job", 8).await);
    let seen = w.node().look("job").await;
    lost(w.node().take(t(141), "job", leased(&seen, 7)).await);
}

pub(super) async fn a_batch_of_endings_is_settled_one_by_one(w: &World) {
    let mut fences = Vec::new();
    for (claim, name) in (1..).zip(["one", "two", "three", "four"]) {
        w.node().register(t(0), name, t(60)).await;
        fences.push(won(w.node().lease(t(60), name, claim).await).fence);
    }
    let other = w.join("other").await;
    won(other.lease(t(120), "two", 9).await);
    let endings = [
        Ending::new("three", fences[2], extend()),
        Ending::new("nobody", 1, ran(t(180))),
        Ending::new("two", fences[1], ran(t(180))),
        Ending::new("one", fences[0], ran(t(180))),
        Ending::new("four", fences[3], ran(t(60))),
    ];
    let answers = w.node().settle(t(121), &endings).await;
    let (until, done) = (Settled::Until(t(181)), Settled::Done);
    assert_eq!(answers, [until, Settled::Removed, Settled::Lost, done, Settled::Refused]);
    assert_eq!(w.node().settle(t(121), &[]).await, []);
}

pub(super) async fn a_lease_outlasts_no_clock(w: &World) {
    let seen = job(w).await;
    let mut take = leased(&seen, 1);
    take.deliver = Deliver::AtLeastOnce { lease: Duration::MAX };
    let run = won(w.node().take(t(60), "job", take).await);
    assert_eq!(run.until, Some(allora_core::time::end_of_time()));
    let forever = End::Extend { lasts: Duration::MAX };
    let until = Settled::Until(allora_core::time::end_of_time());
    assert_eq!(w.node().end(t(61), "job", run.fence, forever).await, until);
}

pub(super) async fn a_lease_ends_by_the_millisecond(w: &World) {
    let seen = job(w).await;
    let mut take = leased(&seen, 1);
    take.deliver = Deliver::AtLeastOnce { lease: Duration::from_millis(1) };
    assert_eq!(won(w.node().take(t(60), "job", take).await).until, Some(ms(60_001)));
    let seen = w.node().look("job").await;
    lost(w.node().take(t(60), "job", leased(&seen, 2)).await);
    won(w.node().take(ms(60_001), "job", leased(&seen, 3)).await);
}

pub(super) async fn fences_grow_through_every_end_of_a_lease(w: &World) {
    job(w).await;
    let mut fence = 0;
    let mut grows = |taken: &allora_core::backend::Taken| {
        assert!(taken.fence > fence, "{} after {fence}", taken.fence);
        fence = taken.fence;
    };
    // The clock stands still or goes back all the while.
    let run = won(w.node().lease(t(500), "job", 1).await);
    grows(&run);
    w.node().end(t(500), "job", run.fence, End::Release).await;
    let run = won(w.node().lease(t(500), "job", 2).await);
    grows(&run);
    w.node().end(t(400), "job", run.fence, End::Retry { at: t(61), error: "x" }).await;
    let run = won(w.node().lease(t(61), "job", 3).await);
    grows(&run);
    let run = won(w.node().lease(t(121), "job", 4).await);
    grows(&run);
    w.node().end(t(121), "job", run.fence, ran(t(122))).await;
    grows(&won(w.node().lease(t(122), "job", 5).await));
    let last = w.node().act(t(122), "job", Act::Look).await;
    assert!(state(last).fence >= fence);
}
