//! Scenes in which a scheduler once stood still, or forgot what it had claimed.

use super::fleet::{Fleet, Member, listed};
use crate::support::{ms, secs};
use allora_conformance::{faults::Speed, history::Seen};
use allora_core::every;
use std::{sync::atomic::Ordering::Relaxed, time::Duration};

impl Fleet {
    /// The number of runs of a job whose code was called.
    fn runs(&self, name: &str) -> usize {
        let seen = self.trace.observations();
        let began = |seen: &Seen| matches!(seen, Seen::Began(run) if &*run.job == name);
        seen.iter().filter(|one| began(&one.seen)).count()
    }

    #[track_caller]
    fn assert_live(&self) {
        let stalls = self.stalls();
        assert!(stalls.is_empty(), "{}", listed(&stalls));
    }
}

/// Three nodes with a hundred jobs that run at least once every ten seconds.
fn three_nodes(fleet: &Fleet, lease: Duration) -> [Member; 3] {
    [(); 3].map(|()| {
        fleet.start(|seat| {
            for n in 0..100 {
                let job = seat.job(every(secs(10)), ms(500)).at_least_once(lease);
                seat.add(&format!("job{n}"), job);
            }
        })
    })
}

/// The node that started the last run: the others believe in its lease.
fn winner<'a>(fleet: &Fleet, nodes: &'a [Member]) -> &'a Member {
    let seen = fleet.trace.observations();
    let last = seen.iter().rev().find_map(|one| match &one.seen {
        Seen::Began(run) => Some(run.node.clone()),
        _ => None,
    });
    nodes.iter().find(|node| Some(node.handle.node()) == last.as_deref()).unwrap()
}

/// No occurrence of the hundred jobs was missed.
#[track_caller]
fn assert_none_missed(fleet: &Fleet) {
    let missed = (0..100).map(|n| fleet.state(&format!("job{n}")).counters.missed);
    assert_eq!(missed.sum::<u64>(), 0, "occurrences missed");
}

/// The longest time by which a run was late.
fn latest(fleet: &Fleet) -> chrono::TimeDelta {
    let seen = fleet.trace.observations();
    let late = seen.iter().filter_map(|one| match &one.seen {
        Seen::Began(run) => Some(one.at - run.scheduled_at),
        _ => None,
    });
    late.max().unwrap()
}

#[test]
fn a_node_that_stops_between_runs_delays_nothing() {
    for lease in [secs(30), secs(3_600)] {
        let fleet = Fleet::new(1);
        let nodes = three_nodes(&fleet, lease);
        fleet.run_for(secs(65));
        winner(&fleet, &nodes).stop();
        fleet.run_for(secs(90));
        fleet.assert_live();
        assert_none_missed(&fleet);
        assert!(latest(&fleet) < chrono::TimeDelta::seconds(1), "{} late", latest(&fleet));
    }
}

#[test]
fn a_node_that_is_killed_between_runs_makes_others_miss_nothing() {
    for lease in [secs(30), secs(3_600)] {
        let fleet = Fleet::new(2);
        let nodes = three_nodes(&fleet, lease);
        fleet.run_for(secs(65));
        winner(&fleet, &nodes).crash();
        fleet.run_for(secs(90));
        fleet.assert_live();
        assert_none_missed(&fleet);
    }
}

/// A fleet whose store needs this time for an operation, from when its speed is set.
fn slow(seed: u64, per_operation: Duration, jobs: u32) -> (Fleet, Speed) {
    let mut fleet = Fleet::new(seed);
    let speed = Speed::new(Duration::ZERO);
    fleet.speed = Some(speed.clone());
    fleet.slower_by = per_operation * jobs * 3;
    (fleet, speed)
}

const SLOW: Duration = Duration::from_micros(1_200);

#[test]
fn a_thousand_jobs_are_registered_in_a_slow_store() {
    for per_operation in [SLOW, 10 * SLOW] {
        let (fleet, speed) = slow(3, per_operation, 1_000);
        speed.set(per_operation);
        fleet.start(|seat| {
            for n in 0..1_000 {
                let job = seat.job(every(secs(300)), ms(0));
                seat.add(&format!("job{n}"), job);
            }
        });
        fleet.run_for(secs(120));
        fleet.assert_live();
    }
}

#[test]
fn fifteen_hundred_due_jobs_start_from_a_slow_store() {
    for per_operation in [SLOW, 10 * SLOW] {
        let (fleet, speed) = slow(4, per_operation, 1_500);
        fleet.start(|seat| {
            seat.concurrency(2_000);
            // Claims and completions of all take longer than the default.
            seat.set(|b| b.lost_after(secs(120)));
            for n in 0..1_500 {
                let job = seat.job(every(secs(300)), ms(0));
                seat.add(&format!("job{n}"), job);
            }
        });
        fleet.run_for(secs(290));
        speed.set(per_operation);
        fleet.run_for(secs(130));
        fleet.assert_live();
    }
}

#[test]
fn fifteen_hundred_leases_are_kept_by_a_slow_store() {
    let (fleet, speed) = slow(5, SLOW, 1_500);
    fleet.start(|seat| {
        seat.concurrency(2_000);
        for n in 0..1_500 {
            let job = seat.job(every(secs(300)), secs(100)).at_least_once(secs(30));
            seat.add(&format!("job{n}"), job);
        }
    });
    fleet.run_for(secs(302));
    speed.set(SLOW);
    fleet.run_for(secs(130));
    fleet.assert_live();
    let succeeded = (0..1_500).map(|n| fleet.state(&format!("job{n}")).counters.succeeded);
    assert_eq!(succeeded.sum::<u64>(), 1_500);
}

#[test]
fn due_records_of_another_service_cost_a_node_little_and_hide_nothing() {
    let mut fleet = Fleet::new(6);
    // A store that needs no time would be asked without an end.
    fleet.speed = Some(Speed::new(Duration::ZERO).per_request(ms(2)));
    for n in 0..1_100 {
        fleet.stranger(&format!("stranger{n}"));
    }
    let member = fleet.start(|seat| {
        let job = seat.job(every(secs(600)), ms(0));
        seat.add("mine", job);
    });
    fleet.run_for(secs(5));
    assert!(fleet.trigger("mine", "now"));
    fleet.run_for(secs(55));
    fleet.assert_live();
    assert_eq!(fleet.runs("mine"), 1);
    let requests = fleet.requests(&member);
    assert!(requests < 60, "{requests} requests in a minute");
}

#[test]
fn a_large_service_that_is_deployed_again_costs_its_neighbour_little() {
    let mut fleet = Fleet::new(15);
    fleet.speed = Some(Speed::new(Duration::ZERO).per_request(ms(2)).connections(4));
    let large = || {
        fleet.start(|seat| {
            seat.concurrency(3_000);
            seat.set(|b| b.grace(ms(0)));
            for n in 0..2_000 {
                let job = seat.job(every(secs(60)), secs(40)).at_least_once(secs(60));
                seat.add(&format!("large{n}"), job);
            }
        })
    };
    let small = fleet.start(|seat| {
        let job = seat.job(every(secs(10)), ms(0));
        seat.add("small", job);
    });
    let old = large();
    fleet.run_for(secs(65));
    let before = fleet.requests(&small);
    old.stop();
    fleet.run_for(secs(20));
    assert!(fleet.trigger("small", "now"));
    fleet.run_for(secs(10));
    let requests = fleet.requests(&small) - before;
    fleet.assert_live();
    assert!(requests < 200, "{requests} requests in half a minute");
    large();
    fleet.run_for(secs(50));
    fleet.assert_live();
}

#[test]
fn a_job_that_is_removed_and_added_during_its_run_goes_on() {
    for notifies in [true, false] {
        let fleet = Fleet::new(7);
        fleet.set_notifies(notifies);
        let spec = |fleet: &Fleet, member: &Member| {
            fleet.job(&member.node, every(secs(10)), secs(4)).at_least_once(secs(60))
        };
        let member = fleet.start(|seat| {
            let job = seat.job(every(secs(10)), secs(4)).at_least_once(secs(60));
            seat.add("job", job);
        });
        fleet.run_for(secs(12));
        member.remove("job");
        fleet.run_for(secs(1));
        member.add("job", spec(&fleet, &member));
        fleet.run_for(secs(32));
        fleet.assert_live();
        assert_eq!(fleet.runs("job"), 4, "at 10, 20, 30 and 40 s");
    }
}

#[test]
fn an_every_node_job_that_is_removed_and_added_runs_nothing_old() {
    let fleet = Fleet::new(8);
    let member = fleet.start(|seat| seat.add_every_node("here"));
    fleet.run_for(secs(15));
    member.remove("here");
    fleet.run_for(secs(20));
    member.add_every_node(&fleet, "here");
    fleet.run_for(secs(20));
    fleet.assert_live();
    assert_eq!(fleet.runs("here"), 3, "at 10, 40 and 50 s");
}

#[test]
fn a_claim_without_reply_is_resolved_before_its_node_stops() {
    let fleet = Fleet::new(9);
    let member = fleet.start(|seat| {
        let job = seat.job(every(secs(100)), ms(0)).at_least_once(secs(60));
        seat.add("job", job);
    });
    fleet.run_for(ms(99_900));
    member.faults.deaf_to_claims.store(true, Relaxed);
    fleet.run_for(ms(600));
    member.faults.deaf_to_claims.store(false, Relaxed);
    member.stop();
    fleet.run_for(secs(40));
    fleet.assert_live();
    assert!(member.stopped.lock().unwrap().is_some());
    assert_eq!(fleet.state("job").leases, [], "its run has ended or was released");
}

/// A node for stored schedules of one kind, at least once, each every hundred seconds.
fn stored(fleet: &Fleet, schedules: usize) -> Member {
    let member = fleet.start(|seat| seat.kinds("mail", &["mail".to_owned()], ms(100)));
    for n in 0..schedules {
        fleet.store(&format!("stored{n}"), "mail", "@every 100s; at-least-once 60s");
    }
    member
}

#[test]
fn a_query_without_a_reply_is_repeated_and_its_claims_are_run() {
    let fleet = Fleet::new(21);
    let member = stored(&fleet, 20);
    fleet.run_for(ms(99_000));
    member.faults.deaf_to_claims.store(true, Relaxed);
    fleet.run_for(ms(1_500));
    member.faults.deaf_to_claims.store(false, Relaxed);
    fleet.run_for(secs(30));
    fleet.assert_live();
    for n in 0..20 {
        let state = fleet.state(&format!("stored{n}"));
        let counters = state.counters;
        assert_eq!((counters.started, counters.succeeded, counters.expired), (1, 1, 0), "{n}");
    }
}

#[test]
fn a_query_without_a_reply_is_resolved_before_its_node_stops() {
    let fleet = Fleet::new(22);
    let member = stored(&fleet, 20);
    fleet.run_for(ms(99_000));
    member.faults.deaf_to_claims.store(true, Relaxed);
    fleet.run_for(ms(1_500));
    member.faults.deaf_to_claims.store(false, Relaxed);
    member.stop();
    fleet.run_for(secs(30));
    assert!(member.stopped.lock().unwrap().is_some());
    for n in 0..20 {
        let state = fleet.state(&format!("stored{n}"));
        assert_eq!(state.leases, [], "its run has ended or was released");
        assert_eq!(state.counters.started, 1, "it was claimed");
    }
}

#[test]
fn schedules_that_are_behind_are_claimed_by_queries_and_caught_up_with() {
    let fleet = Fleet::new(23);
    let member = fleet.start(|seat| seat.kinds("mail", &["mail".to_owned()], ms(100)));
    fleet.store("latest", "mail", "@every 1s; at-least-once 60s");
    fleet.store("all", "mail", "@every 1s; at-least-once 60s; catch-up all 5");
    fleet.store("none", "mail", "@every 1s; at-least-once 60s; catch-up none");
    fleet.run_for(secs(10));
    member.stop();
    fleet.run_for(secs(100));
    let before = fleet.state("latest").counters;
    fleet.start(|seat| seat.kinds("mail", &["mail".to_owned()], ms(100)));
    fleet.run_for(secs(10));
    fleet.assert_live();
    for (name, most) in [("latest", 15), ("all", 25), ("none", 35)] {
        let counters = fleet.state(name).counters;
        let ran = counters.started - before.started.min(counters.started);
        assert!(ran >= 8 && ran <= most, "{name}: {ran} runs, {counters:?}");
        let all = counters.started + counters.missed;
        assert!((118..=122).contains(&all), "{name}: {counters:?}");
        assert!(counters.missed >= 85, "{name}: {counters:?}");
    }
}

#[test]
fn a_claim_without_reply_runs_next_on_a_full_node() {
    let fleet = Fleet::new(10);
    let member = fleet.start(|seat| {
        seat.concurrency(1);
        seat.set(|b| b.lost_after(secs(15)));
        let (first, long) =
            (seat.job(every(secs(100)), ms(0)), seat.job(every(secs(100)), secs(60)));
        seat.add("first", first);
        seat.add("long", long.delay(ms(500)));
    });
    fleet.run_for(ms(99_900));
    member.faults.deaf_to_claims.store(true, Relaxed);
    fleet.run_for(ms(900));
    member.faults.deaf_to_claims.store(false, Relaxed);
    fleet.run_for(secs(90));
    fleet.assert_live();
    assert_eq!(fleet.runs("first"), 1);
    assert_eq!(fleet.state("first").counters.lost, 0);
}

#[test]
fn a_claim_without_reply_survives_the_end_of_an_earlier_lease() {
    let fleet = Fleet::new(11);
    let nodes = [(); 2].map(|()| {
        fleet.start(|seat| {
            seat.set(|b| b.lost_after(secs(15)));
            let job = seat.job(every(secs(10)), secs(3));
            seat.add("job", job);
        })
    });
    fleet.run_for(secs(12));
    let lease = fleet.state("job").leases.remove(0);
    let (dies, lives): (Vec<_>, Vec<_>) =
        nodes.into_iter().partition(|node| node.handle.node() == lease.node);
    dies[0].crash();
    fleet.run_for(ms(7_900));
    lives[0].faults.deaf_to_claims.store(true, Relaxed);
    fleet.run_for(secs(6));
    lives[0].faults.deaf_to_claims.store(false, Relaxed);
    fleet.run_for(secs(40));
    fleet.assert_live();
    assert_eq!(fleet.state("job").counters.lost, 1, "that of the dead node");
}

#[test]
fn every_node_jobs_run_while_the_store_hangs() {
    let fleet = Fleet::new(12);
    let member = fleet.start(|seat| {
        seat.add_every_node("here");
        let job = seat.job(every(secs(10)), ms(0));
        seat.add("job", job);
    });
    fleet.run_for(secs(15));
    member.set_deaf(true);
    fleet.run_for(secs(60));
    fleet.assert_live();
    assert_eq!(fleet.runs("here"), 7);
}

#[test]
fn every_node_jobs_run_when_the_store_hangs_from_the_start() {
    let fleet = Fleet::new(13);
    let member = fleet.start(|seat| {
        seat.faults.deaf.store(true, Relaxed);
        seat.add_every_node("here");
    });
    member.set_deaf(true);
    fleet.run_for(secs(35));
    fleet.assert_live();
    assert_eq!(fleet.runs("here"), 3);
}

#[test]
fn a_run_has_its_lease_again_or_ends_when_its_node_was_suspended() {
    let fleet = Fleet::new(14);
    let member = fleet.start(|seat| {
        let job = seat.job(every(secs(100)), secs(60)).at_least_once(secs(30));
        seat.add("job", job);
    });
    fleet.run_for(secs(103));
    member.suspend();
    fleet.run_for(secs(28));
    member.resume();
    fleet.run_for(secs(60));
    fleet.assert_live();
}
