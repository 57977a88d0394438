//! Pauses that end by themselves at a time.

use crate::cluster::*;
use allora_core::{
    ErrorKind, Time,
    backend::{Action, JobState, NextRun, Pause, Replan, Reply},
};

impl Node {
    async fn pause_until(&self, now: Time, name: &str, until: Time) -> JobState {
        fine(self.modify(now, name, Action::Pause { note: "moving", until: Some(until) }).await)
    }

    async fn read_at(&self, now: Time, name: &str) -> JobState {
        state(self.act(now, name, Action::Read).await)
    }
}

fn pause(since: i64, until: Option<i64>) -> Option<Pause> {
    Some(Pause { since: t(since), until: until.map(t), note: "moving".into() })
}

pub(super) async fn what_a_pause_holds_back_is_due_when_it_ends(w: &Cluster) {
    let node = w.node();
    for (name, first, due) in [("passed", 60, 100), ("later", 130, 130)] {
        let seen = node.add(t(0), name, name, t(first)).await;
        let paused = node.pause_until(t(10), name, t(100)).await;
        assert_eq!(paused.paused, pause(10, Some(100)));
        assert_eq!((paused.next, head(&paused)), (seen.next, t(first).into()), "{name}");
        assert_eq!(paused.due_at, Some(t(due)), "{name}");
        assert_eq!(node.shown(name).await, paused);
        assert_eq!(node.found(&[name], t(due), 9).await, (vec![], Some(t(due))), "{name}");
        assert_eq!(node.found(&[name], ms(due * 1_000 + 1), 9).await.0, [name]);
        let claim = leased(&paused, 1);
        assert_eq!(lost(node.claim(ms(99_999), name, claim.clone()).await), paused, "{name}");
        let run = won(node.claim(t(due), name, claim).await);
        assert_eq!((run.occurrence, run.attempt), (t(first).into(), 1), "{name}");
        let runs = node.shown(name).await;
        assert_eq!((runs.paused, runs.leases.len()), (None, 1), "{name}: the pause is over");
        assert_eq!(node.end(t(due + 1), name, run.fence, ran(t(180))).await, Reply::Accepted);
        assert_eq!(node.found(&[name], t(181), 9).await.0, [name]);
    }
}

pub(super) async fn a_read_shows_that_a_pause_is_over_and_changes_nothing(w: &Cluster) {
    let node = w.node();
    let seen = node.add(t(0), "job", "mail", t(60)).await;
    let paused = node.pause_until(t(10), "job", t(100)).await;
    assert_eq!(node.read_at(ms(99_999), "job").await, paused);
    assert_eq!(node.read_at(t(100), "job").await, seen, "as if nothing had been");
    assert_eq!(node.read_at(t(99), "job").await, paused, "the clock was set back");
}

pub(super) async fn a_pause_that_was_followed_by_a_change_is_over_for_good(w: &Cluster) {
    let node = w.node();
    let seen = node.add(t(0), "job", "mail", t(60)).await;
    let paused = node.pause_until(t(10), "job", t(100)).await;
    // Changes that are refused are none.
    let taken = node.modify(t(100), "job", edit(seen.generation - 1, None, None, None)).await;
    assert_eq!(taken.expect_err("another generation").kind(), ErrorKind::AlreadyExists);
    assert_eq!(node.end(t(100), "job", seen.fence, extend()).await, Reply::LeaseLost);
    assert_eq!(node.read_at(t(90), "job").await, paused);
    let mut other = leased(&seen, 1);
    other.expected = t(61).into();
    assert_eq!(lost(node.claim(t(100), "job", other).await), seen);
    assert_eq!(node.read_at(t(90), "job").await, seen, "the clock was set back");
    won(node.claim(t(90), "job", leased(&seen, 2)).await);
}

pub(super) async fn a_pause_is_set_again_with_another_end(w: &Cluster) {
    let node = w.node();
    node.add(t(0), "job", "mail", t(60)).await;
    let ends = [(10, Some(100), 10), (20, Some(200), 10), (30, None, 10), (40, Some(50), 10)];
    for (now, until, since) in ends.into_iter().chain([(60, Some(70), 60)]) {
        let again = Action::Pause { note: "moving", until: until.map(t) };
        let paused = fine(node.modify(t(now), "job", again).await);
        assert_eq!(paused.paused, pause(since, until), "at {now}");
        let due = until.map(|until| t(until.max(60)));
        assert_eq!((paused.due_at, paused.head.is_some()), (due, until.is_some()), "at {now}");
    }
}

pub(super) async fn a_pause_cannot_end_before_it_begins(w: &Cluster) {
    let node = w.node();
    let seen = node.add(t(0), "job", "mail", t(60)).await;
    for until in [t(10), ms(9_999), t(0)] {
        let past = Action::Pause { note: "moving", until: Some(until) };
        let past = node.modify(t(10), "job", past).await.expect_err("it has come already");
        assert_eq!(past.kind(), ErrorKind::Invalid);
        assert!(past.to_string().contains("give a later time"), "{past}");
    }
    assert_eq!(node.read("job").await, seen);
}

pub(super) async fn a_pause_with_an_end_can_be_ended_before(w: &Cluster) {
    let node = w.node();
    let seen = node.add(t(0), "job", "mail", t(60)).await;
    node.pause_until(t(10), "job", t(100)).await;
    let resumed = node.resume(t(70), "job").await;
    assert_eq!(resumed, seen, "as if nothing had been");
    won(node.claim(t(70), "job", leased(&resumed, 1)).await);
}

pub(super) async fn triggers_run_before_the_end_of_a_pause_and_failed_ones_after_it(w: &Cluster) {
    let node = w.node();
    node.add(t(0), "job", "mail", t(60)).await;
    node.pause_until(t(10), "job", t(100)).await;
    let seen = node.trigger(t(20), "job", "id").await;
    assert_eq!((head(&seen).trigger, seen.due_at), (Some("id".into()), Some(t(20))));
    let run = won(node.lease(t(20), "job", 1).await);
    let retry = RunAction::Retry { not_before: t(30), error: "x" };
    assert_eq!(node.end(t(21), "job", run.fence, retry).await, Reply::Accepted);
    let waits = node.shown("job").await;
    assert_eq!(
        (head(&waits), waits.due_at),
        (run.occurrence.clone(), Some(t(100))),
        "it was first"
    );
    lost(node.claim(ms(99_999), "job", leased(&waits, 2)).await);
    let again = won(node.claim(t(100), "job", leased(&waits, 3)).await);
    assert_eq!((again.occurrence, again.attempt), (run.occurrence, 2));
    assert_eq!(node.end(t(101), "job", again.fence, ran_and_stay()).await, Reply::Accepted);
    let after = node.read("job").await;
    assert_eq!((head(&after), after.due_at), (t(60).into(), Some(t(60))));
}

pub(super) async fn a_trigger_that_outlasts_the_pause_keeps_nothing_waiting(w: &Cluster) {
    let node = w.node();
    node.add(t(0), "job", "mail", t(60)).await;
    node.pause_until(t(10), "job", t(100)).await;
    let seen = node.trigger(t(70), "job", "id").await;
    assert_eq!(head(&seen).trigger, Some("id".into()));
    // Nobody has claimed it: without the pause, the schedule is first.
    let now = lost(node.claim(t(120), "job", leased(&seen, 1)).await);
    assert_eq!((head(&now), now.due_at, &now.paused), (t(60).into(), Some(t(60)), &None));
    won(node.claim(t(120), "job", leased(&now, 2)).await);
}

pub(super) async fn a_silent_run_is_retried_when_lease_and_pause_are_over(w: &Cluster) {
    let node = w.node();
    for (name, until, due) in [("short", 100, 120), ("long", 200, 200)] {
        node.add(t(0), name, name, t(60)).await;
        let run = won(node.lease(t(60), name, 1).await);
        let paused = node.pause_until(t(61), name, t(until)).await;
        assert_eq!((head(&paused), paused.due_at), (t(60).into(), Some(t(due))), "{name}");
        assert_eq!(node.found(&[name], t(due), 9).await, (vec![], Some(t(due))), "{name}");
        lost(node.claim(ms(due * 1_000 - 1), name, leased(&paused, 2)).await);
        let again = won(node.claim(t(due), name, leased(&paused, 3)).await);
        assert_eq!((again.occurrence, again.attempt), (run.occurrence, 2), "{name}");
        assert_eq!(node.read(name).await.counters.expired, 1, "{name}");
    }
}

pub(super) async fn a_run_goes_on_beyond_the_end_of_a_pause(w: &Cluster) {
    let node = w.node();
    node.add(t(0), "job", "mail", t(60)).await;
    let run = won(node.lease(t(60), "job", 1).await);
    node.pause_until(t(61), "job", t(100)).await;
    assert_eq!(node.end(t(90), "job", run.fence, extend()).await, Reply::Extended(t(150)));
    assert_eq!(node.read("job").await.due_at, Some(t(150)));
    assert_eq!(node.end(t(110), "job", run.fence, ran(t(120))).await, Reply::Accepted);
    let after = node.shown("job").await;
    assert_eq!((after.paused, after.due_at), (None, Some(t(120))));
}

pub(super) async fn a_new_definition_keeps_the_end_of_the_pause(w: &Cluster) {
    let node = w.node();
    let seen = node.add(t(0), "job", "mail", t(60)).await;
    node.pause_until(t(10), "job", t(100)).await;
    let to = |then: i64, expected| Replan::new(expected, Some(NextRun::from(t(then))));
    let change = edit(seen.generation, None, Some(("every 1h", to(80, seen.next))), None);
    let early = fine(node.modify(t(20), "job", change).await);
    assert_eq!((&early.paused, early.due_at), (&pause(10, Some(100)), Some(t(100))));
    let change = edit(early.generation, None, Some(("every 2h", to(130, early.next))), None);
    let late = fine(node.modify(t(30), "job", change).await);
    assert_eq!((&late.paused, late.due_at), (&pause(10, Some(100)), Some(t(130))));
}

pub(super) async fn a_paused_job_is_pruned_only_after_the_end_of_its_pause(w: &Cluster) {
    let node = w.node();
    let seen = node.register(t(0), "job", t(60)).await;
    let paused = node.pause_until(t(10), "job", t(100)).await;
    let prune = || Action::Prune { fence: seen.fence, cursor: Some(t(60)) };
    assert_eq!(state(node.act(ms(99_999), "job", prune()).await), paused);
    assert_eq!(node.act(t(100), "job", prune()).await, Reply::Deleted);
}
