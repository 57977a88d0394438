//! Pause, resume and trigger, while everything runs.

use crate::cluster::*;
use allora_core::{
    ErrorKind,
    backend::{
        Action, Advance, Claim, Completion, Cursor, DeadLetter, NotRun, NotRunReason, Occurrence,
        Outcome, Reply,
    },
    record::MAX_DEAD,
};
use std::time::Duration;

pub(super) async fn a_paused_schedule_offers_nothing(w: &Cluster) {
    let seen = w.node().add(t(0), "job", "mail", t(60)).await;
    let paused = w.node().pause(t(10), "job").await;
    let why = paused.paused.clone().expect("it is paused");
    assert_eq!((why.since, &*why.note), (t(10), "because"));
    assert_eq!((paused.head.clone(), paused.due_at, paused.next), (None, None, seen.next));
    assert_eq!(w.node().read("job").await, paused);
    assert_eq!(
        lost(w.node().claim(t(60), "job", once(&seen, 1, Some(t(120).into()))).await),
        paused
    );
    let passed = NotRun { count: Some(1), last: t(60), reason: NotRunReason::CatchUp };
    let skip = Advance::new(seen.generation, t(60), passed, Some(t(120).into()));
    assert_eq!(state(w.node().act(t(60), "job", Action::Advance(skip)).await), paused);
    assert_eq!(w.node().found(&["mail"], t(999), 9).await, (vec![], None));
}

pub(super) async fn pausing_again_changes_the_note_only(w: &Cluster) {
    w.node().add(t(0), "job", "mail", t(60)).await;
    w.node().pause(t(10), "job").await;
    let again =
        fine(w.node().modify(t(20), "job", Action::Pause { note: "other", until: None }).await);
    let why = again.paused.expect("it is paused");
    assert_eq!((why.since, &*why.note), (t(10), "other"));
}

pub(super) async fn a_resumed_schedule_continues_at_its_cursor(w: &Cluster) {
    let seen = w.node().add(t(0), "job", "mail", t(60)).await;
    w.node().pause(t(10), "job").await;
    let resumed = w.node().resume(t(500), "job").await;
    assert_eq!(resumed, seen, "as if nothing had been");
    assert_eq!(w.node().found(&["mail"], t(61), 9).await.0, ["job"]);
    won(w.node().claim(t(500), "job", once(&resumed, 1, Some(t(560).into()))).await);
}

pub(super) async fn what_passed_during_a_pause_can_be_skipped(w: &Cluster) {
    w.node().add(t(0), "job", "mail", t(60)).await;
    w.node().pause(t(10), "job").await;
    let seen = w.node().read("job").await;
    let passed = NotRun { count: Some(8), last: t(480), reason: NotRunReason::CatchUp };
    let next = Some(t(540).into());
    let to = |from, generation| Action::Skip(Advance::new(generation, from, passed, next));
    for (from, generation) in
        [(t(0), seen.generation), (t(120), seen.generation), (t(60), seen.generation - 1)]
    {
        let other = w.node().modify(t(500), "job", to(from, generation)).await;
        assert_eq!(other.expect_err("it was read otherwise").kind(), ErrorKind::AlreadyExists);
    }
    let back = Advance::new(seen.generation, t(60), passed, Some(t(480).into()));
    let back = w.node().modify(t(500), "job", Action::Skip(back)).await;
    assert_eq!(back.expect_err("it was passed").kind(), ErrorKind::Invalid);
    assert_eq!(w.node().read("job").await, seen, "nothing was changed");
    let skipped = fine(w.node().modify(t(500), "job", to(t(60), seen.generation)).await);
    assert_eq!((skipped.next, &skipped.paused), (next, &seen.paused), "it is paused as before");
    let resumed = w.node().resume(t(500), "job").await;
    assert_eq!((resumed.next, resumed.counters.missed), (next, 8));
    let run = won(w.node().lease(t(540), "job", 1).await);
    w.node().pause(t(541), "job").await;
    // An occurrence that was started is not skipped.
    let at = |from| Advance::new(seen.generation, from, NotRun { last: t(570), ..passed }, None);
    let begun = w.node().modify(t(580), "job", Action::Skip(at(t(540)))).await;
    assert_eq!(begun.expect_err("it was started").kind(), ErrorKind::AlreadyExists);
    let ended = fine(w.node().modify(t(580), "job", Action::Skip(at(t(560)))).await);
    assert_eq!((ended.next, ended.counters.missed), (None, 16));
    assert_eq!(w.node().end(t(590), "job", run.fence, ran(t(560))).await, Reply::Accepted);
    assert_eq!(w.node().read("job").await.next, None);
}

pub(super) async fn coming_occurrences_can_be_skipped(w: &Cluster) {
    let node = w.node();
    let seen = node.add(t(0), "job", "mail", t(60)).await;
    let skip = |from, last, count, then| {
        let left_out = NotRun { count: Some(count), last: t(last), reason: NotRunReason::Operator };
        Action::Skip(Advance::new(seen.generation, t(from), left_out, Some(t(then).into())))
    };
    let after = fine(node.modify(t(10), "job", skip(60, 120, 2, 180)).await);
    assert_eq!((after.next, after.due_at), (Some(t(180).into()), Some(t(180))));
    assert_eq!(
        (after.counters.skipped, after.counters.cancelled, after.last.clone()),
        (2, 0, None)
    );
    assert_eq!(node.shown("job").await, after);
    let again = node.modify(t(11), "job", skip(60, 120, 2, 180)).await;
    assert_eq!(again.expect_err("they are left out").kind(), ErrorKind::AlreadyExists);
    assert_eq!(node.found(&["mail"], t(179), 9).await.0, [""; 0]);
    let run = won(node.lease(t(180), "job", 1).await);
    let behind = fine(node.modify(t(181), "job", skip(240, 240, 1, 300)).await);
    assert_eq!((behind.leases.len(), behind.counters.skipped), (1, 3), "the run goes on");
    assert_eq!(node.end(t(182), "job", run.fence, ran(t(240))).await, Reply::Accepted);
    let ended = node.read("job").await;
    assert_eq!((ended.next, ended.counters.succeeded), (Some(t(300).into()), 1));
}

pub(super) async fn a_run_continues_while_paused(w: &Cluster) {
    w.node().add(t(0), "job", "mail", t(60)).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    w.node().pause(t(61), "job").await;
    assert_eq!(w.node().end(t(62), "job", run.fence, extend()).await, Reply::Extended(t(122)));
    assert_eq!(w.node().end(t(63), "job", run.fence, ran(t(120))).await, Reply::Accepted);
    let after = w.node().read("job").await;
    assert_eq!((after.next, after.head), (Some(t(120).into()), None));
}

pub(super) async fn a_failed_run_is_not_retried_while_paused(w: &Cluster) {
    for (name, end) in
        [("job", Some(RunAction::Retry { not_before: t(70), error: "x" })), ("silent", None)]
    {
        w.node().add(t(0), name, "mail", t(60)).await;
        let run = won(w.node().lease(t(60), name, 1).await);
        w.node().pause(t(61), name).await;
        if let Some(end) = end {
            assert_eq!(w.node().end(t(62), name, run.fence, end).await, Reply::Accepted);
        }
        let paused = w.node().read(name).await;
        assert_eq!((paused.head.clone(), paused.due_at), (None, None), "{name}");
        let mut claim = leased(&fine(Ok(run_again(&paused, run.occurrence.clone()))), 2);
        claim.expected = run.occurrence.clone();
        lost(w.node().claim(t(500), name, claim).await);
        let resumed = w.node().resume(t(500), name).await;
        assert_eq!(resumed.attempts, 1);
        let again = won(w.node().claim(t(500), name, leased(&resumed, 3)).await);
        assert_eq!((again.occurrence, again.attempt), (run.occurrence, 2), "{name}");
    }
    assert_eq!(w.node().found(&["mail"], t(100), 9).await.0, [""; 0], "and no node finds it");
}

pub(super) async fn a_failed_trigger_is_not_retried_while_paused(w: &Cluster) {
    w.node().add(t(0), "job", "mail", t(60)).await;
    w.node().trigger(t(10), "job", "id").await;
    let run = won(w.node().lease(t(11), "job", 1).await);
    w.node().pause(t(12), "job").await;
    let retry = RunAction::Retry { not_before: t(20), error: "x" };
    assert_eq!(w.node().end(t(13), "job", run.fence, retry).await, Reply::Accepted);
    let paused = w.node().shown("job").await;
    assert_eq!((paused.head.clone(), paused.due_at), (None, None));
    assert_eq!(w.node().found(&["mail"], t(999), 9).await, (vec![], None));
    let again = run_again(&paused, run.occurrence.clone());
    lost(w.node().claim(t(500), "job", leased(&again, 2)).await);
    // Another one by hand runs beside it.
    let seen = w.node().trigger(t(501), "job", "other").await;
    let other = won(w.node().claim(t(502), "job", leased(&seen, 3)).await);
    assert_eq!(other.occurrence.trigger.as_deref(), Some("other"));
    assert_eq!(w.node().end(t(503), "job", other.fence, ran_and_stay()).await, Reply::Accepted);
    let resumed = w.node().resume(t(504), "job").await;
    assert_eq!((resumed.head.clone(), resumed.attempts), (Some(run.occurrence), 1));
    assert_eq!(won(w.node().claim(t(504), "job", leased(&resumed, 4)).await).attempt, 2);
}

/// The state, were it to offer this.
fn run_again(
    seen: &allora_core::backend::JobState,
    run: Occurrence,
) -> allora_core::backend::JobState {
    let mut seen = seen.clone();
    seen.head = Some(run);
    seen
}

pub(super) async fn a_silent_run_does_not_block_a_paused_schedules_triggers(w: &Cluster) {
    w.node().add(t(0), "job", "mail", t(60)).await;
    let dead = won(w.node().lease(t(60), "job", 1).await);
    w.node().pause(t(61), "job").await;
    let seen = w.node().trigger(t(62), "job", "id").await;
    assert_eq!((head(&seen).trigger, seen.due_at), (Some("id".into()), Some(t(120))), "alone");
    lost(w.node().claim(ms(119_999), "job", leased(&seen, 2)).await);
    let run = won(w.node().claim(t(120), "job", leased(&seen, 3)).await);
    assert_eq!((run.attempt, run.occurrence.trigger), (1, Some("id".into())));
    assert_eq!(w.node().end(t(121), "job", dead.fence, ran(t(180))).await, Reply::LeaseLost);
    assert_eq!(w.node().end(t(121), "job", run.fence, ran_and_stay()).await, Reply::Accepted);
    let resumed = w.node().resume(t(200), "job").await;
    assert_eq!((resumed.head.clone(), resumed.attempts), (Some(t(60).into()), 1));
    assert_eq!(resumed.counters.expired, 1);
    assert_eq!(won(w.node().claim(t(200), "job", leased(&resumed, 4)).await).attempt, 2);
}

pub(super) async fn a_trigger_runs_beside_the_schedule(w: &Cluster) {
    let before = w.node().register(t(0), "job", t(60)).await;
    let seen = w.node().trigger(t(30), "job", "by hand").await;
    let run = Occurrence { scheduled_at: t(30), trigger: Some("by hand".into()) };
    assert_eq!((seen.head.as_ref(), seen.due_at), (Some(&run), Some(t(30))));
    assert_eq!(seen.next, before.next);
    let claimed = won(w.node().claim(t(30), "job", triggered(&seen, 1)).await);
    assert_eq!((claimed.occurrence, claimed.attempt), (run, 1));
    let after = w.node().read("job").await;
    assert_eq!((after.head, after.next), (Some(t(60).into()), before.next));
    assert_eq!((after.counters.started, after.last_started), (0, None), "it is not the schedule's");
}

pub(super) async fn a_trigger_never_moves_the_cursor(w: &Cluster) {
    w.node().register(t(0), "job", t(60)).await;
    let seen = w.node().trigger(t(60), "job", "id").await;
    let mut moves: Claim = triggered(&seen, 1);
    moves.expected = Occurrence { scheduled_at: t(60), trigger: Some("id".into()) };
    moves.start = moves.expected.clone();
    moves.then = Cursor::To(Some(t(120).into()));
    let state = lost(w.node().claim(t(60), "job", moves).await);
    assert_eq!(state, seen);
}

pub(super) async fn triggers_do_not_keep_the_schedule_waiting(w: &Cluster) {
    for (name, is_leased) in [("at most once", false), ("at least once", true)] {
        w.node().register(t(0), name, t(60)).await;
        let seen = w.node().trigger(t(30), name, "id").await;
        assert_ne!(seen.head, Some(t(60).into()), "the trigger is due first");
        let mut claim = match is_leased {
            true => leased(&seen, 1),
            false => once(&seen, 1, Some(t(120).into())),
        };
        (claim.expected, claim.start) = (t(60).into(), t(60).into());
        lost(w.node().claim(t(59), name, claim.clone()).await);
        let run = won(w.node().claim(t(60), name, claim.clone()).await);
        assert_eq!((run.occurrence, run.attempt), (t(60).into(), 1));
        let end = if is_leased { ran(t(120)) } else { ran_and_stay() };
        assert_eq!(w.node().end(t(61), name, run.fence, end).await, Reply::Accepted);
        let after = w.node().read(name).await;
        assert_eq!((after.head.clone(), after.next), (seen.head.clone(), Some(t(120).into())));
        assert_eq!(after.counters.started, 1);
        // Beside a leased trigger nothing starts.
        won(w.node().claim(t(120), name, leased(&after, 2)).await);
        let mut late = leased(&w.node().read(name).await, 3);
        (late.expected, late.start) = (t(120).into(), t(120).into());
        lost(w.node().claim(t(120), name, late).await);
    }
}

pub(super) async fn a_completed_trigger_leaves_the_cursor(w: &Cluster) {
    w.node().register(t(0), "job", t(60)).await;
    w.node().trigger(t(30), "job", "id").await;
    let run = won(w.node().lease(t(30), "job", 1).await);
    assert_eq!(w.node().end(t(31), "job", run.fence, ran(t(999))).await, Reply::Accepted);
    assert_eq!(w.node().read("job").await.next, Some(t(60).into()));
}

pub(super) async fn a_silent_trigger_at_a_nominal_instant_is_not_that_instant(w: &Cluster) {
    w.node().register(t(0), "job", t(60)).await;
    let first = w.node().trigger(t(60), "job", "id").await;
    let mut claim = leased(&first, 1);
    claim.expected = Occurrence { scheduled_at: t(60), trigger: Some("id".into()) };
    claim.start = claim.expected.clone();
    let run = won(w.node().claim(t(60), "job", claim).await);
    let again = won(w.node().lease(t(120), "job", 2).await);
    assert_eq!((again.occurrence.clone(), again.attempt), (run.occurrence, 2));
    assert_eq!(w.node().end(t(121), "job", again.fence, ran_and_stay()).await, Reply::Accepted);
    let after = w.node().read("job").await;
    assert_eq!((after.head, after.counters.started), (Some(t(60).into()), 0), "still to come");
}

pub(super) async fn the_same_trigger_counts_once_and_two_of_one_millisecond_twice(w: &Cluster) {
    w.node().register(t(0), "job", t(600)).await;
    for id in ["a", "b", "a"] {
        w.node().trigger(t(30), "job", id).await;
    }
    let mut ran = Vec::new();
    for claim in 1.. {
        let seen = w.node().read("job").await;
        if head(&seen).trigger.is_none() {
            break;
        }
        assert!(claim < 9, "the triggers do not end");
        ran.extend(
            won(w.node().claim(t(31), "job", triggered(&seen, claim)).await).occurrence.trigger,
        );
    }
    assert_eq!(ran, ["a", "b"]);
}

pub(super) async fn an_active_trigger_is_not_added_again(w: &Cluster) {
    w.node().register(t(0), "job", t(600)).await;
    w.node().trigger(t(30), "job", "id").await;
    let run = won(w.node().lease(t(30), "job", 1).await);
    let runs = w.node().read("job").await;
    assert_eq!(w.node().trigger(t(31), "job", "id").await, runs);
    w.node().end(t(32), "job", run.fence, ran_and_stay()).await;
    assert_eq!(w.node().read("job").await.head, Some(t(600).into()));
}

pub(super) async fn triggers_run_while_paused(w: &Cluster) {
    w.node().add(t(0), "job", "mail", t(60)).await;
    w.node().pause(t(10), "job").await;
    let seen = w.node().trigger(t(70), "job", "id").await;
    assert_eq!(head(&seen).trigger, Some("id".into()));
    assert_eq!(w.node().found(&["mail"], t(71), 9).await.0, ["job"]);
    let run = won(w.node().claim(t(70), "job", triggered(&seen, 1)).await);
    assert_eq!(run.occurrence.trigger, Some("id".into()));
}

pub(super) async fn a_released_trigger_runs_while_paused(w: &Cluster) {
    w.node().add(t(0), "job", "mail", t(60)).await;
    w.node().pause(t(10), "job").await;
    w.node().trigger(t(20), "job", "id").await;
    let run = won(w.node().lease(t(20), "job", 1).await);
    assert_eq!(w.node().end(t(21), "job", run.fence, RunAction::Release).await, Reply::Accepted);
    assert_eq!(w.node().found(&["mail"], t(22), 9).await.0, ["job"]);
    let again = won(w.node().lease(t(21), "job", 2).await);
    assert_eq!((again.occurrence.trigger, again.attempt), (Some("id".into()), 1));
}

pub(super) async fn the_occurrence_that_is_due_first_runs_first(w: &Cluster) {
    w.node().register(t(0), "job", t(60)).await;
    w.node().trigger(t(70), "job", "later").await;
    let seen = w.node().read("job").await;
    assert_eq!(head(&seen), t(60).into());
    won(w.node().claim(t(71), "job", once(&seen, 1, Some(t(120).into()))).await);
    assert_eq!(head(&w.node().read("job").await).trigger, Some("later".into()));
}

pub(super) async fn a_trigger_of_a_job_in_code_is_found(w: &Cluster) {
    w.node().register(t(0), "job", t(60)).await;
    assert_eq!(w.node().found(&[""], t(999), 9).await, (vec![], None));
    let seen = w.node().trigger(t(30), "job", "id").await;
    assert_eq!(w.node().found(&[""], t(31), 9).await, (vec!["job".into()], None));
    won(w.node().claim(t(30), "job", triggered(&seen, 1)).await);
    assert_eq!(w.node().found(&[""], t(999), 9).await, (vec![], None));
}

pub(super) async fn a_bad_trigger_id_is_refused(w: &Cluster) {
    let seen = w.node().register(t(0), "job", t(60)).await;
    let long = "x".repeat(201);
    for id in ["", " x", "a\nb", &long] {
        let bad = w.node().modify(t(1), "job", Action::trigger(id)).await;
        assert_eq!(bad.expect_err("a bad id").kind(), ErrorKind::Invalid);
    }
    assert_eq!(w.node().read("job").await, seen);
}

pub(super) async fn the_number_of_waiting_triggers_is_limited(w: &Cluster) {
    use allora_core::record::MAX_TRIGGERS;
    w.node().register(t(0), "job", t(60)).await;
    w.node().trigger_often(t(1), "job", MAX_TRIGGERS).await;
    let full = w.node().modify(t(1), "job", Action::trigger("one more")).await;
    assert_eq!(full.expect_err("there are too many").kind(), ErrorKind::Invalid);
    w.node().trigger(t(1), "job", "id 7").await;
}

pub(super) async fn a_trigger_stands_for_the_instant_it_is_given(w: &Cluster) {
    let node = w.node();
    let seen = node.add(t(0), "job", "mail", t(600)).await;
    for at in [30, 10, 20, 10, 700] {
        let (scheduled_at, retention) = (Some(t(at)), Duration::ZERO);
        let (id, data) = ("backfill", None);
        let change = Action::Trigger { id, scheduled_at, retention, data };
        fine(node.modify(t(60), "job", change).await);
    }
    for (claim, at) in (1..).zip([10, 20, 30]) {
        let claimed =
            won(node.claim(t(61), "job", triggered(&node.read("job").await, claim)).await);
        assert_eq!(
            (claimed.occurrence.scheduled_at, claimed.occurrence.trigger.as_deref()),
            (t(at), Some("backfill"))
        );
    }
    let seen_after = node.read("job").await;
    assert_eq!((seen_after.next, seen_after.due_at), (seen.next, Some(t(600))));
    won(node.claim(t(600), "job", once(&seen_after, 9, Some(t(6_000).into()))).await);
    let later = node.read("job").await;
    assert_eq!(
        (later.due_at, head(&later).scheduled_at),
        (Some(t(700)), t(700)),
        "not before its time"
    );
    lost(node.claim(t(699), "job", triggered(&later, 10)).await);
    won(node.claim(t(700), "job", triggered(&later, 11)).await);
}

/// A run of the cursor's occurrence that fails for good; the cursor goes there.
async fn dies(w: &Cluster, now: i64, claim: u128, then: i64) -> DeadLetter {
    let run = won(w.node().lease(t(now), "job", claim).await);
    let then = Cursor::To(Some(t(then).into()));
    let end = RunAction::Complete { then, completion: Completion::Dead("no such host") };
    assert_eq!(w.node().end(t(now + 1), "job", run.fence, end).await, Reply::Accepted);
    let error = "no such host".into();
    DeadLetter { occurrence: run.occurrence, attempts: run.attempt, died_at: t(now + 1), error }
}

pub(super) async fn a_dead_letter_is_kept_and_can_be_rerun(w: &Cluster) {
    let node = w.node();
    node.add(t(0), "job", "mail", t(60)).await;
    let first = dies(w, 60, 1, 120).await;
    let second = dies(w, 120, 2, 180).await;
    let seen = node.read("job").await;
    assert_eq!(seen.dead, [first.clone(), second.clone()]);
    assert_eq!(seen.last, Some(Outcome::Dead("no such host".into())));
    assert_eq!(node.shown("job").await, seen);
    let missing = t(61).into();
    for change in [Action::Rerun { occurrence: &missing }, Action::Dismiss { occurrence: &missing }]
    {
        let refused = node.modify(t(130), "job", change).await.expect_err("there is none");
        assert_eq!(refused.kind(), ErrorKind::NotFound);
    }
    assert_eq!(node.read("job").await, seen);
    let dismissed =
        fine(node.modify(t(130), "job", Action::Dismiss { occurrence: &second.occurrence }).await);
    assert_eq!((&dismissed.dead, &dismissed.head), (&vec![first.clone()], &seen.head));
    let again =
        fine(node.modify(t(140), "job", Action::Rerun { occurrence: &first.occurrence }).await);
    assert_eq!((again.dead.len(), again.due_at, again.attempts), (0, Some(t(140)), 0));
    assert_eq!(again.head, Some(first.occurrence.clone()), "the same occurrence");
    assert_eq!(node.found(&["mail"], t(141), 9).await.0, ["job"]);
    let run = won(node.lease(t(140), "job", 3).await);
    assert_eq!((run.occurrence, run.attempt), (first.occurrence, 1));
    assert_eq!(node.end(t(141), "job", run.fence, ran(t(150))).await, Reply::Accepted);
    let done = node.read("job").await;
    assert_eq!((done.next, done.head), (Some(t(180).into()), Some(t(180).into())));
    assert_eq!((done.counters.started, done.counters.succeeded, done.counters.failed), (2, 1, 2));
}

pub(super) async fn the_number_of_dead_letters_is_limited(w: &Cluster) {
    w.node().add(t(0), "job", "mail", t(60)).await;
    let mut letters = Vec::new();
    for i in 1..=MAX_DEAD as i64 + 2 {
        letters.push(dies(w, 60 * i, i as u128, 60 * i + 60).await);
    }
    assert_eq!(w.node().read("job").await.dead, letters[2..], "the last ones");
}

/// The store's clock was an hour ahead for a moment: started, retried and triggered occurrences
/// have times of the future.
pub(super) async fn a_reset_job_continues_from_now_under_a_new_incarnation(w: &Cluster) {
    let node = w.node();
    let seen = node.add(t(0), "job", "mail", t(60)).await;
    let ahead = won(node.lease(t(3_660), "job", 1).await);
    let (scheduled_at, retention) = (Some(t(3_700)), Duration::ZERO);
    let later = Action::Trigger { id: "hand", scheduled_at, retention, data: None };
    fine(node.modify(t(3_661), "job", later).await);
    let then = Some(t(120).into());
    let stale = Action::Reset { incarnation: seen.incarnation - 1, first: then };
    let refused = node.modify(t(90), "job", stale).await.expect_err("another incarnation");
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
    let reset = Action::Reset { incarnation: seen.incarnation, first: then };
    let reset = fine(node.modify(t(90), "job", reset).await);
    assert!(reset.incarnation > ahead.fence && reset.fence >= reset.incarnation);
    assert_eq!((reset.next, reset.due_at, reset.leases.len()), (then, Some(t(120)), 0));
    assert_eq!((&reset.kind, &reset.definition), (&seen.kind, &seen.definition));
    assert_eq!((reset.counters.lost, reset.counters.missed), (1, 1), "accounted for");
    assert_eq!(node.end(t(91), "job", ahead.fence, ran(t(9_000))).await, Reply::LeaseLost);
    let run = won(node.lease(t(120), "job", 2).await);
    assert_eq!((run.occurrence, run.incarnation), (t(120).into(), reset.incarnation));
    assert_eq!(node.end(t(121), "job", run.fence, ran(t(180))).await, Reply::Accepted);
    assert_eq!(node.read("job").await.next, Some(t(180).into()));
}

pub(super) async fn a_dead_letter_can_be_marked_as_succeeded(w: &Cluster) {
    let node = w.node();
    node.add(t(0), "job", "mail", t(60)).await;
    let first = dies(w, 60, 1, 120).await;
    let run = won(node.lease(t(120), "job", 2).await);
    for at in [t(120), t(180)] {
        let occurrence = at.into();
        let mark = Action::MarkSucceeded { occurrence: &occurrence };
        let early = node.modify(t(121), "job", mark).await;
        assert_eq!(early.expect_err("it has not ended").kind(), ErrorKind::Invalid);
    }
    let mark = Action::MarkSucceeded { occurrence: &first.occurrence };
    let marked = fine(node.modify(t(121), "job", mark).await);
    assert_eq!((marked.dead.len(), marked.counters.succeeded), (0, 0));
    assert_eq!(node.shown("job").await, marked);
    assert_eq!(node.end(t(122), "job", run.fence, ran(t(180))).await, Reply::Accepted);
}
