//! What happened to every occurrence can be read afterwards.

use crate::world::*;
use allora_core::{
    Time,
    backend::{Act, Beside, Cursor, End, Ended, Outcome, Passed, Past, Skip},
};

/// Fence aside, what an entry says: nominal instant, attempt, node, when, outcome.
fn told(past: &[Past]) -> Vec<(Time, u32, &str, Time, &Outcome)> {
    past.iter()
        .map(|past| (past.occurrence.at, past.attempt, &*past.node, past.at, &past.outcome))
        .collect()
}

pub(super) async fn a_run_is_told_from_its_start_to_its_end(w: &World) {
    w.node().register(t(0), "job", t(60)).await;
    let run = won(w.node().lease(t(61), "job", 1).await);
    let past = w.node().past("job").await;
    assert_eq!(told(&past), [(t(60), 1, "node-1", t(61), &Outcome::Running)]);
    assert_eq!((past[0].fence, past[0].last, past[0].count), (run.fence, None, Some(1)));
    assert_eq!(past[0].name, "job");
    w.node().end(t(62), "job", run.fence, ran(t(120))).await;
    w.node().end(t(63), "job", run.fence, ran(t(120))).await;
    let past = w.node().past("job").await;
    assert_eq!(told(&past), [(t(60), 1, "node-1", t(62), &Outcome::Ran)], "one entry");
}

pub(super) async fn every_outcome_is_told(w: &World) {
    w.node().register(t(0), "job", t(60)).await;
    let ends = [
        (End::Release, Outcome::Released),
        (End::Retry { at: t(60), error: "one" }, Outcome::Failed("one".into())),
        (
            End::Finish { then: Cursor::To(Some(t(61).into())), outcome: Ended::Dead("two") },
            Outcome::Dead("two".into()),
        ),
        (
            End::Finish { then: Cursor::To(Some(t(62).into())), outcome: Ended::Failed("three") },
            Outcome::Failed("three".into()),
        ),
        (
            End::Finish { then: Cursor::To(Some(t(63).into())), outcome: Ended::Cancelled },
            Outcome::Cancelled,
        ),
    ];
    for (claim, (end, expected)) in (1..).zip(ends) {
        let now = t(100 + claim as i64);
        let run = won(w.node().lease(now, "job", claim).await);
        w.node().end(now, "job", run.fence, end).await;
        let past = w.node().past("job").await;
        assert_eq!((past[0].fence, &past[0].outcome), (run.fence, &expected));
        assert_eq!(past.len(), claim as usize, "each attempt has an entry of its own");
    }
}

pub(super) async fn an_abandoned_run_and_its_successor_are_two_entries(w: &World) {
    w.node().register(t(0), "job", t(60)).await;
    let first = won(w.node().lease(t(60), "job", 1).await);
    let second = won(w.join("other").await.lease(t(121), "job", 2).await);
    let past = w.node().past("job").await;
    assert_eq!(past.iter().map(|past| past.fence).collect::<Vec<_>>(), [second.fence, first.fence]);
    let running = (t(60), 2, "other", t(121), &Outcome::Running);
    assert_eq!(told(&past), [running, (t(60), 1, "node-1", t(121), &Outcome::Abandoned)]);
}

pub(super) async fn a_lost_run_is_told(w: &World) {
    let seen = w.node().register(t(0), "job", t(60)).await;
    won(w.node().take(t(60), "job", marked(&seen, 1, t(120), Beside::None)).await);
    w.node().reap(t(125), "job").await;
    let past = w.node().past("job").await;
    assert_eq!(told(&past), [(t(60), 1, "node-1", t(125), &Outcome::Lost)]);
}

pub(super) async fn what_is_passed_over_is_told_as_a_range(w: &World) {
    let seen = w.node().register(t(0), "job", t(60)).await;
    let missed = Passed { count: Some(4), last: t(240), overlap: false };
    let take = leased(&seen, 1).starting(t(300).into(), missed);
    let run = won(w.node().take(t(301), "job", take).await);
    w.node().end(t(302), "job", run.fence, ran(t(360))).await;
    let skipped = Passed { count: None, last: t(420), overlap: true };
    let skip = Skip::new(seen.edition, t(360), skipped, Some(t(480).into()));
    state(w.node().act(t(421), "job", Act::Skip(skip)).await);
    let past = w.node().past("job").await;
    assert_eq!(
        told(&past),
        [
            (t(360), 0, "node-1", t(421), &Outcome::Skipped),
            (t(300), 1, "node-1", t(302), &Outcome::Ran),
            (t(60), 0, "node-1", t(301), &Outcome::Missed),
        ]
    );
    let ranges: Vec<_> = past.iter().map(|past| (past.last, past.count)).collect();
    assert_eq!(ranges, [(Some(t(420)), None), (None, Some(1)), (Some(t(240)), Some(4))]);
}

pub(super) async fn a_redefinition_that_passes_over_is_told(w: &World) {
    let seen = w.node().register(t(0), "job", t(60)).await;
    let (edition, next) = (seen.edition, Some(t(600).into()));
    let act = Act::Redefine { edition, definition: "every 1h", version: 0, next };
    state(w.node().act(t(61), "job", act).await);
    let past = w.node().past("job").await;
    assert_eq!(told(&past), [(t(60), 0, "node-1", t(61), &Outcome::Missed)]);
}

pub(super) async fn triggers_are_told_by_their_ids(w: &World) {
    w.node().register(t(0), "job", t(60)).await;
    w.node().trigger(t(30), "job", "id").await;
    won(w.node().lease(t(31), "job", 1).await);
    let past = w.node().past("job").await;
    assert_eq!(past[0].occurrence.trigger.as_deref(), Some("id"));
    assert_eq!(past[0].occurrence.at, t(30));
}

pub(super) async fn the_newest_come_first_page_by_page(w: &World) {
    for name in ["one", "two"] {
        w.node().register(t(0), name, t(60)).await;
    }
    for i in 0..10 {
        // One after the other, so that no two jobs have the same fence.
        for (offset, name) in [(0, "one"), (7, "two")] {
            let now = ms(100_000 + i * 10 + offset);
            let run = won(w.node().lease(now, name, i as u128 + 1).await);
            let then = head(&w.node().look(name).await).at + chrono::TimeDelta::milliseconds(1);
            w.node().end(now, name, run.fence, ran(then)).await;
        }
    }
    let all = fine(w.node().history().past(None, None, 99).await);
    assert_eq!(all.len(), 20);
    assert!(all.windows(2).all(|pair| pair[0].fence > pair[1].fence));
    let mut paged: Vec<Past> = Vec::new();
    while paged.len() < 20 {
        let before = paged.last().map(|past| past.fence);
        let page = fine(w.node().history().past(None, before, 3).await);
        assert!(!page.is_empty() && page.len() <= 3);
        paged.extend(page);
    }
    assert_eq!(paged, all);
    let ones = w.node().past("one").await;
    assert_eq!(ones.len(), 10);
    assert!(ones.iter().all(|past| past.name == "one"));
    assert!(w.node().past("on").await.is_empty());
    assert!(fine(w.node().history().past(Some("two"), Some(ones[9].fence), 9).await).is_empty());
}
