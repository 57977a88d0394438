//! The leases of other nodes, shown by the liveness of those nodes.
//!
//! A lease's end is by the clock of its node. Another node decides on an end that fits its own
//! clock: over if the owner's session has ended, otherwise a little ahead.

use crate::keys::escape;
use allora_core::{Time, record::Record, time::saturating_add};
use std::{collections::HashSet, time::Duration};

/// When another node reads an overdue lease of a living node again.
const RECHECK: Duration = Duration::from_secs(5);

/// When another node reads any lease of a living node again, at the latest: the end is by another
/// clock.
const MAX_WAIT: Duration = Duration::from_secs(15);

/// The nodes that have a session.
#[derive(Debug, Default)]
pub(crate) struct LiveNodes(HashSet<Vec<u8>>);

impl LiveNodes {
    /// Nodes by their ids as they are in the keys.
    pub(crate) fn new(ids: impl Iterator<Item = Vec<u8>>) -> Self {
        Self(ids.collect())
    }

    pub(crate) fn has(&self, node: &str) -> bool {
        self.has_id(escape(node).as_bytes())
    }

    /// By the id as it is in the keys.
    pub(crate) fn has_id(&self, id: &[u8]) -> bool {
        self.0.contains(id)
    }
}

/// The differences between a record and the view of it that a node decides on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LivenessView {
    ends: Vec<ShownEnd>,
    dead: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ShownEnd {
    fence: i64,
    real: Time,
    shown: Time,
}

impl LivenessView {
    /// Changes the ends of all leases that are not the node's own. Without `live` every other node
    /// counts as alive.
    pub(crate) fn apply(
        record: &mut Record,
        node: &str,
        now: Time,
        live: Option<&LiveNodes>,
    ) -> Self {
        let mut view = Self::default();
        for lease in record.leases.iter_mut().filter(|lease| lease.node != node) {
            let is_dead = live.is_some_and(|live| !live.has(&lease.node));
            let shown = if is_dead {
                lease.until.min(now)
            } else {
                lease.until.clamp(saturating_add(now, RECHECK), saturating_add(now, MAX_WAIT))
            };
            if is_dead && !view.dead.contains(&lease.node) {
                view.dead.push(lease.node.clone());
            }
            view.ends.push(ShownEnd { fence: lease.fence, real: lease.until, shown });
            lease.until = shown;
        }
        view
    }

    /// The nodes that were shown as dead. A commit compares that they have no session.
    pub(crate) fn dead(&self) -> &[String] {
        &self.dead
    }

    /// Puts the real ends back into a record that was derived from the view.
    pub(crate) fn restore(&self, record: &mut Record) {
        for lease in &mut record.leases {
            let end = self.ends.iter().find(|end| end.fence == lease.fence);
            if let Some(end) = end
                && lease.until == end.shown
            {
                lease.until = end.real;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allora_core::{
        backend::{Lease, OnExpiry},
        time::from_millis,
    };

    fn at(seconds: i64) -> Time {
        from_millis(seconds * 1_000).unwrap()
    }

    /// A record with the leases of these nodes, by fence, until this second.
    fn leased(nodes: &[(&str, i64)]) -> Record {
        let lease = |(fence, (node, until)): (usize, &(&str, i64))| {
            Lease::new(*node, 1, fence as i64, at(0).into(), at(*until), OnExpiry::Lost)
        };
        let leases = nodes.iter().enumerate().map(lease).collect();
        Record { leases, ..Record::default() }
    }

    fn ends(record: &Record) -> Vec<i64> {
        record.leases.iter().map(|lease| lease.until.timestamp()).collect()
    }

    #[test]
    fn a_living_nodes_lease_lasts_a_little_longer_and_a_dead_ones_is_over() {
        let record =
            leased(&[("me", 90), ("ahead", 900), ("behind", 10), ("a%\0", 104), ("dead", 900)]);
        let live = ["ahead", "behind", &*escape("a%\0")].map(|id| id.as_bytes().to_vec());
        let live = LiveNodes::new(live.into_iter());
        let mut shown = record.clone();
        let view = LivenessView::apply(&mut shown, "me", at(100), Some(&live));
        assert_eq!(ends(&shown), [90, 115, 105, 105, 100]);
        assert_eq!(view.dead(), ["dead"]);
        view.restore(&mut shown);
        assert_eq!(shown, record);
    }

    #[test]
    fn without_sessions_every_node_counts_as_alive_and_a_changed_end_is_kept() {
        let mut shown = leased(&[("other", 10)]);
        let view = LivenessView::apply(&mut shown, "me", at(100), None);
        assert_eq!((ends(&shown), view.dead()), (vec![105], &[][..]));
        shown.leases[0].until = at(200);
        view.restore(&mut shown);
        assert_eq!(ends(&shown), [200]);
    }
}
