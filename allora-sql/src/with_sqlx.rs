//! Pools and transactions of sqlx. The facade does not export these traits, so a release of sqlx that
//! breaks is a breaking release of this crate alone.

use crate::{Sql, SqlBuilder};
use allora_core::{Error, Result, Run, Schedules, StoredSchedule};
use async_trait::async_trait;

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

/// Connects as a pool of the application does.
#[async_trait]
pub trait SqlxPool: pool::Sealed + Sized {
    /// Connects [as a pool of the application does](crate#a-given-pool). Refused: an SQLite without
    /// WAL and `synchronous = FULL`.
    ///
    /// # Errors
    /// As [`connect`](SqlBuilder::connect).
    #[cfg(feature = "sqlite")]
    async fn sqlite_pool(self, pool: sqlx::SqlitePool) -> Result<Sql>;

    /// Connects [as a pool of the application does](crate#a-given-pool).
    ///
    /// # Errors
    /// As [`connect`](SqlBuilder::connect).
    #[cfg(feature = "postgres")]
    async fn postgres_pool(self, pool: sqlx::PgPool) -> Result<Sql>;

    /// Connects [as a pool of the application does](crate#a-given-pool).
    ///
    /// # Errors
    /// As [`connect`](SqlBuilder::connect).
    #[cfg(feature = "mysql")]
    async fn mysql_pool(self, pool: sqlx::MySqlPool) -> Result<Sql>;
}

mod pool {
    pub trait Sealed {}
    impl Sealed for super::SqlBuilder {}
    impl Sealed for super::Sql {}
}

#[async_trait]
impl SqlxPool for SqlBuilder {
    #[cfg(feature = "sqlite")]
    async fn sqlite_pool(self, pool: sqlx::SqlitePool) -> Result<Sql> {
        self.with_sqlite_pool(pool).await
    }

    #[cfg(feature = "postgres")]
    async fn postgres_pool(self, pool: sqlx::PgPool) -> Result<Sql> {
        self.with_postgres_pool(pool).await
    }

    #[cfg(feature = "mysql")]
    async fn mysql_pool(self, pool: sqlx::MySqlPool) -> Result<Sql> {
        self.with_mysql_pool(pool).await
    }
}

/// Changes of the store inside a transaction of the application.
#[async_trait]
pub trait SqlxTransaction: pool::Sealed {
    /// Completes a run inside a transaction of the job's own, so that the job's writes in it and the
    /// completion are committed together or not at all: each occurrence takes effect exactly once.
    ///
    /// Call it last in the transaction: until the commit, other writers of this job's record wait.
    /// With the commit the result is final. The job may work on after that, and its lease is extended as
    /// before; the next occurrence waits until the job returns ([`Run::complete`]).
    /// The transaction must be of the store's database, and its session one that reads committed data
    /// (on MySQL, `READ COMMITTED`; on SQLite, `BEGIN IMMEDIATE`).
    ///
    /// ```no_run
    /// # use allora_sql::SqlxTransaction;
    /// # async fn job(store: allora_sql::Sql, pool: sqlx::SqlitePool, run: allora::Run)
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
    async fn complete_in<C: Connection>(&self, conn: &mut C, run: &Run) -> Result;

    /// Creates a stored schedule inside a transaction of the application's own, so that it exists if
    /// and only if the transaction is committed: a customer and the customer's report, together.
    ///
    /// The transaction is as in [`complete_in`](Self::complete_in). With the commit, PostgreSQL
    /// notifies the nodes. On the other databases a node finds the schedule at its next
    /// [poll](allora_core::SchedulerBuilder::poll_interval).
    ///
    /// ```no_run
    /// # use allora::StoredSchedule;
    /// # use allora_sql::SqlxTransaction;
    /// # async fn sign_up(store: allora_sql::Sql, pool: sqlx::PgPool)
    /// # -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// let mut tx = pool.begin().await?;
    /// sqlx::query("INSERT INTO customer (name) VALUES ('acme')").execute(&mut *tx).await?;
    /// let report = StoredSchedule::new("acme/report", "report", "0 9 * * MON-FRI");
    /// store.add_in(&mut *tx, &report).await?;
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken, also by a transaction that was committed meanwhile;
    /// `Invalid` with the rejected part, or for a connection to another kind of database;
    /// `Unavailable`. After an error roll back.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have been applied; roll back.
    async fn add_in<C: Connection>(&self, conn: &mut C, schedule: &StoredSchedule) -> Result;

    /// Changes schedules inside a transaction of the application's own: `work` gets a client whose every
    /// call is a part of it. All that the client can do, from `upsert`, `modify` and `delete` to `trigger`,
    /// takes effect if and only if the transaction is committed, and the client reads what it has written.
    /// It has the settings of `schedules` ([author](Schedules::by), [shortest
    /// periods](Schedules::shortest_period), [retention of triggers](Schedules::trigger_retention)), and its
    /// limits, version checks and refusals are those of any client.
    ///
    /// The transaction is as in [`complete_in`](Self::complete_in), and notifies the nodes as
    /// [`add_in`](Self::add_in) does. A call fails and changes nothing if it is refused: `work` may go on
    /// after `AlreadyExists`, `NotFound` or `Invalid`. After `Unavailable` roll back.
    ///
    /// # Locks
    /// A call locks each job that it reads by name until the end of the transaction, and nodes that want to
    /// claim, extend or end a run of that job wait as long. So make these calls the last of the
    /// transaction, and commit at once. A job that another transaction has locked is waited for as long
    /// as the session's lock wait says (`lock_timeout` of PostgreSQL, which is endless by default,
    /// `innodb_lock_wait_timeout` of MySQL, 50 s; the `busy_timeout` of SQLite, at `BEGIN IMMEDIATE`), and
    /// not by the client's [`store_timeout`](Schedules::store_timeout). Transactions that change several
    /// jobs change them in one order, such as that of their names; otherwise two of them can wait for
    /// each other, and the database ends one with an error. One call for many jobs, such as
    /// [`add_all`](Schedules::add_all), has that order by itself.
    ///
    /// ```no_run
    /// # use allora::{Schedules, StoredSchedule};
    /// # use allora_sql::SqlxTransaction;
    /// # async fn upgrade(store: allora_sql::Sql, pool: sqlx::PgPool, schedules: Schedules)
    /// # -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// let mut tx = pool.begin().await?;
    /// sqlx::query("UPDATE customer SET plan = 'daily' WHERE name = 'acme'").execute(&mut *tx).await?;
    /// let report = StoredSchedule::new("acme/report", "report", "0 9 * * *");
    /// store
    ///     .change_in(&mut *tx, &schedules, async |schedules| {
    ///         schedules.upsert(&report).await?;
    ///         schedules.trigger("acme/report", "upgrade").await
    ///     })
    ///     .await?;
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// That of `work`. `Invalid` for a connection to another kind of database, or to a session that
    /// reads an old snapshot; `Unavailable` if a statement failed, even if `work` did not.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have been applied; roll back.
    async fn change_in<C, T, F, W>(
        &self,
        conn: &mut C,
        schedules: &Schedules,
        work: F,
    ) -> Result<T>
    where
        C: Connection,
        T: Send,
        F: FnOnce(Schedules) -> W + Send,
        W: Future<Output = Result<T>> + Send;
}

#[async_trait]
impl SqlxTransaction for Sql {
    async fn complete_in<C: Connection>(&self, conn: &mut C, run: &Run) -> Result {
        checked::<C>(self, "complete_in")?;
        self.complete_on(conn, run).await
    }

    async fn add_in<C: Connection>(&self, conn: &mut C, schedule: &StoredSchedule) -> Result {
        checked::<C>(self, "add_in")?;
        self.add_on(conn, schedule).await
    }

    async fn change_in<C, T, F, W>(&self, conn: &mut C, schedules: &Schedules, work: F) -> Result<T>
    where
        C: Connection,
        T: Send,
        F: FnOnce(Schedules) -> W + Send,
        W: Future<Output = Result<T>> + Send,
    {
        checked::<C>(self, "change_in")?;
        self.change_on(conn, schedules, work).await
    }
}

/// Checks that a connection is one to the store's kind of database.
fn checked<C: Connection>(store: &Sql, op: &'static str) -> Result {
    if C::SYSTEM == store.client.place.system {
        return Ok(());
    }
    Err(Error::invalid("the transaction is not of the store's database").op(op))
}
