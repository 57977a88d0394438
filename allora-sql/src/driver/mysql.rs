//! MySQL and MariaDB.

use super::{Conn, Connections, Driver, Lent, Statement, Value, connection};
use allora_core::{Error, Result};
use async_trait::async_trait;
use sqlx::{
    MySql, MySqlConnection,
    mysql::{MySqlArguments, MySqlDatabaseError, MySqlQueryResult},
    query::Query,
};
use std::{sync::Arc, time::Duration};

pub(crate) struct MySqlDriver {
    pub(crate) connections: Connections<MySql>,
}

/// The settings of each session. Under the default isolation, a row that does not exist is locked as
/// a gap, and two nodes that register at once stop each other.
///
/// A transaction whose node has fallen silent with its rows locked is ended by MariaDB after 2 s. MySQL
/// has no such limit; a comment with `M` is one for MySQL alone.
pub(crate) fn session(store_timeout: Duration) -> Vec<String> {
    let (seconds, ms) = (store_timeout.as_secs_f64(), store_timeout.as_millis());
    vec![
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".to_owned(),
        format!(
            "SET SESSION innodb_lock_wait_timeout = 2, net_read_timeout = 5, net_write_timeout = 5, \
             /*M!100300 idle_transaction_timeout = 2, idle_write_transaction_timeout = 2, \
             idle_readonly_transaction_timeout = 2, max_statement_time = {seconds}, */ \
             /*!80019 max_execution_time = {ms}, */ \
             time_zone = '+00:00', sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')"
        ),
    ]
}

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
    async fn writer(&self) -> sqlx::Result<Box<dyn Lent>> {
        Ok(Box::new(self.connections.lend().await?))
    }

    fn begin(&self) -> &'static str {
        "BEGIN"
    }

    async fn inspect(&self) -> Result<Option<Arc<str>>> {
        let ask = async {
            let mut slot = self.connections.lend().await?;
            let conn = slot.raw()?;
            let clock = crate::dialect::mysql::CLOCK;
            let twice = format!("SELECT {clock}, SLEEP(0.01), {clock}");
            let twice = Statement::new(twice, Vec::new(), b"iii");
            let clocks = Conn::rows(&mut *conn, twice).await?.concat();
            let moves = clocks.first() != clocks.last();
            let read_only: i64 =
                sqlx::query_scalar("SELECT @@global.read_only").fetch_one(&mut *conn).await?;
            let settings: Vec<(String, String)> =
                sqlx::query_as(SETTINGS).fetch_all(&mut *conn).await?;
            Box::new(slot).release();
            sqlx::Result::Ok((moves, read_only, settings))
        };
        let (moves, read_only, settings) = ask.await.map_err(super::no_settings)?;
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
        // Deadlock, lock timeout, and a name that another node was faster to create. A lock timeout
        // undoes the statement only; the transaction is rolled back.
        matches!(number(error), Some(1213 | 1205 | 1062))
    }

    fn is_spent(&self, error: &sqlx::Error) -> bool {
        // Read-only by an option, by the transaction, or as a whole; the server stops; the session
        // was ended.
        matches!(number(error), Some(1290 | 1792 | 1836 | 1053 | 1927 | 3169 | 4031))
    }

    async fn close(&self) {
        self.connections.close().await;
    }
}

fn number(error: &sqlx::Error) -> Option<u16> {
    let error = error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>()?;
    Some(error.number())
}
