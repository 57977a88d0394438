//! The connections to one set of tables, and how a statement that met another node is run again.

use crate::{
    dialect::{Dialect, SingleStatement},
    driver::{Conn, Driver, Row, Statement, Value},
    encoding::{CELLS, StoredRow, stored},
    frontier::Frontier,
    url::Url,
};
use allora_core::{ErrorKind, Result, Time, backend::TimeSource, store::HistoryPruning};
use chrono::DateTime;
use futures::future::{BoxFuture, FutureExt};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicI64},
};

/// Number of attempts of a statement that conflicts with another node.
const MAX_ATTEMPTS: u32 = 8;

/// Evaluates the expression again while the database replies that another node was in its way: a
/// deadlock, or a row that stayed locked. Nothing was done then.
macro_rules! retry {
    ($client:expr, $op:expr, $attempt:expr) => {{
        let mut attempts = 0;
        loop {
            match $attempt.await {
                Ok(done) => break Ok(done),
                Err(error) => {
                    if let Err(error) = $client.back_off(&mut attempts, $op, error).await {
                        break Err(error);
                    }
                }
            }
        }
    }};
}

pub(crate) use retry;

/// The treatment of tables that are missing or old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Migrate {
    /// Bring them up to date.
    Yes,
    /// Refuse.
    No,
}

/// One set of tables behind connections.
pub(crate) struct Client {
    pub(crate) driver: Box<dyn Driver>,
    pub(crate) dialect: Dialect,
    /// The database without its password, for errors.
    pub(crate) place: Url,
    pub(crate) migrate: Migrate,
    pub(crate) history: Arc<HistoryPruning>,
    /// The keys of the jobs that were read.
    pub(crate) ids: Ids,
    /// The most leased rows that a due query expects before the rows that it finds.
    pub(crate) leased: AtomicI64,
    /// The place in the due index behind which the next query that claims begins.
    pub(crate) frontier: Frontier,
}

/// The keys of jobs by name, for statements that are about rows.
///
/// No key belongs to two names, and no name changes: what is here stays right until the job is
/// forgotten, and then no row has the key.
#[derive(Default)]
pub(crate) struct Ids(Mutex<HashMap<String, i64>>);

impl Ids {
    /// The most names; more than these begin again.
    const MOST: usize = 1 << 18;

    fn locked(&self) -> MutexGuard<'_, HashMap<String, i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the keys: they are those of another database.
    pub(crate) fn clear(&self) {
        self.locked().clear();
    }

    /// Adds the keys of jobs that were read or written.
    pub(crate) fn learn<'a>(&self, jobs: impl Iterator<Item = (&'a str, i64)>) {
        let mut ids = self.locked();
        for (name, id) in jobs {
            if let Some(known) = ids.get_mut(name) {
                *known = id;
                continue;
            }
            if ids.len() >= Self::MOST {
                ids.clear();
            }
            ids.insert(name.to_owned(), id);
        }
    }

    /// The keys of these jobs, as far as they are known.
    pub(crate) fn of<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<Option<i64>> {
        let ids = self.locked();
        names.map(|name| ids.get(name).copied()).collect()
    }
}

/// Records with the clock.
pub(crate) struct ReadRows {
    /// Microseconds.
    pub(crate) clock: Option<i64>,
    /// The number beside the clock: the lowest fence.
    pub(crate) beside: Option<i64>,
    /// Behind the columns of a due query: the first time of what was left out.
    pub(crate) left_out: Option<i64>,
    pub(crate) rows: Vec<StoredRow>,
}

/// The reply of a [`SingleStatement`].
pub(crate) enum SingleStatementReply {
    Rows(Vec<Row>),
    Counted {
        rows: u64,
        /// Microseconds.
        clock: Option<i64>,
    },
}

impl Client {
    /// Records, with the clock and the number that were read beside them.
    pub(crate) async fn read(&self, op: &'static str, statement: Statement) -> Result<ReadRows> {
        let rows = retry!(self, op, self.driver.rows(statement.clone()))?;
        Ok(read_rows(rows))
    }

    /// Runs many claims or completions in one statement.
    pub(crate) async fn single_statement(
        &self,
        op: &'static str,
        statement: SingleStatement,
    ) -> Result<SingleStatementReply> {
        retry!(self, op, async {
            let mut lent = self.driver.writer().await?;
            let done = reply(lent.conn()?, &statement).await;
            self.driver.end(lent, done)
        })
    }

    /// Runs many completions in one statement. In the same transaction, `entries` write the history
    /// entries of their runs, and the flags of schedules that end, before it.
    pub(crate) async fn with_entries(
        &self,
        op: &'static str,
        entries: &[Statement],
        statement: SingleStatement,
    ) -> Result<SingleStatementReply> {
        retry!(self, op, async {
            let mut tx = self.driver.transaction().await?;
            let done = async {
                let conn = tx.conn()?;
                for statement in entries {
                    conn.run(statement.clone()).await?;
                }
                reply(conn, &statement).await
            };
            let done = done.await;
            tx.end(done).await
        })
    }

    /// The time that decides.
    pub(crate) async fn now(&self, op: &'static str, time: TimeSource) -> Result<Time> {
        match time {
            TimeSource::Fixed(at) => Ok(at),
            TimeSource::Store { .. } => {
                let rows = retry!(self, op, self.driver.rows(self.dialect.now()))?;
                Ok(decides(time, number(rows)))
            }
        }
    }

    /// The database is another one than before: goes on with that, whose tables and keys are its own.
    fn follow(&self) -> BoxFuture<'_, Result> {
        async {
            if !self.driver.follow() {
                return Ok(());
            }
            self.ids.clear();
            self.frontier.clear();
            let opened = match self.driver.inspect().await {
                Ok(_) => self.open(self.migrate).await,
                Err(error) => Err(error),
            };
            opened.map_err(|error| {
                // The next call tries again.
                self.driver.distrust();
                error.with_kind(ErrorKind::Unavailable)
            })
        }
        .boxed()
    }

    /// After a failed attempt: waits if another node was in its way, a bounded number of times.
    pub(crate) async fn back_off(
        &self,
        attempts: &mut u32,
        op: &'static str,
        error: sqlx::Error,
    ) -> Result {
        if self.driver.is_other(&error) {
            let followed = self.follow().await;
            return followed.and(Err(self.failed(op, error)));
        }
        *attempts += 1;
        if *attempts >= MAX_ATTEMPTS || !self.driver.is_conflict(&error) {
            return Err(self.failed(op, error));
        }
        // A random while, longer with every attempt. The database does the waiting: this crate has
        // no timer.
        let longest = 4_u64 << *attempts;
        let mut random = [0; 8];
        let ms = match getrandom::fill(&mut random) {
            Ok(()) => u64::from_le_bytes(random) % longest,
            Err(_) => longest,
        };
        if let Some(text) = self.dialect.flavour.pause(ms) {
            let _ = self.driver.rows(Statement::new(text, Vec::new(), b"")).await;
        }
        Ok(())
    }
}

/// Runs a statement of claims or completions on this connection.
pub(crate) async fn reply(
    conn: &mut dyn Conn,
    statement: &SingleStatement,
) -> sqlx::Result<SingleStatementReply> {
    Ok(match statement {
        SingleStatement::Returning(write) => {
            SingleStatementReply::Rows(conn.rows(write.clone()).await?)
        }
        SingleStatement::Counted(write) => {
            let ran = conn.run(write.clone()).await?;
            let clock = i64::try_from(ran.id).ok().filter(|clock| *clock > 0);
            SingleStatementReply::Counted { rows: ran.rows, clock }
        }
        SingleStatement::ReadBack { write, read } => {
            if conn.run(write.clone()).await?.rows == 0 {
                return Ok(SingleStatementReply::Rows(Vec::new()));
            }
            SingleStatementReply::Rows(conn.rows(read.clone()).await?)
        }
    })
}

/// Rows as the dialect selects them: a number or not, the clock, the columns, the data or not, and a
/// number or not.
pub(crate) fn read_rows(rows: Vec<Row>) -> ReadRows {
    let mut read = ReadRows {
        clock: None,
        beside: None,
        left_out: None,
        rows: Vec::with_capacity(rows.len()),
    };
    for mut row in rows {
        if row.len() > CELLS + 3 {
            let left_out = row.pop().and_then(Value::into_int);
            read.left_out = read.left_out.into_iter().chain(left_out).min();
        }
        let has_beside = row.len() > CELLS + 2;
        let mut cells = row.into_iter();
        let mut number = || cells.next().and_then(Value::into_int);
        read.beside = if has_beside { number() } else { None };
        read.clock = read.clock.max(number());
        read.rows.extend(stored(cells));
    }
    read
}

/// The first cell of the first row, if it is a number.
pub(crate) fn number(rows: Vec<Row>) -> Option<i64> {
    rows.into_iter().flatten().next().and_then(Value::into_int)
}

/// The time that decides: the request's, or the database's clock in microseconds.
pub(crate) fn decides(time: TimeSource, clock: Option<i64>) -> Time {
    match time {
        TimeSource::Fixed(at) => at,
        TimeSource::Store { fallback } => {
            clock.and_then(DateTime::from_timestamp_micros).unwrap_or(fallback)
        }
    }
}
