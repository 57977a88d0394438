//! SQLite: one writer and a few readers per process.

use super::{Connections, Driver, Lent, Value, connection};
use allora_core::{Error, Result};
use async_trait::async_trait;
use sqlx::{Sqlite, SqliteConnection, query::Query, sqlite::SqliteArguments};
use std::sync::Arc;

pub(crate) struct SqliteDriver {
    /// One connection: writers of one process queue here, and not in SQLite's busy loop.
    pub(crate) writer: Connections<Sqlite>,
    pub(crate) readers: Connections<Sqlite>,
}

connection!(Sqlite, SqliteConnection, bind, |_: &_| 0);

fn bind(
    query: Query<'_, Sqlite, SqliteArguments>,
    value: Value,
) -> Query<'_, Sqlite, SqliteArguments> {
    match value {
        Value::Int(number) => query.bind(number),
        Value::Bytes(bytes) => query.bind(bytes),
        Value::Ints(_) | Value::Blobs(_) => unreachable!("the dialect of SQLite makes no arrays"),
    }
}

#[async_trait]
impl Driver for SqliteDriver {
    async fn writer(&self) -> sqlx::Result<Box<dyn Lent>> {
        Ok(Box::new(self.writer.lend().await?))
    }

    async fn reader(&self) -> sqlx::Result<Box<dyn Lent>> {
        Ok(Box::new(self.readers.lend().await?))
    }

    fn begin(&self) -> &'static str {
        // Not a deferred one: that fails at once when it wants to write after another has written.
        "BEGIN IMMEDIATE"
    }

    async fn inspect(&self) -> Result<Option<Arc<str>>> {
        let ask = async {
            let mut slot = self.writer.lend().await?;
            let conn = slot.raw()?;
            let journal: String =
                sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut *conn).await?;
            let synchronous: i64 =
                sqlx::query_scalar("PRAGMA synchronous").fetch_one(&mut *conn).await?;
            Box::new(slot).release();
            sqlx::Result::Ok((journal, synchronous))
        };
        let (journal, synchronous) = ask.await.map_err(super::no_settings)?;
        if journal != "wal" || synchronous < 2 {
            return Err(Error::invalid(format!(
                "SQLite runs with journal_mode {journal} and synchronous {synchronous}; a claim \
                 would not be durable: set journal_mode WAL and synchronous FULL on the pool"
            )));
        }
        Ok(None)
    }

    fn is_conflict(&self, error: &sqlx::Error) -> bool {
        // The low byte of the code is BUSY or LOCKED, whatever the reason above it.
        let code = error.as_database_error().and_then(|error| error.code());
        code.and_then(|code| code.parse::<u32>().ok()).is_some_and(|c| matches!(c & 0xff, 5 | 6))
    }

    async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }
}
