//! A run that is finished inside the job's own transaction.

use crate::{
    Sql,
    driver::Conn,
    store::{Slot, again},
};
use allora_core::{
    Error, Kind, Result, Run,
    backend::{Now, Settled},
    record::settle,
};

/// A connection in which a run can be finished: that of the store's database.
pub trait Connection: sealed::Sealed {}

mod sealed {
    /// Which database the connection is of.
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
    /// Finishes a run inside a transaction of the job's own, so that what the job wrote in it and
    /// the finish are committed together or not at all: each occurrence takes effect exactly once.
    ///
    /// Call it last in the transaction: until the commit, other writers of this job's record wait.
    /// The scheduler finishes the run once more when the job returns; that is a repetition, and
    /// answered alike. The transaction must be of the store's database, and its session one that
    /// reads what is committed (on MySQL, `READ COMMITTED`; on SQLite, `BEGIN IMMEDIATE`).
    ///
    /// ```no_run
    /// # async fn job(store: allora_sql::Sql, pool: sqlx::SqlitePool, run: allora_core::Run)
    /// # -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
    /// sqlx::query("INSERT INTO invoice (key) VALUES (?)")
    ///     .bind(run.occurrence_key())
    ///     .execute(&mut *tx)
    ///     .await?;
    /// store.finish_in(&mut *tx, &run).await?;
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `LeaseLost` if somebody else has taken the occurrence over; `NotFound` if the job was
    /// deleted; `Invalid` for a connection to another kind of database; `Unavailable`. After an
    /// error roll back.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have been carried out; roll back.
    pub async fn finish_in<C: Connection>(&self, conn: &mut C, run: &Run) -> Result {
        const OP: &str = "finish_in";
        let store = &*self.store;
        if C::SYSTEM != store.place.system {
            let wrong = "the transaction is not of the store's database";
            return Err(Error::invalid(wrong).op(OP));
        }
        let ending = run.finish();
        // A statement that has failed may have ended the transaction: nothing is tried again.
        let node = allora_core::time::end_of_time();
        let done = store
            .with_rows(
                conn as &mut dyn Conn,
                &[run.name()],
                run.node(),
                Now::Store { node },
                |_, slot, at, ledger| match slot {
                    Slot::Sound(record) => settle(record, &ending, at, ledger),
                    Slot::Parked { .. } => Settled::Lost,
                },
            )
            .await
            .map_err(|cause| store.failed(OP, cause))?;
        let name = run.name();
        let fence = run.fence();
        match done.answers.first() {
            Some(Settled::Done) => Ok(()),
            Some(Settled::Lost) => Err(Error::new(
                Kind::LeaseLost,
                format!("{name:?} was taken over from the run with fence {fence}; roll back"),
            )
            .op(OP)),
            Some(Settled::Refused) => Err(Error::invalid(format!(
                "{name:?} would not go forward from {}: its next_at is wrong",
                run.scheduled_at()
            ))
            .op(OP)),
            _ => Err(Error::new(Kind::NotFound, format!("there is no job {name:?}")).op(OP)),
        }
    }

    /// Whether the database answers: for health checks.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn ping(&self) -> Result {
        let store = &*self.store;
        again!(store, "ping", store.driver.rows(store.dialect.now())).map(drop)
    }

    /// Closes the connections; every later call is `Unavailable`. A pool that was given is closed
    /// with it.
    ///
    /// # Cancel safety
    /// Some connections may be open still.
    pub async fn close(&self) {
        self.leases.driver.close().await;
        self.store.driver.close().await;
    }
}
