//! Faults that every store with real servers is tested with: nodes that die, freeze and stop,
//! servers that go away, and connections that are cut.

use super::{Fleet, LEAST, Node, NodeStore, ONCE, Proxy, claims};
use crate::{
    environment::patiently,
    history::{Claims, Event},
};
use allora_core::backend::Outcome;
use std::{collections::HashSet, thread, time::Duration};

/// Longer than any of these tests takes.
const FOREVER: Duration = Duration::from_secs(600);

/// A fleet whose only node is in the middle of runs that do not end.
fn in_the_middle_of_runs<S: NodeStore>(store: S) -> Fleet<S> {
    let mut fleet = Fleet::new(store, Duration::from_secs(1));
    fleet.start(FOREVER);
    for job in [LEAST, ONCE] {
        patiently("the first node runs", || !fleet.runs(job).0.is_empty());
    }
    fleet
}

/// The runs of a killed node run again if they are at least once, and are lost otherwise. The store
/// keeps a history.
///
/// # Panics
/// If that does not hold.
pub fn a_killed_nodes_runs_run_again_or_are_lost<S: NodeStore>(store: S) {
    let mut fleet = in_the_middle_of_runs(store);
    fleet.nodes().clear();
    let (hung, _) = fleet.runs(LEAST).0[0];
    let once: HashSet<i64> = fleet.runs(ONCE).0.iter().map(|(_, fence)| *fence).collect();
    fleet.start(Duration::ZERO);
    assert_eq!(fleet.attempt_after(hung), 2);
    patiently("what was lost is recorded", || {
        let entries = fleet.entries(ONCE).unwrap_or_default().into_iter();
        let lost = entries.filter(|entry| entry.outcome == Outcome::Lost);
        once.is_subset(&lost.map(|entry| entry.fence).collect())
    });
    fleet.more_ends(2);
    fleet.judge();
}

/// A node that was frozen for longer than its lease is fenced, and then works again. The store
/// keeps a history.
///
/// # Panics
/// If that does not hold.
pub fn a_node_frozen_beyond_its_lease_is_fenced_and_goes_on<S: NodeStore>(store: S) {
    let mut fleet = in_the_middle_of_runs(store);
    fleet.nodes()[0].signal("-STOP");
    fleet.start(Duration::ZERO);
    let (hung, fence) = fleet.runs(LEAST).0[0];
    assert_eq!(fleet.attempt_after(hung), 2);
    fleet.more_ends(1);
    fleet.nodes()[0].signal("-CONT");
    // Its run is cancelled when it receives that; the store accepts nothing from it.
    patiently("the first node is fenced", || fleet.reported("LeaseLost") > 0);
    let (_, ended) = fleet.runs(LEAST);
    assert!(!ended.contains(&fence));
    // It still works: alone again, at the latest, it starts another run. That one does not end
    // either, so that there may be no other.
    fleet.nodes().remove(1).stop();
    let log = fleet.log();
    let of_run = |(_, claims): &(&Event, Claims)| claims.fence == fence;
    let first = claims(&log).find(of_run).unwrap().0.node.clone();
    patiently("the first node starts another run", || {
        let (started, _) = fleet.runs(LEAST);
        let is_started = |fence| started.iter().any(|(_, other)| *other == fence);
        claims(&fleet.log()).any(|(event, claims)| {
            let is_later = event.job == LEAST && claims.fence > fence;
            event.node == first && is_later && is_started(claims.fence)
        })
    });
    fleet.judge();
}

/// Nodes stop while others go on, again and again: others run what they release.
///
/// # Panics
/// If that does not hold.
pub fn occurrences_released_by_stopping_nodes_run_on_others<S: NodeStore>(store: S) {
    let mut fleet = Fleet::new(store, Duration::from_millis(200));
    for turn in 0..8 {
        fleet.start(Duration::from_millis(turn * 10));
        fleet.more_ends(2);
        if fleet.nodes().len() > 2 {
            fleet.nodes().drain(..2).for_each(Node::stop);
        }
    }
    fleet.judge();
}

/// Servers go away under nodes that are at work, stay away for each of these times, and come back.
/// The nodes notice both, nothing runs twice, and nothing is lost in silence.
///
/// # Panics
/// If that does not hold.
#[expect(clippy::disallowed_methods, reason = "other processes do the work")]
pub fn outages<S: NodeStore, T>(
    fleet: Fleet<S>,
    away: &[Duration],
    servers: &mut T,
    stop: impl Fn(&mut T),
    serve: impl Fn(&mut T),
) {
    for away in away {
        let (down, up) = (fleet.reported("Began(StoreDown"), fleet.reported("Ended(StoreDown"));
        stop(servers);
        patiently("the nodes notice", || fleet.reported("Began(StoreDown") > down);
        thread::sleep(*away);
        serve(servers);
        patiently("the nodes are back", || fleet.reported("Ended(StoreDown") > up);
        fleet.more_ends(10);
    }
    fleet.judge();
}

/// Nodes at work behind a proxy that cuts their connections at different replies get along.
///
/// # Panics
/// If that does not hold.
pub fn cut_connections<S: NodeStore>(fleet: Fleet<S>, proxy: &Proxy) {
    for replies in [0, 1, 2, 3, 5, 7] {
        proxy.cut_after(replies);
        fleet.more_ends(2);
    }
    // A pool replaces a connection that is cut while it rests, so that not every cut is reported.
    let before = proxy.cuts();
    patiently("the nodes lose connections", || {
        proxy.cut_after(0);
        fleet.more_ends(1);
        proxy.cuts() >= before + 5
    });
    proxy.cut_after(Proxy::NEVER);
    fleet.more_ends(5);
    fleet.judge();
}
