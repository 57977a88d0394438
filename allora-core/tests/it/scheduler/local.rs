//! Jobs that run on every node.

use crate::support::{Entry, Lab, Over, Rates, at, ms, secs};
use allora_core::{Condition, Overlap, Scheduler, StorePart, Time, at as once, every};
use chrono::TimeDelta;
use std::sync::atomic::Ordering::Relaxed;

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
    let scheduler = Scheduler::builder(crate::support::bare(lab.store.clone()))
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
    let scheduler = Scheduler::builder(crate::support::bare(lab.store.clone()))
        .runtime(seat.node.clone())
        .add("job", job)
        .build()
        .unwrap();
    seat.run(scheduler);
    lab.until(199.0);
    lab.assert_over("job", 0, at(150.0), Over::Ran);
}

/// The runs of these jobs, and the largest number of them at once.
fn most_at_once(lab: &Lab, jobs: &[&str]) -> (usize, usize) {
    let runs: Vec<_> = jobs.iter().flat_map(|job| lab.log.of(job)).collect();
    let mut changes: Vec<(Time, i32)> = Vec::new();
    for run in &runs {
        changes.push((run.began, 1));
        changes.extend(run.ended.map(|(ended, _)| (ended, -1)));
    }
    changes.sort_unstable();
    let mut active = 0;
    let most = changes.iter().map(|(_, change)| {
        active += change;
        active
    });
    (runs.len(), most.max().unwrap_or(0) as usize)
}

#[test]
fn jobs_of_every_node_share_a_key_with_those_of_other_nodes_and_with_jobs_of_one() {
    for limit in [1, 2] {
        let lab = Lab::new(u64::from(limit));
        for _ in 0..3 {
            lab.start(|seat, b| {
                let every_node = seat.job(every(secs(20)), secs(3)).on_every_node();
                b.add("each", every_node.concurrency_key("g", limit))
                    .add("one", seat.job(every(secs(20)), secs(3)).concurrency_key("g", limit))
                    .add("free", seat.job(every(secs(20)), secs(3)).on_every_node())
            });
        }
        lab.until(219.0);
        let (runs, at_once) = most_at_once(&lab, &["each", "one"]);
        assert_eq!((runs, at_once), (10 * 4, limit as usize));
        let ran = |name: &str| lab.log.of(name).iter().all(|run| run.ended.unwrap().1 == Over::Ran);
        assert!(ran("each") && ran("one") && ran("free"));
        let late = |run: &Entry| run.began - run.at > TimeDelta::milliseconds(100);
        assert!(!lab.log.of("free").iter().any(late), "no job without the key waits for it");
        let key = lab.state("allora:key:g");
        assert!(key.leases.is_empty() && key.waiters.is_empty(), "{key:?}");
    }
}

#[test]
fn without_the_store_only_the_jobs_with_a_key_wait_and_each_waits_for_its_turn() {
    let lab = Lab::new(3);
    let member = lab.start(|seat, b| {
        b.add("keyed", seat.job(every(secs(10)), secs(2)).on_every_node().mutex("g"))
            .add("free", seat.job(every(secs(10)), ms(5)).on_every_node())
    });
    lab.until(35.0);
    member.faults.down.store(true, Relaxed);
    lab.until(95.0);
    assert_eq!(lab.ran("free"), [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0]);
    assert_eq!(lab.ran("keyed"), [10.0, 20.0, 30.0]);
    assert!(member.failing().iter().any(|one| one.part == StorePart::Keys));
    member.faults.down.store(false, Relaxed);
    lab.until(125.0);
    assert_eq!(lab.ran("keyed")[3..], [90.0, 100.0, 110.0, 120.0], "it catches up with the latest");
    assert!(member.failing().is_empty());
}

#[test]
fn a_job_of_every_node_without_its_place_is_ended_and_one_of_a_dead_node_frees_it() {
    let lab = Lab::new(4);
    let start = || {
        lab.start(|seat, b| {
            let job = seat.job(once(at(10.0)), secs(60)).on_every_node().mutex("g");
            b.lost_after(secs(6)).add("job", job)
        })
    };
    let members = [start(), start(), start()];
    lab.until(20.0);
    let holder = lab.state("allora:key:g").leases[0].node.clone();
    let (holds, waits): (Vec<_>, Vec<_>) =
        members.into_iter().partition(|member| member.handle.node() == holder);
    let wait = waits[0].handle.health().conditions[0].condition.clone();
    let Condition::KeyBusy { job, holders, .. } = wait else { panic!("it waits: {wait}") };
    assert_eq!((&*job, &*holders[0].job, &*holders[0].node), ("job", "job", &*holder));
    // Its run is over before its place is.
    holds[0].faults.down.store(true, Relaxed);
    lab.until(30.0);
    let runs = lab.log.of("job");
    assert_eq!(runs.len(), 2);
    assert!(runs[0].ended.unwrap().0 <= runs[1].began, "{runs:#?}");
    let second = lab.state("allora:key:g").leases[0].node.clone();
    let dies = waits.iter().find(|member| member.handle.node() == second).unwrap();
    dies.node.crash();
    lab.until(45.0);
    assert_eq!(lab.log.of("job").len(), 3);
}

#[test]
fn a_node_that_stops_gives_back_the_places_of_its_jobs_of_every_node() {
    let lab = Lab::new(5);
    let stops = lab.start(|seat, b| {
        b.add("job", seat.job(every(secs(5)), secs(3)).on_every_node().mutex("g"))
    });
    lab.start(|seat, b| b.add("job", seat.job(every(secs(5)), secs(3)).on_every_node().mutex("g")));
    lab.until(52.0);
    stops.handle.stop();
    lab.until(60.0);
    let stopped = stops.stopped().unwrap();
    assert_eq!((stopped.unrecorded, stopped.unresolved), (0, 0));
    lab.until(119.0);
    assert_eq!(most_at_once(&lab, &["job"]).1, 1);
    let after = lab.log.of("job").into_iter().filter(|run| run.began > at(60.0));
    assert!(after.count() >= 11);
}

/// Lost replies, hanging requests and nodes that die: never two at once.
#[test]
fn whatever_is_lost_the_jobs_of_every_node_run_one_at_a_time() {
    for seed in 0..20 {
        let lab = Lab::new(seed);
        let members: Vec<_> = (0..3)
            .map(|_| {
                lab.start(|seat, b| {
                    seat.rates(Rates {
                        lose_request: 60,
                        lose_reply: 120,
                        refuse: 50,
                        ..Rates::default()
                    });
                    let job = |seconds| seat.job(every(secs(seconds)), secs(2)).on_every_node();
                    b.lost_after(secs(6))
                        .add("a", job(20).mutex("g"))
                        .add("b", job(15).at_least_once(secs(6)).mutex("g"))
                })
            })
            .collect();
        lab.until(100.0);
        members[0].node.crash();
        lab.until(300.0);
        let (runs, at_once) = most_at_once(&lab, &["a", "b"]);
        assert!(runs > 50 && at_once == 1, "seed {seed}: {runs} runs, {at_once} at once");
    }
}
