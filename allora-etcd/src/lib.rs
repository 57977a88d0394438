//! A store in etcd.
//!
#![doc = include_str!("../README.md")]

mod base;
mod connect;
mod driver;
mod error;
mod exchange;
mod find;
mod history;
mod index;
mod keys;
mod leases;
mod marks;
mod reschedule;
mod schedules;
mod seen;
mod store;
mod watch;
mod write;

pub use connect::{Builder, Tls};
/// The driver, for [`Builder::client`].
pub use etcd_client;

use allora_core::Result;
use chrono::TimeDelta;
use std::{fmt, sync::Arc};
use store::Store;

/// A store in etcd; a clone shares its connections.
#[derive(Clone)]
pub struct Etcd {
    store: Arc<Store>,
}

impl Etcd {
    /// Connects with the default settings: `Etcd::connect(["http://127.0.0.1:2379"])`.
    ///
    /// # Errors
    /// As [`Builder::connect`].
    ///
    /// # Cancel safety
    /// As [`Builder::connect`].
    pub async fn connect<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> Result<Self> {
        Self::builder().connect(endpoints).await
    }

    /// Connects with other settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// How far this machine's clock is ahead of the other nodes', by their median; negative if it
    /// is behind. `None` while no other node has shown its clock: each does so when it begins to
    /// run something, and as long as it lives. Measured by the hints' stream, so that a scheduler
    /// must run on this store; right to the time that a hint takes.
    ///
    /// A difference of more than two seconds is also logged as a warning.
    pub fn skew(&self) -> Option<TimeDelta> {
        self.store.marks.skew()
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd")
            .field("endpoints", &self.store.driver.endpoints().collect::<Vec<_>>())
            .field("prefix", &self.store.namespace)
            .finish_non_exhaustive()
    }
}
