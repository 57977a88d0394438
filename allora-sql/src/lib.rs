//! Stores in SQL databases.
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(
    not(any(feature = "sqlite", feature = "postgres", feature = "mysql")),
    allow(dead_code, unused_imports, unused_macros, reason = "without a database it does nothing")
)]

mod connect;
mod dialect;
mod driver;
mod history;
mod leases;
mod migrate;
mod reschedule;
mod row;
mod schedules;
mod store;
mod transactional;
mod url;
mod watch;

pub use connect::Builder;
pub use transactional::Connection;
pub use url::{System, Tls, Url};

use allora_core::Result;
use std::{fmt, sync::Arc};
use store::Store;

/// A store in an SQL database; a clone shares its connections.
#[derive(Clone)]
pub struct Sql {
    store: Arc<Store>,
    /// The same; over a pool that was given, through a connection that nobody else can keep busy.
    leases: Arc<Store>,
    caveat: Option<Arc<str>>,
}

impl Sql {
    /// Connects with the default settings, brings the tables up to date, and checks them.
    ///
    /// # Errors
    /// As [`Builder::connect`].
    ///
    /// # Cancel safety
    /// As [`Builder::connect`].
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder().connect(url).await
    }

    /// Connects with other settings.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl fmt::Debug for Sql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sql")
            .field("place", &self.store.place)
            .field("prefix", &self.store.dialect.prefix)
            .finish_non_exhaustive()
    }
}
