//! The tables: created, brought up to date, and checked, also by several nodes at once.

use crate::{
    client::{Client, Migrate, number, retry},
    dialect::{Index, Step},
    driver::sql,
    driver::{Conn, Statement},
    error::{cause_of, is_forbidden, permanent},
};
use allora_core::{Error, ErrorKind, Result, store::Layout};

#[cfg(test)]
mod tests;

const OP: &str = "connect";

impl Client {
    /// Brings the tables up to date if necessary, and checks that all are there.
    ///
    /// Tables of a newer version are used as they are, if their version allows this build.
    pub(crate) async fn open(&self, migrate: Migrate) -> Result {
        let newest = self.dialect.newest();
        let found = self.version().await?;
        if found < newest {
            if migrate == Migrate::No {
                return Err(Error::invalid(format!(
                    "the tables {}_* in {} have version {found} and this build needs {newest}: \
                     connect once with migrations on, as a role that may create tables",
                    self.dialect.prefix, self.place
                ))
                .op(OP));
            }
            self.migrate_or_wait().await?;
        }
        let found = self.version().await?;
        if found < newest {
            return Err(Error::new(
                ErrorKind::Unavailable,
                format!(
                    "the tables {}_* in {} were brought up to version {newest}, and now have version \
                     {found}: the server has not kept the change, or its tables were dropped; connect \
                     again",
                    self.dialect.prefix, self.place
                ),
            )
            .op(OP));
        }
        if found > newest {
            let oldest = self.ask(self.dialect.meta("oldest", false)).await?.unwrap_or(found);
            if let Some(refusal) = (Layout { version: found, oldest }).refusal(newest) {
                let tables = format!("the tables {}_* in {}", self.dialect.prefix, self.place);
                return Err(Error::invalid(format!("{tables} {refusal}")).op(OP));
            }
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
        let mut next = Next { version: 0, step: 0 };
        loop {
            let migrated = retry!(self, OP, self.migrate(&next));
            match migrated.map_err(|error| self.not_migrated(error))? {
                Migrated::All => return Ok(()),
                Migrated::Until(then) => next = then,
                Migrated::Locked => break,
            }
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
        if cause_of(&error).is_some_and(|cause| self.driver.is_conflict(cause)) {
            let text = format!(
                "other transactions keep the tables {}_* in {} from being changed: end those that are \
                 long, such as backups, and connect again",
                self.dialect.prefix, self.place
            );
            return Error::new(ErrorKind::Unavailable, text).op(OP).source(error);
        }
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

    /// One transaction of a migration: the whole first version, or the next step of a later one, so that
    /// no lock of a table outlives its step while nodes of older builds work.
    ///
    /// On MySQL, the lock and the settings belong to the session, which ends here, also if this call
    /// is dropped.
    async fn migrate(&self, next: &Next) -> sqlx::Result<Migrated> {
        let flavour = &self.dialect.flavour;
        let mut tx = self.driver.transaction().await?;
        let done = self.migrate_in(tx.conn()?, next).await;
        if !flavour.ends_migration_with_session() {
            return tx.end(done).await;
        }
        if done.is_ok() {
            tx.conn()?.script(sql("COMMIT")).await?;
        }
        done
    }

    async fn migrate_in(&self, conn: &mut dyn Conn, next: &Next) -> sqlx::Result<Migrated> {
        let flavour = &self.dialect.flavour;
        if let Some(text) = flavour.unlimited() {
            conn.script(sql(text)).await?;
        }
        if let Some(text) = flavour.lock(&self.dialect.prefix)
            && one(conn, Statement::new(text, Vec::new(), b"i")).await? != Some(1)
        {
            return Ok(Migrated::Locked);
        }
        let mut version = match one(conn, self.dialect.has_tables()).await? {
            None => 0,
            Some(_) => one(conn, self.dialect.meta("schema", false)).await?.unwrap_or(0),
        };
        if version == 0 {
            for step in self.dialect.migration(1) {
                self.make(conn, step).await?;
            }
            version = 1;
            self.put_version(conn, version).await?;
        }
        // Another node may have been faster, and may be newer.
        if version < self.dialect.newest() {
            if let Some(text) = flavour.impatient() {
                conn.script(sql(text)).await?;
            }
            return self.make_next(conn, version + 1, next).await;
        }
        // What was dropped by hand, and can be made again without a loss of records.
        conn.script(self.dialect.history_table()).await?;
        for index in self.dialect.indexes() {
            self.make(conn, Step::Index(index)).await?;
        }
        Ok(Migrated::All)
    }

    /// The next step to this version, or its number if no step is left. A node that begins anew repeats
    /// the steps of one that was killed. A server that has not kept the number ends it: the caller reads the
    /// version again.
    async fn make_next(
        &self,
        conn: &mut dyn Conn,
        version: i64,
        next: &Next,
    ) -> sqlx::Result<Migrated> {
        let step = if next.version == version { next.step } else { 0 };
        let steps = self.dialect.migration(version);
        if step > steps.len() {
            return Ok(Migrated::All);
        }
        match steps.into_iter().nth(step) {
            Some(now) => self.make(conn, now).await?,
            None => self.put_version(conn, version).await?,
        }
        Ok(Migrated::Until(Next { version, step: step + 1 }))
    }

    async fn put_version(&self, conn: &mut dyn Conn, version: i64) -> sqlx::Result<()> {
        let oldest = self.dialect.oldest(version);
        for (name, value) in [("oldest", oldest), ("schema", version)] {
            for statement in self.dialect.put_meta(name, value) {
                conn.run(statement).await?;
            }
        }
        Ok(())
    }

    /// Takes a step, unless it is there already.
    async fn make(&self, conn: &mut dyn Conn, step: Step) -> sqlx::Result<()> {
        let (create, exists) = match step {
            Step::Run(text) => return conn.script(text).await,
            Step::Column { table, name, of } => self.dialect.column(table, name, of),
            Step::Index(Index { create, exists, .. }) => (create, exists),
        };
        match one(conn, exists).await? {
            None => conn.script(create).await,
            Some(_) => Ok(()),
        }
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

/// The result of one transaction of a migration.
enum Migrated {
    All,
    /// Steps are left, from this one on.
    Until(Next),
    /// Another node kept this one from it.
    Locked,
}

/// The next step to a version.
struct Next {
    version: i64,
    step: usize,
}

async fn one(conn: &mut dyn Conn, statement: Statement) -> sqlx::Result<Option<i64>> {
    let rows = conn.rows(statement).await?;
    Ok(number(rows))
}
