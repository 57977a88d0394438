//! The end of a scheduler: asked for, forced, or dropped.

use crate::support::{Lab, Over, Rates, at, ms, secs};
use allora_core::{ErrorKind, Runtime, every};
use std::sync::atomic::Ordering::Relaxed;

#[test]
fn a_stopped_scheduler_lets_its_runs_end_and_takes_nothing_more() {
    let lab = Lab::new(1);
    let member = lab.start(|seat, b| b.add("job", seat.job(every(secs(10)), secs(5))));
    lab.until(12.0);
    member.handle.stop();
    lab.until(14.9);
    assert_eq!(member.stopped(), None);
    lab.until(60.0);
    let stopped = member.stopped().unwrap();
    assert_eq!((stopped.cancelled, stopped.unrecorded), (0, 0));
    assert_eq!(lab.story("job"), ["succeeded 10"]);
    lab.assert_over("job", 0, at(15.0), Over::Ran);
}

#[test]
fn when_the_grace_is_over_runs_are_cancelled_and_leases_given_back() {
    let lab = Lab::new(2);
    let member = lab.start(|seat, b| {
        b.grace(secs(10))
            .add("once", seat.job(every(secs(60)), secs(50)))
            .add("leased", seat.job(every(secs(60)), secs(50)).at_least_once(secs(30)))
    });
    lab.until(65.0);
    member.handle.stop();
    lab.until(76.0);
    let stopped = member.stopped().unwrap();
    assert_eq!((stopped.cancelled, stopped.unrecorded), (2, 0));
    assert_eq!(lab.story("once"), ["cancelled 60"]);
    assert_eq!(lab.story("leased"), ["interrupted 60"]);
    assert!(!lab.past("leased")[0].is_final(), "another attempt follows");
    for name in ["once", "leased"] {
        lab.assert_over(name, 0, at(75.0), Over::Dropped);
    }
    // Another node takes over at once, as the next attempt.
    lab.start(|seat, b| {
        b.add("leased", seat.job(every(secs(60)), secs(50)).at_least_once(secs(30)))
    });
    lab.until(77.0);
    let again = &lab.log.of("leased")[1];
    assert_eq!((again.at, again.attempt), (at(60.0), 2));
}

#[test]
fn a_run_is_asked_to_end_before_it_is_made_to() {
    let lab = Lab::new(3);
    let seat = lab.seat(lab.sim.node());
    let log = seat.log.clone();
    let job = allora_core::job(every(secs(60)), async move |run: allora_core::Run| {
        let execution = log.begin(&run);
        run.cancelled().await;
        assert!(run.is_cancelled());
        execution.over(Over::Ran);
    });
    let scheduler = seat.builder().grace(secs(10)).add("job", job).build().unwrap();
    let member = seat.run(scheduler);
    lab.until(65.0);
    member.handle.stop();
    lab.until(80.0);
    lab.assert_over("job", 0, at(74.0), Over::Ran);
    assert_eq!(member.stopped().unwrap().cancelled, 0);
}

#[test]
fn stop_now_waits_for_nothing() {
    let lab = Lab::new(4);
    let member = lab.start(|seat, b| b.add("job", seat.job(every(secs(60)), secs(50))));
    lab.until(65.0);
    member.handle.stop();
    lab.until(66.0);
    member.handle.stop_now();
    lab.until(66.1);
    assert_eq!(member.stopped().unwrap().cancelled, 1);
    assert_eq!(lab.story("job"), ["cancelled 60"]);
}

#[test]
fn what_is_won_while_stopping_is_given_back() {
    for (lease, seed) in [(false, 5), (true, 6)] {
        let lab = Lab::new(seed);
        let member = lab.start(|seat, b| {
            let job = seat.job(every(secs(60)), ms(0));
            b.add("job", if lease { job.at_least_once(secs(30)) } else { job })
        });
        lab.until(59.0);
        member.faults.set(Rates { delay: 1_000, delay_ms: 400, ..Rates::default() });
        lab.until(60.002);
        member.handle.stop();
        lab.until(65.0);
        assert!(member.stopped().is_some());
        assert!(lab.log.of("job").is_empty());
        assert_eq!(lab.story("job"), ["released 60"]);
        lab.start(|seat, b| {
            let job = seat.job(every(secs(60)), ms(0));
            b.add("job", if lease { job.at_least_once(secs(30)) } else { job })
        });
        lab.until(66.0);
        assert_eq!(lab.ran("job"), [60.]);
    }
}

#[test]
fn a_store_that_is_down_does_not_keep_a_scheduler_from_stopping() {
    for deaf in [false, true] {
        let lab = Lab::new(7);
        let member =
            lab.start(|seat, b| b.grace(secs(5)).add("job", seat.job(every(secs(10)), secs(3))));
        lab.until(11.0);
        (if deaf { &member.faults.deaf } else { &member.faults.down }).store(true, Relaxed);
        member.handle.stop();
        lab.until(20.0);
        assert_eq!(member.stopped().unwrap().unrecorded, 1);
    }
}

#[test]
fn a_run_whose_lease_ends_while_stopping_was_not_cut_off_by_the_stop() {
    let lab = Lab::new(9);
    let member = lab.start(|seat, b| {
        b.grace(secs(60)).add("job", seat.job(every(secs(60)), secs(40)).at_least_once(secs(5)))
    });
    lab.until(61.0);
    member.faults.down.store(true, Relaxed);
    member.handle.stop();
    lab.until(75.0);
    member.faults.down.store(false, Relaxed);
    lab.until(90.0);
    assert_eq!(lab.log.of("job")[0].ended.unwrap().1, Over::Dropped);
    let stopped = member.stopped().unwrap();
    assert_eq!((stopped.cancelled, stopped.unrecorded), (0, 0));
}

#[test]
fn a_dropped_scheduler_drops_its_runs_and_leaks_no_task() {
    let lab = Lab::new(8);
    let seat = lab.seat(lab.sim.node());
    let (node, job) = (seat.node.clone(), seat.job(every(secs(10)), secs(1_000)));
    let scheduler = seat.builder().add("job", job).build().unwrap();
    lab.sim.block_on(async {
        let run = std::pin::pin!(scheduler.run());
        let sleep = node.sleep_until(node.now() + secs(25));
        futures::future::select(run, sleep).await;
    });
    lab.until(25.5);
    let ended: Vec<_> = lab.log.of("job").iter().map(|run| run.ended).collect();
    assert_eq!(ended, [Some((at(25.0), Over::Dropped)); 2]);
    assert_eq!(tasks(&lab), 0);
}

#[test]
fn after_many_stops_no_task_is_left() {
    let lab = Lab::new(9);
    for n in 1..=50 {
        let member =
            lab.start(|seat, b| b.add("job", seat.job(every(secs(3)), secs(20))).grace(secs(1)));
        lab.until(f64::from(n) * 10.0);
        member.handle.stop();
    }
    lab.until(520.0);
    assert_eq!(tasks(&lab), 0);
    assert!(lab.log.of("job").len() > 100);
}

fn tasks(lab: &Lab) -> usize {
    let text = format!("{:?}", lab.sim);
    text.split("tasks: ").nth(1).unwrap().split([',', ' ', '}']).next().unwrap().parse().unwrap()
}

#[test]
fn a_stopped_scheduler_accepts_no_job_and_an_ended_one_no_trigger() {
    let lab = Lab::new(21);
    let member = lab.start(|seat, b| b.add("job", seat.job(every(secs(10)), secs(5))));
    lab.until(12.0);
    member.handle.stop();
    let seat = lab.seat(lab.sim.node());
    let refused = member.handle.add("late", seat.job(every(secs(10)), secs(1))).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Other);
    assert!(refused.to_string().contains("this scheduler was stopped"), "{refused}");
    // A run that ends now may still trigger the next job: another node runs it.
    assert!(lab.sim.block_on(member.handle.trigger("job", "follow-up")).unwrap().is_new());
    lab.until(20.0);
    assert!(member.stopped().is_some());
    let refused = lab.sim.block_on(member.handle.trigger("job", "too late")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Other);
    assert!(refused.to_string().contains("this scheduler has ended"), "{refused}");
}

#[test]
fn a_job_of_every_node_refuses_a_trigger_at_once() {
    let lab = Lab::new(22);
    let job = |seat: &crate::support::Seat| seat.job(every(secs(10)), secs(1)).on_every_node();
    let seat = lab.seat(lab.sim.node());
    let idle = seat.builder().add("job", job(&seat)).build().unwrap();
    let member = lab.start(|seat, b| b.add("job", job(seat)));
    lab.until(12.0);
    for handle in [&idle.handle(), &member.handle] {
        let refused = lab.sim.block_on(handle.trigger("job", "by hand")).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        assert!(refused.to_string().contains("runs on every node"), "{refused}");
        assert_eq!(lab.now(), at(12.0), "at once");
    }
}

#[test]
fn a_trigger_before_the_scheduler_runs_says_what_is_missing() {
    let lab = Lab::new(23);
    let seat = lab.seat(lab.sim.node());
    let idle = seat.builder().add("job", seat.job(every(secs(10)), secs(1))).build().unwrap();
    let refused = lab.sim.block_on(idle.handle().trigger("job", "by hand")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound);
    assert!(refused.to_string().contains("does not run or has not reached its store"), "{refused}");
}
