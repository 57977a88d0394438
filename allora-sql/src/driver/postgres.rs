//! PostgreSQL.

use super::{
    Conn, Driver, Lent, Payloads, Row, Statement, Tx, Value, connection,
    listen::{Probe, listen},
};
use allora_core::Result;
use async_trait::async_trait;
use sqlx::{PgConnection, PgPool, Postgres, postgres::PgArguments, query::Query};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

pub(crate) struct PostgresDriver {
    pool: PgPool,
    /// Connections that wait for notifications: a pool of one would have none left for work.
    listeners: PgPool,
    /// True if a notification was sent and did not arrive.
    undelivered: Arc<AtomicBool>,
}

impl PostgresDriver {
    pub(crate) fn new(pool: PgPool) -> Self {
        let listeners = super::beside(&pool, 1_000);
        Self { pool, listeners, undelivered: Arc::default() }
    }
}

/// The settings of each session that belongs to this store. A default of SERIALIZABLE would turn
/// every lost race into an error; `synchronous_commit = off` would lose acknowledged writes. No
/// statement gains by a bitmap: each reads rows by their key, or the first rows of an index in its
/// order, which a planner without statistics would rather collect and sort.
pub(crate) const SESSION: &str = "\
    SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE; \
    SET lock_timeout = '2s'; SET statement_timeout = '10s'; \
    SET idle_in_transaction_session_timeout = '10s'; SET TIME ZONE 'UTC'; \
    SET enable_bitmapscan = off; \
    SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit') \
    WHEN 'off' THEN 'on' WHEN 'local' THEN 'on' ELSE current_setting('synchronous_commit') END, \
    false)";

connection!(Postgres, PgConnection, bind, |_: &_| 0);

fn bind(query: Query<'_, Postgres, PgArguments>, value: Value) -> Query<'_, Postgres, PgArguments> {
    match value {
        Value::Int(number) => query.bind(number),
        Value::Bytes(bytes) => query.bind(bytes),
        Value::Ints(numbers) => query.bind(numbers),
        Value::Blobs(blobs) => query.bind(blobs),
    }
}

#[async_trait]
impl Driver for PostgresDriver {
    async fn begin(&self) -> sqlx::Result<Box<dyn Tx>> {
        // A pool that was given to us may have other defaults.
        let begin = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";
        Ok(Box::new(self.pool.begin_with(begin).await?))
    }

    async fn rows(&self, statement: Statement) -> sqlx::Result<Vec<Row>> {
        Conn::rows(&mut *self.pool.acquire().await?, statement).await
    }

    async fn writer(&self) -> sqlx::Result<Box<dyn Lent>> {
        Ok(Box::new(self.pool.acquire().await?))
    }

    async fn inspect(&self) -> Result<Option<Arc<str>>> {
        let ask = async {
            let mut conn = self.pool.acquire().await?;
            let text = "SELECT pg_is_in_recovery(), current_setting('synchronous_commit'), \
                        current_setting('fsync'), current_setting('full_page_writes')";
            sqlx::query_as(text).fetch_one(&mut *conn).await
        };
        let (in_recovery, commit, fsync, pages): (bool, String, String, String) =
            ask.await.map_err(super::no_settings)?;
        if in_recovery {
            return Err(allora_core::Error::invalid(
                "this PostgreSQL server is a standby; connect to the primary",
            ));
        }
        if commit == "off" {
            return Err(allora_core::Error::invalid(
                "this pool commits with synchronous_commit off, so that a claim would not be durable: \
                 set it on for the pool's connections",
            ));
        }
        let mut warnings = Vec::new();
        if fsync == "off" {
            warnings.push(
                "a crash of its machine can make this PostgreSQL lose or damage everything, so that \
                 occurrences may run again: set `fsync = on`",
            );
        }
        if pages == "off" {
            warnings.push(
                "a power cut can leave half-written pages in this PostgreSQL: set \
                 `full_page_writes = on`, unless its file system writes pages as a whole",
            );
        }
        Ok(super::joined(&warnings))
    }

    fn is_conflict(&self, error: &sqlx::Error) -> bool {
        // Serialisation failure, deadlock, lock timeout, and a name that another node was faster to
        // create.
        let code = error.as_database_error().and_then(|error| error.code());
        code.is_some_and(|code| matches!(&*code, "40001" | "40P01" | "55P03" | "23505"))
    }

    fn has_notifications(&self) -> bool {
        true
    }

    async fn listen(&self, channel: &str) -> sqlx::Result<Option<Payloads>> {
        if self.undelivered.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let probe = Probe::sent(&self.pool, channel, &self.undelivered);
        Ok(Some(listen(&self.listeners, channel, probe).await?))
    }

    async fn close(&self) {
        self.listeners.close().await;
        self.pool.close().await;
    }
}
