//! Jobs that run after other jobs, while nodes die at each step.

use crate::support::{DiesAt, Lab, Member, at, ms, secs};
use allora_conformance::faults::Wrapped;
use allora_core::{
    Backend, On, Schedules, StoredSchedule,
    backend::{Action, followed},
    every,
    schedule::never,
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// The ids of the triggers that a job has run, each once for each entry of its history.
fn followed_by(lab: &Lab, name: &str) -> Vec<String> {
    let past = lab.past(name).into_iter().filter(|entry| entry.outcome.word() == "succeeded");
    past.filter_map(|entry| Some(followed(entry.occurrence.trigger.as_deref()?)?.to_owned()))
        .collect()
}

/// Two nodes, of which one dies at the n-th step of its work. Returns `false` if it never does.
fn play(n: u64, is_applied: bool, is_stored: bool) -> bool {
    let lab = Lab::new(n);
    if is_stored {
        // The follower first: the job before it does not exist yet.
        let client = Schedules::on(lab.store.clone(), lab.clock()).unwrap();
        let b = StoredSchedule::new("b", "work", "@never").after("a", On::Success);
        let a = StoredSchedule::new("a", "work", "@every 3s").max_runs(1);
        for stored in [b, a] {
            lab.sim.block_on(client.add(&stored.at_least_once(secs(10)))).unwrap();
        }
    }
    let left = Arc::new(AtomicU64::new(n));
    let victim = lab.seat(lab.sim.node());
    let dies = DiesAt { left: left.clone(), is_applied, node: victim.node.clone() };
    let store = Wrapped::around(lab.store.clone(), dies);
    let start = |seat: crate::support::Seat, store: Arc<dyn Backend>| -> Member {
        let builder = seat.builder_on(store);
        let builder = match is_stored {
            true => builder.kind("work", seat.handler(ms(500), |_| Ok(()))),
            false => {
                let a = seat.job(every(secs(3)), ms(500)).max_runs(1).at_least_once(secs(10));
                let b = seat.job(never(), ms(500)).after("a", On::Success);
                builder.add("a", a).add("b", b.at_least_once(secs(10)))
            }
        };
        seat.run(builder.build().unwrap())
    };
    start(victim, Arc::new(store));
    // The other one begins when all is done, if nobody has died.
    lab.until(6.0);
    start(lab.seat(lab.sim.node()), Arc::new(lab.store.clone()));
    lab.until(150.0);
    let ran = followed_by(&lab, "b");
    let told = format!("step {n}, applied: {is_applied}, stored: {is_stored}: {ran:?}");
    assert_eq!(lab.story("a").iter().filter(|it| it.starts_with("succeeded")).count(), 1, "{told}");
    assert_eq!(ran.len(), 1, "{told}");
    assert!(ran[0].starts_with("a/") && lab.state("a").chain.unwrap().outbox.is_empty(), "{told}");
    left.load(Relaxed) == 0
}

#[test]
fn a_job_runs_once_after_another_whichever_step_kills_a_node() {
    for is_stored in [false, true] {
        for is_applied in [false, true] {
            let deaths = (1..20).take_while(|n| play(*n, is_applied, is_stored)).count();
            assert!(deaths >= 5, "{deaths} steps");
        }
    }
}

#[test]
fn a_job_runs_after_the_ends_that_it_follows_and_its_own_followers_after_it() {
    let lab = Lab::new(1);
    lab.start(|seat, b| {
        let fails = seat.work(every(secs(60)), ms(0), |run| match run.scheduled_at() > at(100.0) {
            true => Err("broken".into()),
            false => Ok(()),
        });
        b.add("a", fails.max_runs(2))
            .add("succeeded", seat.job(never(), ms(0)).after("a", On::Success))
            .add("failed", seat.job(never(), ms(0)).after("a", On::Failure))
            .add("ended", seat.job(never(), ms(0)).after("a", On::End))
            .add("last", seat.job(never(), ms(0)).after("ended", On::Success))
    });
    lab.until(130.0);
    assert_eq!((lab.ran("succeeded"), lab.ran("failed")), (vec![60.0], vec![120.0]));
    assert_eq!((lab.ran("ended"), lab.ran("last")), (vec![60.0, 120.0], vec![60.0, 120.0]));
}

#[test]
fn a_lost_run_is_followed_as_a_failure() {
    let lab = Lab::new(1);
    let victim = lab.start(|seat, b| b.add("a", seat.job(every(secs(10)), secs(100)).max_runs(1)));
    lab.start(|seat, b| {
        let a = seat.job(every(secs(10)), secs(100)).max_runs(1);
        b.add("a", a).add("b", seat.job(never(), ms(0)).after("a", On::Failure))
    });
    lab.until(5.0);
    let _ = victim;
    lab.until(11.0);
    let runner = lab.state("a").leases[0].node.clone();
    if runner.starts_with("n1") {
        victim.node.crash();
        lab.until(100.0);
        assert_eq!(followed_by(&lab, "b").len(), 1);
    }
}

#[test]
fn a_paused_job_runs_after_others_when_it_is_resumed() {
    let lab = Lab::new(1);
    lab.start(|seat, b| {
        b.add("a", seat.job(every(secs(10)), ms(0)).max_runs(3))
            .add("b", seat.job(never(), ms(0)).after("a", On::End))
    });
    lab.until(5.0);
    lab.operate("b", Action::Pause { note: "", until: None }).unwrap();
    lab.until(50.0);
    assert_eq!(lab.ran("b"), [] as [f64; 0]);
    lab.operate("b", Action::Resume).unwrap();
    lab.until(60.0);
    assert_eq!(lab.ran("b").len(), 3);
}

#[test]
fn a_node_that_stops_delivers_what_its_last_runs_are_followed_by() {
    let lab = Lab::new(1);
    let member = lab.start(|seat, b| {
        b.add("a", seat.job(every(secs(10)), secs(3)).max_runs(1))
            .add("b", seat.job(never(), ms(0)).after("a", On::Success))
    });
    lab.until(11.0);
    member.handle.stop();
    lab.until(30.0);
    assert!(member.stopped().is_some());
    assert_eq!(lab.ran("b"), [] as [f64; 0], "it starts nothing");
    assert_eq!(lab.state("b").head.unwrap().scheduled_at, at(13.0));
}

#[test]
fn jobs_that_would_run_after_themselves_are_refused() {
    let lab = Lab::new(1);
    let client = Schedules::on(lab.store.clone(), lab.clock()).unwrap();
    let add = |name: &str, before: &str| {
        let stored = StoredSchedule::new(name, "work", "@never").after(before, On::Success);
        lab.sim.block_on(client.add(&stored)).map_err(|error| error.to_string())
    };
    add("b", "a").unwrap();
    add("c", "b").unwrap();
    let error = add("a", "c").unwrap_err();
    assert!(error.contains("after itself (a -> b -> c -> a)"), "{error}");
    let seat = lab.seat(lab.sim.node());
    let job = |before| seat.job(never(), ms(0)).after(before, On::End);
    let built = seat.builder().add("x", job("y")).add("y", job("x")).build();
    assert!(built.unwrap_err().to_string().contains("after itself"));
    let local = seat.job(every(secs(1)), ms(0)).on_every_node();
    let built = seat.builder().add("x", job("y")).add("y", local).build();
    assert!(built.unwrap_err().to_string().contains("runs on every node"));
}

#[test]
fn a_cycle_that_was_made_by_two_edits_at_once_ends() {
    let lab = Lab::new(1);
    // Without the check of a client.
    for (name, before) in [("a", "b"), ("b", "a")] {
        lab.operate(before, Action::Follow { job: name, on: On::Success }).unwrap();
        let definition = format!("@never; after {before} succeeded");
        let new = allora_core::backend::NewSchedule::new("work", &definition, None);
        lab.operate(name, Action::Create(new)).unwrap();
    }
    lab.start(|seat, b| b.kind("work", seat.handler(ms(0), |_| Ok(()))));
    lab.operate("a", Action::trigger("go")).unwrap();
    lab.until(300.0);
    assert_eq!(lab.ran("a").len() + lab.ran("b").len(), 33);
    let told = |name| lab.past(name).into_iter().filter_map(|entry| entry.reason);
    assert_eq!(
        told("a").chain(told("b")).map(|it| it.word()).collect::<Vec<_>>(),
        ["chain_too_long"]
    );
}
