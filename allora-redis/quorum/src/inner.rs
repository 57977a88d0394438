//! The state that the clones of a quorum share.

use super::{
    ballot::Ballot, noop_proposals::NoopProposals, server::Server, unacknowledged::Unacknowledged,
};
use allora_core::{Runtime, Time, backend::TimeSource};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// The state that clones share.
pub(crate) struct Inner {
    pub(crate) prefix: String,
    /// The one key on each server.
    pub(crate) key: String,
    pub(crate) servers: Vec<Server>,
    pub(crate) security_warning: Option<String>,
    /// The place of each server: its number, and all names.
    pub(crate) places: Vec<String>,
    pub(crate) deadline: Duration,
    pub(crate) runtime: Arc<dyn Runtime>,
    /// A random number that no other process has.
    pub(crate) proposer: u64,
    /// The last round that was used or seen.
    pub(crate) round: AtomicU64,
    /// The id of the quorum's initialisation, once it is known.
    pub(crate) cluster_id: Mutex<Option<String>>,
    pub(crate) unacknowledged: Unacknowledged,
    pub(crate) noop_proposals: NoopProposals,
}

impl Inner {
    /// A ballot that is unused, and probably higher than all others: its round follows the node's
    /// clock, so that a node need not be refused first to learn the others' rounds. Only the number of
    /// refusals depends on that clock.
    pub(crate) fn next_ballot(&self, now: TimeSource) -> Ballot {
        let here: Time = now.without_store_clock();
        let clock = u64::try_from(here.timestamp_millis()).unwrap_or(0);
        let next = |last: u64| last.max(clock).checked_add(1);
        let before = self.round.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        let round = before.map_or(u64::MAX, |last| last.max(clock) + 1);
        Ballot { round, proposer: self.proposer }
    }

    /// The next ballot is higher than these.
    pub(crate) fn observe(&self, seen: impl Iterator<Item = Ballot>) {
        if let Some(highest) = seen.map(|ballot| ballot.round).max() {
            self.round.fetch_max(highest, Ordering::AcqRel);
        }
    }

    pub(crate) fn cluster_id(&self) -> Option<String> {
        self.lock_cluster_id().clone()
    }

    pub(crate) fn set_cluster_id(&self, cluster_id: String) {
        *self.lock_cluster_id() = Some(cluster_id);
    }

    pub(crate) fn forget_cluster_id(&self) {
        *self.lock_cluster_id() = None;
    }

    fn lock_cluster_id(&self) -> MutexGuard<'_, Option<String>> {
        self.cluster_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
