//! A store over three or five independent Redis servers.
//!
//! [allora]: ../allora/index.html
//!
// README links to the same pages as files; the first definition of a link counts.
#![doc = include_str!("../README.md")]

#[cfg(test)]
mod acceptor;
mod backend;
mod ballot;
mod change;
mod connect;
mod inner;
mod noop_proposals;
mod proposer;
mod register;
mod rejoin;
mod round;
mod scripts;
mod server;
mod unacknowledged;
mod wire;

#[cfg(test)]
mod contention;
#[cfg(test)]
mod differential;
#[cfg(test)]
mod model;

pub use allora_redis::{ClientTlsConfig, TlsCertificates};
pub use connect::QuorumBuilder;

use allora_core::Result;
use inner::Inner;
use std::{fmt, sync::Arc};

/// A store over three or five independent Redis servers. A clone shares its connections.
#[derive(Clone)]
pub struct RedisQuorum {
    inner: Arc<Inner>,
}

impl RedisQuorum {
    /// Opens a quorum over these servers, three or five, with default settings. Every node gives
    /// the same servers in the same order.
    ///
    /// # Errors
    /// As [`QuorumBuilder::connect`].
    ///
    /// # Cancel safety
    /// Nothing is changed on any server.
    pub async fn connect<const N: usize>(urls: [&str; N]) -> Result<Self> {
        Self::builder().connect(&urls).await
    }

    /// A builder, for other settings.
    pub fn builder() -> QuorumBuilder {
        QuorumBuilder::default()
    }

    /// Makes these servers a quorum. Call it once, from one place, before the first node works with
    /// them, and again only after a majority of them has lost its data at the same time. Jobs then
    /// start again: their next occurrences lie after the time at which nodes register them.
    ///
    /// # Errors
    /// `AlreadyExists` if one of them is part of a quorum under this prefix already; nothing is
    /// changed then. `Unavailable` if not all of them answer.
    ///
    /// # Cancel safety
    /// A dropped call may leave some of the servers initialised. The error of the next call says what
    /// to do.
    pub async fn init(&self) -> Result {
        self.inner.init().await.map_err(|error| error.op("init"))
    }

    /// True if a majority of these servers was initialised by [`init`](Self::init) and still knows
    /// it.
    ///
    /// # Errors
    /// `Unavailable` if too few servers answer. `Invalid` if the servers belong to another quorum, or
    /// were given in another order; or if a majority has lost its data: the error says what to do.
    ///
    /// # Cancel safety
    /// Nothing is changed on any server, except that empty servers may begin to rejoin, and an older version of
    /// the registers becomes the one of this build.
    pub async fn is_initialised(&self) -> Result<bool> {
        let cluster_id = self.inner.find_cluster_id().await;
        cluster_id.map(|id| id.is_some()).map_err(|error| error.op("is_initialised"))
    }

    /// Deletes this prefix's key on each server, with all jobs, and its mark: for scratch stores. Nodes that use it
    /// find servers that are no quorum.
    ///
    /// # Errors
    /// `Unavailable` if a server does not answer within 2 s; the others have deleted theirs. Repeat the call.
    ///
    /// # Cancel safety
    /// A dropped call may have deleted them on some of the servers. A node that still works with the others lets
    /// these rejoin.
    pub async fn delete_keys(self) -> Result {
        self.inner.delete().await.map_err(|error| error.op("delete_keys"))
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
