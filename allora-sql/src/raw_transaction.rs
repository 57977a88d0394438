//! Transactions of drivers other than sqlx: the application runs the statements.

use crate::{
    Param, RawStatement, Sql,
    driver::{Conn, Ran, Row, Statement, Value},
};
use allora_core::{BoxError, Result, Run, Schedules};
use async_trait::async_trait;
use sqlx::SqlStr;

/// A transaction of the application's own, in which it runs statements of this crate with a driver of its
/// choice, such as tokio-postgres, mysql_async, rusqlite, diesel or SeaORM.
///
/// ```
/// use allora::BoxError;
/// use allora_sql::{Param, RawStatement, RawTransaction};
///
/// /// Any driver that runs a text with parameters.
/// trait Driver: Send {
///     fn query(&mut self, sql: &str, params: &[Param]) -> Result<Vec<Vec<Param>>, BoxError>;
/// }
///
/// struct Transaction<'a>(&'a mut dyn Driver);
///
/// #[async_trait::async_trait]
/// impl RawTransaction for Transaction<'_> {
///     async fn run(&mut self, statement: RawStatement) -> Result<Vec<Vec<Param>>, BoxError> {
///         self.0.query(&statement.sql, &statement.params)
///     }
/// }
/// ```
#[async_trait]
pub trait RawTransaction: Send {
    /// Runs one statement in the transaction, and returns its rows: of each, the cells of the
    /// [columns](RawStatement::columns) that the statement names. [`then`](RawStatement::then) is empty.
    ///
    /// # Errors
    /// That of the driver. The transaction is to be rolled back then.
    async fn run(&mut self, statement: RawStatement) -> Result<Vec<Vec<Param>>, BoxError>;
}

impl Sql {
    /// As [`change_in`](crate::SqlxTransaction::change_in), in a transaction of any driver.
    ///
    /// # Errors
    /// As `change_in`; `Unavailable` with the error of the driver as its source.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have been applied; roll back.
    pub async fn change_through<T, F, W>(
        &self,
        transaction: &mut dyn RawTransaction,
        schedules: &Schedules,
        work: F,
    ) -> Result<T>
    where
        F: FnOnce(Schedules) -> W,
        W: Future<Output = Result<T>>,
    {
        self.change_on(&mut Raw(transaction), schedules, work).await
    }

    /// As [`complete_in`](crate::SqlxTransaction::complete_in), in a transaction of any driver.
    ///
    /// # Errors
    /// As `complete_in`; `Unavailable` with the error of the driver as its source.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have been applied; roll back.
    pub async fn complete_through(
        &self,
        transaction: &mut dyn RawTransaction,
        run: &Run,
    ) -> Result {
        self.complete_on(&mut Raw(transaction), run).await
    }
}

/// A transaction as a connection of this crate.
struct Raw<'a>(&'a mut dyn RawTransaction);

#[async_trait]
impl Conn for Raw<'_> {
    async fn rows(&mut self, statement: Statement) -> sqlx::Result<Vec<Row>> {
        let rows = self.0.run(RawStatement::of(statement)).await;
        let rows = rows.map_err(sqlx::Error::AnyDriverError)?;
        let value = |cell| match cell {
            Param::BigInt(number) => Value::Int(number),
            Param::Bytea(bytes) => Value::Bytes(bytes),
            Param::BigIntArray(numbers) => Value::Ints(numbers),
            Param::ByteaArray(all) => Value::Blobs(all),
        };
        Ok(rows.into_iter().map(|row| row.into_iter().map(value).collect()).collect())
    }

    /// Of a statement without rows, only the fast path wants to know more, and no transaction takes it.
    async fn run(&mut self, statement: Statement) -> sqlx::Result<Ran> {
        self.rows(statement).await.map(|_| Ran { rows: 0, id: 0 })
    }

    async fn script(&mut self, sql: SqlStr) -> sqlx::Result<()> {
        self.rows(Statement { sql, args: Vec::new(), shape: b"" }).await.map(drop)
    }
}
