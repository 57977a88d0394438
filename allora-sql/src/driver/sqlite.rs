//! SQLite: one writer and a few readers per process.
//!
//! What is not a property of the file is set for each connection, because a hook of a given pool may
//! have changed it:
//!
//! | pragma | value | without it |
//! |---|---|---|
//! | `journal_mode` | `WAL`, of the file; refused otherwise | a reader keeps writers waiting |
//! | `synchronous` | `FULL`; refused otherwise | a power cut loses acknowledged writes |
//! | `fullfsync` | on, for macOS | the same |
//! | `busy_timeout` | three quarters of the store timeout | a lock that another process has is an error at once, or outlasts the call |
//! | `query_only` | off | every write is refused |
//! | `locking_mode` | `NORMAL` | the first node keeps all other processes out |
//! | `wal_autocheckpoint` | 1000 pages | the log grows without end |
//! | `ignore_check_constraints`, `read_uncommitted` | off | the tables' checks are not made; half a transaction is read |

pub(crate) use super::file::DatabaseFile;

use super::{Connections, Driver, Lent, Value, connection};
use crate::timer::within;
use allora_core::{Error, Result};
use async_trait::async_trait;
use futures::executor::block_on;
use sqlx::{Sqlite, SqliteConnection, query::Query, sqlite::SqliteArguments};
use std::{sync::Arc, thread, time::Duration};

/// The code of a lock that did not become free within the busy timeout.
const BUSY: u32 = 5;

/// The settings of each connection, in the order of the module's table. The error of the busy timeout,
/// which has the reason, comes before the scheduler gives the call up.
pub(crate) fn session(store_timeout: Duration) -> Vec<String> {
    vec![format!(
        "PRAGMA fullfsync = ON; PRAGMA busy_timeout = {}; PRAGMA query_only = OFF; \
         PRAGMA locking_mode = NORMAL; PRAGMA wal_autocheckpoint = 1000; \
         PRAGMA ignore_check_constraints = OFF; PRAGMA read_uncommitted = OFF",
        store_timeout.as_millis() * 3 / 4
    )]
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
    pub(crate) file: DatabaseFile,
}

/// The last connection that is closed writes the log into the file, and removes it. A connection that
/// is dropped is closed by its thread, which does not outlast the process.
impl Drop for SqliteDriver {
    fn drop(&mut self) {
        let close = || {
            block_on(async {
                self.readers.close_free().await;
                self.writer.close_free().await;
            })
        };
        // On a thread of its own: this one may be an executor's. Without it, the connections are
        // dropped.
        thread::scope(|scope| {
            let _ = thread::Builder::new().spawn_scoped(scope, close);
        });
    }
}

connection!(Sqlite, SqliteConnection, bind);

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
        self.file.check()?;
        let lent = self.writer.lend().await?;
        self.file.opened();
        Ok(Box::new(lent))
    }

    async fn reader(&self) -> sqlx::Result<Box<dyn Lent>> {
        self.file.check()?;
        Ok(Box::new(self.readers.lend().await?))
    }

    fn check(&self) -> sqlx::Result<()> {
        self.file.check()
    }

    fn is_other(&self, error: &sqlx::Error) -> bool {
        DatabaseFile::is_moved(error)
    }

    fn follow(&self) -> bool {
        self.file.follow(|| {
            self.readers.renew();
            self.writer.renew();
        })
    }

    fn distrust(&self) {
        self.file.distrust();
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
            Some(BUSY) => self.file.has_other_commit(),
            code => code.is_some_and(|code| matches!(code & 0xff, 5 | 6)),
        }
    }

    async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }
}
