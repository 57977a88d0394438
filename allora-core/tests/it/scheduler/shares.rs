//! Stored schedules of nodes that know each other, on a store that finds and cannot claim in one step.

use crate::support::{Lab, Member, ms, secs};
use allora_core::time::since;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering::Relaxed,
    time::Duration,
};

/// Nodes that have seen each other after 60 seconds. Runs take so long.
fn nodes(lab: &Lab, count: usize, concurrency: usize, takes: Duration) -> Vec<Member> {
    let member = |_| {
        lab.start(|seat, builder| {
            seat.faults.has_no_due_claims.store(true, Relaxed);
            *seat.faults.per_operation.lock().unwrap() = Duration::from_micros(50);
            builder.concurrency(concurrency).kind("mail", seat.handler(takes, |_| Ok(())))
        })
    };
    let members = (0..count).map(member).collect();
    lab.until(60.0);
    members
}

/// Schedules of which each is due once, at this second.
fn add(lab: &Lab, count: usize, second: u64, more: &str) {
    let minute = second / 60;
    for i in 0..count {
        let text = format!("@at 2026-01-01T00:{minute:02}:{:02}Z; {more}", second % 60);
        lab.store(&format!("job-{i}"), "mail", &text);
    }
}

fn failed_share(members: &[Member]) -> f64 {
    let sum = |count: fn(&Member) -> u64| members.iter().map(count).sum::<u64>() as f64;
    let claims = sum(|member| member.faults.claims.load(Relaxed));
    sum(|member| member.faults.failed_claims.load(Relaxed)) / claims.max(1.0)
}

fn longest_delay(lab: &Lab) -> Duration {
    lab.log.entries().iter().map(|run| since(run.began, run.at)).max().unwrap()
}

fn runs_by_node(lab: &Lab) -> BTreeMap<String, usize> {
    let mut runs = BTreeMap::new();
    lab.log.entries().iter().for_each(|run| *runs.entry(run.node.to_string()).or_default() += 1);
    runs
}

#[test]
fn nodes_claim_different_schedules_of_one_instant() {
    for (seed, count, burst) in [(1, 4, 4_000), (2, 2, 3_000), (3, 8, 4_000), (4, 4, 300)] {
        let lab = Lab::new(seed);
        let members = nodes(&lab, count, 1_000, ms(0));
        add(&lab, burst, 120, "at-least-once 30s");
        lab.until(130.0);
        assert_eq!(lab.log.entries().len(), burst);
        let failed = failed_share(&members);
        assert!(failed <= 0.1, "{count} nodes, {burst} schedules: {failed}");
        let runs = runs_by_node(&lab);
        assert_eq!(runs.len(), count, "{runs:?}");
        assert!(runs.values().all(|runs| *runs >= burst / count / 2), "{runs:?}");
    }
}

#[test]
fn nodes_claim_different_schedules_of_a_backlog() {
    let lab = Lab::new(5);
    let members = nodes(&lab, 4, 1_000, ms(0));
    members.iter().for_each(|member| member.faults.deaf_to_searches.store(true, Relaxed));
    add(&lab, 4_000, 62, "at-least-once 30s");
    lab.until(80.0);
    assert_eq!(lab.log.entries().len(), 0);
    members.iter().for_each(|member| member.faults.deaf_to_searches.store(false, Relaxed));
    lab.until(100.0);
    assert_eq!(lab.log.entries().len(), 4_000);
    let failed = failed_share(&members);
    assert!(failed <= 0.1, "{failed}");
}

#[test]
fn the_share_of_a_dead_node_starts_soon() {
    for (seed, burst) in [(6, 300), (7, 4_000)] {
        let lab = Lab::new(seed);
        let members = nodes(&lab, 4, 1_000, ms(0));
        add(&lab, burst, 120, "at-least-once 30s");
        lab.until(118.0);
        members[0].node.crash();
        lab.until(130.0);
        assert_eq!(lab.log.entries().len(), burst, "{burst}");
        let late = longest_delay(&lab);
        assert!(ms(10) <= late && late <= secs(2), "{burst}: {late:?}");
        let failed = failed_share(&members[1..]);
        assert!(failed <= 0.2, "{burst}: {failed}");
    }
}

#[test]
fn a_node_at_its_capacity_delays_no_other() {
    let lab = Lab::new(8);
    let long = lab.start(|seat, builder| {
        seat.faults.has_no_due_claims.store(true, Relaxed);
        builder.concurrency(1).kind("mail", seat.handler(secs(600), |_| Ok(())))
    });
    let _others = nodes(&lab, 2, 1_000, ms(0));
    add(&lab, 600, 120, "at-least-once 30s");
    lab.until(130.0);
    drop(long);
    let ran: BTreeSet<_> = lab.log.entries().into_iter().map(|run| run.name).collect();
    assert_eq!(ran.len(), 600);
    assert!(longest_delay(&lab) <= secs(2), "{:?}", longest_delay(&lab));
}

#[test]
fn a_steady_stream_keeps_no_share_of_a_dead_node_waiting() {
    let lab = Lab::new(9);
    let members = nodes(&lab, 3, 1_000, ms(0));
    for i in 0..400 {
        let phase = i * 25;
        let text = format!(
            "@every 10s; start 2026-01-01T00:01:40.{:03}Z; at-least-once 30s",
            phase % 1_000
        );
        lab.store(&format!("job-{i}"), "mail", &text);
    }
    lab.until(104.0);
    members[0].node.crash();
    lab.until(150.0);
    let late = longest_delay(&lab);
    assert!(late <= secs(2), "{late:?}");
}

#[test]
fn a_schedule_that_may_be_late_only_a_little_is_not_missed_when_its_node_is_dead() {
    let lab = Lab::new(10);
    let members = nodes(&lab, 3, 1_000, ms(0));
    add(&lab, 60, 120, "at-least-once 30s; window 100ms");
    lab.until(118.0);
    members[0].node.crash();
    lab.until(130.0);
    assert_eq!(lab.log.entries().len(), 60);
    assert!(longest_delay(&lab) <= ms(100));
}

#[test]
fn a_node_alone_claims_at_once() {
    let lab = Lab::new(11);
    let members = nodes(&lab, 1, 1_000, ms(0));
    add(&lab, 500, 120, "at-least-once 30s");
    lab.until(130.0);
    assert_eq!(lab.log.entries().len(), 500);
    assert!(longest_delay(&lab) <= ms(200), "{:?}", longest_delay(&lab));
    assert_eq!(failed_share(&members), 0.0);
}
