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
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("place", &self.store.place)
            .field("prefix", &self.store.keys.prefix)
            .finish_non_exhaustive()
    }
}
