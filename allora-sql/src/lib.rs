//! Stores in SQL databases.
//!
//! [allora]: ../allora/index.html
//! [choosing a store]: ../allora/guide/choosing_a_store/index.html
//!
// README links to the same pages as files; the first definition of a link counts.
#![doc = include_str!("../README.md")]
#![cfg_attr(
    not(any(feature = "sqlite", feature = "postgres", feature = "mysql")),
    allow(dead_code, unused_imports, unused_macros, reason = "without a database it does nothing")
)]

mod client;
mod connect;
mod dialect;
mod driver;
mod due_claims;
mod encoding;
mod error;
mod fast_path;
mod flags;
mod frontier;
mod history;
mod in_transaction;
mod migrate;
mod notifier;
mod prune;
mod queries;
mod raw_transaction;
mod records;
mod timer;
mod transactional;
mod url;
mod url_parser;
mod url_query;
mod with_sqlx;

/// The driver, in the version whose pools and connections this crate takes: 0.9. A program that names
/// it as `allora_sql::sqlx` has the right version.
pub use sqlx;

pub use connect::SqlBuilder;
pub use raw_transaction::RawTransaction;
pub use records::Version;
pub use transactional::{Column, Param, RawStatement};
pub use url::{System, Tls, Url};
pub use with_sqlx::{Connection, SqlxPool, SqlxTransaction};

use allora_core::Result;
use client::Client;
use std::{fmt, sync::Arc};

/// A store in an SQL database; a clone shares its connections.
#[derive(Clone)]
pub struct Sql {
    client: Arc<Client>,
    durability_warning: Option<Arc<str>>,
    security_warning: Option<Arc<str>>,
}

impl Sql {
    /// Connects with the default settings, brings the tables up to date, and checks them.
    ///
    /// # Errors
    /// As [`SqlBuilder::connect`].
    ///
    /// # Cancel safety
    /// As [`SqlBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder().connect(url).await
    }

    /// Connects with other settings.
    pub fn builder() -> SqlBuilder {
        SqlBuilder::default()
    }

    /// Drops the tables of this store's prefix, with all jobs and their history. For scratch stores: nodes
    /// that use them fail from then on.
    ///
    /// # Errors
    /// That of the database, which may have dropped some of them. Repeat the call.
    ///
    /// # Cancel safety
    /// A dropped call may have dropped some of them.
    pub async fn drop_tables(self) -> Result {
        self.client.drop_tables().await
    }
}

impl fmt::Debug for Sql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sql")
            .field("place", &self.client.place)
            .field("prefix", &self.client.dialect.prefix)
            .finish_non_exhaustive()
    }
}
