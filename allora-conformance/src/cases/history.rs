//! History: the end of every occurrence can be read afterwards.

use super::entries::{times, told};
use crate::cluster::*;
use allora_core::{
    backend::{
        Action, Advance, CancelScope, Completion, Cursor, HistoryCursor, HistoryEntry,
        HistoryLimits, HistoryQuery, NewSchedule, NextRun, NotRun, NotRunReason, Occurrence,
        Operation, Outcome, Page, Replan, Reply, Sharing,
    },
    schedule::Excluded,
};

fn next(scheduled_at: i64, due_at: i64) -> NextRun {
    NextRun { scheduled_at: t(scheduled_at), due_at: t(due_at) }
}

pub(super) async fn a_run_is_a_lease_until_its_end_which_is_one_entry(w: &Cluster) {
    w.node().register(t(0), "job", t(60)).await;
    let run = won(w.node().lease(t(61), "job", 1).await);
    assert_eq!(w.node().history_entries("job").await, [], "nothing is written at the start");
    let active: Vec<HistoryEntry> = w.node().shown("job").await.active_runs().collect();
    assert_eq!(told(&active), [(t(60), 1, "node-1", t(61), &Outcome::Running)]);
    assert_eq!((&*active[0].name, active[0].fence), ("job", run.fence));
    w.node().end(t(62), "job", run.fence, ran(t(120))).await;
    w.node().end(t(63), "job", run.fence, ran(t(120))).await;
    let past = w.node().history_entries("job").await;
    assert_eq!(told(&past), [(t(60), 1, "node-1", t(62), &Outcome::Succeeded)], "one entry");
    assert_eq!((past[0].fence, past[0].last, past[0].count), (run.fence, None, Some(1)));
    assert_eq!(past[0].name, "job");
    assert_eq!(w.node().shown("job").await.active_runs().count(), 0);
}

pub(super) async fn every_outcome_has_an_entry(w: &Cluster) {
    w.node().register(t(0), "job", t(60)).await;
    let ends = [
        (RunAction::Release, Outcome::Released),
        (RunAction::Retry { not_before: t(60), error: "one" }, Outcome::Retried("one".into())),
        (RunAction::Interrupted { not_before: t(60) }, Outcome::Interrupted),
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
    let expired = (t(60), 1, "node-1", t(121), &Outcome::Expired);
    let past = w.node().history_entries("job").await;
    assert_eq!(told(&past), [expired]);
    let active: Vec<HistoryEntry> = w.node().shown("job").await.active_runs().collect();
    assert_eq!(told(&active), [(t(60), 2, "other", t(121), &Outcome::Running)]);
    w.node().end(t(122), "job", second.fence, ran(t(180))).await;
    let past = w.node().history_entries("job").await;
    assert_eq!(past.iter().map(|past| past.fence).collect::<Vec<_>>(), [second.fence, first.fence]);
    assert_eq!(told(&past), [(t(60), 2, "other", t(122), &Outcome::Succeeded), expired]);
}

pub(super) async fn a_lost_run_has_an_entry(w: &Cluster) {
    let seen = w.node().register(t(0), "job", t(60)).await;
    won(w.node().claim(t(60), "job", marked(&seen, 1, t(120), Sharing::Exclusive)).await);
    w.node().reap(t(125), "job").await;
    let past = w.node().history_entries("job").await;
    assert_eq!(told(&past), [(t(60), 1, "node-1", t(125), &Outcome::Lost)]);
}

pub(super) async fn a_lost_run_that_ends_later_has_one_final_entry(w: &Cluster) {
    let seen = w.node().register(t(0), "job", t(60)).await;
    let run = won(w.node().claim(t(60), "job", marked(&seen, 1, t(600), Sharing::Shared)).await);
    w.join("other").await.reap(t(125), "job").await;
    let past = w.node().history_entries("job").await;
    assert_eq!(told(&past), [(t(60), 1, "node-1", t(125), &Outcome::Lost)]);
    w.node().end(t(130), "job", run.fence, extend()).await;
    let active: Vec<HistoryEntry> = w.node().shown("job").await.active_runs().collect();
    assert_eq!(told(&active), [(t(60), 1, "node-1", t(60), &Outcome::Running)]);
    w.node().reap(t(190), "job").await;
    let past = w.node().history_entries("job").await;
    assert_eq!(told(&past), [(t(60), 1, "node-1", t(190), &Outcome::Lost)], "the last loss");
    w.node().end(t(200), "job", run.fence, ran_and_stay()).await;
    let past = w.node().history_entries("job").await;
    assert_eq!(told(&past), [(t(60), 1, "node-1", t(200), &Outcome::Succeeded)]);
    assert_eq!(past[0].fence, run.fence);
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
    let ranges: Vec<_> = past.iter().map(|past| (past.last, past.count, past.reason)).collect();
    assert_eq!(
        ranges,
        [
            (Some(t(420)), None, Some(NotRunReason::Overlap)),
            (None, Some(1), None),
            (Some(t(240)), Some(4), Some(NotRunReason::CatchUp)),
        ]
    );
    assert_eq!(
        times(&past),
        [
            (None, None, Some(t(421))),
            (Some(t(300)), Some(t(301)), Some(t(302))),
            (None, None, Some(t(301))),
        ]
    );
}

pub(super) async fn occurrences_missed_by_a_redefinition_have_an_entry(w: &Cluster) {
    let seen = w.node().register(t(0), "job", t(60)).await;
    let (generation, plan) = (seen.generation, Replan::new(seen.next, Some(t(600).into())));
    let act = Action::Redefine { generation, definition: "every 1h", version: 0, plan };
    state(w.node().act(t(61), "job", act).await);
    let past = w.node().history_entries("job").await;
    assert_eq!(told(&past), [(t(60), 0, "node-1", t(61), &Outcome::Missed)]);
    assert_eq!(past[0].reason, Some(NotRunReason::CatchUp));
}

pub(super) async fn runs_of_triggers_have_entries_with_their_ids(w: &Cluster) {
    w.node().register(t(0), "job", t(60)).await;
    w.node().trigger(t(30), "job", "id").await;
    let run = won(w.node().lease(t(31), "job", 1).await);
    w.node().end(t(32), "job", run.fence, ran_and_stay()).await;
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
    let all = fine(w.node().history().entries(HistoryQuery::new(99)).await);
    assert_eq!(all.len(), 20);
    assert!(all.windows(2).all(|pair| pair[0].fence > pair[1].fence));
    assert_eq!(paged(w, None).await, all);
    let ones = w.node().history_entries("one").await;
    assert_eq!(ones.len(), 10);
    assert!(ones.iter().all(|past| past.name == "one"));
    assert!(w.node().history_entries("on").await.is_empty());
    assert_eq!(paged(w, Some("one")).await, ones);
    let (query, oldest) = (HistoryQuery::new(9).name("two"), ones[9].cursor());
    assert!(fine(w.node().history().entries(query.before(&oldest)).await).is_empty());
}

/// All entries, in pages of three.
async fn paged(w: &Cluster, name: Option<&str>) -> Vec<HistoryEntry> {
    let mut paged: Vec<HistoryEntry> = Vec::new();
    loop {
        let before = paged.last().map(HistoryEntry::cursor);
        let mut query = HistoryQuery::new(3);
        (query.name, query.before) = (name, before.as_ref());
        let page = fine(w.node().history().entries(query).await);
        assert!(page.len() <= 3);
        if page.is_empty() {
            return paged;
        }
        paged.extend(page);
        assert!(paged.len() < 100, "the pages repeat entries: {paged:?}");
    }
}

pub(super) async fn pages_are_whole_where_many_jobs_have_equal_fences(w: &Cluster) {
    // Names whose order differs from that of their lengths, and one that begins with another.
    let names = ["a", "a b", "ab", "b", "\u{e4}", "c", "z", "zz", "~", "1"];
    for second in [60, 120] {
        for name in names {
            w.node().register(t(0), name, t(60)).await;
            let run = won(w.node().lease(t(second + 1), name, second as u128).await);
            w.node().end(t(second + 1), name, run.fence, ran(t(second + 60))).await;
        }
    }
    let mut expected: Vec<HistoryCursor> = Vec::new();
    for second in [60, 120] {
        let fence = t(second + 1).timestamp_micros();
        let cursor = |name: &&str| HistoryCursor { fence, name: (*name).to_owned() };
        expected.extend(names.iter().map(cursor));
    }
    expected.sort_by(|a, b| b.cmp(a));
    let cursors = |past: Vec<HistoryEntry>| past.iter().map(HistoryEntry::cursor).collect();
    let whole: Vec<_> = cursors(fine(w.node().history().entries(HistoryQuery::new(99)).await));
    assert_eq!(whole, expected, "in one page");
    let paged: Vec<_> = cursors(paged(w, None).await);
    assert_eq!(paged, expected, "in pages of three");
}

pub(super) async fn a_query_has_whole_pages_of_what_it_asks_for(w: &Cluster) {
    for name in ["a/1", "a/2", "b"] {
        w.node().register(t(0), name, t(60)).await;
        for (claim, at) in (1..).zip(60..68) {
            let run = won(w.node().lease(t(at), name, claim).await);
            let completion = match at {
                62 | 66 => Completion::Failed("no"),
                _ => Completion::Succeeded,
            };
            let then = Cursor::To(Some(t(at + 1).into()));
            w.node().end(t(at), name, run.fence, RunAction::Complete { then, completion }).await;
        }
    }
    let all = HistoryQuery::new(3);
    for (query, number) in [
        (all, 24),
        (all.from(t(62)), 18),
        (all.until(t(62)), 6),
        (all.from(t(62)).until(t(64)), 6),
        (all.failures_only(), 6),
        (all.failures_only().from(t(63)), 3),
        (all.failures_only().name("b"), 2),
        (all.prefix("a/"), 16),
        (all.prefix("a/").failures_only(), 4),
        (all.kind(""), 24),
        (all.kind("mail"), 0),
        (all.name("b").until(t(63)), 3),
    ] {
        let (mut found, mut before): (Vec<HistoryEntry>, Option<HistoryCursor>) = (vec![], None);
        loop {
            let mut page = query;
            page.before = before.as_ref();
            let read = fine(w.node().history().entries(page).await);
            assert!(read.iter().all(|entry| query.admits(entry)), "{query:?}");
            let is_last = read.len() < 3;
            found.extend(read);
            if is_last {
                break;
            }
            let last = found.last().map(|last| last.cursor().to_string());
            before = last.map(|text| text.parse().expect("the text of a cursor"));
        }
        assert_eq!(found.len(), number, "{query:?}");
        assert!(found.windows(2).all(|two| two[0].cursor() > two[1].cursor()), "{query:?}");
    }
}

pub(super) async fn an_entry_has_the_times_of_its_run(w: &Cluster) {
    let new = NewSchedule::new("mail", "every 1m", Some(next(60, 65)));
    let seen = fine(w.node().add_one(t(0), "job", new).await);
    assert_eq!(seen.leases, []);
    let run = won(w.node().lease(t(66), "job", 1).await);
    let lease = &w.node().shown("job").await.leases[0];
    assert_eq!((lease.due_at, lease.started_at), (t(65), t(66)), "as the lease has them");
    w.node().end(t(70), "job", run.fence, extend()).await;
    let lease = &w.node().shown("job").await.leases[0];
    assert_eq!((lease.due_at, lease.started_at), (t(65), t(66)), "an extension keeps them");
    let retry = RunAction::Retry { not_before: t(90), error: "one" };
    w.node().end(t(80), "job", run.fence, retry).await;
    let run = won(w.node().lease(t(95), "job", 2).await);
    w.node().end(t(96), "job", run.fence, ran(t(120))).await;
    let past = w.node().history_entries("job").await;
    let first = (Some(t(65)), Some(t(66)), Some(t(80)));
    assert_eq!(times(&past), [(Some(t(90)), Some(t(95)), Some(t(96))), first]);
    assert!(past.iter().all(|past| past.kind == "mail" && past.reason.is_none()));
    // A later occurrence than the head has a time of its own.
    let missed = NotRun { count: Some(3), last: t(240), reason: NotRunReason::CatchUp };
    let claim = leased(&w.node().read("job").await, 3).starting(next(300, 305), missed);
    let run = won(w.node().claim(t(310), "job", claim).await);
    w.node().end(t(311), "job", run.fence, ran(t(360))).await;
    let past = w.node().history_entries("job").await;
    let (ran_at, passed_at) = ((Some(t(305)), Some(t(310)), Some(t(311))), Some(t(310)));
    assert_eq!(times(&past)[..2], [ran_at, (None, None, passed_at)]);
    w.node().register(t(0), "code", t(60)).await;
    let run = won(w.node().lease(t(61), "code", 1).await);
    w.node().end(t(62), "code", run.fence, ran(t(120))).await;
    assert_eq!(w.node().history_entries("code").await[0].kind, "");
}

pub(super) async fn an_ended_lease_has_an_entry_with_its_times(w: &Cluster) {
    w.node().register(t(0), "job", t(60)).await;
    won(w.node().lease(t(61), "job", 1).await);
    won(w.node().lease(t(125), "job", 2).await);
    let past = w.node().history_entries("job").await;
    let expired = (Some(t(60)), Some(t(61)), Some(t(125)));
    assert_eq!(times(&past), [expired]);
    let lease = &w.node().shown("job").await.leases[0];
    assert_eq!((lease.due_at, lease.started_at), (t(121), t(125)), "the next attempt");
    let seen = w.node().register(t(0), "once", t(60)).await;
    won(w.node().claim(t(61), "once", marked(&seen, 1, t(120), Sharing::Exclusive)).await);
    w.node().reap(t(125), "once").await;
    let past = w.node().history_entries("once").await;
    assert_eq!(times(&past), [(Some(t(60)), Some(t(61)), Some(t(125)))]);
}

pub(super) async fn of_the_attempts_of_an_occurrence_only_the_last_is_final(w: &Cluster) {
    w.node().register(t(0), "job", t(60)).await;
    let follow = [
        RunAction::Release,
        RunAction::Retry { not_before: t(60), error: "no" },
        RunAction::Interrupted { not_before: t(60) },
        ran(t(120)),
    ];
    for (claim, end) in (1..).zip(follow) {
        let now = t(60 + claim as i64);
        let run = won(w.node().lease(now, "job", claim).await);
        w.node().end(now, "job", run.fence, end).await;
    }
    let finals = async |name| -> Vec<(Occurrence, bool)> {
        let past = w.node().history_entries(name).await;
        past.into_iter()
            .map(|past| (past.is_final(), past))
            .map(|(f, p)| (p.occurrence, f))
            .collect()
    };
    let first = |is_final| (Occurrence::from(t(60)), is_final);
    assert_eq!(finals("job").await, [first(true), first(false), first(false), first(false)]);
    let run = won(w.node().lease(t(121), "job", 9).await);
    assert!(w.node().shown("job").await.active_runs().all(|run| !run.is_final()), "it is running");
    let completion = Completion::Failed("for good");
    let then = Cursor::To(Some(t(180).into()));
    w.node().end(t(122), "job", run.fence, RunAction::Complete { then, completion }).await;
    assert_eq!(finals("job").await[0], (t(120).into(), true));
}

pub(super) async fn a_run_of_a_deleted_job_ends_as_cancelled(w: &Cluster) {
    w.node().register(t(0), "job", t(60)).await;
    let run = won(w.node().lease(t(61), "job", 1).await);
    w.node().delete(t(70), "job").await;
    let past = w.node().history_entries("job").await;
    assert_eq!(told(&past), [(t(60), 1, "node-1", t(70), &Outcome::Cancelled)]);
    w.node().end(t(71), "job", run.fence, ran(t(120))).await;
    assert_eq!(w.node().history_entries("job").await, past, "the late end changes nothing");
}

pub(super) async fn a_cancelled_run_has_an_entry_with_the_reason(w: &Cluster) {
    let cancel = async |name: &str| {
        w.node().register(t(0), name, t(60)).await;
        let run = won(w.node().lease(t(61), name, 1).await);
        fine(w.node().modify(t(62), name, Action::Cancel(CancelScope::All)).await);
        run.fence
    };
    let then = Cursor::To(Some(t(120).into()));
    let fence = cancel("told").await;
    let end = RunAction::Complete { then, completion: Completion::Cancelled };
    w.node().end(t(70), "told", fence, end).await;
    let fence = cancel("silent").await;
    let give_up = Action::GiveUp { fence, occurrence: t(60).into(), then, error: "unused" };
    assert_eq!(w.node().act(t(125), "silent", give_up).await, Reply::Accepted);
    let seen = w.node().register(t(0), "once", t(60)).await;
    won(w.node().claim(t(61), "once", marked(&seen, 1, t(120), Sharing::Shared)).await);
    fine(w.node().modify(t(62), "once", Action::Cancel(CancelScope::All)).await);
    w.node().reap(t(125), "once").await;
    w.node().register(t(0), "deleted", t(60)).await;
    let run = won(w.node().lease(t(61), "deleted", 1).await);
    w.node().delete(t(70), "deleted").await;
    w.node().end(t(71), "deleted", run.fence, extend()).await;
    // A node that is stopped completes it without a request.
    w.node().register(t(0), "stopped", t(60)).await;
    let run = won(w.node().lease(t(61), "stopped", 1).await);
    w.node().end(t(70), "stopped", run.fence, end).await;
    for (name, ended, reason) in [
        ("told", t(70), Some(NotRunReason::Operator)),
        ("silent", t(125), Some(NotRunReason::Operator)),
        ("once", t(125), Some(NotRunReason::Operator)),
        ("deleted", t(70), Some(NotRunReason::Deleted)),
        ("stopped", t(70), Some(NotRunReason::Shutdown)),
    ] {
        let past = w.node().history_entries(name).await;
        assert_eq!(told(&past), [(t(60), 1, "node-1", ended, &Outcome::Cancelled)], "{name}");
        assert_eq!(past[0].reason, reason, "{name}");
    }
}

pub(super) async fn what_was_cancelled_while_it_waited_has_an_entry(w: &Cluster) {
    let node = w.node();
    node.register(t(0), "job", t(60)).await;
    let run = won(node.lease(t(61), "job", 1).await);
    let retry = RunAction::Retry { not_before: t(600), error: "x" };
    node.end(t(62), "job", run.fence, retry).await;
    node.trigger(t(62), "job", "by hand").await;
    let asked = fine(node.modify(t(63), "job", Action::Cancel(CancelScope::All)).await);
    let then = Cursor::To(Some(t(120).into()));
    let fence = asked.leases.first().map_or(0, |lease| lease.fence);
    let give_up = Action::GiveUp { fence, occurrence: t(60).into(), then, error: "unused" };
    assert_eq!(node.act(t(64), "job", give_up).await, Reply::Accepted);
    let past = node.history_entries("job").await;
    let cancelled = past.iter().filter(|entry| entry.outcome == Outcome::Cancelled);
    let seen: Vec<_> = cancelled
        .map(|entry| {
            let trigger = entry.occurrence.trigger.as_deref();
            (trigger, entry.attempt, entry.due_at, entry.started_at, entry.ended_at, entry.reason)
        })
        .collect();
    let reason = Some(NotRunReason::Operator);
    assert_eq!(
        seen,
        [
            (Some("by hand"), 0, Some(t(62)), None, Some(t(63)), reason),
            (None, 1, Some(t(600)), None, Some(t(64)), reason),
        ]
    );
}

pub(super) async fn what_a_calendar_excludes_has_an_entry_with_its_range(w: &Cluster) {
    let seen = w.node().register(t(0), "job", t(60)).await;
    let run = won(w.node().claim(t(60), "job", leased(&seen, 1)).await);
    let excluded = Excluded { first: t(120), last: t(240), count: Some(3) };
    let end = Operation::new("job", ran(t(300)).under(run.fence)).excluded(Some(excluded));
    for repetition in [t(61), t(62)] {
        let ended = w.node().apply(repetition, std::slice::from_ref(&end)).await;
        assert_eq!(fine(ended.single()), Reply::Accepted);
    }
    // The record does not show it: the next claim expects the fence of the last one.
    let seen = w.node().read("job").await;
    assert_eq!((seen.fence, seen.counters.skipped), (run.fence, 0));

    let next = Some(t(600).into());
    let excluded = Excluded { first: t(360), last: t(540), count: None };
    let missed = NotRun { count: Some(1), last: t(300), reason: NotRunReason::Window };
    let advance = Advance::new(seen.generation, t(300), missed, next).excluded(Some(excluded));
    state(w.node().act(t(301), "job", Action::Advance(advance)).await);
    let past = w.node().history_entries("job").await;
    assert_eq!(
        told(&past),
        [
            (t(360), 0, "node-1", t(301), &Outcome::Skipped),
            (t(300), 0, "node-1", t(301), &Outcome::Missed),
            (t(120), 0, "node-1", t(61), &Outcome::Skipped),
            (t(60), 1, "node-1", t(61), &Outcome::Succeeded),
        ]
    );
    let ranges: Vec<_> = past.iter().map(|past| (past.last, past.count, past.reason)).collect();
    assert_eq!(ranges[0], (Some(t(540)), None, Some(NotRunReason::Calendar)));
    assert_eq!(ranges[2], (Some(t(240)), Some(3), Some(NotRunReason::Calendar)));
}

const HOUR: i64 = 3_600;

/// Runs a job, which may be new, so many times, once a second from `first` on.
async fn run(node: &Node, name: &str, first: i64, runs: i64, completion: Completion<'_>) {
    node.register(t(0), name, t(0)).await;
    for second in first..first + runs {
        let claim_id = u128::from(second.unsigned_abs()) + 1;
        let run = won(node.lease(t(second), name, claim_id).await);
        let then = Cursor::To(Some(t(second + 1).into()));
        let end = RunAction::Complete { then, completion };
        assert_eq!(node.end(t(second), name, run.fence, end).await, Reply::Accepted);
    }
}

pub(super) async fn a_busy_job_evicts_no_entry_of_another(w: &Cluster) {
    let limits = HistoryLimits::default().per_job(30);
    let Some(node) = w.join_with_history("limited", limits).await else { return };
    assert_eq!(node.history().limits().per_job, Some(30));
    run(&node, "nightly", 10, 3, Completion::Succeeded).await;
    let nightly = node.history_entries("nightly").await;
    run(&node, "busy", 100, 100, Completion::Succeeded).await;
    let busy = node.history_entries("busy").await;
    node.prune(t(300)).await;
    assert_eq!(node.history_entries("nightly").await, nightly);
    let left = node.history_entries("busy").await;
    assert!((30..=33).contains(&left.len()), "{} of at most 30 are left", left.len());
    assert_eq!(left, busy[..left.len()], "the newest");
    let all = fine(node.history().entries(HistoryQuery::new(1_000)).await);
    assert_eq!(all.len(), left.len() + nightly.len(), "pages of all jobs have no more");
}

pub(super) async fn failures_and_the_rest_have_limits_of_their_own(w: &Cluster) {
    let limits = HistoryLimits::default().per_job(20).failures_per_job(5);
    let Some(node) = w.join_with_history("limited", limits).await else { return };
    run(&node, "job", 10, 2, Completion::Failed("no")).await;
    run(&node, "job", 12, 1, Completion::Dead("no more")).await;
    run(&node, "job", 13, 40, Completion::Succeeded).await;
    node.prune(t(100)).await;
    let words = |past: &[HistoryEntry]| -> Vec<&'static str> {
        past.iter().map(|past| past.outcome.word()).collect()
    };
    let kept = node.history_entries("job").await;
    assert_eq!(
        words(&kept),
        [["succeeded"; 20].as_slice(), &["dead", "failed", "failed"]].concat()
    );
    // Failures evict failures alone.
    run(&node, "job", 100, 30, Completion::Failed("no")).await;
    node.prune(t(200)).await;
    let kept = node.history_entries("job").await;
    assert_eq!(words(&kept), [["failed"; 5].as_slice(), &["succeeded"; 20]].concat());
}

pub(super) async fn a_lost_run_that_succeeds_is_a_failure_no_more(w: &Cluster) {
    let limits = HistoryLimits::default().per_job(20).failures_per_job(1);
    let Some(node) = w.join_with_history("limited", limits).await else { return };
    let seen = node.register(t(0), "job", t(60)).await;
    let run_of = won(node.claim(t(60), "job", marked(&seen, 1, t(120), Sharing::Shared)).await);
    node.reap(t(125), "job").await;
    node.end(t(130), "job", run_of.fence, extend()).await;
    node.end(t(131), "job", run_of.fence, ran_and_stay()).await;
    let succeeded = node.history_entries("job").await;
    assert_eq!(told(&succeeded), [(t(60), 1, "limited", t(131), &Outcome::Succeeded)]);
    for (second, claim_id) in [(200, 2), (300, 3)] {
        let seen = node.read("job").await;
        let claim = marked(&seen, claim_id, t(second + 100), Sharing::Exclusive);
        won(node.claim(t(second), "job", claim).await);
        node.reap(t(second + 65), "job").await;
    }
    node.prune(t(400)).await;
    let left = node.history_entries("job").await;
    assert_eq!(left.len(), 2, "{left:?}");
    assert_eq!((&left[0].outcome, &left[1]), (&Outcome::Lost, &succeeded[0]));
}

pub(super) async fn entries_older_than_the_age_are_removed(w: &Cluster) {
    let hours = |hours: i64| std::time::Duration::from_secs((hours * HOUR).unsigned_abs());
    let limits = HistoryLimits::default().per_job(100).age(hours(1)).failure_age(hours(3));
    let Some(node) = w.join_with_history("limited", limits).await else { return };
    let size = async || fine(node.history().entries(HistoryQuery::new(1_000)).await).len();
    run(&node, "job", 0, 30, Completion::Succeeded).await;
    run(&node, "deleted", 0, 5, Completion::Failed("no")).await;
    node.delete(t(40), "deleted").await;
    node.prune(t(HOUR / 2)).await;
    assert_eq!(size().await, 35, "nothing is old");
    let before = node.history_entries("job").await;
    run(&node, "job", HOUR + 10, 5, Completion::Succeeded).await;
    node.prune(t(HOUR + 20)).await;
    let left = node.history_entries("job").await;
    assert_eq!(left.len(), 15, "twenty of the thirty are older: {left:?}");
    assert_eq!(left[5..], before[..10]);
    assert_eq!(node.history_entries("deleted").await.len(), 5, "failures stay longer");
    node.prune(t(3 * HOUR + 20)).await;
    assert_eq!(size().await, 0, "of deleted jobs, too");
}

pub(super) async fn successes_have_no_entries_where_they_are_left_out(w: &Cluster) {
    let limits = HistoryLimits::default().without_successes();
    let Some(node) = w.join_with_history("limited", limits).await else { return };
    assert!(!node.history().limits().successes);
    run(&node, "job", 10, 3, Completion::Succeeded).await;
    run(&node, "job", 13, 1, Completion::Failed("no")).await;
    run(&node, "job", 14, 3, Completion::Succeeded).await;
    let left = node.history_entries("job").await;
    assert_eq!(told(&left), [(t(13), 1, "limited", t(13), &Outcome::Failed("no".into()))]);
    assert_eq!(node.shown("job").await.counters.succeeded, 6, "they are counted");
    node.register(t(0), "hand", t(HOUR)).await;
    node.trigger(t(20), "hand", "id").await;
    let seen = node.read("hand").await;
    let hand = won(node.claim(t(20), "hand", triggered(&seen, 1)).await);
    node.end(t(21), "hand", hand.fence, ran_and_stay()).await;
    assert_eq!(node.history_entries("hand").await.len(), 1, "somebody may wait for it");
    // The end of a run that was recorded as lost takes the place of the loss.
    let seen = node.register(t(0), "late", t(60)).await;
    let late = won(node.claim(t(60), "late", marked(&seen, 1, t(120), Sharing::Shared)).await);
    node.reap(t(125), "late").await;
    node.end(t(131), "late", late.fence, ran_and_stay()).await;
    let left = node.history_entries("late").await;
    assert_eq!(told(&left), [(t(60), 1, "limited", t(131), &Outcome::Succeeded)]);
    // Another node may keep them.
    let limits = HistoryLimits::default();
    let Some(node) = w.join_with_history("whole", limits).await else { return };
    run(&node, "job", 30, 2, Completion::Succeeded).await;
    assert_eq!(node.history_entries("job").await.len(), 3);
}

pub(super) async fn pruning_leaves_an_active_run_and_its_end_is_an_entry(w: &Cluster) {
    let limits = HistoryLimits::default().per_job(20);
    let Some(node) = w.join_with_history("limited", limits).await else { return };
    let seen = node.register(t(0), "job", t(0)).await;
    let active = won(node.claim(t(0), "job", marked(&seen, 1, t(1), Sharing::Shared)).await);
    for second in 1..50 {
        let seen = node.read("job").await;
        let claim = marked(&seen, second as u128 + 1, t(second + 1), Sharing::Shared);
        let run = won(node.claim(t(second), "job", claim).await);
        node.end(t(second), "job", run.fence, ran_and_stay()).await;
    }
    node.prune(t(55)).await;
    let left = node.history_entries("job").await.len();
    assert!((20..=22).contains(&left), "{left} entries");
    let runs: Vec<HistoryEntry> = node.shown("job").await.active_runs().collect();
    assert_eq!(runs.iter().map(|run| run.fence).collect::<Vec<_>>(), [active.fence]);
    node.end(t(56), "job", active.fence, ran_and_stay()).await;
    let left = node.history_entries("job").await;
    let last = &left[left.len() - 1];
    assert_eq!((last.fence, &last.outcome), (active.fence, &Outcome::Succeeded));
}

pub(super) async fn entries_are_counted_by_the_hour_before_they_are_removed(w: &Cluster) {
    let limits = HistoryLimits::default().per_job(20);
    let Some(one) = w.join_with_history("one", limits).await else { return };
    let Some(other) = w.join_with_history("other", limits).await else { return };
    let long = "x".repeat(200);
    for (start, node) in [(0, &one), (50, &other), (100, &one)] {
        for name in ["job", &*long] {
            run(node, name, start, 50, Completion::Succeeded).await;
        }
        node.prune(t(start + 50)).await;
        one.prune(t(start + 50)).await;
    }
    let records = other.list(Page::first(9).prefix("allora:hours:")).await;
    if records.is_empty() {
        // It is not the engine that prunes this backend.
        return;
    }
    for name in ["job", &*long] {
        assert_eq!(one.history_entries(name).await.len(), 20);
    }
    assert_eq!(records.len(), 2, "{records:?}");
    for record in &records {
        let state = other.read(record).await;
        let text = String::from_utf8_lossy(&state.data);
        // Its starts and successes, and nothing else.
        assert!(text.contains(" 150 150 0 0 0 0 0 0 0 "), "{record}: {text}");
    }
    assert_eq!(one.list(Page::first(9)).await, ["job", &*long]);
}
