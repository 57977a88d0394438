//! History: the end of every occurrence can be read afterwards.

use crate::cluster::*;
use allora_core::{
    Time,
    backend::{
        Action, Advance, Completion, Cursor, HistoryEntry, NotRun, NotRunReason, Outcome, Sharing,
    },
};

/// Fence aside, what an entry says: nominal instant, attempt, node, when, outcome.
fn told(past: &[HistoryEntry]) -> Vec<(Time, u32, &str, Time, &Outcome)> {
    past.iter()
        .map(|past| {
            (
                past.occurrence.scheduled_at,
                past.attempt,
                &*past.node,
                past.recorded_at,
                &past.outcome,
            )
        })
        .collect()
}

pub(super) async fn a_run_has_an_entry_from_start_to_end(w: &Cluster) {
    w.node().register(t(0), "job", t(60)).await;
    let run = won(w.node().lease(t(61), "job", 1).await);
    let past = w.node().history_entries("job").await;
    assert_eq!(told(&past), [(t(60), 1, "node-1", t(61), &Outcome::Running)]);
    assert_eq!((past[0].fence, past[0].last, past[0].count), (run.fence, None, Some(1)));
    assert_eq!(past[0].name, "job");
    w.node().end(t(62), "job", run.fence, ran(t(120))).await;
    w.node().end(t(63), "job", run.fence, ran(t(120))).await;
    let past = w.node().history_entries("job").await;
    assert_eq!(told(&past), [(t(60), 1, "node-1", t(62), &Outcome::Succeeded)], "one entry");
}

pub(super) async fn every_outcome_has_an_entry(w: &Cluster) {
    w.node().register(t(0), "job", t(60)).await;
    let ends = [
        (RunAction::Release, Outcome::Released),
        (RunAction::Retry { not_before: t(60), error: "one" }, Outcome::Failed("one".into())),
        (
            RunAction::Complete {
                then: Cursor::To(Some(t(61).into())),
                completion: Completion::Dead("two"),
            },
            Outcome::Dead("two".into()),
        ),
        (
            RunAction::Complete {
                then: Cursor::To(Some(t(62).into())),
                completion: Completion::Failed("three"),
            },
            Outcome::Failed("three".into()),
        ),
        (
            RunAction::Complete {
                then: Cursor::To(Some(t(63).into())),
                completion: Completion::Cancelled,
            },
            Outcome::Cancelled,
        ),
    ];
    for (claim, (end, expected)) in (1..).zip(ends) {
        let now = t(100 + claim as i64);
        let run = won(w.node().lease(now, "job", claim).await);
        w.node().end(now, "job", run.fence, end).await;
        let past = w.node().history_entries("job").await;
        assert_eq!((past[0].fence, &past[0].outcome), (run.fence, &expected));
        assert_eq!(past.len(), claim as usize, "each attempt has an entry of its own");
    }
}

pub(super) async fn an_expired_run_and_its_successor_are_two_entries(w: &Cluster) {
    w.node().register(t(0), "job", t(60)).await;
    let first = won(w.node().lease(t(60), "job", 1).await);
    let second = won(w.join("other").await.lease(t(121), "job", 2).await);
    let past = w.node().history_entries("job").await;
    assert_eq!(past.iter().map(|past| past.fence).collect::<Vec<_>>(), [second.fence, first.fence]);
    let running = (t(60), 2, "other", t(121), &Outcome::Running);
    assert_eq!(told(&past), [running, (t(60), 1, "node-1", t(121), &Outcome::Expired)]);
}

pub(super) async fn a_lost_run_has_an_entry(w: &Cluster) {
    let seen = w.node().register(t(0), "job", t(60)).await;
    won(w.node().claim(t(60), "job", marked(&seen, 1, t(120), Sharing::Exclusive)).await);
    w.node().reap(t(125), "job").await;
    let past = w.node().history_entries("job").await;
    assert_eq!(told(&past), [(t(60), 1, "node-1", t(125), &Outcome::Lost)]);
}

pub(super) async fn occurrences_that_did_not_run_are_one_entry_with_their_range(w: &Cluster) {
    let seen = w.node().register(t(0), "job", t(60)).await;
    let missed = NotRun { count: Some(4), last: t(240), reason: NotRunReason::CatchUp };
    let take = leased(&seen, 1).starting(t(300).into(), missed);
    let run = won(w.node().claim(t(301), "job", take).await);
    w.node().end(t(302), "job", run.fence, ran(t(360))).await;
    let skipped = NotRun { count: None, last: t(420), reason: NotRunReason::Overlap };
    let skip = Advance::new(seen.generation, t(360), skipped, Some(t(480).into()));
    state(w.node().act(t(421), "job", Action::Advance(skip)).await);
    let past = w.node().history_entries("job").await;
    assert_eq!(
        told(&past),
        [
            (t(360), 0, "node-1", t(421), &Outcome::Skipped),
            (t(300), 1, "node-1", t(302), &Outcome::Succeeded),
            (t(60), 0, "node-1", t(301), &Outcome::Missed),
        ]
    );
    let ranges: Vec<_> = past.iter().map(|past| (past.last, past.count)).collect();
    assert_eq!(ranges, [(Some(t(420)), None), (None, Some(1)), (Some(t(240)), Some(4))]);
}

pub(super) async fn occurrences_missed_by_a_redefinition_have_an_entry(w: &Cluster) {
    let seen = w.node().register(t(0), "job", t(60)).await;
    let (generation, next) = (seen.generation, Some(t(600).into()));
    let act = Action::Redefine { generation, definition: "every 1h", version: 0, next };
    state(w.node().act(t(61), "job", act).await);
    let past = w.node().history_entries("job").await;
    assert_eq!(told(&past), [(t(60), 0, "node-1", t(61), &Outcome::Missed)]);
}

pub(super) async fn runs_of_triggers_have_entries_with_their_ids(w: &Cluster) {
    w.node().register(t(0), "job", t(60)).await;
    w.node().trigger(t(30), "job", "id").await;
    won(w.node().lease(t(31), "job", 1).await);
    let past = w.node().history_entries("job").await;
    assert_eq!(past[0].occurrence.trigger.as_deref(), Some("id"));
    assert_eq!(past[0].occurrence.scheduled_at, t(30));
}

pub(super) async fn the_newest_come_first_page_by_page(w: &Cluster) {
    for name in ["one", "two"] {
        w.node().register(t(0), name, t(60)).await;
    }
    for i in 0..10 {
        // One after the other, so that no two jobs have the same fence.
        for (offset, name) in [(0, "one"), (7, "two")] {
            let now = ms(100_000 + i * 10 + offset);
            let run = won(w.node().lease(now, name, i as u128 + 1).await);
            let then =
                head(&w.node().read(name).await).scheduled_at + chrono::TimeDelta::milliseconds(1);
            w.node().end(now, name, run.fence, ran(then)).await;
        }
    }
    let all = fine(w.node().history().entries(None, None, 99).await);
    assert_eq!(all.len(), 20);
    assert!(all.windows(2).all(|pair| pair[0].fence > pair[1].fence));
    let mut paged: Vec<HistoryEntry> = Vec::new();
    while paged.len() < 20 {
        let before = paged.last().map(|past| past.fence);
        let page = fine(w.node().history().entries(None, before, 3).await);
        assert!(!page.is_empty() && page.len() <= 3);
        paged.extend(page);
    }
    assert_eq!(paged, all);
    let ones = w.node().history_entries("one").await;
    assert_eq!(ones.len(), 10);
    assert!(ones.iter().all(|past| past.name == "one"));
    assert!(w.node().history_entries("on").await.is_empty());
    assert!(fine(w.node().history().entries(Some("two"), Some(ones[9].fence), 9).await).is_empty());
}
