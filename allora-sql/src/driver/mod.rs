//! The common interface of the databases: statements with numbers and bytes in, rows of numbers and
//! bytes out.

mod connections;
#[cfg(feature = "sqlite")]
mod file;
#[cfg(feature = "postgres")]
mod listen;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;

use async_trait::async_trait;
pub(crate) use connections::Connections;
use futures::{
    future::{Either, select},
    stream::BoxStream,
};
use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};
use std::{pin::pin, sync::Arc, time::Duration};

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    /// The key of a row, which the database gives to a new one and never to another.
    Id,
    /// A number.
    Int,
    /// A number or NULL.
    IntOrNull,
    /// A name of at most 200 bytes.
    Name,
    /// Bytes of any length.
    Bytes,
    /// Bytes or NULL.
    BytesOrNull,
}

/// A value that is bound to a statement or read from a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number.
    Int(Option<i64>),
    /// Bytes.
    Bytes(Option<Vec<u8>>),
    /// A column of numbers, where the database has arrays.
    Ints(Vec<Option<i64>>),
    /// A column of bytes, where the database has arrays.
    Blobs(Vec<Option<Vec<u8>>>),
}

impl Value {
    pub(crate) fn int(number: i64) -> Self {
        Value::Int(Some(number))
    }

    /// A number without sign, as the signed one of the same bits: no database has all 64.
    pub(crate) fn bits(number: u64) -> Self {
        Value::Int(Some(number.cast_signed()))
    }

    pub(crate) fn bytes(bytes: impl AsRef<[u8]>) -> Self {
        Value::Bytes(Some(bytes.as_ref().to_vec()))
    }

    /// An empty column of this type, for [`push`](Self::push).
    #[cfg(feature = "postgres")]
    pub(crate) fn array(of: Type) -> Self {
        match of {
            Type::Id | Type::Int | Type::IntOrNull => Value::Ints(Vec::new()),
            Type::Name | Type::Bytes | Type::BytesOrNull => Value::Blobs(Vec::new()),
        }
    }

    /// Adds a value to a column of its type.
    #[cfg(feature = "postgres")]
    pub(crate) fn push(&mut self, value: Value) {
        match (self, value) {
            (Value::Ints(all), value) => all.push(value.into_int()),
            (Value::Blobs(all), value) => all.push(value.into_bytes()),
            (Value::Int(_) | Value::Bytes(_), _) => {}
        }
    }

    pub(crate) fn into_int(self) -> Option<i64> {
        match self {
            Value::Int(number) => number,
            _ => None,
        }
    }

    pub(crate) fn into_bytes(self) -> Option<Vec<u8>> {
        match self {
            Value::Bytes(bytes) => bytes,
            _ => None,
        }
    }
}

pub(crate) type Row = Vec<Value>;

/// The payloads of notifications.
pub(crate) type Payloads = BoxStream<'static, Option<String>>;

/// A statement and the values that are bound to it.
#[derive(Clone, Debug)]
pub struct Statement {
    pub(crate) sql: SqlStr,
    pub(crate) args: Vec<Value>,
    /// The types of its rows' cells: `i` for a number, `b` for bytes.
    pub(crate) shape: &'static [u8],
}

/// Asserts that a text was put together from these modules' parts only.
pub(crate) fn sql(text: impl Into<String>) -> SqlStr {
    AssertSqlSafe(text.into()).into_sql_str()
}

impl Statement {
    pub(crate) fn new(text: impl Into<String>, args: Vec<Value>, shape: &'static [u8]) -> Self {
        Self { sql: sql(text), args, shape }
    }
}

/// The result of a statement without rows.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    /// Number of rows that it changed.
    pub(crate) rows: u64,
    /// The number of `LAST_INSERT_ID`, where the database has it.
    pub(crate) id: u64,
}

/// A connection: one of a pool, in a transaction or not, or one that belongs to the caller.
#[async_trait]
pub trait Conn: Send {
    /// Runs a statement and reads its rows.
    async fn rows(&mut self, statement: Statement) -> sqlx::Result<Vec<Vec<Value>>>;

    /// Runs a statement that has no rows.
    async fn run(&mut self, statement: Statement) -> sqlx::Result<Ran>;

    /// Runs a script without arguments.
    async fn script(&mut self, sql: SqlStr) -> sqlx::Result<()>;
}

/// A connection that is lent to one call. Dropped without being released, it is closed.
pub(crate) trait Lent: Send {
    fn conn(&mut self) -> sqlx::Result<&mut dyn Conn>;

    /// Makes it free for the next call.
    fn release(self: Box<Self>);
}

/// A database behind the store's own connections.
#[async_trait]
pub(crate) trait Driver: Send + Sync {
    /// Lends a connection for a call that writes.
    async fn writer(&self) -> sqlx::Result<Box<dyn Lent>>;

    /// Lends a connection for a call that reads.
    async fn reader(&self) -> sqlx::Result<Box<dyn Lent>> {
        self.writer().await
    }

    /// Opens the first connection.
    async fn open(&self) -> sqlx::Result<()> {
        self.writer().await.map(Lent::release)
    }

    /// The statement that starts a transaction that may write.
    fn begin(&self) -> &'static str;

    /// The statement that commits what [`begin`](Self::begin) has started.
    fn commit(&self) -> &'static str {
        "COMMIT"
    }

    /// The statement that undoes it.
    fn rollback(&self) -> &'static str {
        "ROLLBACK"
    }

    /// True if every call is a part of one transaction, so that a record that is read is locked until
    /// its end.
    fn is_in_transaction(&self) -> bool {
        false
    }

    /// Checks the settings that cannot be set from here: an error names the one that makes the
    /// server unfit, a warning those by which it may lose acknowledged writes.
    async fn inspect(&self) -> allora_core::Result<Option<Arc<str>>>;

    /// True if the statement may be run again: it conflicted with another node and changed nothing.
    fn is_conflict(&self, error: &sqlx::Error) -> bool;

    /// True if this server takes no writes any more, or has ended the session: the connection is of
    /// no use.
    fn is_spent(&self, _error: &sqlx::Error) -> bool {
        false
    }

    /// True if [`listen`](Self::listen) works.
    fn has_notifications(&self) -> bool {
        false
    }

    /// Notifications of one channel, where the database has them; nothing if they are known not to
    /// arrive. A `None` among them means that some may have been missed.
    async fn listen(&self, _channel: &str) -> sqlx::Result<Option<Payloads>> {
        Err(sqlx::Error::InvalidArgument("this database has no notifications".to_owned()))
    }

    /// Fails if the database is another one than that of the connections.
    fn check(&self) -> sqlx::Result<()> {
        Ok(())
    }

    /// True if this error says that the database is another one than before.
    fn is_other(&self, _error: &sqlx::Error) -> bool {
        false
    }

    /// Ends the connections to the former database, so that the next ones are to the present one.
    /// `false` if there is none yet, or if another call has done it.
    fn follow(&self) -> bool {
        false
    }

    /// The database could not be opened after [`follow`](Self::follow): this is to be done again.
    fn distrust(&self) {}

    async fn close(&self);
}

impl dyn Driver + '_ {
    /// Runs one statement by itself that reads.
    pub(crate) async fn rows(&self, statement: Statement) -> sqlx::Result<Vec<Row>> {
        let mut lent = self.reader().await?;
        let done = lent.conn()?.rows(statement).await;
        self.end(lent, done)
    }

    /// Gives a connection back after a call, if the connection is as before: an error of the line,
    /// or of the server as a whole, says that it is not.
    pub(crate) fn end<T>(&self, lent: Box<dyn Lent>, done: sqlx::Result<T>) -> sqlx::Result<T> {
        // What was done in a database that is no longer there was not done.
        let done = done.and_then(|done| self.check().map(|()| done));
        let is_sound = match &done {
            Ok(_) => true,
            Err(error) => self.is_sound_after(error),
        };
        if is_sound {
            lent.release();
        }
        done
    }

    /// Starts a transaction.
    pub(crate) async fn transaction(&self) -> sqlx::Result<Tx<'_>> {
        let mut lent = self.writer().await?;
        match lent.conn()?.script(sql(self.begin())).await {
            Ok(()) => Ok(Tx { driver: self, lent }),
            Err(error) => self.end(lent, Err(error)),
        }
    }

    fn is_sound_after(&self, error: &sqlx::Error) -> bool {
        match error {
            sqlx::Error::Database(_) => !self.is_spent(error),
            // The reply was read, and was not as expected.
            sqlx::Error::RowNotFound
            | sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::ColumnIndexOutOfBounds { .. }
            | sqlx::Error::Decode(_) => true,
            _ => false,
        }
    }
}

/// A transaction. Dropped, it ends with its connection, and is rolled back.
pub(crate) struct Tx<'a> {
    driver: &'a dyn Driver,
    lent: Box<dyn Lent>,
}

impl Tx<'_> {
    pub(crate) fn conn(&mut self) -> sqlx::Result<&mut dyn Conn> {
        self.lent.conn()
    }

    /// Commits what was done in it, or rolls it back after an error.
    pub(crate) async fn end<T>(mut self, done: sqlx::Result<T>) -> sqlx::Result<T> {
        match done {
            Ok(value) => {
                let committed = self.lent.conn()?.script(sql(self.driver.commit())).await;
                self.driver.end(self.lent, committed).map(|()| value)
            }
            Err(error) => {
                // SQLite may have ended it by itself, and refuses then.
                if self.driver.is_sound_after(&error)
                    && self.lent.conn()?.script(sql(self.driver.rollback())).await.is_ok()
                {
                    self.lent.release();
                }
                Err(error)
            }
        }
    }
}

/// Implements [`Conn`] for the types of one database.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
macro_rules! connection {
    ($db:ty, $conn:ty, $bind:path) => {
        #[async_trait::async_trait]
        impl $crate::driver::Conn for $conn {
            async fn rows(
                &mut self,
                statement: $crate::driver::Statement,
            ) -> sqlx::Result<Vec<Vec<$crate::driver::Value>>> {
                use sqlx::Row as _;
                let query = sqlx::query::<$db>(statement.sql);
                let query = statement.args.into_iter().fold(query, $bind);
                let fetched = query.fetch_all(self).await?;
                let mut rows = Vec::with_capacity(fetched.len());
                for row in fetched {
                    let mut cells = Vec::with_capacity(statement.shape.len());
                    for (i, kind) in statement.shape.iter().enumerate() {
                        cells.push(match kind {
                            b'i' => $crate::driver::Value::Int(row.try_get(i)?),
                            _ => $crate::driver::Value::Bytes(row.try_get(i)?),
                        });
                    }
                    rows.push(cells);
                }
                Ok(rows)
            }

            async fn run(
                &mut self,
                statement: $crate::driver::Statement,
            ) -> sqlx::Result<$crate::driver::Ran> {
                let query = sqlx::query::<$db>(statement.sql);
                let query = statement.args.into_iter().fold(query, $bind);
                let done = query.execute(self).await?;
                Ok($crate::driver::Ran { rows: done.rows_affected(), id: 0 })
            }

            async fn script(&mut self, sql: sqlx::SqlStr) -> sqlx::Result<()> {
                sqlx::Executor::execute(self, sqlx::raw_sql(sql)).await.map(drop)
            }
        }
    };
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use connection;

/// Connections that have the settings of the application's pool; none of that pool's own is used. Its
/// pool waits 30 s for a connection, unless told otherwise.
pub(crate) fn like<D: sqlx::Database>(
    pool: &sqlx::Pool<D>,
    connections: u32,
    timeout: Duration,
) -> sqlx::Pool<D> {
    let options = pool.options().clone().min_connections(0).max_connections(connections);
    let timeout = timeout.min(options.get_acquire_timeout());
    let options = options.acquire_timeout(timeout);
    let options = options.idle_timeout(None).max_lifetime(None);
    options.connect_lazy_with((*pool.connect_options()).clone())
}

/// Opens a connection. Where no server listens, its source tries until its time is up, and then does
/// not return the reason; a connection beside it does.
pub(crate) async fn unless_refused<P, C>(
    opening: impl Future<Output = sqlx::Result<P>>,
    probe: impl Future<Output = sqlx::Result<C>>,
) -> sqlx::Result<P> {
    match select(pin!(probe), pin!(opening)).await {
        Either::Left((Err(cause), _)) => Err(cause),
        Either::Left((Ok(_), opening)) => opening.await,
        Either::Right((opened, _)) => opened,
    }
}

/// Several warnings in one sentence.
#[cfg(any(feature = "postgres", feature = "mysql"))]
fn joined(warnings: &[&str]) -> Option<Arc<str>> {
    (!warnings.is_empty()).then(|| warnings.join("; ").into())
}

/// The error of a server that was reached and then did not return its settings.
fn no_settings(cause: sqlx::Error) -> allora_core::Error {
    let text = "the database did not return its settings; connect again";
    allora_core::Error::new(allora_core::ErrorKind::Unavailable, text).op("connect").source(cause)
}
