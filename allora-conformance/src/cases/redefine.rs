//! A job's definition changes: the last registration wins, and nothing runs twice for it.

use crate::cluster::*;
use allora_core::{
    Time,
    backend::{Action, JobState, NextRun, NotRun, NotRunReason, Replan, Reply},
};

fn redefine(seen: &JobState, version: u64, next: Option<NextRun>) -> Action<'static> {
    let plan = Replan::new(seen.next, next);
    Action::Redefine { generation: seen.generation, definition: "every 1h", version, plan }
}

fn to(at: Time) -> Option<NextRun> {
    Some(at.into())
}

pub(super) async fn another_definition_has_another_generation_and_cursor(w: &Cluster) {
    let seen = w.node().register(t(0), "job", t(60)).await;
    let after = state(w.node().act(t(10), "job", redefine(&seen, 4, to(t(30)))).await);
    assert_eq!((&*after.definition, after.version), ("every 1h", 4));
    assert_eq!((after.next, after.head.clone()), (to(t(30)), Some(t(30).into())));
    assert!(after.generation > seen.generation);
    assert_eq!(after.incarnation, seen.incarnation);
    assert_eq!(after.counters, seen.counters, "nothing was due, nothing is missed");
    assert_eq!(w.node().read("job").await, after);
}

pub(super) async fn a_node_with_the_old_definition_claims_nothing(w: &Cluster) {
    let old = w.node().register(t(0), "job", t(60)).await;
    let new = state(w.node().act(t(10), "job", redefine(&old, 0, to(t(60)))).await);
    let state = lost(w.node().claim(t(60), "job", once(&old, 1, to(t(120)))).await);
    assert_eq!(state, new);
    won(w.node().claim(t(60), "job", once(&new, 2, to(t(120)))).await);
}

pub(super) async fn of_two_redefinitions_of_one_generation_one_succeeds(w: &Cluster) {
    let seen = w.node().register(t(0), "job", t(60)).await;
    let first = state(w.node().act(t(10), "job", redefine(&seen, 0, to(t(30)))).await);
    let second = state(w.node().act(t(10), "job", redefine(&seen, 0, to(t(40)))).await);
    assert_eq!(second, first);
}

pub(super) async fn a_lower_version_does_not_win_back(w: &Cluster) {
    let seen = w.node().register(t(0), "job", t(60)).await;
    let newer = state(w.node().act(t(1), "job", redefine(&seen, 5, to(t(30)))).await);
    let refused = state(w.node().act(t(2), "job", redefine(&newer, 4, to(t(40)))).await);
    assert_eq!(refused, newer);
    let equal = state(w.node().act(t(3), "job", redefine(&newer, 5, to(t(50)))).await);
    assert_eq!((equal.version, equal.next), (5, to(t(50))));
}

pub(super) async fn a_redefinition_does_not_repeat_a_started_occurrence(w: &Cluster) {
    let seen = w.node().register(t(0), "job", t(60)).await;
    won(w.node().claim(t(60), "job", once(&seen, 1, to(t(120)))).await);
    let seen = w.node().read("job").await;
    for back in [t(60), t(59), t(0)] {
        assert_eq!(state(w.node().act(t(61), "job", redefine(&seen, 0, to(back))).await), seen);
    }
    let after = state(w.node().act(t(61), "job", redefine(&seen, 0, to(ms(60_001)))).await);
    assert_eq!(after.next, to(ms(60_001)));
}

pub(super) async fn a_due_occurrence_before_the_new_cursor_is_missed(w: &Cluster) {
    let seen = w.node().register(t(0), "job", t(60)).await;
    let after = state(w.node().act(t(61), "job", redefine(&seen, 0, to(t(3_600)))).await);
    assert_eq!((after.counters.missed, after.next), (1, to(t(3_600))));
    let same = state(w.node().act(t(3_600), "job", redefine(&after, 0, to(t(3_600)))).await);
    assert_eq!(same.counters.missed, 1, "it still is to come");
    let ended = state(w.node().act(t(3_600), "job", redefine(&same, 0, None)).await);
    assert_eq!((ended.counters.missed, ended.head), (2, None));
}

pub(super) async fn a_run_continues_under_another_definition(w: &Cluster) {
    w.node().register(t(0), "job", t(60)).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    let seen = w.node().read("job").await;
    let after = state(w.node().act(t(61), "job", redefine(&seen, 0, to(t(3_600)))).await);
    assert_eq!(after.counters.missed, 0, "it runs");
    assert_eq!(leases(&after), [(run.fence, t(120))]);
    let ended = w.node().end(t(62), "job", run.fence, ran(t(120))).await;
    assert_eq!(ended, Reply::Accepted);
    assert_eq!(w.node().read("job").await.next, to(t(3_600)), "the new one's");
}

/// The cursor is at minute 1, and the occurrences of the minutes 1 to 4 have come.
fn without(seen: &JobState, first: Time, last: Time, then: Option<NextRun>) -> Action<'static> {
    let not_run = NotRun { count: Some(3), last, reason: NotRunReason::CatchUp };
    let plan = Replan { not_run: Some((first, not_run)), ..Replan::new(seen.next, then) };
    Action::Redefine { generation: seen.generation, definition: "every 1h", version: 0, plan }
}

pub(super) async fn the_occurrences_before_the_new_cursor_are_counted(w: &Cluster) {
    let seen = w.node().register(t(0), "job", t(60)).await;
    let change = without(&seen, t(60), t(180), to(t(240)));
    let after = state(w.node().act(t(250), "job", change).await);
    assert_eq!((after.counters.missed, after.next), (3, to(t(240))));
    won(w.node().claim(t(251), "job", once(&after, 1, to(t(3_600)))).await);
    // Behind a run: it keeps the cursor, and is not missed.
    w.node().register(t(0), "leased", t(60)).await;
    let run = won(w.node().lease(t(60), "leased", 1).await);
    let seen = w.node().read("leased").await;
    let change = without(&seen, t(120), t(240), to(t(3_600)));
    let after = state(w.node().act(t(61), "leased", change).await);
    assert_eq!((after.counters.missed, leases(&after)), (3, vec![(run.fence, t(120))]));
    assert_eq!(w.node().end(t(62), "leased", run.fence, ran(t(120))).await, Reply::Accepted);
    assert_eq!(w.node().read("leased").await.next, to(t(3_600)));
}

pub(super) async fn a_plan_for_another_cursor_is_refused(w: &Cluster) {
    let old = w.node().register(t(0), "job", t(60)).await;
    let run = won(w.node().claim(t(60), "job", once(&old, 1, to(t(120)))).await);
    let seen = w.node().read("job").await;
    // Planned before the claim.
    let change = without(&old, t(60), t(180), to(t(240)));
    assert_eq!(state(w.node().act(t(250), "job", change).await), seen);
    let generation = seen.generation;
    let plan = |expected: Option<NextRun>, first, last, then| {
        let not_run = NotRun { count: Some(1), last, reason: NotRunReason::CatchUp };
        let plan = Replan { not_run: Some((first, not_run)), ..Replan::new(expected, then) };
        Action::Redefine { generation, definition: "every 1h", version: 0, plan }
    };
    for wrong in [
        plan(None, t(120), t(120), to(t(240))),
        plan(to(t(120)), t(60), t(180), to(t(240))),
        plan(to(t(120)), t(180), t(120), to(t(240))),
        plan(to(t(120)), t(120), t(240), to(t(240))),
    ] {
        assert_eq!(state(w.node().act(t(250), "job", wrong).await), seen);
    }
    assert!(run.fence <= seen.fence);
}

pub(super) async fn what_had_passed_before_the_registration_is_missed_once(w: &Cluster) {
    let register = Action::Register { definition: "every 1h", version: 0, first: None };
    let seen = state(w.node().act(t(200), "job", register).await);
    assert_eq!((seen.next, seen.counters.missed), (None, 0));
    let not_run = NotRun { count: Some(1), last: t(60), reason: NotRunReason::CatchUp };
    let passed = |seen: &JobState| {
        let plan = Replan { not_run: Some((t(60), not_run)), ..Replan::new(None, None) };
        Action::Redefine { generation: seen.generation, definition: "every 1h", version: 0, plan }
    };
    let after = state(w.node().act(t(201), "job", passed(&seen)).await);
    assert_eq!((after.next, after.counters.missed), (None, 1));
    assert_eq!(state(w.node().act(t(202), "job", passed(&seen)).await), after, "once");
    // One that has run has no such time.
    let seen = w.node().register(t(0), "ran", t(60)).await;
    won(w.node().claim(t(61), "ran", once(&seen, 1, None)).await);
    let seen = w.node().read("ran").await;
    assert_eq!(state(w.node().act(t(300), "ran", passed(&seen)).await), seen);
    if w.node().backend.history().is_some() {
        let past = w.node().history_entries("job").await;
        let entry = past.first().expect("it has an entry");
        assert_eq!((entry.occurrence.clone(), entry.last), (t(60).into(), Some(t(60))));
    }
}
