//! SQLite: one writer and a few readers per process.

use super::{Connections, Driver, Lent, Value, connection};
use crate::timer::within;
use allora_core::{Error, Result};
use async_trait::async_trait;
use sqlx::{Sqlite, SqliteConnection, query::Query, sqlite::SqliteArguments};
use std::{
    fs,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

/// The code of a lock that did not become free within the busy timeout.
const BUSY: u32 = 5;

/// The settings of each connection. The error of the busy timeout, which has the reason, comes before
/// the scheduler gives the call up.
pub(crate) fn session(store_timeout: Duration) -> Vec<String> {
    vec![format!("PRAGMA busy_timeout = {}", store_timeout.as_millis() * 3 / 4)]
}

/// Opens the first connection, and waits for others that write at most this long.
///
/// The first connection to a new file turns its WAL on. SQLite does not wait for the write lock
/// there, whatever the busy timeout is.
pub(crate) async fn open(driver: &dyn Driver, timeout: Duration) -> sqlx::Result<()> {
    let mut busy = None;
    let opening = async {
        loop {
            // The connections pace the attempts.
            match driver.open().await {
                Err(cause) if code(&cause) == Some(BUSY) => busy = Some(cause),
                opened => return opened,
            }
        }
    };
    match within(timeout, opening).await {
        Some(opened) => opened,
        None => Err(busy.unwrap_or(sqlx::Error::PoolTimedOut)),
    }
}

fn code(error: &sqlx::Error) -> Option<u32> {
    error.as_database_error()?.code()?.parse().ok()
}

pub(crate) struct SqliteDriver {
    /// One connection: writers of one process queue here, and not in SQLite's busy loop.
    pub(crate) writer: Connections<Sqlite>,
    pub(crate) readers: Connections<Sqlite>,
    /// The file that every commit writes to.
    pub(crate) wal: PathBuf,
    /// The last commit of any process when the present call began.
    pub(crate) last_commit: Mutex<Option<SystemTime>>,
}

impl SqliteDriver {
    fn last_commit(&self) -> Option<SystemTime> {
        fs::metadata(&self.wal).and_then(|file| file.modified()).ok()
    }
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
        let lent = self.writer.lend().await?;
        *self.last_commit.lock().unwrap_or_else(PoisonError::into_inner) = self.last_commit();
        Ok(Box::new(lent))
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
        match code(error) {
            // If no process has committed within the busy timeout, the one that keeps the lock may be
            // stopped. Otherwise others were faster.
            Some(BUSY) => {
                let before = *self.last_commit.lock().unwrap_or_else(PoisonError::into_inner);
                self.last_commit() != before
            }
            code => code.is_some_and(|code| matches!(code & 0xff, 5 | 6)),
        }
    }

    async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }
}
