//! At most once with a mark: overlap, and runs that are seen to be lost.

use crate::world::*;
use allora_core::backend::{Beside, End, Outcome, Settled, State};
use std::time::Duration;

async fn job(w: &World) -> State {
    w.node().register(t(0), "job", t(60)).await
}

pub(super) async fn a_mark_stays_while_the_run_lives_and_the_cursor_moves_on(w: &World) {
    let seen = job(w).await;
    let run = won(w.node().take(t(60), "job", marked(&seen, 1, t(120), Beside::Others)).await);
    assert_eq!((run.attempt, run.until), (1, Some(t(120))));
    let runs = w.node().look("job").await;
    assert_eq!((runs.head.clone(), runs.due_at), (Some(t(120).into()), Some(t(120))));
    let [hold] = &runs.holds[..] else { panic!("one run: {runs:?}") };
    assert_eq!((hold.fence, hold.at_least_once, &*hold.node), (run.fence, false, "node-1"));
    assert_eq!(w.node().end(t(61), "job", run.fence, ran_and_stay()).await, Settled::Done);
    let after = w.node().look("job").await;
    assert_eq!((holds(&after), after.counters.ran), (vec![], 1));
    assert_eq!(after.head, Some(t(120).into()));
}

pub(super) async fn runs_that_may_overlap_do(w: &World) {
    let seen = job(w).await;
    let one = won(w.node().take(t(60), "job", marked(&seen, 1, t(90), Beside::Others)).await);
    let seen = w.node().look("job").await;
    let two = won(w.node().take(t(90), "job", marked(&seen, 2, t(150), Beside::Others)).await);
    let both = w.node().look("job").await;
    assert_eq!(holds(&both), [(one.fence, t(120)), (two.fence, t(150))]);
    assert_eq!(w.node().end(t(91), "job", two.fence, ran_and_stay()).await, Settled::Done);
    assert_eq!(w.node().end(t(91), "job", one.fence, ran_and_stay()).await, Settled::Done);
}

pub(super) async fn a_run_that_must_be_alone_waits_for_the_one_before(w: &World) {
    let seen = job(w).await;
    let one = won(w.node().take(t(60), "job", marked(&seen, 1, t(90), Beside::None)).await);
    let seen = w.node().look("job").await;
    let other = w.join("other").await;
    let told = lost(other.take(t(90), "job", marked(&seen, 2, t(120), Beside::None)).await);
    assert_eq!(told, seen);
    lost(other.take(t(90), "job", leased(&seen, 2)).await);
    assert_eq!(w.node().end(t(91), "job", one.fence, ran_and_stay()).await, Settled::Done);
    won(other.take(t(91), "job", marked(&seen, 3, t(120), Beside::None)).await);
}

pub(super) async fn a_silent_run_is_lost_when_its_mark_ends(w: &World) {
    let seen = job(w).await;
    let run = won(w.node().take(t(60), "job", marked(&seen, 1, t(600), Beside::None)).await);
    let before = w.node().reap(ms(119_999), "job").await;
    assert_eq!((before.counters.lost, holds(&before)), (0, vec![(run.fence, t(120))]));
    let after = w.node().reap(t(120), "job").await;
    assert_eq!((after.counters.lost, holds(&after)), (1, vec![]));
    assert_eq!(after.last, Some(Outcome::Lost));
    assert_eq!(after.head, Some(t(600).into()), "it is not run again");
    assert_eq!(w.node().reap(t(130), "job").await, after, "and is lost once");
    for end in [extend(), ran_and_stay(), End::Release] {
        assert_eq!(w.node().end(t(131), "job", run.fence, end).await, Settled::Lost);
    }
}

pub(super) async fn the_next_run_does_not_wait_for_a_mark_that_has_ended(w: &World) {
    let seen = job(w).await;
    won(w.node().take(t(60), "job", marked(&seen, 1, t(90), Beside::None)).await);
    let seen = w.node().look("job").await;
    lost(w.node().take(ms(119_999), "job", marked(&seen, 2, t(150), Beside::None)).await);
    let two = won(w.node().take(t(120), "job", marked(&seen, 3, t(150), Beside::None)).await);
    let after = w.node().look("job").await;
    assert_eq!((after.counters.lost, holds(&after)), (1, vec![(two.fence, t(180))]));
}

pub(super) async fn an_extended_mark_keeps_the_run(w: &World) {
    let seen = job(w).await;
    let run = won(w.node().take(t(60), "job", marked(&seen, 1, t(600), Beside::None)).await);
    assert_eq!(w.node().end(t(100), "job", run.fence, extend()).await, Settled::Until(t(160)));
    assert_eq!(w.node().reap(t(120), "job").await.counters.lost, 0);
    let short = End::Extend { lasts: Duration::from_secs(1) };
    assert_eq!(w.node().end(t(121), "job", run.fence, short).await, Settled::Until(t(160)));
    assert_eq!(w.node().reap(t(160), "job").await.counters.lost, 1);
}

pub(super) async fn late_but_not_given_up_is_accepted(w: &World) {
    let seen = job(w).await;
    let run = won(w.node().take(t(60), "job", marked(&seen, 1, t(600), Beside::None)).await);
    assert_eq!(w.node().end(t(300), "job", run.fence, ran_and_stay()).await, Settled::Done);
    let after = w.node().reap(t(301), "job").await;
    assert_eq!((after.counters.ran, after.counters.lost), (1, 0));
}

pub(super) async fn only_the_silent_are_lost(w: &World) {
    let seen = job(w).await;
    won(w.node().take(t(60), "job", marked(&seen, 1, t(90), Beside::Others)).await);
    let seen = w.node().look("job").await;
    let two = won(w.node().take(t(90), "job", marked(&seen, 2, t(600), Beside::Others)).await);
    let after = w.node().reap(t(120), "job").await;
    assert_eq!((after.counters.lost, holds(&after)), (1, vec![(two.fence, t(150))]));
}

pub(super) async fn a_marked_take_whose_answer_was_lost_is_answered_again(w: &World) {
    let seen = job(w).await;
    let take = marked(&seen, 7, t(120), Beside::None);
    let run = won(w.node().take(t(60), "job", take.clone()).await);
    assert_eq!(won(w.node().take(t(61), "job", take.clone()).await), run);
    let later = w.node().look("job").await;
    let two = won(w.node().take(t(120), "job", marked(&later, 8, t(180), Beside::Others)).await);
    assert_ne!(two.fence, run.fence);
    w.node().end(t(121), "job", two.fence, ran_and_stay()).await;
    lost(w.node().take(t(122), "job", take).await);
}

pub(super) async fn what_is_released_runs_again_beside_the_cursor(w: &World) {
    let seen = job(w).await;
    let run = won(w.node().take(t(60), "job", marked(&seen, 1, t(120), Beside::None)).await);
    assert_eq!(w.node().end(t(61), "job", run.fence, End::Release).await, Settled::Done);
    let free = w.node().look("job").await;
    assert_eq!((free.head.clone(), free.attempts), (Some(t(60).into()), 0));
    assert_eq!(free.cursor, Some(t(120).into()));
    lost(w.node().take(t(61), "job", once(&free, 2, Some(t(180).into()))).await);
    let again = won(w.node().take(t(61), "job", triggered(&free, 3)).await);
    assert_eq!((again.run, again.attempt), (t(60).into(), 1));
    let after = w.node().look("job").await;
    assert_eq!((after.head, after.counters.started), (Some(t(120).into()), 1));
}

pub(super) async fn there_is_an_end_to_overlapping(w: &World) {
    use allora_core::record::MAX_HOLDS;
    job(w).await;
    for i in 0..MAX_HOLDS as i64 {
        let seen = w.node().look("job").await;
        let take = marked(&seen, i as u128, ms(60_001 + i), Beside::Others);
        won(w.node().take(t(61), "job", take).await);
    }
    let full = w.node().look("job").await;
    assert_eq!(full.holds.len(), MAX_HOLDS);
    let told = lost(w.node().take(t(61), "job", marked(&full, 999, t(70), Beside::Others)).await);
    assert_eq!(told, full);
    let fence = full.holds[5].fence;
    assert_eq!(w.node().end(t(61), "job", fence, ran_and_stay()).await, Settled::Done);
    won(w.node().take(t(61), "job", marked(&full, 999, t(70), Beside::Others)).await);
}
