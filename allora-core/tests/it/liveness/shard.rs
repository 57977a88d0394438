//! One shard of the store fails: the jobs of the other shards do not notice.

use super::fleet::{Fleet, Member, listed};
use crate::support::{ms, secs};
use allora_conformance::history::Seen;
use allora_core::{Overlap, StorePart, every};
use chrono::TimeDelta;
use std::time::Duration;

/// The failures of the operations on jobs of the shard, in thousandths: refused, and applied without
/// a reply.
const FAILURES: [(u64, u64); 3] = [(1_000, 0), (0, 1_000), (500, 500)];

/// One node with healthy jobs every second, and jobs of the shard that fails from 5.5 s on.
fn one_node(seed: u64, of_the_shard: u32) -> (Fleet, Member) {
    let fleet = Fleet::new(seed);
    fleet.shares.only("shard");
    let member = fleet.start(|seat| {
        for n in 0..5 {
            let healthy = seat.job(every(secs(1)).phase(Duration::ZERO), ms(5));
            let healthy = if n % 2 == 0 { healthy.at_least_once(secs(30)) } else { healthy };
            seat.add(&format!("healthy{n}"), healthy);
        }
        for n in 0..of_the_shard {
            // Due at many different times.
            let job = seat.job(every(secs(3)), secs(2)).jitter(secs(2));
            let job = if n % 2 == 0 { job.at_least_once(secs(10)) } else { job };
            seat.add(&format!("shard{n}"), job);
        }
    });
    fleet.run_for(ms(5_500));
    (fleet, member)
}

/// The number of runs of the healthy jobs, and the longest time by which one was late.
fn healthy(fleet: &Fleet) -> (usize, TimeDelta) {
    let seen = fleet.trace.observations();
    let late = seen.iter().filter_map(|one| match &one.seen {
        Seen::Began(run) if run.job.starts_with("healthy") => Some(one.at - run.scheduled_at),
        _ => None,
    });
    let late: Vec<_> = late.collect();
    (late.len(), late.iter().max().copied().unwrap_or_default())
}

#[test]
fn a_shard_that_fails_delays_no_job_of_another() {
    for (seed, (refused, unknown)) in FAILURES.into_iter().enumerate() {
        let (fleet, member) = one_node(seed as u64, 20);
        fleet.shares.set(refused, unknown);
        fleet.run_for(secs(60));
        let (runs, late) = healthy(&fleet);
        assert!(late <= TimeDelta::milliseconds(50), "({refused}, {unknown}): {late} late");
        assert!((5 * 64..=5 * 66).contains(&runs), "({refused}, {unknown}): {runs} runs");
        let requests = fleet.requests(&member);
        assert!(requests < 60 * 20, "({refused}, {unknown}): {requests} requests in a minute");
        fleet.shares.set(0, 0);
        fleet.run_for(secs(30));
        let stalls = fleet.stalls();
        let healthy: Vec<_> =
            stalls.into_iter().filter(|stall| !stall.job.starts_with("shard")).collect();
        assert!(healthy.is_empty(), "{}", listed(&healthy));
        for n in 0..20 {
            let last = fleet.state(&format!("shard{n}")).last_started.unwrap();
            let age = fleet.trace.now() - last;
            assert!(age < TimeDelta::seconds(8), "shard{n} ran {age} ago");
        }
    }
}

#[test]
fn a_shard_that_fails_is_one_condition() {
    for (seed, (refused, unknown)) in FAILURES.into_iter().enumerate() {
        let (fleet, member) = one_node(seed as u64, 4);
        fleet.shares.set(refused, unknown);
        fleet.run_for(secs(60));
        let parts: Vec<_> =
            member.handle.health().store.failing.iter().map(|failing| failing.part).collect();
        assert!(parts.contains(&StorePart::Claims), "{parts:?}");
        fleet.shares.set(0, 0);
        fleet.run_for(secs(30));
        assert!(member.handle.health().store.failing.is_empty());
        assert_eq!(member.store_events(), ["StoreDown", "StoreUp"], "({refused}, {unknown})");
    }
}

#[test]
fn one_name_that_fails_delays_no_other() {
    let (fleet, _) = one_node(9, 1);
    fleet.shares.set(1_000, 0);
    fleet.run_for(secs(60));
    let (runs, late) = healthy(&fleet);
    assert!(late <= TimeDelta::milliseconds(50), "{late} late");
    assert!((5 * 64..=5 * 66).contains(&runs), "{runs} runs");
}

/// A shard that is answered again must not record as lost, or claim again, a run whose end only waits
/// for it.
#[test]
fn after_a_failure_of_their_shard_runs_are_recorded_before_they_are_reaped() {
    let (mut lost, mut again) = (0, 0);
    for length in 12..42 {
        let fleet = Fleet::new(length);
        fleet.shares.only("shard");
        fleet.start(|seat| {
            seat.set(|b| b.lost_after(secs(10)));
            let job = || seat.job(every(secs(100)), secs(5));
            let (once, leased) = (job().overlap(Overlap::Skip), job().at_least_once(secs(10)));
            let healthy = seat.job(every(secs(1)).phase(Duration::ZERO), ms(5));
            seat.add("shard-once", once);
            seat.add("shard-leased", leased);
            seat.add("healthy", healthy);
        });
        fleet.run_for(secs(101));
        fleet.shares.set(1_000, 0);
        fleet.run_for(ms(1_370 * length));
        fleet.shares.set(0, 0);
        fleet.run_for(ms(98_000 - 1_370 * length));
        lost += fleet.state("shard-once").counters.lost;
        again += fleet.state("shard-leased").counters.expired;
        let (_, late) = healthy(&fleet);
        assert!(late <= TimeDelta::milliseconds(50), "{length}: {late} late");
    }
    assert_eq!((lost, again), (0, 0));
}
