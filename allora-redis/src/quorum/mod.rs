//! A quorum of independent Redis servers.

#[cfg(test)]
mod acceptor;
mod admit;
mod backend;
mod ballot;
mod change;
mod connect;
mod proposer;
mod register;
mod round;
mod scripts;
mod server;

#[cfg(test)]
mod differential;
#[cfg(test)]
mod model;

pub use connect::Builder;

use allora_core::{Result, Runtime, Time, backend::Now};
use ballot::Ballot;
use server::Server;
use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// A store over three or five Redis servers that know nothing of each other; a clone is another
/// handle on the same connections.
#[derive(Clone)]
pub struct RedisQuorum {
    inner: Arc<Inner>,
}

impl RedisQuorum {
    /// Opens a quorum over these servers, three or five, with default settings. Every node gives
    /// the same servers in the same order.
    ///
    /// # Errors
    /// As [`Builder::connect`].
    ///
    /// # Cancel safety
    /// Nothing is changed on any server.
    pub async fn connect<const N: usize>(urls: [&str; N]) -> Result<Self> {
        Self::builder().connect(&urls).await
    }

    /// Settings first.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Makes these servers a quorum: once, from one place, before the first node works with them,
    /// and again only after a majority of them has lost what it knew at the same time. Jobs begin
    /// anew then: their next occurrences lie after the time at which nodes register them.
    ///
    /// # Errors
    /// `AlreadyExists` if one of them is part of a quorum under this prefix already; nothing is
    /// changed then. `Unavailable` if not all of them answer.
    ///
    /// # Cancel safety
    /// A dropped call can leave some of the servers initialised. The error of the next call says
    /// what to do.
    pub async fn init(&self) -> Result {
        self.inner.init().await
    }
}

impl fmt::Debug for RedisQuorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisQuorum")
            .field("prefix", &self.inner.prefix)
            .field("servers", &self.inner.servers)
            .finish_non_exhaustive()
    }
}

/// What the clones share.
struct Inner {
    prefix: String,
    /// The one key on each server.
    key: String,
    servers: Vec<Server>,
    /// Of each server, what it is told that it is.
    places: Vec<String>,
    deadline: Duration,
    runtime: Arc<dyn Runtime>,
    /// Unlike that of any other process.
    proposer: u64,
    /// The last round that was used or seen.
    round: AtomicU64,
    /// Which initialisation of the quorum this is, once it is known.
    era: Mutex<Option<String>>,
}

impl Inner {
    /// A ballot that nobody has used, and that is probably higher than all others: by the node's
    /// clock, so that a node need not be refused to learn where the others are. Nothing depends on
    /// that clock but the number of refusals.
    fn next_ballot(&self, now: Now) -> Ballot {
        let here: Time = now.here();
        let clock = u64::try_from(here.timestamp_millis()).unwrap_or(0);
        let next = |last: u64| last.max(clock).checked_add(1);
        let before = self.round.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        let round = before.map_or(u64::MAX, |last| last.max(clock) + 1);
        Ballot { round, proposer: self.proposer }
    }

    /// The next ballot is higher than these.
    fn observe(&self, seen: impl Iterator<Item = Ballot>) {
        if let Some(highest) = seen.map(|ballot| ballot.round).max() {
            self.round.fetch_max(highest, Ordering::AcqRel);
        }
    }

    fn era(&self) -> Option<String> {
        self.lock_era().clone()
    }

    fn set_era(&self, era: String) {
        *self.lock_era() = Some(era);
    }

    fn forget_era(&self) {
        *self.lock_era() = None;
    }

    fn lock_era(&self) -> MutexGuard<'_, Option<String>> {
        self.era.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
