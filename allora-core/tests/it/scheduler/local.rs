//! Jobs that run on every node.

use crate::support::{Lab, Over, at, ms, secs};
use allora_core::{Overlap, Scheduler, every};
use chrono::TimeDelta;

#[test]
fn a_job_of_every_node_runs_on_every_node() {
    let lab = Lab::new(1);
    for _ in 0..3 {
        lab.start(|seat, b| b.add("job", seat.job(every(secs(10)), ms(5)).on_every_node()));
    }
    lab.until(25.0);
    assert_eq!(lab.ran("job"), [10., 10., 10., 20., 20., 20.]);
    assert!(lab.past("job").is_empty());
}

#[test]
fn a_long_run_on_every_node_is_left_alone() {
    let lab = Lab::new(2);
    let member = lab.start(|seat, b| {
        b.add("job", seat.job(every(secs(200)), secs(100)).on_every_node()).add(
            "leased",
            seat.job(every(secs(200)), secs(100)).at_least_once(secs(5)).on_every_node(),
        )
    });
    lab.until(399.0);
    for name in ["job", "leased"] {
        assert_eq!(lab.log.of(name).len(), 1, "{name}");
        lab.assert_over(name, 0, at(300.0), Over::Ran);
    }
    assert_eq!(member.news(), ["Ready"]);
}

#[test]
fn on_every_node_a_wrong_clock_neither_spins_nor_moves_the_job() {
    for hours in [-1, 1] {
        let lab = Lab::new(3);
        let node = lab.sim.node();
        node.set_skew(TimeDelta::hours(hours));
        lab.start_on(node, |seat, b| {
            b.add("job", seat.job(every(secs(10)), ms(0)).on_every_node())
        });
        lab.until(35.0);
        assert_eq!(lab.ran("job"), [10., 20., 30.]);
    }
}

#[test]
fn on_every_node_overlap_policies_need_nothing_of_the_store() {
    let lab = Lab::new(4);
    let seat = lab.seat(lab.sim.node());
    let job = seat.job(every(secs(10)), secs(25)).overlap(Overlap::Skip).on_every_node();
    let scheduler = Scheduler::builder(crate::support::Bare(lab.store.clone()))
        .runtime(seat.node.clone())
        .add("job", job)
        .build()
        .unwrap();
    seat.run(scheduler);
    lab.until(75.0);
    assert_eq!(lab.ran("job"), [10., 40., 70.]);
}

#[test]
fn on_every_node_leases_need_nothing_of_the_store() {
    let lab = Lab::new(5);
    let seat = lab.seat(lab.sim.node());
    let job = seat.job(every(secs(100)), secs(50)).at_least_once(secs(3)).on_every_node();
    let scheduler = Scheduler::builder(crate::support::Bare(lab.store.clone()))
        .runtime(seat.node.clone())
        .add("job", job)
        .build()
        .unwrap();
    seat.run(scheduler);
    lab.until(199.0);
    lab.assert_over("job", 0, at(150.0), Over::Ran);
}
