//! Jobs in code of nodes that know each other: each node claims those for which it is the first.

use crate::support::{Lab, Member, ms, secs};
use allora_core::{every, time::since};
use std::{sync::atomic::Ordering::Relaxed, time::Duration};

/// Three nodes with these jobs, due every ten seconds at one instant. The store needs so long for each
/// operation of a node.
fn nodes(lab: &Lab, jobs: usize, per_operation: [u64; 3]) -> Vec<Member> {
    let member = |micros: &u64| {
        lab.start(|seat, builder| {
            *seat.faults.per_operation.lock().unwrap() = Duration::from_micros(*micros);
            let add = |builder, n| {
                let schedule = every(secs(10)).phase(Duration::ZERO);
                allora_core::SchedulerBuilder::add(
                    builder,
                    format!("job-{n}"),
                    seat.job(schedule, ms(0)),
                )
            };
            (0..jobs).fold(builder.concurrency(10_000), add)
        })
    };
    let members = per_operation.iter().map(member).collect();
    lab.until(95.0);
    members
}

/// The claims of these nodes from now until this second, and those of them that failed.
fn claims(lab: &Lab, members: &[Member], until: f64) -> (u64, u64) {
    let sum = || {
        let of = |member: &Member| {
            (member.faults.claims.load(Relaxed), member.faults.failed_claims.load(Relaxed))
        };
        members.iter().map(of).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    };
    let before = sum();
    lab.until(until);
    let after = sum();
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn nodes_whose_claims_take_longer_than_a_turn_leave_each_other_as_long() {
    let lab = Lab::new(1);
    let members = nodes(&lab, 600, [150, 250, 350]);
    let (claims, failed) = claims(&lab, &members, 195.0);
    assert_eq!(claims - failed, 6_000);
    assert!(failed <= claims / 50, "{failed} of {claims} claims failed");
}

#[test]
fn many_jobs_of_a_dead_node_start_after_the_time_that_the_others_needed_for_theirs() {
    let lab = Lab::new(2);
    let members = nodes(&lab, 600, [150, 150, 150]);
    members[0].node.crash();
    let before = lab.log.entries().len();
    lab.until(105.0);
    let runs = &lab.log.entries()[before..];
    assert_eq!(runs.len(), 600);
    let late = runs.iter().map(|run| since(run.began, run.at)).max().unwrap();
    // The own claims need 30 ms. Then each of the others reads as many jobs of the two other nodes, and
    // claims half of those of the dead one.
    assert!(ms(60) <= late && late <= ms(140), "{late:?}");
}
