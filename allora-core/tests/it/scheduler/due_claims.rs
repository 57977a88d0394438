//! Stored schedules whose store finds and claims in one step.

use crate::support::{Lab, Member, ms, secs};
use allora_core::{every, time::since};
use std::{collections::BTreeSet, sync::atomic::Ordering::Relaxed, time::Duration};

/// A thousand schedules that are due after a thousand seconds, and a node that runs them.
fn thousand(lab: &Lab, set: impl FnOnce(&Member)) {
    thousands(lab, 1, set);
}

/// The same with so many thousand schedules.
fn thousands(lab: &Lab, count: usize, set: impl FnOnce(&Member)) {
    for i in 0..1_000 * count {
        lab.store(&format!("job-{i}"), "mail", "@every 1000s; at-least-once 30s");
    }
    let member = lab.start(|seat, b| b.kind("mail", seat.handler(ms(0), |_| Ok(()))));
    set(&member);
    lab.until(999.0);
}

fn assert_all_ran(lab: &Lab) {
    let ran = (0..1_000).filter(|i| lab.log.of(&format!("job-{i}")).len() == 1).count();
    assert_eq!(ran, 1_000);
}

#[test]
fn a_store_that_is_slower_than_a_query_serves_every_schedule_at_its_own_rate() {
    for (per_operation, within) in [(1_200, 60.0), (12_000, 300.0)] {
        let lab = Lab::new(1);
        thousand(&lab, |member| {
            *member.faults.per_operation.lock().unwrap() = Duration::from_micros(per_operation);
        });
        lab.until(1_000.0 + within);
        assert_all_ran(&lab);
    }
}

#[test]
fn queries_that_never_have_a_reply_stop_no_schedule() {
    for is_done in [false, true] {
        let lab = Lab::new(2);
        thousand(&lab, |member| match is_done {
            false => member.faults.loses_queries.store(true, Relaxed),
            true => member.faults.deaf_to_queries.store(true, Relaxed),
        });
        // The claims of a lost query run when their leases have ended.
        lab.until(if is_done { 1_120.0 } else { 1_030.0 });
        assert_all_ran(&lab);
    }
}

#[test]
fn queries_that_are_rejected_stop_no_schedule() {
    let lab = Lab::new(3);
    thousand(&lab, |member| member.faults.rejects_queries.store(true, Relaxed));
    lab.until(1_030.0);
    assert_all_ran(&lab);
}

#[test]
fn queries_that_are_lost_for_a_while_are_asked_again_afterwards() {
    let lab = Lab::new(4);
    let mut all = None;
    thousand(&lab, |member| all = Some(member.faults.clone()));
    let faults = all.unwrap();
    faults.loses_queries.store(true, Relaxed);
    lab.until(1_100.0);
    faults.loses_queries.store(false, Relaxed);
    let before = faults.calls();
    lab.until(2_050.0);
    let again = (0..1_000).filter(|i| lab.log.of(&format!("job-{i}")).len() == 2).count();
    assert_eq!(again, 1_000);
    // Polls, one query or a few, and the completions.
    assert!(faults.calls() - before < 400, "{} calls", faults.calls() - before);
}

#[test]
fn schedules_that_will_be_claimed_by_queries_are_searched_once() {
    let lab = Lab::new(5);
    let mut all = None;
    thousands(&lab, 4, |member| all = Some(member.faults.clone()));
    let faults = all.unwrap();
    lab.until(998.5);
    let before = faults.calls();
    lab.until(999.9);
    // A poll, a search a second before they are due, and the registry.
    assert!(faults.calls() - before <= 4, "{} calls", faults.calls() - before);
    lab.until(1_010.0);
    let ran = (0..4_000).filter(|i| lab.log.of(&format!("job-{i}")).len() == 1).count();
    assert_eq!(ran, 4_000);
}

/// Ten schedules every ten seconds, on three nodes that have seen each other.
fn three_nodes(lab: &Lab) -> Vec<Member> {
    three_nodes_with(lab, "@every 10s; at-least-once 30s")
}

/// The same with this definition of the schedules.
fn three_nodes_with(lab: &Lab, definition: &str) -> Vec<Member> {
    let member = |_| lab.start(|seat, b| b.kind("mail", seat.handler(ms(0), |_| Ok(()))));
    let members = (0..3).map(member).collect();
    lab.until(60.0);
    for i in 0..10 {
        lab.store(&format!("job-{i}"), "mail", definition);
    }
    members
}

#[test]
fn each_instant_has_one_node_that_claims_first() {
    let lab = Lab::new(6);
    let _members = three_nodes(&lab);
    lab.until(1_065.0);
    let entries = lab.log.entries();
    assert_eq!(entries.len(), 1_000);
    let instants: BTreeSet<_> = entries.iter().map(|run| (run.at, run.node.clone())).collect();
    assert_eq!(instants.len(), 100, "one node for each instant");
    let late = entries.iter().map(|run| since(run.began, run.at)).max().unwrap();
    assert!(late < ms(10), "the first node is not late: {late:?}");
    for node in entries.iter().map(|run| &run.node).collect::<BTreeSet<_>>() {
        let share = instants.iter().filter(|(_, of)| of == node).count();
        assert!((20..=50).contains(&share), "{share} of 100");
    }
}

#[test]
fn the_instants_of_a_dead_node_are_late_by_milliseconds() {
    let lab = Lab::new(7);
    let members = three_nodes(&lab);
    lab.until(105.0);
    members[0].node.crash();
    // It stays in the order until its record shows by its age that it is dead.
    lab.until(145.0);
    let late = lab.log.entries().into_iter().map(|run| since(run.began, run.at)).max().unwrap();
    assert!(ms(10) <= late && late <= ms(50), "{late:?}");
    assert_eq!(lab.log.entries().len(), 80);
}

#[test]
fn a_schedule_with_a_short_window_is_not_missed_because_of_dead_nodes() {
    let lab = Lab::new(8);
    let members = three_nodes_with(&lab, "@every 10s; at-least-once 30s; window 15ms");
    lab.until(105.0);
    members[0].node.crash();
    members[1].node.crash();
    lab.until(145.0);
    let late = lab.log.entries().into_iter().map(|run| since(run.began, run.at)).max().unwrap();
    assert!(ms(5) <= late && late <= ms(15), "{late:?}");
    assert_eq!(lab.log.entries().len(), 80);
}

#[test]
fn a_query_without_a_reply_keeps_no_other_claim_from_its_release() {
    let lab = Lab::new(12);
    for i in 0..10 {
        lab.store(&format!("job-{i}"), "mail", "@every 1000s; at-least-once 30s");
    }
    let member = lab.start(|seat, b| {
        let job = || seat.job(every(secs(1_000)), ms(0)).mutex("g");
        b.grace(secs(10)).kind("mail", seat.handler(ms(0), |_| Ok(()))).add("in code", job())
    });
    lab.until(999.9);
    member.faults.deaf_to_claims.store(true, Relaxed);
    lab.until(1_000.005);
    member.handle.stop();
    member.faults.loses_queries.store(true, Relaxed);
    lab.until(1_000.5);
    assert!(!lab.state("allora:key:g").leases.is_empty());
    member.faults.deaf_to_claims.store(false, Relaxed);
    lab.until(1_004.0);
    assert!(lab.state("allora:key:g").leases.is_empty());
    lab.until(1_020.0);
    assert_eq!(member.stopped().unwrap().unresolved, 10, "the query's limit");
}

/// Ten schedules that are due at 1,000 s, and a node that is stopped while its query for them is on its
/// way. Returns what the stop reports, and the outcomes of the first.
fn stopped_while_it_claims(
    lab: &Lab,
    until: f64,
    set: impl FnOnce(&Member),
) -> (usize, Vec<String>) {
    for i in 0..10 {
        lab.store(&format!("job-{i}"), "mail", "@every 1000s; at-least-once 30s");
    }
    let member =
        lab.start(|seat, b| b.grace(ms(5_000)).kind("mail", seat.handler(ms(0), |_| Ok(()))));
    lab.until(999.9);
    set(&member);
    lab.until(1_000.005);
    member.handle.stop();
    lab.until(until);
    (member.stopped().unwrap().unresolved, lab.story("job-0"))
}

#[test]
fn a_query_whose_reply_comes_while_the_node_stops_leaves_no_claim_unresolved() {
    let slow = |time: u64| {
        move |member: &Member| {
            *member.faults.per_operation.lock().unwrap() = Duration::from_millis(time);
        }
    };
    let stopped = stopped_while_it_claims(&Lab::new(9), 1_002.0, slow(2));
    assert_eq!(stopped, (0, vec!["released 1000".to_owned()]));
    // Another node has claimed them before.
    let lab = Lab::new(10);
    let other = lab.start(|seat, b| b.kind("mail", seat.handler(ms(0), |_| Ok(()))));
    let stopped = stopped_while_it_claims(&lab, 1_002.0, slow(2));
    assert_eq!(stopped, (0, vec!["succeeded 1000".to_owned()]));
    drop(other);
}

#[test]
fn queries_without_a_reply_are_reported_as_unresolved_when_the_node_has_stopped() {
    let lab = Lab::new(11);
    let lost = |member: &Member| member.faults.loses_queries.store(true, Relaxed);
    let (unresolved, story) = stopped_while_it_claims(&lab, 1_100.0, lost);
    assert!(unresolved >= 10, "the queries' limits: {unresolved}");
    assert_eq!(story, Vec::<String>::new());
}
