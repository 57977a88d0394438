//! Stores in Redis.
//!
//! [allora]: ../allora/index.html
//!
// README links to the same pages as files; the first definition of a link counts.
#![doc = include_str!("../README.md")]

mod cache;
mod client;
mod cluster;
mod connect;
mod driver;
mod encoding;
mod epoch;
mod error;
mod fast_path;
mod flags;
mod history;
#[doc(hidden)]
pub mod internal;
mod keys;
mod notifier;
mod prune;
mod queries;
mod records;
mod script;
mod sentinels;
mod server;
mod server_info;
mod shards;
mod store;
mod unused;
mod watcher;

pub use connect::RedisBuilder;
pub use redis::{Client, ClientTlsConfig, ConnectionInfo, IntoConnectionInfo, TlsCertificates};

use allora_core::Result;
use std::{fmt, sync::Arc};
use store::Store;

/// A store in Redis; a clone shares its connection.
#[derive(Clone)]
pub struct Redis {
    store: Arc<Store>,
}

impl Redis {
    /// Connects to one server with the default settings, and checks it.
    ///
    /// # Errors
    /// As [`RedisBuilder::connect`].
    ///
    /// # Cancel safety
    /// As [`RedisBuilder::connect`].
    pub async fn connect(server: impl IntoConnectionInfo) -> Result<Self> {
        Self::builder().connect(server).await
    }

    /// Connects with other settings, to a cluster, or through sentinels.
    pub fn builder() -> RedisBuilder {
        RedisBuilder::default()
    }

    /// Deletes all keys of this store's prefix, with all jobs and their history, some thousand at a time so
    /// that no other client waits for long. It walks over all keys of the server. For scratch stores: nodes
    /// that use it see an emptied store.
    ///
    /// # Errors
    /// That of the server, which may have deleted some of them. Repeat the call.
    ///
    /// # Cancel safety
    /// A dropped call may have deleted some of them.
    pub async fn delete_keys(self) -> Result {
        self.store.delete_keys().await
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("place", &self.store.place)
            .field("prefix", &self.store.keys.prefix)
            .finish_non_exhaustive()
    }
}
