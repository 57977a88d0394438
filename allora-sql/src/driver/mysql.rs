//! MySQL and MariaDB.
//!
//! Each session sets every variable on which a promise depends, because an option of the server, a
//! `SET GLOBAL`, an `init_connect` or a hook of a given pool may have changed any of them:
//!
//! | variable | value | without it |
//! |---|---|---|
//! | `autocommit` | 1 | a claim of one statement is seen by its own session, runs, and is rolled back |
//! | `completion_type` | `NO_CHAIN` | a commit begins another transaction (`CHAIN`), or ends the session |
//! | isolation | `READ COMMITTED` | a row that does not exist is locked as a gap, and two nodes that register at once stop each other; snapshots are old |
//! | access mode | `READ WRITE` | every write is refused |
//! | `sql_mode` | `STRICT_ALL_TABLES, NO_ENGINE_SUBSTITUTION` | values are cut, tables are not InnoDB's, an empty kind is NULL (`EMPTY_STRING_IS_NULL`), `BEGIN` begins a block (`ORACLE`) |
//! | `unique_checks` | 1 | InnoDB may give one name to two jobs |
//! | `sql_select_limit` | no limit | queries return some of their rows |
//! | `sql_safe_updates`, `sql_big_selects` | 0, 1 | statements are refused that join, or that may read many rows |
//! | `sql_auto_is_null` | 0 | `id IS NULL` finds the last row that was inserted |
//! | `max_sort_length` | 1024 | names are ordered by their first bytes only, and pages lose some |
//! | `max_recursive_iterations`, `cte_max_recursion_depth` | 1000 | kinds are missing |
//! | `time_zone` | `+00:00` | the clock is another one on each node |
//! | `innodb_lock_wait_timeout`, `lock_wait_timeout` | 2 s | a statement waits on behind a lock although nobody waits for it |
//! | `max_statement_time`, `max_execution_time` | the store timeout | the same for any statement; of MySQL only for reads |
//! | `idle_transaction_timeout` and its variants | 2 s | a node that falls silent keeps its rows locked; MySQL has no such limit |
//! | `net_read_timeout`, `net_write_timeout` | 5 s | the same, in the middle of a statement |
//! | `wait_timeout` | 8 h | an idle session is closed, and its next call fails |
//!
//! Settings of the optimizer are left as they are. A `binlog_format = STATEMENT` cannot be changed by
//! an ordinary user, and is refused.

use super::{Conn, Connections, Driver, Lent, Ran, Row, Statement, Value, sql};
use allora_core::{Error, Result};
use async_trait::async_trait;
use sqlx::{
    Executor as _, MySql, MySqlConnection, Row as _, SqlStr,
    mysql::{MySqlArguments, MySqlDatabaseError, MySqlRow},
    query::Query,
    raw_sql,
};
use std::{sync::Arc, time::Duration};

pub(crate) struct MySqlDriver {
    pub(crate) connections: Connections<MySql>,
}

/// The settings of each session, in the order of the module's table. A comment with `M` is one for
/// MySQL alone.
pub(crate) fn session(store_timeout: Duration) -> Vec<String> {
    let (seconds, ms) = (store_timeout.as_secs_f64(), store_timeout.as_millis());
    vec![
        // A transaction that `init_connect` has begun ends here.
        "SET SESSION autocommit = 1, completion_type = 'NO_CHAIN'".to_owned(),
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE".to_owned(),
        format!(
            "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', unique_checks = 1, \
             sql_select_limit = 18446744073709551615, sql_safe_updates = 0, sql_big_selects = 1, \
             sql_auto_is_null = 0, max_sort_length = 1024, \
             /*M!100202 max_recursive_iterations = 1000, */ \
             /*!80003 cte_max_recursion_depth = 1000, */ \
             time_zone = '+00:00', innodb_lock_wait_timeout = 2, lock_wait_timeout = 2, \
             /*M!100300 idle_transaction_timeout = 2, idle_write_transaction_timeout = 2, \
             idle_readonly_transaction_timeout = 2, max_statement_time = {seconds}, */ \
             /*!80019 max_execution_time = {ms}, */ \
             net_read_timeout = 5, net_write_timeout = 5, wait_timeout = 28800"
        ),
    ]
}

/// The settings that decide how durable a commit is, and whether there is one. Some servers lack some
/// of them.
const SETTINGS: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
    ('innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog', 'wsrep_on', 'binlog_format', \
     'read_only')";

/// Settings of the server with their values.
struct Settings(Vec<(String, String)>);

impl Settings {
    fn is(&self, name: &str, values: &[&str]) -> bool {
        let set = self.0.iter().find(|(setting, _)| setting == name);
        set.is_some_and(|(_, value)| values.contains(&value.as_str()))
    }
}

/// The warnings about writes that the server may lose with these settings.
fn warnings(settings: &Settings) -> Vec<&'static str> {
    let is = |name: &str, values: &[&str]| settings.is(name, values);
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

/// A statement is prepared, unless the server has no room for another prepared one: all of its clients
/// share that (`max_prepared_stmt_count`). Then the values are part of the text.
#[async_trait]
impl Conn for MySqlConnection {
    async fn rows(&mut self, statement: Statement) -> sqlx::Result<Vec<Row>> {
        let found = match prepared(&statement).fetch_all(&mut *self).await {
            Err(error) if has_no_room(&error) => self.fetch_all(raw_sql(in_full(&statement))).await,
            found => found,
        };
        found?.iter().map(|row| cells(row, statement.shape)).collect()
    }

    async fn run(&mut self, statement: Statement) -> sqlx::Result<Ran> {
        let done = match prepared(&statement).execute(&mut *self).await {
            Err(error) if has_no_room(&error) => self.execute(raw_sql(in_full(&statement))).await,
            done => done,
        };
        done.map(|done| Ran { rows: done.rows_affected(), id: done.last_insert_id() })
    }

    async fn script(&mut self, sql: SqlStr) -> sqlx::Result<()> {
        self.execute(raw_sql(sql)).await.map(drop)
    }
}

fn prepared(statement: &Statement) -> Query<'_, MySql, MySqlArguments> {
    let query = sqlx::query(statement.sql.clone());
    statement.args.iter().fold(query, |query, value| match value {
        Value::Int(number) => query.bind(*number),
        Value::Bytes(bytes) => query.bind(bytes.as_deref()),
        Value::Ints(_) | Value::Blobs(_) => unreachable!("the dialect of MySQL makes no arrays"),
    })
}

fn cells(row: &MySqlRow, shape: &[u8]) -> sqlx::Result<Row> {
    let cell = |(i, kind): (usize, &u8)| match kind {
        b'i' => row.try_get(i).map(Value::Int),
        _ => row.try_get(i).map(Value::Bytes),
    };
    shape.iter().enumerate().map(cell).collect()
}

/// True if the server has no room for another prepared statement.
fn has_no_room(error: &sqlx::Error) -> bool {
    number(error) == Some(1461)
}

/// The statement with its values in place of its placeholders: numbers, and bytes as hexadecimal
/// digits. No text of a dialect has a question mark that is not a placeholder.
fn in_full(statement: &Statement) -> SqlStr {
    let mut parts = statement.sql.as_str().split('?');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for (value, part) in statement.args.iter().zip(parts) {
        match value {
            Value::Int(Some(number)) => text.push_str(&number.to_string()),
            Value::Bytes(Some(bytes)) => {
                text.push_str("X'");
                bytes.iter().for_each(|byte| text.push_str(&format!("{byte:02X}")));
                text.push('\'');
            }
            _ => text.push_str("NULL"),
        }
        text.push_str(part);
    }
    sql(text)
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
            let rows = conn.fetch_all(raw_sql(sql(SETTINGS))).await?;
            let pair = |row: &MySqlRow| sqlx::Result::Ok((row.try_get(0)?, row.try_get(1)?));
            let settings = rows.iter().map(pair).collect::<sqlx::Result<_>>()?;
            Box::new(slot).release();
            sqlx::Result::Ok((moves, Settings(settings)))
        };
        let (moves, settings) = ask.await.map_err(super::no_settings)?;
        if !moves {
            return Err(Error::invalid(
                "this server runs with sysdate-is-now: its clock stands still while a statement \
                 waits for a lock, so that a lease that was just extended could be seen as ended; \
                 start the server without the option",
            ));
        }
        // `NO_LOCK` and the like of newer versions count as well.
        if !settings.is("read_only", &["OFF"]) {
            return Err(Error::invalid("this MySQL server is read-only; connect to the primary"));
        }
        if settings.is("log_bin", &["ON"]) && settings.is("binlog_format", &["STATEMENT"]) {
            return Err(Error::invalid(
                "this server logs statements (`binlog_format = STATEMENT`), and then refuses every write \
                 under READ COMMITTED: set `binlog_format = MIXED` or `ROW`",
            ));
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

pub(crate) fn number(error: &sqlx::Error) -> Option<u16> {
    let error = error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>()?;
    Some(error.number())
}
