//! Pools and transactions of sqlx. The facade does not export these traits, so a release of sqlx that
//! breaks is a breaking release of this crate alone.

use crate::{Sql, SqlBuilder};
use allora_core::{Result, Run, StoredSchedule};
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
    /// Return right after the commit: the lease has ended with it, so the next occurrence may start,
    /// and the run's future is dropped after a third of the lease ([`Run::complete`]). The scheduler
    /// completes the run once more when the job returns; that is a repetition, and is accepted again.
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
}

#[async_trait]
impl SqlxTransaction for Sql {
    async fn complete_in<C: Connection>(&self, conn: &mut C, run: &Run) -> Result {
        self.complete_on(conn, run).await
    }

    async fn add_in<C: Connection>(&self, conn: &mut C, schedule: &StoredSchedule) -> Result {
        self.add_on(conn, schedule).await
    }
}
