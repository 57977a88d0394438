//! One shard of the store fails or hangs: the jobs of the other shards do not notice.

use super::fleet::{Fleet, Member, listed};
use crate::support::{ms, secs};
use allora_conformance::{faults::Hang, history::Seen};
use allora_core::{Overlap, StorePart, Time, every};
use chrono::TimeDelta;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

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
        let parts: Vec<_> = member.failing().iter().map(|failing| failing.part).collect();
        assert!(parts.contains(&StorePart::Claims), "{parts:?}");
        fleet.shares.set(0, 0);
        fleet.run_for(secs(30));
        assert!(member.failing().is_empty());
        assert_eq!(
            member.store_events(),
            ["store-down", "store-down over"],
            "({refused}, {unknown})"
        );
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

/// The times after which other operations of a batch are answered that has one which hangs.
const HANGS: [Hang; 2] = [Hang::Late(ms(750)), Hang::Silent];

/// The time by which a job may be late because of a request that hangs and that it is no part of: an
/// eighth of the store's time limit.
const PATIENCE: TimeDelta = TimeDelta::milliseconds(130);

/// The delays of each healthy job, of its runs and of those that were missed, without short ones.
fn delays(fleet: &Fleet) -> BTreeMap<Arc<str>, Vec<TimeDelta>> {
    let mut began: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for one in fleet.trace.observations() {
        if let Seen::Began(run) = &one.seen
            && run.job.starts_with("healthy")
        {
            began.entry(run.job.clone()).or_default().push(one.at);
        }
    }
    let delays = |began: Vec<Time>| {
        let gaps = began.windows(2).map(|pair| pair[1] - pair[0] - TimeDelta::seconds(1));
        gaps.filter(|delay| *delay > PATIENCE).collect()
    };
    began.into_iter().map(|(name, began)| (name, delays(began))).collect()
}

#[test]
fn a_shard_that_hangs_delays_each_job_of_another_once() {
    for (seed, hang) in HANGS.into_iter().enumerate() {
        for of_the_shard in [1, 20] {
            let case = format!("{hang:?}, {of_the_shard} jobs");
            let (fleet, member) = one_node(seed as u64, of_the_shard);
            fleet.shares.hang(hang);
            fleet.run_for(secs(60));
            for (name, delays) in delays(&fleet) {
                // One store timeout, and a little more.
                let is_short = |delay: &TimeDelta| *delay < TimeDelta::milliseconds(1_500);
                let is_once = delays.len() <= 1 && delays.iter().all(is_short);
                assert!(is_once, "{case}: {name} was delayed by {delays:?}");
            }
            let (runs, _) = healthy(&fleet);
            assert!(runs >= 5 * 63, "{case}: {runs} runs");
            let requests = fleet.requests(&member);
            assert!(requests < 60 * 30, "{case}: {requests} requests in a minute");
            fleet.shares.hang(Hang::No);
            fleet.run_for(secs(30));
            let stalls = fleet.stalls();
            let healthy: Vec<_> =
                stalls.into_iter().filter(|stall| !stall.job.starts_with("shard")).collect();
            assert!(healthy.is_empty(), "{case}: {}", listed(&healthy));
            assert!(member.failing().is_empty(), "{case}");
            for n in 0..of_the_shard {
                let last = fleet.state(&format!("shard{n}")).last_started.unwrap();
                let age = fleet.trace.now() - last;
                assert!(age < TimeDelta::seconds(8), "{case}: shard{n} ran {age} ago");
            }
        }
    }
}
