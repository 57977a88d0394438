//! A distributed cron for async Rust.

pub use allora_core::*;

/// Stores in SQL databases: SQLite, PostgreSQL, MySQL and MariaDB.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
pub use allora_sql as sql;
