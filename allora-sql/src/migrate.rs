//! The tables: created, brought up to date, and checked, also by several nodes at once.

use crate::{
    dialect::{SCHEMA, Step},
    driver::{Conn, Statement, Value},
    store::{Store, again},
};
use allora_core::{Error, Kind, Result};

const OP: &str = "connect";

/// What to do about tables that are not there or are old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Migrate {
    /// Bring them up to date.
    Yes,
    /// Refuse.
    No,
}

impl Store {
    /// Brings the tables up to date if need be, and checks that everything is there.
    pub(crate) async fn open(&self, migrate: Migrate) -> Result {
        let found = self.version().await?;
        if found < SCHEMA {
            if migrate == Migrate::No {
                return Err(Error::invalid(format!(
                    "the tables {}_* in {} have version {found} and this build needs {SCHEMA}: \
                     connect once with migrations on, as a role that may create tables",
                    self.dialect.prefix, self.place
                ))
                .op(OP));
            }
            again!(self, OP, self.migrate()).map_err(lasting)?;
        }
        let found = self.version().await?;
        if found != SCHEMA {
            return Err(Error::invalid(format!(
                "the tables {}_* in {} have version {found} and this build knows {SCHEMA}: update \
                 this program",
                self.dialect.prefix, self.place
            ))
            .op(OP));
        }
        self.check().await
    }

    /// The version of the tables; 0 if there are none.
    async fn version(&self) -> Result<i64> {
        if self.ask(self.dialect.has_tables()).await?.is_none() {
            return Ok(0);
        }
        Ok(self.ask(self.dialect.meta("schema", false)).await?.unwrap_or(0))
    }

    async fn ask(&self, statement: Statement) -> Result<Option<i64>> {
        let rows = again!(self, OP, self.driver.rows(statement.clone())).map_err(lasting)?;
        Ok(rows.into_iter().flatten().next().and_then(Value::into_int))
    }

    async fn migrate(&self) -> sqlx::Result<()> {
        let mut tx = self.driver.begin().await?;
        let flavour = &self.dialect.flavour;
        if let Some(text) = flavour.lock(&self.dialect.prefix) {
            tx.conn().run(Statement::new(text, Vec::new(), b"")).await?;
        }
        let done = self.bring_up_to_date(tx.conn()).await;
        // Where the lock is the session's it would stay with the connection in the pool.
        if let Some(text) = flavour.unlock(&self.dialect.prefix) {
            tx.conn().run(Statement::new(text, Vec::new(), b"")).await?;
        }
        done?;
        tx.commit().await
    }

    async fn bring_up_to_date(&self, conn: &mut dyn Conn) -> sqlx::Result<()> {
        let mut version = match one(conn, self.dialect.has_tables()).await? {
            None => 0,
            Some(_) => one(conn, self.dialect.meta("schema", false)).await?.unwrap_or(0),
        };
        // Another node may have been faster, and may be newer.
        while version < SCHEMA {
            version += 1;
            for step in self.dialect.migration(version) {
                match step {
                    Step::Run(sql) => conn.script(sql).await?,
                    Step::Index { is_there, create } => {
                        if one(conn, is_there).await?.is_none() {
                            conn.script(create).await?;
                        }
                    }
                }
            }
            for statement in self.dialect.put_meta("schema", version) {
                conn.run(statement).await?;
            }
        }
        Ok(())
    }

    /// Every table with its columns, every index.
    async fn check(&self) -> Result {
        for (table, probe) in self.dialect.probes() {
            again!(self, OP, self.driver.rows(probe.clone())).map_err(lasting).map_err(
                |cause| {
                    if cause.kind() != Kind::Invalid {
                        return cause;
                    }
                    Error::new(
                        Kind::Invalid,
                        format!(
                            "the table {table} in {} is missing, is not ours, or may not be read: \
                         restore it, or choose another prefix",
                            self.place
                        ),
                    )
                    .op(OP)
                    .source(cause)
                },
            )?;
        }
        for (index, table, statement) in self.dialect.indexes() {
            if self.ask(statement).await?.is_none() {
                return Err(Error::invalid(format!(
                    "the index {index} of the table {table} in {} is missing, and without it \
                     every look would read all jobs: restore it",
                    self.place
                ))
                .op(OP));
            }
        }
        Ok(())
    }
}

async fn one(conn: &mut dyn Conn, statement: Statement) -> sqlx::Result<Option<i64>> {
    let rows = conn.rows(statement).await?;
    Ok(rows.into_iter().flatten().next().and_then(Value::into_int))
}

/// An error that asking again does not mend: something is missing, or this user may not use it.
fn lasting(error: Error) -> Error {
    let cause = std::error::Error::source(&error);
    let cause = cause.and_then(|cause| cause.downcast_ref::<sqlx::Error>());
    let code = cause.and_then(|cause| cause.as_database_error()).and_then(|error| error.code());
    // The class of the SQL standard, and SQLite's code for all that is wrong with a statement.
    if code.is_some_and(|code| code.starts_with("42") || code == "1") {
        return Error::new(Kind::Invalid, error.to_string()).source(error);
    }
    error
}
