//! Nodes that die or freeze in the middle of a run.

use super::{members::Members, node::Fleet, patiently};
use crate::stores::{now, pause, runtime};
use allora_conformance::{
    faults::{LEAST, Node, ONCE, claims},
    history::{Claims, Event},
};
use allora_core::backend::Outcome;
use std::{collections::HashSet, env, time::Duration};

/// Longer than any of these tests takes.
const FOREVER: Duration = Duration::from_secs(600);

/// Three members, and a node that is in the middle of runs that do not end.
async fn caught() -> Option<(Members, Fleet)> {
    let members = Members::start(3, &[]).await?;
    // Slow enough that what hangs does not fill the node.
    let mut fleet = Fleet::new(members.urls()).every(Duration::from_secs(1));
    fleet.start(FOREVER);
    for job in [LEAST, ONCE] {
        patiently("the first node runs", async || !fleet.runs(job).0.is_empty()).await;
    }
    Some((members, fleet))
}

/// Which attempt it is of the occurrence that was taken over.
async fn taken_over(fleet: &Fleet, occurrence: i64) -> u32 {
    let taken = async || fleet.taken_over(occurrence).is_some();
    patiently("the occurrence is taken over", taken).await;
    fleet.taken_over(occurrence).unwrap().1.attempt
}

#[test]
fn what_a_killed_node_ran_runs_again_or_is_lost_as_it_was_asked() {
    runtime().block_on(async {
        let Some((_members, mut fleet)) = caught().await else { return };
        drop(fleet.nodes.remove(0));
        let (hung, _) = fleet.runs(LEAST).0[0];
        let once: HashSet<i64> = fleet.runs(ONCE).0.iter().map(|(_, fence)| *fence).collect();
        fleet.start(Duration::ZERO);
        assert_eq!(taken_over(&fleet, hung).await, 2);
        patiently("what was lost is recorded", async || {
            let entries = fleet.entries(ONCE).await.into_iter();
            let lost: HashSet<i64> = entries
                .filter(|entry| entry.outcome == Outcome::Lost)
                .map(|entry| entry.fence)
                .collect();
            once.is_subset(&lost)
        })
        .await;
        fleet.more_ends(2).await;
        fleet.judge().await;
    });
}

#[test]
fn a_node_that_was_frozen_beyond_its_lease_is_fenced_and_goes_on() {
    runtime().block_on(async {
        let Some((_members, mut fleet)) = caught().await else { return };
        fleet.nodes[0].signal("-STOP");
        fleet.start(Duration::ZERO);
        let (hung, fence) = fleet.runs(LEAST).0[0];
        assert_eq!(taken_over(&fleet, hung).await, 2);
        fleet.more_ends(1).await;
        fleet.nodes[0].signal("-CONT");
        // Its run is cancelled when it receives that; the store accepts nothing from it.
        patiently("the first node is fenced", async || fleet.said("LeaseLost") > 0).await;
        let (_, ended) = fleet.runs(LEAST);
        assert!(!ended.contains(&fence));
        // It still works: alone again, at the latest, it starts another run. That one does not end
        // either, so that there may be no other.
        fleet.nodes.remove(1).stop();
        let log = fleet.log();
        let of_run = |(_, claims): &(&Event, Claims)| claims.fence == fence;
        let first = claims(&log).find(of_run).unwrap().0.node.clone();
        patiently("the first node starts another run", async || {
            let (started, _) = fleet.runs(LEAST);
            let is_started = |fence| started.iter().any(|(_, other)| *other == fence);
            claims(&fleet.log()).any(|(event, claims)| {
                let is_later = event.job == LEAST && claims.fence > fence;
                event.node == first && is_later && is_started(claims.fence)
            })
        })
        .await;
        fleet.judge().await;
    });
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
        let mut fleet = Fleet::new(members.urls());
        for ms in [0, 20, 60] {
            fleet.start(Duration::from_millis(ms));
        }
        fleet.more_ends(5).await;
        // One of the nodes is frozen from early on until its lease in etcd has ended.
        let frozen = usize::try_from(draw(&mut state, 3)).unwrap();
        let frozen = fleet.nodes.remove(frozen);
        pause(draw(&mut state, 300)).await;
        frozen.signal("-STOP");
        let end = now() + Duration::from_secs(20);
        while now() < end {
            pause(100 + draw(&mut state, 1_500)).await;
            let which = usize::try_from(draw(&mut state, fleet.nodes.len() as u64)).unwrap();
            let work = Duration::from_millis(draw(&mut state, 80));
            match draw(&mut state, 6) {
                0 | 1 => {
                    drop(fleet.nodes.remove(which));
                    fleet.start(work);
                }
                2 => {
                    fleet.nodes.remove(which).stop();
                    fleet.start(work);
                }
                3 => {
                    fleet.nodes[which].signal("-STOP");
                    pause(draw(&mut state, 4_000)).await;
                    fleet.nodes[which].signal("-CONT");
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
        fleet.nodes.push(frozen);
        fleet.more_ends(10).await;
        fleet.judge().await;
    });
}

/// Nodes that stop while others go on, again and again: what they give back, others run.
#[test]
fn what_stopping_nodes_give_back_is_run_by_others() {
    runtime().block_on(async {
        let Some(members) = Members::start(1, &[]).await else { return };
        let mut fleet = Fleet::new(members.urls());
        for turn in 0..8 {
            fleet.start(Duration::from_millis(turn * 10));
            fleet.more_ends(2).await;
            if fleet.nodes.len() > 2 {
                fleet.nodes.drain(..2).for_each(Node::stop);
            }
        }
        fleet.judge().await;
    });
}
