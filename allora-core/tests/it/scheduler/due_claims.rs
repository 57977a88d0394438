//! Stored schedules whose store finds and claims in one step.

use crate::support::{Lab, Member, ms};
use std::{sync::atomic::Ordering::Relaxed, time::Duration};

/// A thousand schedules that are due after a thousand seconds, and a node that runs them.
fn thousand(lab: &Lab, set: impl FnOnce(&Member)) {
    for i in 0..1_000 {
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
