//! A quorum of independent Redis servers: each occurrence once, while fewer than half of them are
//! down, hang or forget.
//!
//! [`RedisQuorum`] works over three or five servers that know nothing of each other: no
//! replication, no Sentinel, no Cluster. It needs no clock to be right and no server to remember:
//! up to one of three, or two of five, may be stopped, frozen, cut off, restarted empty or with an
//! old file, at any time.
//!
//! ```no_run
//! use allora_redis::quorum::RedisQuorum;
//!
//! # async fn example() -> allora_core::Result {
//! let servers = ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"];
//! let store = RedisQuorum::connect(servers).await?;
//! // Once, by an operator or a deployment script, before anything else:
//! store.init().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What does it offer?
//! Jobs in code, at most once and at least once: `reschedule` and [leases](allora_core::backend::Leases).
//! Stored schedules, history and hints are denied: to find what is due, or to list, would mean to
//! read all registers from a majority. A change costs two round trips, to all servers at once; a
//! batch of jobs shares them. A look costs one.
//!
//! # Why not a lock with a time-out on a majority?
//! Because a lock says nothing about what was done. Nothing in it says that twelve o'clock was
//! done; a machine that is late, or one whose servers answer late, takes it again. Nor does
//! `SET NX` on a majority without a time-out do: votes can be split for ever, and to take votes
//! back is unsafe, as a delayed message may still give them.
//!
//! # How does it work?
//! Each job's [`Record`](allora_core::record::Record) is a register of *CASPaxos* (Rystsov, "CASPaxos:
//! Replicated State Machines without logs", 2018), with the servers as acceptors; servers that
//! forget are dealt with by *crash-consistent quorums* (Michael, Ports, Sharma and Szekeres,
//! "Recovering Shared Objects Without Stable Storage", DISC 2017). What changes a record are the
//! pure functions of [`allora_core::record`], as with every other store. They are run by the node:
//!
//! 1. *Prepare.* The node draws a ballot that nobody has used and sends it to all servers. A server
//!    that has promised no higher one promises it, and answers with the value that it accepted
//!    last, and by which ballot.
//! 2. *Decide.* Of a majority's values that with the highest ballot is the record. The node applies
//!    its change; the lower median of the servers' clocks says what is due.
//! 3. *Accept.* The node sends the new value, or the old one if nothing changed, to all servers. One
//!    that has promised no higher ballot keeps it. When a majority has, it is so; otherwise the node
//!    begins again with a higher ballot and the same claim or fence, by which the record knows it.
//!
//! A *look* asks without a ballot. If a majority has accepted the value with the very ballot that
//! they promised last, it is the record; otherwise somebody is about to change it: the look waits a
//! little, a few times and longer each time, before it goes the long way. So does every change after
//! a lost ballot, and a take of a job on which the node last voted in vain: what changes nothing does
//! not hold up what does.
//!
//! A server keeps all in one hash under one key. Every answer carries which *life* the server is
//! in, and of each other server the latest life that it has heard of. A server is *blank*, and does
//! not vote, if its hash is not there or was written by another process than the one that answers.
//! Any node that notices it *admits* it again: a majority of the others is told its new life, then
//! their registers are copied to it, then it votes.
//!
//! # Which rules keep it right?
//! Each has been removed in the model, and each was missed:
//!
//! 1. A server accepts nothing below what it has promised.
//! 2. Promises and acceptances count when a true majority has given them.
//! 3. What was read by a ballot is written back before it is believed.
//! 4. A blank server does not vote.
//! 5. It is admitted by what a majority of the others knows, not by one of them.
//! 6. It is told what they have *promised*, not only what they have accepted.
//! 7. They are told of its new life *before* they are read.
//! 8. A reply from a life that another reply of the same phase knows to be over does not count, in
//!    Prepare and
//! 9. in Accept.
//! 10. A finish compares fences.
//! 11. A look believes only what nobody is about to change: a server that was admitted again has
//!     *copied* what a minority may have accepted, so that two equal values are no majority.
//!
//! What then holds, for any values of any clock: one owner for a fence; a fence that is given after
//! another was acknowledged is larger; at most one finish of an occurrence is accepted, and nothing
//! is granted after it; at most once, one node is granted an occurrence, ever; a look never shows
//! less than what was acknowledged before it.
//!
//! # How is that known?
//! The decisions are pure functions, and the model calls these very functions, and core's, in every
//! order of messages: lost, late, repeated, with take-overs at any time, with a server that forgets
//! and is admitted. Of states that were visited a hash of 64 bits is kept: one whose hash another
//! has already would be left out, with all that only it leads to. Among ten million states there are
//! two alike by chance once in some 370,000 searches. The search also checks that what should happen can. Searched to the end were worlds of two nodes with three servers: two ballots each, at most
//! once and with leases; three ballots and a server that forgets, also with leases (4,279,855 states);
//! a look without a ballot; and with five servers, one ballot each, at most once. Not searched to
//! the end: two losses, and a look beside a loss. Five servers with a loss were not searched.
//! What a server does is Lua in the product and Rust in the model: the two are
//! compared over random messages on a real server. Real servers, killed, emptied and frozen in turn
//! while nodes race, are the last test.
//!
//! # What is not promised?
//! - A majority that forgets at the same time stops everything, until [`RedisQuorum::init`]: nothing
//!   is guessed. A restart counts as forgetting, with and without a file: restart one server at a
//!   time, and wait until it votes again.
//! - Fields of the hash that somebody else changes. Give allora a user of its own for
//!   `PREFIX:quorum`. Eviction takes the key as a whole, and is noticed.
//! - Another number of servers, or others, while nodes run: stop the nodes, empty the servers,
//!   and initialise them anew.
//! - A node that died after its take is not known to be dead before its lease ends; what it does
//!   then is refused by its fence, here, and by whoever compares fences.
//! - A take without lease and mark, which the scheduler never sends here, is known to its claimant
//!   only until somebody takes the next occurrence.
//! - Jobs that are no longer in any code stay in the hash.

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
mod unheard;
mod vain;
mod wire;

#[cfg(test)]
mod contention;
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
use unheard::Unheard;
use vain::Vain;

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
    unheard: Unheard,
    vain: Vain,
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
