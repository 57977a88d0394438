//! Nodes that die, freeze or stop in the middle of a run.

use super::{
    members::Members,
    node::{Cluster, fleet},
};
use crate::stores::{now, pause, runtime};
use allora_conformance::faults;
use std::{env, time::Duration};

/// Does a test on nodes of three members of its own.
fn on_three_members(test: fn(Cluster)) {
    runtime().block_on(async {
        if let Some(members) = Members::start(3, &[]).await {
            test(Cluster(members.urls()));
        }
    });
}

#[test]
fn a_killed_nodes_runs_run_again_or_are_lost() {
    on_three_members(faults::a_killed_nodes_runs_run_again_or_are_lost);
}

#[test]
fn a_node_frozen_beyond_its_lease_is_fenced_and_goes_on() {
    on_three_members(faults::a_node_frozen_beyond_its_lease_is_fenced_and_goes_on);
}

#[test]
fn occurrences_released_by_stopping_nodes_run_on_others() {
    on_three_members(faults::occurrences_released_by_stopping_nodes_run_on_others);
}

/// SplitMix64: what happens follows from a seed.
fn draw(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) % below
}

/// Three nodes on three members; for twenty seconds, nodes and members are killed, stopped and
/// frozen, some for longer than a node's lease lasts.
#[test]
fn nodes_and_members_that_die_and_freeze_at_random_lose_nothing_in_silence() {
    let seed = env::var("ALLORA_FAULTS_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| u64::from(std::process::id()));
    #[expect(clippy::print_stderr, reason = "what failed can be walked again")]
    let () = eprintln!("ALLORA_FAULTS_SEED={seed}");
    let mut state = seed;
    runtime().block_on(async {
        let Some(mut members) = Members::start(3, &[]).await else { return };
        let mut fleet = fleet(members.urls());
        for ms in [0, 20, 60] {
            fleet.start(Duration::from_millis(ms));
        }
        fleet.more_ends(5);
        // One of the nodes is frozen from early on until its lease in etcd has ended.
        let frozen = usize::try_from(draw(&mut state, 3)).unwrap();
        let frozen = fleet.nodes().remove(frozen);
        pause(draw(&mut state, 300)).await;
        frozen.signal("-STOP");
        let end = now() + Duration::from_secs(20);
        while now() < end {
            pause(100 + draw(&mut state, 1_500)).await;
            let which = usize::try_from(draw(&mut state, fleet.nodes().len() as u64)).unwrap();
            let work = Duration::from_millis(draw(&mut state, 80));
            match draw(&mut state, 6) {
                0 | 1 => {
                    drop(fleet.nodes().remove(which));
                    fleet.start(work);
                }
                2 => {
                    fleet.nodes().remove(which).stop();
                    fleet.start(work);
                }
                3 => {
                    fleet.nodes()[which].signal("-STOP");
                    pause(draw(&mut state, 4_000)).await;
                    fleet.nodes()[which].signal("-CONT");
                }
                _ => {
                    let member = usize::try_from(draw(&mut state, 3)).unwrap();
                    members.kill(member);
                    pause(draw(&mut state, 2_000)).await;
                    members.serve(member);
                }
            }
        }
        frozen.signal("-CONT");
        fleet.nodes().push(frozen);
        fleet.more_ends(10);
        fleet.judge();
    });
}
