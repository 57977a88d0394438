//! MySQL and MariaDB.

use super::{Conn, Driver, Lent, Row, Statement, Tx, Value, connection};
use allora_core::{Error, Result};
use async_trait::async_trait;
use sqlx::{
    MySql, MySqlConnection, MySqlPool,
    mysql::{MySqlArguments, MySqlDatabaseError},
    query::Query,
};

pub(crate) struct MySqlDriver {
    pub(crate) pool: MySqlPool,
    /// Whether the pool's sessions are ours, and set up by [`SESSION`].
    pub(crate) ours: bool,
}

/// What every session of ours is told. Under the default isolation, a row that is not there is
/// locked as a gap, and two nodes that register at once stop each other.
pub(crate) const SESSION: &[&str] = &[
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION innodb_lock_wait_timeout = 2, time_zone = '+00:00', \
     sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')",
];

connection!(MySql, MySqlConnection, bind);

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

    async fn inspect(&self) -> Result {
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
            sqlx::Result::Ok((zone, moves, read_only))
        };
        let (zone, moves, read_only) = ask.await.map_err(super::silent)?;
        if zone != "+00:00" {
            return Err(Error::invalid(format!(
                "the sessions of this pool have the time zone {zone:?}, in which an hour of the \
                 autumn is there twice: set it to '+00:00'"
            )));
        }
        if !moves {
            return Err(Error::invalid(
                "this server runs with sysdate-is-now: its clock stands still while a statement \
                 waits for a lock, so that a lease that was just extended could be taken away; \
                 start the server without the option",
            ));
        }
        if read_only != 0 {
            return Err(Error::invalid("this MySQL server is read-only; connect to the primary"));
        }
        Ok(())
    }

    fn is_conflict(&self, error: &sqlx::Error) -> bool {
        let error = error.as_database_error();
        let number = error.and_then(|e| e.try_downcast_ref::<MySqlDatabaseError>());
        // Deadlock, lock time-out, and a name that another node was faster to register. A lock
        // time-out undoes the statement only; the dropped transaction is rolled back.
        number.is_some_and(|error| matches!(error.number(), 1213 | 1205 | 1062))
    }

    async fn close(&self) {
        self.pool.close().await;
    }
}
