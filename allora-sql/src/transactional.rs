//! Runs that are completed, and schedules that are created, inside the application's own transaction.

use crate::{
    Sql,
    client::{ReadRows, decides, retry},
    dialect::Write,
    driver::{Conn, Statement, Value},
    encoding::{history_columns, plausible},
    records::{Version, write_of},
    timer::within,
};
use allora_core::{
    Backend as _, Error, ErrorKind, Result, Run, StoredSchedule, Time,
    backend::{Batch, Notification, OPERATOR, Reply, TimeSource},
    record::{HistoryBuffer, OpContext, apply, apply_unreadable},
    store::RecordStore,
};
use std::time::Duration;

/// The database's clock decides.
const STORE: TimeSource = TimeSource::Store { fallback: Time::MAX_UTC };

impl Sql {
    pub(crate) async fn complete_on(&self, conn: &mut dyn Conn, run: &Run) -> Result {
        const OP: &str = "complete_in";
        let operations = [run.complete()];
        self.on_connection(conn, async |store: Self| {
            let batch = Batch::new(run.node(), STORE, &operations);
            completed(OP, run, store.reschedule(batch).await?.single()?)
        })
        .await
        .map_err(|error| error.op(OP))
    }

    pub(crate) async fn add_on(&self, conn: &mut dyn Conn, schedule: &StoredSchedule) -> Result {
        const OP: &str = "add_in";
        self.on_connection(conn, async |store: Self| {
            let creation = schedule.creation(RecordStore::now(&store, STORE).await?)?;
            let operations = [creation.operation()];
            store.reschedule(Batch::new(OPERATOR, STORE, &operations)).await?.single().map(drop)
        })
        .await
        .map_err(|error| error.op(OP))
    }

    /// The write that creates a schedule, by what was read of its name, and the notification of the
    /// nodes, if the database has one.
    fn creation_of(
        &self,
        read: ReadRows,
        schedule: &StoredSchedule,
    ) -> Result<(Write, Option<Statement>)> {
        let (dialect, name) = (&self.client.dialect, schedule.name());
        let now = decides(STORE, read.clock);
        let creation = schedule.creation(now)?;
        let operation = creation.operation();
        let mut context = OpContext::new(OPERATOR, now);
        context.min_fence = read.beside.and_then(plausible).unwrap_or_default();
        let (mut slot, mut version) = (None, Version::default());
        if let Some(row) = read.rows.into_iter().next() {
            version = Version::of(&row);
            match row.record {
                Ok(record) => slot = Some(record),
                // Always an error.
                Err(reason) => {
                    let history = &mut HistoryBuffer::off();
                    drop(apply_unreadable(&reason, &operation, context, &mut slot, history)?);
                }
            }
        }
        let before = slot.clone();
        apply(&mut slot, &operation, context, &mut HistoryBuffer::off())?;
        let after = slot.unwrap_or_default();
        let notify = after.index_at().and_then(|at| {
            let payload = Notification::DueAt(at).to_string();
            dialect.flavour.notify(&dialect.prefix, &payload)
        });
        Ok((write_of(name, version, before.as_ref(), &after), notify))
    }

    /// The statement that creates a stored schedule, for a transaction of a driver other than `sqlx`. On a
    /// connection of `sqlx`, use [`add_in`](crate::SqlxTransaction::add_in). On PostgreSQL only, because
    /// on the other databases a later statement needs the id that an earlier one has given.
    ///
    /// Run the statement in the transaction. If it returns a row, run the statements of
    /// [`then`](RawStatement::then): they notify the nodes with the commit. If it returns no row, the
    /// name was taken since the call: call this again. `AlreadyExists` ends this.
    ///
    /// ```no_run
    /// # async fn sign_up(store: allora_sql::Sql) -> allora::Result {
    /// use allora::StoredSchedule;
    ///
    /// let report = StoredSchedule::new("acme/report", "report", "0 9 * * MON-FRI");
    /// let creation = store.creation(&report).await?;
    /// println!("{} with {} parameters", creation.sql, creation.params.len());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken; `Invalid` with the rejected part; `Unsupported` on MySQL
    /// and SQLite; `Unavailable`.
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn creation(&self, schedule: &StoredSchedule) -> Result<RawStatement> {
        const OP: &str = "creation";
        let client = &*self.client;
        let read = client.read(OP, client.dialect.load(&[schedule.name()])).await?;
        let (write, notify) = self.creation_of(read, schedule).map_err(|error| error.op(OP))?;
        let Some(statement) = client.dialect.flavour.write(&client.dialect, &[write]) else {
            let what = "no single statement creates a schedule on this database; use `add_in` with a \
                        connection of sqlx, or `Schedules::add` after the commit";
            return Err(Error::new(ErrorKind::Unsupported, what).op(OP));
        };
        let then = notify.map(RawStatement::of).into_iter().collect();
        Ok(RawStatement { then, ..RawStatement::of(statement) })
    }

    /// The statements that complete a run, for a transaction of a driver other than `sqlx`, such as
    /// tokio-postgres, mysql_async, rusqlite, diesel or SeaORM.
    ///
    /// Run the statement last in the transaction. If it returns a row, run the statements of
    /// [`then`](RawStatement::then), in their order: none on PostgreSQL, some on MySQL and SQLite. The
    /// run is completed with the commit. If it returns no row, the record has changed since the call,
    /// such as by an extension of the lease: call this again and run the new statement, in the same
    /// transaction. `LeaseLost` ends this. The transaction is as in [`complete_in`](crate::SqlxTransaction::complete_in).
    ///
    /// On SQLite, the call reads through another connection, which a transaction in WAL mode does not
    /// block.
    ///
    /// ```no_run
    /// use allora_sql::{Param, sqlx};
    ///
    /// # async fn job(store: allora_sql::Sql, tx: &mut sqlx::PgConnection, run: allora::Run)
    /// # -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// loop {
    ///     let completion = store.completion(&run).await?;
    ///     // With tokio-postgres: `params` is a `Vec<&(dyn ToSql + Sync)>` of the same values, and
    ///     // `tx.query(&completion.sql, &params)` returns the rows. `completion.then` is empty.
    ///     let mut query = sqlx::query(sqlx::AssertSqlSafe(completion.sql));
    ///     for param in completion.params {
    ///         query = match param {
    ///             Param::BigInt(value) => query.bind(value),
    ///             Param::Bytea(value) => query.bind(value),
    ///             Param::BigIntArray(values) => query.bind(values),
    ///             Param::ByteaArray(values) => query.bind(values),
    ///         };
    ///     }
    ///     if !query.fetch_all(&mut *tx).await?.is_empty() {
    ///         return Ok(());
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// `LeaseLost` if another claim took the occurrence; `NotFound` if the job was deleted; `Invalid`
    /// if its record cannot be read; `Unavailable`. After an error roll back.
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn completion(&self, run: &Run) -> Result<RawStatement> {
        const OP: &str = "completion";
        let client = &*self.client;
        let (operation, name) = (run.complete(), run.name());
        let read = client.read(OP, client.dialect.load(&[name])).await?;
        let now = decides(STORE, read.clock);
        let context = OpContext::new(run.node(), now);
        let Some(row) = read.rows.into_iter().next() else {
            return completed(OP, run, Reply::Absent).and(Ok(RawStatement::repetition()));
        };
        let version = Version::of(&row);
        let before = row.record.map_err(|reason| {
            Error::invalid(format!("the record of {name:?} cannot be read: {reason}")).op(OP)
        })?;
        let mut history = client.history.buffer();
        let mut slot = Some(before.clone());
        completed(OP, run, apply(&mut slot, &operation, context, &mut history)?)?;
        let Some(after) = slot.filter(|after| *after != before) else {
            return Ok(RawStatement::repetition());
        };
        let mut write = write_of(name, version, Some(&before), &after);
        let entries = history.take();
        write.history = entries.iter().map(history_columns).collect();
        client.history.appended(entries.iter().map(|entry| &*entry.name));
        let writes = [write];
        if let Some(statement) = client.dialect.flavour.write(&client.dialect, &writes) {
            return Ok(RawStatement::of(statement));
        }
        let [write] = &writes;
        let lock = client.dialect.lock_version(write.id.unwrap_or_default(), write.read_version);
        let then = client.dialect.put(&writes).into_iter().map(RawStatement::of).collect();
        Ok(RawStatement { then, ..RawStatement::of(lock) })
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

/// The result of a completion with this reply.
fn completed(op: &'static str, run: &Run, reply: Reply) -> Result {
    let (name, fence) = (run.name(), run.fence());
    match reply {
        Reply::Accepted => Ok(()),
        Reply::LeaseLost => {
            let lost =
                format!("another claim took {name:?} from the run with fence {fence}; roll back");
            Err(Error::new(ErrorKind::LeaseLost, lost).op(op))
        }
        Reply::Invalid => Err(Error::invalid(format!(
            "{name:?} would not go forward from {}: its next_at is wrong",
            run.scheduled_at()
        ))
        .op(op)),
        _ => {
            let missing = format!("there is no job {name:?}; roll back");
            Err(Error::new(ErrorKind::NotFound, missing).op(op))
        }
    }
}

/// A statement with the values of its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RawStatement {
    /// The text. Its parameters are `$1`, `$2` and so on on PostgreSQL, and `?` on MySQL and SQLite.
    /// Their types follow from it.
    pub sql: String,
    /// The values of the parameters, in their order.
    pub params: Vec<Param>,
    /// The types of its first cells, in their order. What else a row has means nothing.
    pub columns: Vec<Column>,
    /// The statements to run after it if it returns a row. What they return has no meaning. Of a
    /// completion: none on PostgreSQL.
    pub then: Vec<RawStatement>,
}

/// The type of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// [`Param::BigInt`].
    BigInt,
    /// [`Param::Bytea`].
    Bytea,
}

/// The value of a parameter or a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Param {
    /// `int8` of PostgreSQL, `BIGINT` of MySQL, `INTEGER` of SQLite.
    BigInt(Option<i64>),
    /// `bytea` of PostgreSQL, `VARBINARY` of MySQL, `BLOB` of SQLite.
    Bytea(Option<Vec<u8>>),
    /// `int8[]`, on PostgreSQL only.
    BigIntArray(Vec<Option<i64>>),
    /// `bytea[]`, on PostgreSQL only.
    ByteaArray(Vec<Option<Vec<u8>>>),
}

impl RawStatement {
    pub(crate) fn of(statement: Statement) -> Self {
        let param = |value| match value {
            Value::Int(value) => Param::BigInt(value),
            Value::Bytes(value) => Param::Bytea(value),
            Value::Ints(values) => Param::BigIntArray(values),
            Value::Blobs(values) => Param::ByteaArray(values),
        };
        let params = statement.args.into_iter().map(param).collect();
        let column = |kind: &u8| if *kind == b'i' { Column::BigInt } else { Column::Bytea };
        let columns = statement.shape.iter().map(column).collect();
        Self { sql: statement.sql.as_str().to_owned(), params, columns, then: Vec::new() }
    }

    /// The statement of a run that is completed already: it changes nothing, and returns one row.
    fn repetition() -> Self {
        let (params, columns, then) = Default::default();
        Self { sql: "SELECT 1".to_owned(), params, columns, then }
    }
}
