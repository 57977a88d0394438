//! Jobs that pause themselves, and the events about failures in a row.

use super::{add, schedules};
use crate::support::{DiesAt, Lab, Member, Seat, at, ms, secs};
use allora_conformance::faults::Wrapped;
use allora_core::{
    AlertRule, Backend, BoxError, Breaker, Event, Run, Runtime as _, Scheduler, StoredSchedule,
    backend::{Batch, StreakChange, TimeSource},
    every, job,
    stored::{Gap, WhyCode},
};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

/// A node whose runs fail while the switch is on.
fn failing(lab: &Lab) -> (Member, Arc<AtomicBool>) {
    let fails = Arc::new(AtomicBool::new(true));
    let switch = fails.clone();
    let member = lab.start(|seat, b| {
        let end = move |_: &allora_core::Run| match switch.load(Relaxed) {
            true => Err("no route".into()),
            false => Ok(()),
        };
        b.kind("t", seat.handler(ms(0), end))
    });
    (member, fails)
}

/// The changes of failures in a row that were reported: their number, and who is told.
fn told(member: &Member) -> Vec<(u32, &'static str)> {
    let events = member.events();
    let changes = events.iter().filter_map(|event| match event {
        Event::FailureStreak { failures, change, .. } => Some((
            *failures,
            match change {
                StreakChange::Failing => "failing",
                StreakChange::Paused { is_alert: true, .. } => "paused",
                StreakChange::Paused { .. } => "paused again",
                StreakChange::Over => "over",
                _ => "other",
            },
        )),
        _ => None,
    });
    changes.collect()
}

fn minutely(name: &str) -> StoredSchedule {
    StoredSchedule::new(name, "t", "* * * * *").starting(at(60.0)).at_most_once()
}

#[test]
fn a_job_pauses_itself_says_so_and_goes_on_when_a_probe_succeeds() {
    let lab = Lab::new(1);
    let (member, fails) = failing(&lab);
    add(&lab, minutely("sync").breaker(Breaker::after(2).probe_after(secs(150))));
    lab.until(200.0);
    assert_eq!(told(&member), [(2, "paused")]);
    let why = lab.sim.block_on(schedules(&lab).why("sync", None)).unwrap();
    assert_eq!(why.code, WhyCode::PausedItself);
    let text = why.to_string();
    for part in ["2 occurrences failed in a row", "no route", "`allora trigger sync`"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    lab.until(400.0);
    assert_eq!(told(&member), [(2, "paused"), (3, "paused again")]);
    fails.store(false, Relaxed);
    lab.until(485.0);
    assert_eq!(told(&member)[2..], [(3, "over")]);
    let state = lab.state("sync");
    assert_eq!((state.paused, state.streak), (None, None));
    let story = lab.story("sync");
    assert!(story.contains(&"missed 180-180 1".to_owned()), "{story:?}");
    assert_eq!(story.last().unwrap(), "succeeded 480");
}

#[test]
fn who_resumes_a_job_that_has_paused_itself_gives_it_as_many_failures_again() {
    let lab = Lab::new(2);
    let (member, _) = failing(&lab);
    add(&lab, minutely("sync").breaker(Breaker::after(2)));
    lab.until(1_000.0);
    assert_eq!(lab.state("sync").counters.failed, 2, "it stays paused");
    lab.sim.block_on(schedules(&lab).resume("sync", Gap::Missed)).unwrap();
    lab.until(1_500.0);
    assert_eq!(lab.state("sync").counters.failed, 4);
    assert_eq!(told(&member), [(2, "paused"), (2, "paused")]);
}

#[test]
fn people_are_told_by_the_rule_of_the_job_whichever_nodes_have_run_it() {
    let lab = Lab::new(3);
    let (one, fails_one) = failing(&lab);
    let (two, fails_two) = failing(&lab);
    add(&lab, minutely("sync").alert(AlertRule::after(3).again_every(secs(200))));
    lab.until(485.0);
    for fails in [fails_one, fails_two] {
        fails.store(false, Relaxed);
    }
    lab.until(605.0);
    let mut told = [told(&one), told(&two)].concat();
    told.sort_unstable();
    assert_eq!(told, [(3, "failing"), (7, "failing"), (8, "over")]);
}

#[test]
fn the_recovery_is_told_when_a_run_that_has_completed_itself_returns() {
    let lab = Lab::new(5);
    let member = lab.start(|seat, b| {
        let (store, node) = (lab.store.clone(), seat.node.clone());
        b.kind("t", async move |run: Run| -> Result<(), BoxError> {
            if run.scheduled_at() < at(150.0) {
                return Err("no route".into());
            }
            let operations = [run.complete()];
            let batch = Batch::new(run.node(), TimeSource::Fixed(node.wall()), &operations);
            store.reschedule(batch).await?;
            node.sleep_until(node.now() + secs(40)).await;
            Ok(())
        })
    });
    add(&lab, minutely("sync").alert(AlertRule::after(2)));
    lab.until(215.0);
    assert_eq!(told(&member), [(2, "failing")]);
    assert_eq!(lab.state("sync").counters.succeeded, 1);
    lab.until(225.0);
    assert_eq!(told(&member), [(2, "failing"), (2, "over")]);
    assert_eq!(lab.state("sync").streak, None);
}

#[test]
fn a_job_of_every_node_cannot_pause_itself() {
    let lab = Lab::new(4);
    let local = job(every(secs(60)), async |_: allora_core::Run| {}).on_every_node();
    let builder = Scheduler::builder(lab.store.clone()).runtime(lab.clock());
    let built = builder.add("a", local.breaker(Breaker::after(1))).build();
    let said = built.map(drop).unwrap_err().to_string();
    assert!(said.contains("nobody could resume it"), "{said}");
}

/// Two nodes whose runs fail, of which one dies at the n-th step of its work: the job pauses itself, and
/// people are told. Returns `false` if none dies.
fn dies(n: u64, is_applied: bool, has_breaker: bool) -> bool {
    let lab = Lab::new(n);
    let job = minutely("sync").schedule("@every 3s").max_runs(2);
    add(
        &lab,
        match has_breaker {
            true => job.breaker(Breaker::after(2)),
            false => job.alert(AlertRule::after(2)),
        },
    );
    let start = |seat: Seat, store: Arc<dyn Backend>| {
        let handler = seat.handler(ms(500), |_| Err("no route".into()));
        let builder = seat.builder_on(store).kind("t", handler);
        seat.run(builder.build().unwrap())
    };
    let (left, victim) = (Arc::new(AtomicU64::new(n)), lab.seat(lab.sim.node()));
    let dies = DiesAt { left: left.clone(), is_applied, node: victim.node.clone() };
    let one = start(victim, Arc::new(Wrapped::around(lab.store.clone(), dies)));
    // The other one begins when all is done, if nobody has died.
    lab.until(20.0);
    let two = start(lab.seat(lab.sim.node()), Arc::new(lab.store.clone()));
    lab.until(250.0);
    let state = lab.state("sync");
    let all = [told(&one), told(&two)].concat();
    let shown = format!("step {n}, applied: {is_applied}: {all:?}");
    assert_eq!(state.streak.map(|streak| streak.failures), Some(2), "{shown}");
    let change = if has_breaker { "paused" } else { "failing" };
    assert!(all.contains(&(2, change)), "{shown}");
    assert_eq!(state.paused.is_some(), has_breaker, "{shown}");
    left.load(Relaxed) == 0
}

#[test]
fn people_are_told_whichever_step_kills_a_node() {
    for has_breaker in [false, true] {
        for is_applied in [false, true] {
            let deaths = (1..20).take_while(|n| dies(*n, is_applied, has_breaker)).count();
            assert!(deaths >= 2, "{deaths} steps");
        }
    }
}

#[test]
fn a_job_that_fails_or_has_paused_itself_is_a_condition_until_it_has_recovered() {
    let lab = Lab::new(5);
    let (member, fails) = failing(&lab);
    add(&lab, minutely("sync").alert(AlertRule::after(2)).breaker(Breaker::after(3)));
    lab.until(130.0);
    assert!(member.has("job-failing") && member.handle.health().is_healthy());
    lab.until(190.0);
    assert!(member.has("job-paused-itself") && !member.has("job-failing"));
    lab.sim.block_on(schedules(&lab).resume("sync", Gap::Missed)).unwrap();
    lab.until(260.0);
    assert!(!member.has("job-paused-itself"), "it was resumed");
    lab.until(370.0);
    assert!(member.has("job-paused-itself"));
    fails.store(false, Relaxed);
    lab.sim.block_on(schedules(&lab).trigger("sync", "now")).unwrap();
    lab.until(380.0);
    assert!(!member.has("job-paused-itself"), "a run has succeeded");
}
