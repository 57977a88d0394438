//! The general path of every operation: lock the rows, let core's state machine decide, write back
//! what it changed.

use crate::{
    dialect::{Dialect, fast::Fast},
    driver::{Conn, Driver, Row, Statement, Value},
    row::{Stored, columns, stored},
    url::Url,
};
use allora_core::{
    Error, Kind, Result, Time,
    backend::{Hint, Now, Past, State},
    record::{At, Ledger, Record, TOMBSTONE},
    time::saturating_add,
};
use chrono::DateTime;
use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
};

/// How often a conflict with another node is answered by another try.
const TRIES: u32 = 8;

/// Evaluates the expression until what it awaits is not a conflict with another node.
macro_rules! again {
    ($store:expr, $op:expr, $attempt:expr) => {{
        let mut tries = 0;
        loop {
            match $attempt.await {
                Ok(done) => break Ok(done),
                Err(error) => {
                    if let Err(error) = $store.after(&mut tries, $op, error).await {
                        break Err(error);
                    }
                }
            }
        }
    }};
}

pub(crate) use again;

/// One set of tables behind a pool.
pub(crate) struct Store {
    pub(crate) driver: Box<dyn Driver>,
    pub(crate) dialect: Dialect,
    /// Where it is, without its password: for errors.
    pub(crate) place: Url,
    /// How many entries of history are kept; 0 is none.
    pub(crate) history: u64,
    /// Entries written since the last time the old ones were removed.
    pub(crate) noted: AtomicU64,
}

/// The record of one name while a transaction has its row.
pub(crate) enum Slot<'a> {
    /// What is there, if anything.
    Sound(&'a mut Option<Record>),
    /// Something that cannot be read.
    Parked {
        /// Why it cannot be read.
        reason: &'a str,
        /// Becomes what is to stand there instead.
        instead: &'a mut Option<Record>,
    },
}

/// What a transaction did with its rows.
pub(crate) struct Done<T> {
    pub(crate) now: Time,
    pub(crate) answers: Vec<T>,
}

impl Store {
    /// Gives `work` the record of each name in turn, in one transaction that holds all their rows,
    /// and stores what it changed. `work` may run several times, the last time counts.
    pub(crate) async fn with<T: Send>(
        &self,
        op: &'static str,
        names: &[&str],
        node: &str,
        now: Now,
        work: impl Fn(usize, Slot<'_>, At<'_>, &mut Ledger) -> T + Send + Sync,
    ) -> Result<Done<T>> {
        again!(self, op, async {
            let mut tx = self.driver.begin().await?;
            let done = self.with_rows(tx.conn(), names, node, now, &work).await?;
            tx.commit().await?;
            Ok(done)
        })
    }

    /// [`with`](Self::with) in a transaction that somebody else has begun and will end.
    pub(crate) async fn with_rows<T: Send>(
        &self,
        conn: &mut dyn Conn,
        names: &[&str],
        node: &str,
        now: Now,
        work: impl Fn(usize, Slot<'_>, At<'_>, &mut Ledger) -> T + Send + Sync,
    ) -> sqlx::Result<Done<T>> {
        let mut keys: Vec<&str> = names.to_vec();
        // In one order on every node, so that two batches cannot wait for each other.
        keys.sort_unstable();
        keys.dedup();
        let Locked { mut clock, mut rows } = self.lock(conn, &keys).await?;
        if matches!(now, Now::Store { .. }) && clock.is_none() {
            clock = Some(self.clock(conn).await?);
        }
        let now = decides(now, clock);
        // Only names that are new to the store have no fence of their own to go on from.
        let unknown = |name: &&&str| !rows.contains_key(**name) || rows[**name].is_forgotten(now);
        let floor = match keys.iter().find(unknown) {
            Some(_) => self.floor(conn, false).await?,
            None => 0,
        };
        let mut slots: HashMap<&str, Draft> = HashMap::with_capacity(keys.len());
        for name in &keys {
            slots.insert(name, Draft::new(rows.remove(*name), now, floor));
        }
        let mut ledger = if self.history > 0 { Ledger::kept() } else { Ledger::off() };
        let mut answers = Vec::with_capacity(names.len());
        for (i, name) in names.iter().enumerate() {
            let draft = slots.get_mut(name).expect("a draft for each key");
            let at = At { node, now, floor: draft.floor };
            answers.push(work(i, draft.slot(), at, &mut ledger));
        }
        let mut written: Vec<(&str, Draft)> = slots.into_iter().collect();
        written.sort_unstable_by_key(|(name, _)| *name);
        self.write(conn, &written).await?;
        self.note(conn, ledger.take()).await?;
        Ok(Done { now, answers })
    }

    async fn lock(&self, conn: &mut dyn Conn, keys: &[&str]) -> sqlx::Result<Locked> {
        let mut locked = Locked { clock: None, rows: HashMap::new() };
        for keys in keys.chunks(crate::dialect::CHUNK) {
            let mut rows = conn.rows(self.dialect.lock_rows(keys)).await?;
            let mut read = self.read(&mut rows);
            if read.iter().any(|stored| stored.torn) {
                // The payload was changed while this waited for the row; now that it has the row,
                // it sees both.
                rows = conn.rows(self.dialect.lock_rows(keys)).await?;
                read = self.read(&mut rows);
            }
            locked.clock = rows
                .iter()
                .map(|row| row.first().cloned().and_then(Value::into_int))
                .fold(locked.clock, Option::max);
            locked.rows.extend(read.into_iter().map(|stored| (stored.name.clone(), stored)));
        }
        Ok(locked)
    }

    /// Reads rows as the dialect selects them; what is left of each is the clock.
    fn read(&self, rows: &mut [Vec<Value>]) -> Vec<Stored> {
        rows.iter_mut().map(|row| stored(row.split_off(1))).collect()
    }

    /// Rows by themselves, outside any transaction, with the clock that was read beside them.
    pub(crate) async fn look(
        &self,
        op: &'static str,
        statement: Statement,
    ) -> Result<(Option<i64>, Vec<Stored>)> {
        again!(self, op, async {
            let mut rows = self.driver.rows(statement.clone()).await?;
            let clock = rows.first().and_then(|row| row.first().cloned()).and_then(Value::into_int);
            // Where nothing is found there is the clock all the same, beside an empty row.
            rows.retain(|row| row.get(1) != Some(&Value::Bytes(None)));
            Ok((clock, self.read(&mut rows)))
        })
    }

    /// Carries out what many takes or endings are in one statement.
    pub(crate) async fn at_once(&self, op: &'static str, fast: Fast) -> Result<AtOnce> {
        again!(self, op, async {
            let mut writer = self.driver.writer().await?;
            let conn = writer.conn();
            match &fast {
                Fast::Returning(write) => Ok(AtOnce::Rows(conn.rows(write.clone()).await?)),
                Fast::Counted(write) => Ok(AtOnce::Count(conn.run(write.clone()).await?)),
                Fast::ReadBack { write, read } => match conn.run(write.clone()).await? {
                    0 => Ok(AtOnce::Rows(Vec::new())),
                    _ => Ok(AtOnce::Rows(conn.rows(read.clone()).await?)),
                },
            }
        })
    }

    /// The database's clock, in microseconds.
    pub(crate) async fn time(&self, op: &'static str) -> Result<Option<i64>> {
        again!(self, op, async {
            let rows = self.driver.rows(self.dialect.now()).await?;
            Ok(rows.into_iter().flatten().next().and_then(Value::into_int))
        })
    }

    async fn clock(&self, conn: &mut dyn Conn) -> sqlx::Result<i64> {
        let rows = conn.rows(self.dialect.now()).await?;
        let clock = rows.into_iter().flatten().next().and_then(Value::into_int);
        clock.ok_or(sqlx::Error::RowNotFound)
    }

    async fn floor(&self, conn: &mut dyn Conn, lock: bool) -> sqlx::Result<i64> {
        let rows = conn.rows(self.dialect.meta("floor", lock)).await?;
        Ok(rows.into_iter().flatten().next().and_then(Value::into_int).unwrap_or(0))
    }

    async fn write(&self, conn: &mut dyn Conn, drafts: &[(&str, Draft)]) -> sqlx::Result<()> {
        let (mut new, mut known, mut data) = (Vec::new(), Vec::new(), Vec::new());
        for (name, draft) in drafts {
            let Some(record) = draft.changed() else { continue };
            let mut data_edition = draft.data_edition;
            if draft.has_other_data(record) {
                data_edition = (!record.data.is_empty()).then_some(record.edition);
                data.extend(data_edition.map(|edition| (*name, edition, record.data.as_slice())));
                if !draft.is_new {
                    conn.run(self.dialect.drop_data(name, data_edition)).await?;
                }
            }
            let row = columns(name, record, data_edition);
            if draft.is_new { new.push(row) } else { known.push(row) }
        }
        // Two nodes that register a name at once: the second one finds the key taken, and tries
        // again with the row in its hands.
        let statements = self.dialect.put_data(&data).into_iter();
        let jobs = self.dialect.insert_jobs(&new).into_iter().chain(self.dialect.put_jobs(&known));
        for statement in statements.chain(jobs) {
            conn.run(statement).await?;
        }
        Ok(())
    }

    async fn note(&self, conn: &mut dyn Conn, entries: Vec<Past>) -> sqlx::Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        let mut newest: Vec<Past> = Vec::with_capacity(entries.len());
        for entry in entries {
            // A statement must not name one row twice.
            newest.retain(|other| (other.fence, &other.name) != (entry.fence, &entry.name));
            newest.push(entry);
        }
        for statement in self.dialect.put_history(&newest) {
            conn.run(statement).await?;
        }
        self.noted.fetch_add(newest.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Removes history beyond the limit, now and then: a tenth more than asked for may be there.
    pub(crate) async fn trim(&self, op: &'static str) -> Result {
        let due = self.history / 10 + 1;
        if self.history == 0 || self.noted.load(Ordering::Relaxed) < due {
            return Ok(());
        }
        self.noted.store(0, Ordering::Relaxed);
        again!(self, op, async {
            let edge = self.dialect.history_edge(self.history.cast_signed());
            let rows = self.driver.rows(edge).await?;
            if let Some(fence) = rows.into_iter().flatten().next().and_then(Value::into_int) {
                let mut tx = self.driver.begin().await?;
                tx.conn().run(self.dialect.trim_history(fence)).await?;
                tx.commit().await?;
            }
            Ok(())
        })
    }

    /// Forgets tombstones whose time has come. What they guarded, the floor guards now.
    pub(crate) async fn forget(&self, op: &'static str, now: Time) -> Result {
        again!(self, op, async {
            let mut tx = self.driver.begin().await?;
            let conn = tx.conn();
            let floor = self.floor(conn, true).await?;
            let rows = conn.rows(self.dialect.old_tombstones(now.timestamp_millis())).await?;
            let mut names = Vec::new();
            let mut highest = floor;
            for mut row in rows {
                highest = highest.max(row.pop().and_then(Value::into_int).unwrap_or(0));
                names.extend(row.pop().and_then(Value::into_bytes));
            }
            let names: Vec<&str> =
                names.iter().filter_map(|name| std::str::from_utf8(name).ok()).collect();
            if !names.is_empty() {
                for statement in self.dialect.put_meta("floor", highest) {
                    conn.run(statement).await?;
                }
                conn.run(self.dialect.forget(&names)).await?;
            }
            tx.commit().await
        })
    }

    /// Tells those who listen, where the database can. A lost hint is made up for by the poll.
    pub(crate) async fn tell(&self, hint: Hint) {
        let payload = hint.to_string();
        if let Some(statement) = self.dialect.flavour.notify(&self.dialect.prefix, &payload) {
            let _ = self.driver.rows(statement).await;
        }
    }

    /// What to do about a failed try: nothing more than to wait a little if it was a conflict with
    /// another node, a bounded number of times.
    pub(crate) async fn after(
        &self,
        tries: &mut u32,
        op: &'static str,
        error: sqlx::Error,
    ) -> Result {
        *tries += 1;
        if *tries >= TRIES || !self.driver.is_conflict(&error) {
            return Err(self.failed(op, error));
        }
        self.pause(*tries).await;
        Ok(())
    }

    /// Waits a random while, longer with every try. The database does the waiting: this crate has
    /// no timer.
    async fn pause(&self, tries: u32) {
        let longest = 4_u64 << tries;
        let mut random = [0; 8];
        // Without a random number the pause is the longest one.
        let ms = match getrandom::fill(&mut random) {
            Ok(()) => u64::from_le_bytes(random) % longest,
            Err(_) => longest,
        };
        if let Some(text) = self.dialect.flavour.pause(ms) {
            let _ = self.driver.rows(Statement::new(text, Vec::new(), b"")).await;
        }
    }

    /// The error of an operation that came to nothing, or of which nobody knows.
    pub(crate) fn failed(&self, op: &'static str, cause: sqlx::Error) -> Error {
        let place = &self.place;
        let said = match &cause {
            sqlx::Error::Database(_) => format!("{place} refused the statement"),
            sqlx::Error::PoolTimedOut => format!("no connection to {place} became free in time"),
            sqlx::Error::PoolClosed => format!("the pool of {place} is closed"),
            _ => format!("{place} did not answer"),
        };
        Error::new(Kind::Unavailable, said).op(op).source(cause)
    }
}

/// The instant that decides: the request's, or the database's clock.
pub(crate) fn decides(now: Now, clock: Option<i64>) -> Time {
    match now {
        Now::At(at) => at,
        Now::Store { node } => clock.and_then(DateTime::from_timestamp_micros).unwrap_or(node),
    }
}

/// What a fast statement said.
pub(crate) enum AtOnce {
    Rows(Vec<Row>),
    Count(u64),
}

struct Locked {
    clock: Option<i64>,
    rows: HashMap<String, Stored>,
}

impl Stored {
    /// The job as its readers see it; `None` if it was deleted.
    pub(crate) fn state(&self) -> Option<State> {
        match &self.record {
            Ok(record) => record.is_live().then(|| record.state(&self.name)),
            Err(reason) => Some(State::parked(self.name.clone(), reason.clone())),
        }
    }

    /// A tombstone whose time has come is as good as none.
    pub(crate) fn is_forgotten(&self, now: Time) -> bool {
        let gone = self.record.as_ref().ok().and_then(|record| record.gone);
        gone.is_some_and(|gone| saturating_add(gone, TOMBSTONE) <= now)
    }
}

/// One row between reading and writing.
struct Draft {
    before: Option<Record>,
    after: Option<Record>,
    data_edition: Option<i64>,
    /// Why it cannot be read.
    parked: Option<String>,
    floor: i64,
    /// There is no row yet.
    is_new: bool,
}

impl Draft {
    fn new(stored: Option<Stored>, now: Time, floor: i64) -> Self {
        let mut draft = Self {
            before: None,
            after: None,
            data_edition: None,
            parked: None,
            floor,
            is_new: stored.is_none(),
        };
        let Some(stored) = stored else { return draft };
        let forgotten = stored.is_forgotten(now);
        draft.data_edition = stored.data_edition;
        match stored.record {
            Ok(_) if forgotten => draft.floor = floor.max(stored.fence),
            Ok(record) => {
                draft.after = Some(record.clone());
                draft.before = Some(record);
            }
            Err(reason) => {
                draft.floor = floor.max(stored.fence);
                draft.parked = Some(reason);
            }
        }
        draft
    }

    fn slot(&mut self) -> Slot<'_> {
        match &self.parked {
            None => Slot::Sound(&mut self.after),
            Some(reason) => Slot::Parked { reason, instead: &mut self.after },
        }
    }

    /// Whether the payload is another than the row's.
    fn has_other_data(&self, record: &Record) -> bool {
        let before = self.before.as_ref().map_or(&[][..], |before| &before.data);
        before != record.data || self.parked.is_some()
    }

    /// The record, if it is another than the row's.
    fn changed(&self) -> Option<&Record> {
        self.after.as_ref().filter(|after| self.before.as_ref() != Some(*after))
    }
}
