//! The tables: created, brought up to date, and checked, also by several nodes at once.

use crate::{
    client::{Client, Migrate, number, retry},
    dialect::{Index, SCHEMA, Step},
    driver::sql,
    driver::{Conn, Statement},
    error::{cause_of, is_forbidden, permanent},
};
use allora_core::{Error, ErrorKind, Result};

const OP: &str = "connect";

impl Client {
    /// Brings the tables up to date if necessary, and checks that all are there.
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
            self.migrate_or_wait().await?;
        }
        let found = self.version().await?;
        if found < SCHEMA {
            return Err(Error::new(
                ErrorKind::Unavailable,
                format!(
                    "the tables {}_* in {} were brought up to version {SCHEMA}, and now have version \
                     {found}: the server has not kept the change, or its tables were dropped; connect \
                     again",
                    self.dialect.prefix, self.place
                ),
            )
            .op(OP));
        }
        if found > SCHEMA {
            return Err(Error::invalid(format!(
                "the tables {}_* in {} have version {found} and this build knows {SCHEMA}: update \
                 this program",
                self.dialect.prefix, self.place
            ))
            .op(OP));
        }
        if let Err(error) = self.check_tables().await {
            if migrate == Migrate::No || self.ask(self.dialect.has_history()).await?.is_some() {
                return Err(error);
            }
            self.migrate_or_wait().await?;
            self.check_tables().await?;
        }
        if self.missing_index().await?.is_some() && migrate == Migrate::Yes {
            self.migrate_or_wait().await?;
        }
        match self.missing_index().await? {
            None => Ok(()),
            Some((index, table)) => Err(Error::invalid(format!(
                "the index {index} of the table {table} in {} is missing, and without it every \
                 query would read all jobs: connect once with migrations on, as a role that may \
                 create it",
                self.place
            ))
            .op(OP)),
        }
    }

    /// Brings the tables up to date, or waits until another node has done so.
    async fn migrate_or_wait(&self) -> Result {
        let migrated = retry!(self, OP, self.migrate());
        if migrated.map_err(|error| self.not_migrated(error))? {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            format!(
                "another node has been changing the tables {}_* in {} for 10 s, or their lock was \
                 refused: connect again",
                self.dialect.prefix, self.place
            ),
        )
        .op(OP))
    }

    /// The error of a migration that failed.
    fn not_migrated(&self, error: Error) -> Error {
        if !cause_of(&error).is_some_and(is_forbidden) {
            return permanent(error);
        }
        let text = format!(
            "this user may not make or change the tables {}_* in {}: grant CREATE, or connect once as a \
             role that may, and then as this one `without_migrations`, with SELECT, INSERT, UPDATE and \
             DELETE on the tables",
            self.dialect.prefix, self.place
        );
        Error::new(ErrorKind::Invalid, text).op(OP).source(error)
    }

    /// The version of the tables; 0 if there are none.
    async fn version(&self) -> Result<i64> {
        if self.ask(self.dialect.has_tables()).await?.is_none() {
            return Ok(0);
        }
        Ok(self.ask(self.dialect.meta("schema", false)).await?.unwrap_or(0))
    }

    async fn ask(&self, statement: Statement) -> Result<Option<i64>> {
        let rows = retry!(self, OP, self.driver.rows(statement.clone())).map_err(permanent)?;
        Ok(number(rows))
    }

    /// Brings the tables up to date; `false` if another node kept this one from it.
    ///
    /// On MySQL, the lock and the settings belong to the session, which ends here, also if this call
    /// is dropped.
    async fn migrate(&self) -> sqlx::Result<bool> {
        let flavour = &self.dialect.flavour;
        let mut tx = self.driver.transaction().await?;
        let done = self.migrate_in(tx.conn()?).await;
        if !flavour.ends_migration_with_session() {
            return tx.end(done).await;
        }
        if done.is_ok() {
            tx.conn()?.script(sql("COMMIT")).await?;
        }
        done
    }

    async fn migrate_in(&self, conn: &mut dyn Conn) -> sqlx::Result<bool> {
        let flavour = &self.dialect.flavour;
        if let Some(text) = flavour.unlimited() {
            conn.script(sql(text)).await?;
        }
        if let Some(text) = flavour.lock(&self.dialect.prefix)
            && one(conn, Statement::new(text, Vec::new(), b"i")).await? != Some(1)
        {
            return Ok(false);
        }
        self.bring_up_to_date(conn).await?;
        Ok(true)
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
                    Step::Run(text) => conn.script(text).await?,
                    Step::Index(index) => make(conn, index).await?,
                }
            }
            for statement in self.dialect.put_meta("schema", version) {
                conn.run(statement).await?;
            }
        }
        // What was dropped by hand, and can be made again without a loss of records.
        conn.script(self.dialect.history_table()).await?;
        for index in self.dialect.indexes() {
            make(conn, index).await?;
        }
        Ok(())
    }

    /// Drops all tables.
    pub(crate) async fn drop_tables(&self) -> Result {
        const OP: &str = "drop_tables";
        retry!(self, OP, async {
            let mut tx = self.driver.transaction().await?;
            let mut done = Ok(());
            for (table, _) in self.dialect.probes() {
                if done.is_ok() {
                    done = tx.conn()?.script(sql(format!("DROP TABLE IF EXISTS {table}"))).await;
                }
            }
            tx.end(done).await
        })
        .map_err(permanent)
    }

    /// Every table with its columns.
    async fn check_tables(&self) -> Result {
        for (table, probe) in self.dialect.probes() {
            let read = retry!(self, OP, self.driver.rows(probe.clone())).map_err(permanent);
            let Err(cause) = read else { continue };
            if cause.kind() != ErrorKind::Invalid {
                return Err(cause);
            }
            let is_history = table.ends_with("_history");
            let what = match is_history && self.ask(self.dialect.has_history()).await?.is_none() {
                true => {
                    "is missing, and the past runs with it: connect once with migrations on, as a role that \
                     may create tables, which makes it empty"
                }
                false => {
                    "is missing, is another program's, or may not be read: restore it from a backup, or \
                     choose another prefix"
                }
            };
            let text = format!("the table {table} in {} {what}", self.place);
            return Err(Error::new(ErrorKind::Invalid, text).op(OP).source(cause));
        }
        Ok(())
    }

    /// The name of an index that is missing, and its table's.
    async fn missing_index(&self) -> Result<Option<(String, String)>> {
        for Index { name, table, exists, .. } in self.dialect.indexes() {
            if self.ask(exists).await?.is_none() {
                return Ok(Some((name, table)));
            }
        }
        Ok(None)
    }
}

/// Creates an index, unless it is there.
async fn make(conn: &mut dyn Conn, index: Index) -> sqlx::Result<()> {
    match one(conn, index.exists).await? {
        None => conn.script(index.create).await,
        Some(_) => Ok(()),
    }
}

async fn one(conn: &mut dyn Conn, statement: Statement) -> sqlx::Result<Option<i64>> {
    let rows = conn.rows(statement).await?;
    Ok(number(rows))
}
