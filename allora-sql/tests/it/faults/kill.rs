//! Nodes that die or freeze in the middle of a run.

use super::{node::Fleet, patiently};
use crate::stores::{Db, Place, on};
use allora_conformance::faults::{LEAST, Node, ONCE, claims};
use allora_core::backend::Outcome;
use std::{collections::HashSet, time::Duration};

/// Longer than any of these tests takes.
const FOREVER: Duration = Duration::from_secs(600);

/// A fleet whose first node is in the middle of runs that do not end.
fn caught(place: Place) -> (Fleet, Node) {
    let fleet = Fleet::new(place, Duration::from_secs(1));
    let first = fleet.start(FOREVER);
    for job in [LEAST, ONCE] {
        patiently("the first node runs", || !fleet.runs(job).0.is_empty());
    }
    (fleet, first)
}

fn a_killed_nodes_runs(place: Place) {
    let (fleet, mut first) = caught(place);
    let second = fleet.start(Duration::ZERO);
    patiently("the second node is ready", || fleet.said("Ready") == 2);
    first.kill();
    let hung = fleet.runs(LEAST).0[0].0;
    patiently("the occurrence is taken over", || fleet.taken_over(hung).is_some());
    assert_eq!(fleet.taken_over(hung).unwrap().1.attempt, 2);
    // What the dead node had started at most once, and not ended, is lost, and only that.
    let (started, _) = fleet.runs(ONCE);
    let first_node = fleet.log().into_iter().find(|event| event.job == ONCE).unwrap().node;
    let lost = || {
        let past = fleet.past(ONCE).into_iter();
        past.filter(|past| past.outcome == Outcome::Lost).map(|past| past.fence).collect()
    };
    let log = fleet.log();
    let of_first = |fence| claims(&log).any(|(e, c)| e.node == first_node && c.fence == fence);
    let hung: HashSet<i64> =
        started.iter().map(|(_, fence)| *fence).filter(|fence| of_first(*fence)).collect();
    patiently("what was lost is recorded", || hung.is_subset(&lost()));
    fleet.more_ends(2);
    second.stop();
    fleet.judge();
}

fn a_frozen_node(place: Place) {
    let (fleet, first) = caught(place);
    first.signal("-STOP");
    let second = fleet.start(Duration::ZERO);
    let (hung, fence) = fleet.runs(LEAST).0[0];
    patiently("the occurrence is taken over", || fleet.taken_over(hung).is_some());
    fleet.more_ends(1);
    first.signal("-CONT");
    // It finds out, and its run is cancelled; the store takes nothing from it.
    patiently("the first node is fenced", || fleet.said("Lease") > 0);
    let (_, ended) = fleet.runs(LEAST);
    assert!(!ended.contains(&fence));
    // It is not broken by it: alone again, it goes on.
    second.stop();
    let before = fleet.runs(LEAST).0.len();
    patiently("the first node goes on", || fleet.runs(LEAST).0.len() > before);
    first.stop();
    fleet.judge();
}

macro_rules! on_every_database {
    ($($name:ident: $test:ident;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn sqlite() {
                on(Db::Sqlite, async |place| tokio::task::block_in_place(|| $test(place)));
            }
            #[test]
            fn postgres() {
                on(Db::Postgres, async |place| tokio::task::block_in_place(|| $test(place)));
            }
            #[test]
            fn mysql() {
                on(Db::MySql, async |place| tokio::task::block_in_place(|| $test(place)));
            }
        }
    )*};
}

on_every_database! {
    what_a_killed_node_ran_runs_again_or_is_lost_as_it_was_asked: a_killed_nodes_runs;
    a_node_that_was_frozen_beyond_its_lease_is_fenced: a_frozen_node;
}
