//! A run that is completed inside the job's own transaction.

use crate::{
    Sql,
    client::{decides, read_rows, retry},
    driver::{Conn, Value},
    encoding::history_columns,
    records::{Version, write_of},
    timer::within,
};
use allora_core::{
    Error, ErrorKind, Result, Run,
    backend::{Operation, Reply, TimeSource},
    record::{HistoryBuffer, OpContext, apply, apply_unreadable},
    time::end_of_time,
};
use std::{sync::atomic::Ordering, time::Duration};

/// A connection in which a run can be completed: one to the store's database.
pub trait Connection: sealed::Sealed {}

mod sealed {
    /// The database of the connection.
    pub trait Sealed: crate::driver::Conn {
        const SYSTEM: crate::System;
    }
}

macro_rules! connection {
    ($conn:ty, $system:ident) => {
        impl sealed::Sealed for $conn {
            const SYSTEM: crate::System = crate::System::$system;
        }
        impl Connection for $conn {}
    };
}

#[cfg(feature = "sqlite")]
connection!(sqlx::SqliteConnection, Sqlite);
#[cfg(feature = "postgres")]
connection!(sqlx::PgConnection, Postgres);
#[cfg(feature = "mysql")]
connection!(sqlx::MySqlConnection, MySql);

impl Sql {
    /// Completes a run inside a transaction of the job's own, so that the job's writes in it and the
    /// completion are committed together or not at all: each occurrence takes effect exactly once.
    ///
    /// Call it last in the transaction: until the commit, other writers of this job's record wait.
    /// The scheduler completes the run once more when the job returns; that is a repetition, and is
    /// accepted again. The transaction must be of the store's database, and its session one that
    /// reads committed data (on MySQL, `READ COMMITTED`; on SQLite, `BEGIN IMMEDIATE`).
    ///
    /// ```no_run
    /// # async fn job(store: allora_sql::Sql, pool: sqlx::SqlitePool, run: allora_core::Run)
    /// # -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
    /// sqlx::query("INSERT INTO invoice (key) VALUES (?)")
    ///     .bind(run.occurrence_key())
    ///     .execute(&mut *tx)
    ///     .await?;
    /// store.complete_in(&mut *tx, &run).await?;
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `LeaseLost` if another claim took the occurrence; `NotFound` if the job was deleted;
    /// `Invalid` for a connection to another kind of database; `Unavailable`. After an error roll
    /// back.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have been applied; roll back.
    pub async fn complete_in<C: Connection>(&self, conn: &mut C, run: &Run) -> Result {
        const OP: &str = "complete_in";
        let client = &*self.client;
        if C::SYSTEM != client.place.system {
            let wrong = "the transaction is not of the store's database";
            return Err(Error::invalid(wrong).op(OP));
        }
        let operation = run.complete();
        // A statement that has failed may have ended the transaction: nothing is sent again.
        let reply = self.apply_in(conn, &operation, run.node()).await;
        let (name, fence) = (run.name(), run.fence());
        match reply.map_err(|cause| client.failed(OP, cause))?? {
            Reply::Accepted => Ok(()),
            Reply::LeaseLost => {
                let lost = format!(
                    "another claim took {name:?} from the run with fence {fence}; roll back"
                );
                Err(Error::new(ErrorKind::LeaseLost, lost).op(OP))
            }
            Reply::Invalid => Err(Error::invalid(format!(
                "{name:?} would not go forward from {}: its next_at is wrong",
                run.scheduled_at()
            ))
            .op(OP)),
            _ => {
                let missing = format!("there is no job {name:?}; roll back");
                Err(Error::new(ErrorKind::NotFound, missing).op(OP))
            }
        }
    }

    /// Applies the end of a run to its record, which is locked until the end of the transaction.
    async fn apply_in(
        &self,
        conn: &mut dyn Conn,
        operation: &Operation<'_>,
        node: &str,
    ) -> sqlx::Result<Result<Reply>> {
        let client = &*self.client;
        let rows = conn.rows(client.dialect.lock_one(operation.name)).await?;
        let Some(row) = rows.into_iter().next() else { return Ok(Ok(Reply::Absent)) };
        let locked = row.into_iter().map(Value::into_int).collect::<Vec<_>>();
        let [Some(id), version] = locked[..] else { return Err(sqlx::Error::RowNotFound) };
        // Read behind the lock. A session that reads an old snapshot must not write it back.
        let read = read_rows(conn.rows(client.dialect.load_bare(id)).await?);
        let now = decides(TimeSource::Store { fallback: end_of_time() }, read.clock);
        let context = OpContext::new(node, now);
        let Some(row) = read.rows.into_iter().next() else { return Ok(Ok(Reply::Absent)) };
        if Some(row.version) != version {
            return Ok(Err(Error::invalid(
                "the transaction reads an old snapshot: it must read committed data",
            )
            .op("complete_in")));
        }
        let version = Version::of(&row);
        let before = match row.record {
            Ok(record) => record,
            Err(reason) => return Ok(apply_unreadable(&reason, operation, context, &mut None)),
        };
        let mut history = match client.history_limit {
            0 => HistoryBuffer::off(),
            _ => HistoryBuffer::kept(),
        };
        let mut slot = Some(before.clone());
        let reply = apply(&mut slot, operation, context, &mut history);
        if let Some(after) = slot.filter(|after| *after != before) {
            // The data was not read, on either side: it stays.
            let mut write = write_of(operation.name, version, Some(&before), &after);
            write.history = history.take().iter().map(history_columns).collect();
            client.appended.fetch_add(write.history.len() as u64, Ordering::Relaxed);
            client.put(conn, &[write]).await?;
        }
        Ok(reply)
    }

    /// Checks that the database answers within this time: for health checks.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn ping(&self, timeout: Duration) -> Result {
        const OP: &str = "ping";
        let client = &*self.client;
        let answer =
            async { retry!(client, OP, client.driver.rows(client.dialect.now())).map(drop) };
        within(timeout, answer).await.unwrap_or_else(|| {
            let text = format!("{} did not answer within {timeout:?}", client.place);
            Err(Error::new(ErrorKind::Unavailable, text).op(OP))
        })
    }

    /// Closes the connections; every later call is `Unavailable`. A given pool stays open.
    ///
    /// # Cancel safety
    /// Some connections may be open still.
    pub async fn close(&self) {
        self.client.driver.close().await;
    }
}
