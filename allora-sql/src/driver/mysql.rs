//! MySQL and MariaDB.

use super::{Conn, Driver, Lent, Row, Statement, Tx, Value, connection};
use allora_core::{Error, Result};
use async_trait::async_trait;
use sqlx::{
    MySql, MySqlConnection, MySqlPool,
    mysql::{MySqlArguments, MySqlDatabaseError, MySqlQueryResult},
    query::Query,
};
use std::sync::Arc;

pub(crate) struct MySqlDriver {
    pub(crate) pool: MySqlPool,
    /// True if the pool's sessions belong to this store, and are set up by [`SESSION`].
    pub(crate) ours: bool,
}

/// The settings of each session that belongs to this store. Under the default isolation, a row that
/// does not exist is locked as a gap, and two nodes that register at once stop each other. MariaDB
/// ends a transaction whose node has fallen silent with its rows locked; MySQL takes that line for a
/// comment.
pub(crate) const SESSION: &[&str] = &[
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION innodb_lock_wait_timeout = 2, \
     /*M!100300 idle_transaction_timeout = 10, idle_write_transaction_timeout = 10, */ \
     time_zone = '+00:00', sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')",
];

/// The settings that decide how durable a commit is. Some servers lack some of them.
const SETTINGS: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
    ('innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog', 'wsrep_on')";

/// The warnings about writes that the server may lose with these settings.
fn warnings(settings: &[(String, String)]) -> Vec<&'static str> {
    let is = |name: &str, values: &[&str]| {
        let set = settings.iter().find(|(setting, _)| setting == name);
        set.is_some_and(|(_, value)| values.contains(&value.as_str()))
    };
    let mut warnings = Vec::new();
    if is("wsrep_on", &["ON"]) {
        warnings.push(
            "this is a node of a Galera cluster, which can lose one of two writes of a row on two \
             nodes, so that a claimed occurrence may run again: connect all schedulers to one node",
        );
    }
    if is("innodb_flush_log_at_trx_commit", &["0", "2"]) {
        warnings.push(
            "a power cut can make this server lose the last second, so that occurrences claimed then \
             may run again: set `innodb_flush_log_at_trx_commit = 1`",
        );
    }
    // A commit that is not in the binary log is rolled back when the server comes back.
    if is("log_bin", &["ON"]) && !is("sync_binlog", &["1"]) {
        warnings.push(
            "a power cut can make this server lose the last commits, which its binary log does not \
             have, so that occurrences claimed then may run again: set `sync_binlog = 1`",
        );
    }
    warnings
}

connection!(MySql, MySqlConnection, bind, MySqlQueryResult::last_insert_id);

fn bind(query: Query<'_, MySql, MySqlArguments>, value: Value) -> Query<'_, MySql, MySqlArguments> {
    match value {
        Value::Int(number) => query.bind(number),
        Value::Bytes(bytes) => query.bind(bytes),
        Value::Ints(_) | Value::Blobs(_) => unreachable!("the dialect of MySQL makes no arrays"),
    }
}

#[async_trait]
impl Driver for MySqlDriver {
    async fn begin(&self) -> sqlx::Result<Box<dyn Tx>> {
        if self.ours {
            return Ok(Box::new(self.pool.begin().await?));
        }
        let mut conn = self.pool.acquire().await?;
        // For the next transaction only.
        Conn::script(
            &mut *conn,
            crate::dialect::sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED"),
        )
        .await?;
        Ok(Box::new(sqlx::Transaction::begin(conn, None).await?))
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
            let zone: String =
                sqlx::query_scalar("SELECT @@session.time_zone").fetch_one(&mut *conn).await?;
            let clock = crate::dialect::mysql::CLOCK;
            let twice = format!("SELECT {clock}, SLEEP(0.01), {clock}");
            let twice = Statement::new(twice, Vec::new(), b"iii");
            let clocks = Conn::rows(&mut *conn, twice).await?.concat();
            let moves = clocks.first() != clocks.last();
            let read_only: i64 =
                sqlx::query_scalar("SELECT @@global.read_only").fetch_one(&mut *conn).await?;
            let settings: Vec<(String, String)> =
                sqlx::query_as(SETTINGS).fetch_all(&mut *conn).await?;
            sqlx::Result::Ok((zone, moves, read_only, settings))
        };
        let (zone, moves, read_only, settings) = ask.await.map_err(super::no_settings)?;
        if zone != "+00:00" {
            return Err(Error::invalid(format!(
                "the sessions of this pool have the time zone {zone:?}, in which an hour of the \
                 autumn exists twice: set it to '+00:00'"
            )));
        }
        if !moves {
            return Err(Error::invalid(
                "this server runs with sysdate-is-now: its clock stands still while a statement \
                 waits for a lock, so that a lease that was just extended could be seen as ended; \
                 start the server without the option",
            ));
        }
        if read_only != 0 {
            return Err(Error::invalid("this MySQL server is read-only; connect to the primary"));
        }
        Ok(super::joined(&warnings(&settings)))
    }

    fn is_conflict(&self, error: &sqlx::Error) -> bool {
        let error = error.as_database_error();
        let number = error.and_then(|e| e.try_downcast_ref::<MySqlDatabaseError>());
        // Deadlock, lock timeout, and a name that another node was faster to create. A lock timeout
        // undoes the statement only; the dropped transaction is rolled back.
        number.is_some_and(|error| matches!(error.number(), 1213 | 1205 | 1062))
    }

    async fn close(&self) {
        self.pool.close().await;
    }
}
