//! PostgreSQL.
//!
//! Each session sets every parameter on which a promise depends, because the server, the database, the
//! role, the options of the URL or a hook of a given pool may have set any of them:
//!
//! | parameter | value | without it |
//! |---|---|---|
//! | isolation | `READ COMMITTED` | under `SERIALIZABLE` every lost race is an error, and snapshots are old |
//! | access mode | `READ WRITE` | every write is refused |
//! | `synchronous_commit` | `on` instead of `off` and `local` | acknowledged writes are lost with the server, or with the standby's promotion |
//! | `lock_timeout` | 2 s | a statement waits on behind a lock although nobody waits for it |
//! | `statement_timeout` | the store timeout | the same for any statement |
//! | `idle_in_transaction_session_timeout` | 2 s | a node that falls silent keeps its rows locked |
//! | `transaction_timeout` (from 17) | 0 | it ends sessions in the middle of their work |
//! | `idle_session_timeout` (from 14) | 0 | an idle session is closed, and its next call fails |
//! | `TimeZone` | `UTC` | times in the server's messages and logs are those of each role |
//! | `enable_indexscan`, `enable_indexonlyscan`, `enable_nestloop` | `on` | each query reads all jobs |
//! | `enable_seqscan`, `enable_bitmapscan` | `off` | see below |
//! | `plan_cache_mode` | `force_generic_plan` | see below |
//! | `jit` | `off` | see below |
//!
//! Each statement reads rows by their key, or the first rows of an index in its order, however large a
//! table is. A planner without statistics would rather collect and sort by a bitmap. One that knows the
//! length of a batch, in the first five executions of a session, would rather read a whole table of
//! some ten thousand rows, and hash it; a plan for any length looks each row up. Beside a million rows
//! the estimated cost is so high that the server would compile a statement, for 300 ms each time
//! (`jit`).
//!
//! The `search_path` is the application's: it says where the tables are. One without a schema that
//! lasts is refused: the tables would be temporary, and each session have its own.

use super::{
    Connections, Driver, Lent, Payloads, Value, connection,
    listen::{NO_LIMITS, Probe, listen},
};
use allora_core::Result;
use async_trait::async_trait;
use sqlx::{
    Executor as _, PgConnection, PgPool, Postgres, Row as _, postgres::PgArguments, query::Query,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

pub(crate) struct PostgresDriver {
    connections: Connections<Postgres>,
    /// Connections that wait for notifications: a store with one connection would have none left for
    /// work.
    listeners: PgPool,
    /// True if a notification was sent and did not arrive.
    undelivered: Arc<AtomicBool>,
}

impl PostgresDriver {
    pub(crate) fn new(connections: Connections<Postgres>, listeners: PgPool) -> Self {
        Self { connections, listeners, undelivered: Arc::default() }
    }
}

impl PostgresDriver {
    /// Refuses a pooler that lends its connections for one transaction: settings would be those of
    /// other clients, and prepared statements be missing. Of two sessions, each has one process of the
    /// server, and never the other's.
    async fn refuse_pooler(&self) -> sqlx::Result<()> {
        let (mut one, mut other) =
            futures::try_join!(self.listeners.acquire(), self.listeners.acquire())?;
        let mut processes = Vec::new();
        for _ in 0..3 {
            for conn in [&mut one, &mut other] {
                let row = conn.fetch_one(sqlx::raw_sql("SELECT pg_backend_pid()")).await?;
                processes.push(row.try_get::<i32, _>(0)?);
            }
        }
        let is_session =
            |first: usize| processes.iter().skip(first).step_by(2).all(|p| *p == processes[first]);
        let are_sessions = is_session(0) && is_session(1) && processes[0] != processes[1];
        // Errors of the line leave nothing to do.
        let _ = futures::join!(one.close(), other.close());
        if !are_sessions {
            return Err(sqlx::Error::Configuration(
                "there is a pooler between that lends its connections for one transaction: let it pool \
                 whole sessions (PgBouncer: pool_mode = session), or connect past it"
                    .into(),
            ));
        }
        Ok(())
    }
}

/// The settings of each session, in the order of the module's table.
pub(crate) fn session(store_timeout: Duration) -> Vec<String> {
    vec![format!(
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE; \
         SET lock_timeout = '2s'; SET statement_timeout = {}; \
         SET idle_in_transaction_session_timeout = '2s'; SET TIME ZONE 'UTC'; \
         SET enable_indexscan = on; SET enable_indexonlyscan = on; SET enable_nestloop = on; \
         SET enable_bitmapscan = off; SET enable_seqscan = off; SET jit = off; \
         SET plan_cache_mode = force_generic_plan; {NO_LIMITS}; \
         SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit') \
         WHEN 'off' THEN 'on' WHEN 'local' THEN 'on' \
         ELSE current_setting('synchronous_commit') END, false)",
        store_timeout.as_millis()
    )]
}

connection!(Postgres, PgConnection, bind);

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
    async fn writer(&self) -> sqlx::Result<Box<dyn Lent>> {
        Ok(Box::new(self.connections.lend().await?))
    }

    async fn open(&self) -> sqlx::Result<()> {
        // Before a session is set up: behind a pooler it may be another client's next.
        self.refuse_pooler().await?;
        self.writer().await.map(Lent::release)
    }

    fn begin(&self) -> &'static str {
        "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
    }

    async fn inspect(&self) -> Result<Option<Arc<str>>> {
        let ask = async {
            let mut slot = self.connections.lend().await?;
            let text = "SELECT pg_is_in_recovery(), current_setting('fsync'), \
                        current_setting('full_page_writes'), \
                        CASE WHEN current_schema() LIKE 'pg\\_temp%' THEN NULL \
                          ELSE current_schema()::TEXT END";
            let settings = sqlx::query_as(text).fetch_one(slot.raw()?).await?;
            Box::new(slot).release();
            Ok(settings)
        };
        let (in_recovery, fsync, pages, schema): (bool, String, String, Option<String>) =
            ask.await.map_err(super::no_settings)?;
        if in_recovery {
            return Err(allora_core::Error::invalid(
                "this PostgreSQL server is a standby; connect to the primary",
            ));
        }
        if schema.is_none() {
            return Err(allora_core::Error::invalid(
                "the search path of this user names no schema that exists, that it may use and that \
                 lasts: create one and GRANT USAGE, CREATE ON SCHEMA, or set its `search_path`",
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

    fn is_spent(&self, error: &sqlx::Error) -> bool {
        // Read-only; the server stops, or has ended the session.
        let code = error.as_database_error().and_then(|error| error.code());
        code.is_some_and(|code| {
            code == "25006" || code == "25P03" || code.starts_with("57P") || code.starts_with("08")
        })
    }

    fn has_notifications(&self) -> bool {
        true
    }

    async fn listen(&self, channel: &str) -> sqlx::Result<Option<Payloads>> {
        if self.undelivered.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let probe = Probe::sent(&self.connections, channel, &self.undelivered);
        Ok(Some(listen(&self.listeners, channel, probe).await?))
    }

    async fn close(&self) {
        self.listeners.close().await;
        self.connections.close().await;
    }
}
