//! Load, commit and scan.

use crate::{
    Sql,
    client::{Client, decides, number, retry},
    dialect::{CHUNK, NewData, Write},
    driver::{Conn, Row, Value},
    encoding::{
        StoredRow, change_columns, has_same_rare, history_columns, is_same_job, job_columns,
        plausible, rare_columns, state_columns,
    },
};
use allora_core::{
    Error, Result, Time,
    backend::{
        Batch, ClaimDue, ClaimedDue, Due, DueQuery, Notification, Notifier, Page, TimeSource,
    },
    record::{FlagChanges, MAX_DATA, Record},
    store::{
        ChangeStore, Commit, Draft, FastPath, FlagStore, HistoryStore, Load, Loaded, Outcome,
        RecordStore, Snapshot,
    },
};
use async_trait::async_trait;
use std::collections::{BTreeSet, HashMap};

/// The version of a row, as it was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// The key of the row; `None` if there is no row.
    id: Option<i64>,
    /// The number that every write raises.
    row: i64,
    /// The place in the due index, in milliseconds.
    index_at: Option<i64>,
    /// The key of the data.
    data_generation: Option<i64>,
}

impl Version {
    /// That of a row.
    pub(crate) fn of(row: &StoredRow) -> Self {
        Self {
            id: Some(row.id),
            row: row.version,
            index_at: row.index_at,
            data_generation: row.data_generation,
        }
    }
}

#[async_trait]
impl RecordStore for Sql {
    type Version = Version;

    async fn load(&self, load: Load<'_>) -> Result<Snapshot<Version>> {
        self.client.load(load).await
    }

    async fn commit(&self, commit: Commit<'_, Version>) -> Result<Vec<Result<Outcome<Version>>>> {
        self.client.commit(commit).await
    }

    async fn scan(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Result<Record, String>)>> {
        let mut page = Page::first(limit).prefix(prefix);
        page.after = after;
        self.client.list(page).await
    }

    async fn fast_path(&self, batch: Batch<'_>) -> Result<FastPath<Version>> {
        self.client.fast_path(batch).await
    }

    async fn now(&self, time: TimeSource) -> Result<Time> {
        self.client.now("now", time).await
    }

    fn namespace(&self) -> &str {
        &self.client.dialect.prefix
    }

    fn durability_warning(&self) -> Option<&str> {
        self.durability_warning.as_deref()
    }

    fn security_warning(&self) -> Option<&str> {
        self.security_warning.as_deref()
    }

    fn grants(&self, login: &str) -> Option<Vec<String>> {
        self.client.dialect.grants(self.client.place.system(), login)
    }

    fn history_store(&self) -> Option<&dyn HistoryStore> {
        self.client.history.is_on().then_some(self as _)
    }

    fn change_store(&self) -> Option<&dyn ChangeStore> {
        Some(self)
    }

    fn flag_store(&self) -> Option<&dyn FlagStore> {
        Some(self)
    }

    async fn prune(&self, now: Time) -> Result {
        self.client.purge_tombstones(now).await
    }

    fn notifier(&self) -> Option<&dyn Notifier> {
        self.client.driver.has_notifications().then_some(self as _)
    }

    async fn notify(&self, notifications: Vec<Notification>) {
        self.client.notify(notifications).await;
    }

    async fn find_due(&self, query: DueQuery<'_>, time: TimeSource) -> Result<Due> {
        self.client.find_due(query, time).await
    }

    fn claims_due(&self) -> bool {
        true
    }

    async fn claim_due(&self, query: ClaimDue<'_>, time: TimeSource) -> Result<ClaimedDue> {
        self.client.claim_due(query, time).await
    }

    async fn list(&self, page: Page<'_>) -> Result<Vec<(String, Result<Record, String>)>> {
        self.client.list(page).await
    }

    async fn kinds(&self) -> Result<Vec<String>> {
        self.client.kinds().await
    }
}

impl Client {
    async fn load(&self, load: Load<'_>) -> Result<Snapshot<Version>> {
        let (mut clock, mut min_fence, mut known) = (None, 0, HashMap::new());
        for names in load.names.chunks(CHUNK) {
            let locked = match self.driver.is_in_transaction() {
                true => self.lock(names).await?,
                false => Vec::new(),
            };
            let read = self.read("load", self.dialect.load(names)).await?;
            // A session that reads an old snapshot must not write it back.
            let is_read = |(id, version)| {
                read.rows.iter().any(|row| (Some(row.id), Some(row.version)) == (id, version))
            };
            if !locked.into_iter().all(is_read) {
                let old = "the transaction reads an old snapshot: it must read committed data";
                return Err(Error::invalid(old).op("load"));
            }
            clock = clock.max(read.clock);
            min_fence = min_fence.max(read.beside.and_then(plausible).unwrap_or_default());
            self.ids.learn(read.rows.iter().map(|row| (&*row.name, row.id)));
            known.extend(read.rows.into_iter().map(|row| (row.name.clone(), row)));
        }
        let now = match load.names {
            [] => self.now("load", load.time).await?,
            _ => decides(load.time, clock),
        };
        let records = load.names.iter().map(|name| loaded(known.remove(*name)));
        Ok(Snapshot::new(now, records.collect()).min_fence(min_fence))
    }

    /// Locks the records that there are until the end of the transaction, one after the other in the order
    /// of their names, and returns their keys and versions.
    async fn lock(&self, names: &[&str]) -> Result<Vec<(Option<i64>, Option<i64>)>> {
        let names: BTreeSet<&str> = names.iter().copied().collect();
        let mut locked = Vec::new();
        for name in names {
            let rows = retry!(self, "load", self.driver.rows(self.dialect.lock_one(name)))?;
            locked.extend(rows.into_iter().map(|row| {
                let mut cells = row.into_iter().map(Value::into_int);
                (cells.next().flatten(), cells.next().flatten())
            }));
        }
        Ok(locked)
    }

    /// Writes the drafts, as many at once as fit into a statement.
    async fn commit(&self, commit: Commit<'_, Version>) -> Result<Vec<Result<Outcome<Version>>>> {
        let writes: Vec<Write> = commit.drafts.iter().map(write).collect();
        // In one order on every node, so that two commits cannot wait for each other.
        let mut order: Vec<usize> = (0..writes.len()).collect();
        order.sort_unstable_by(|a, b| writes[*a].name.cmp(&writes[*b].name));
        let mut outcomes: Vec<Option<Result<Outcome<Version>>>> =
            writes.iter().map(|_| None).collect();
        let mut slots: Vec<Option<Write>> = writes.into_iter().map(Some).collect();
        let mut rest = &order[..];
        while !rest.is_empty() {
            let (chunk, more) = rest.split_at(fitting(rest, &slots));
            let writes: Vec<Write> = chunk.iter().filter_map(|i| slots[*i].take()).collect();
            let written = match retry!(self, "commit", self.write(&writes)) {
                Ok(written) => written,
                Err(error) => {
                    // The others would wait for the same database.
                    fail(&mut outcomes, rest, &error);
                    break;
                }
            };
            rest = more;
            for ((i, write), n) in chunk.iter().zip(&writes).zip(0..) {
                let id = written.get(&n);
                let is_written = id.is_some();
                if let (Some(id), None) = (id, write.id) {
                    self.ids.learn(std::iter::once((commit.drafts[*i].name, *id)));
                }
                outcomes[*i] = Some(Ok(match is_written {
                    true => Outcome::Written { notified: false },
                    false => Outcome::Conflict(None),
                }));
            }
        }
        Ok(outcomes
            .into_iter()
            .map(|outcome| outcome.unwrap_or(Ok(Outcome::Conflict(None))))
            .collect())
    }

    /// Writes records whose rows still have the versions that were read, and returns their places in
    /// the list with their keys.
    async fn write(&self, writes: &[Write]) -> sqlx::Result<HashMap<i64, i64>> {
        if let Some(statement) = self.dialect.flavour.write(&self.dialect, writes) {
            let mut lent = self.driver.writer().await?;
            let done = lent.conn()?.rows(statement).await;
            let rows = self.driver.end(lent, done)?;
            let pair = |row: Row| {
                let mut cells = row.into_iter().filter_map(Value::into_int);
                cells.next().zip(cells.next())
            };
            return Ok(rows.into_iter().filter_map(pair).collect());
        }
        let mut tx = self.driver.transaction().await?;
        let done = self.write_in(tx.conn()?, writes).await;
        tx.end(done).await
    }

    pub(crate) async fn write_in(
        &self,
        conn: &mut dyn Conn,
        writes: &[Write],
    ) -> sqlx::Result<HashMap<i64, i64>> {
        let ids: Vec<i64> = writes.iter().filter_map(|write| write.id).collect();
        let (mut versions, mut clock) = (HashMap::new(), None);
        if !ids.is_empty() {
            for row in conn.rows(self.dialect.lock_versions(&ids)).await? {
                let [now, id, version] = row.try_into().map_err(|_| sqlx::Error::RowNotFound)?;
                clock = clock.max(now.into_int());
                versions.insert(id.into_int(), version.into_int());
            }
        }
        let new = writes.iter().filter(|write| write.id.is_none());
        let new: Vec<&[u8]> = new.map(|write| &write.name[..]).collect();
        let taken = self.ids_in(conn, &new).await?;
        if clock.is_none() && writes.iter().any(|write| write.not_after.is_some()) {
            clock = number(conn.rows(self.dialect.now()).await?);
        }
        let is_current = |write: &Write| match write.id {
            Some(_) => versions.get(&write.id).copied().flatten() == Some(write.read_version),
            None => !taken.contains_key(&write.name),
        };
        let in_time = |write: &Write| write.not_after.is_none_or(|end| clock <= Some(end));
        let current = writes.iter().zip(0..);
        let current = current.filter(|(write, _)| is_current(write) && in_time(write));
        let (mut current, places): (Vec<Write>, Vec<i64>) =
            current.map(|(write, n)| (write.clone(), n)).unzip();
        // The database gives the ids.
        for statement in self.dialect.insert_jobs(&current) {
            conn.run(statement).await?;
        }
        let new = current.iter().filter(|write| write.id.is_none());
        let new: Vec<&[u8]> = new.map(|write| &write.name[..]).collect();
        let given = self.ids_in(conn, &new).await?;
        for write in &mut current {
            if write.id.is_none() {
                (write.id, write.job) = (given.get(&write.name).copied(), None);
            }
        }
        self.put(conn, &current).await?;
        let pair = |(n, write): (i64, &Write)| Some((n, write.id?));
        Ok(places.into_iter().zip(&current).filter_map(pair).collect())
    }

    /// The keys of the jobs with these names.
    async fn ids_in(
        &self,
        conn: &mut dyn Conn,
        names: &[&[u8]],
    ) -> sqlx::Result<HashMap<Vec<u8>, i64>> {
        if names.is_empty() {
            return Ok(HashMap::new());
        }
        let rows = conn.rows(self.dialect.ids(names)).await?;
        let pair = |row: Row| {
            let mut cells = row.into_iter();
            Some((cells.next()?.into_bytes()?, cells.next()?.into_int()?))
        };
        Ok(rows.into_iter().filter_map(pair).collect())
    }

    /// Writes records whose rows this transaction has locked.
    pub(crate) async fn put(&self, conn: &mut dyn Conn, writes: &[Write]) -> sqlx::Result<()> {
        for statement in self.dialect.put(writes) {
            conn.run(statement).await?;
        }
        Ok(())
    }
}

/// One record as it was read.
fn loaded(row: Option<StoredRow>) -> Loaded<Version> {
    let Some(row) = row else { return Loaded::new(None, Version::default()) };
    let version = Version::of(&row);
    let StoredRow { record, fence, .. } = row;
    match record {
        Ok(record) => Loaded::new(Some(record), version),
        Err(reason) => Loaded::unreadable(reason, fence, version),
    }
}

/// The row of a draft.
fn write(draft: &Draft<'_, Version>) -> Write {
    let before = draft.loaded.stored();
    let mut write = write_of(draft.name, draft.loaded.version, before, &draft.after);
    write.not_after = draft.not_after.map(|end| end.timestamp_micros());
    write.history = draft.history.iter().map(history_columns).collect();
    write.changes = draft.changes.iter().map(change_columns).collect();
    write
}

/// The rows of a record that takes the place of another, if that can be read.
pub(crate) fn write_of(
    name: &str,
    version: Version,
    before: Option<&Record>,
    after: &Record,
) -> Write {
    let Version { id, row: read_version, index_at, mut data_generation } = version;
    let has_other_data = match (before, id) {
        (Some(before), _) => before.data != after.data,
        (None, Some(_)) => true,
        (None, None) => !after.data.is_empty(),
    };
    let mut data = None;
    if has_other_data {
        data_generation = (!after.data.is_empty()).then_some(after.generation);
        data = Some(NewData { generation: data_generation, data: after.data.clone() });
    }
    let is_same_job = !has_other_data && before.is_some_and(|before| is_same_job(before, after));
    let has_same_rare = before.is_some_and(|before| has_same_rare(before, after));
    let rare = (!has_same_rare).then(|| rare_columns(after));
    let is_any = |parts: &[Value; 2]| parts.iter().any(|part| *part != Value::Bytes(None));
    // A new row begins where no row of this name has been: fences never return.
    let version = id.map_or(after.fence, |_| read_version.wrapping_add(1));
    Write {
        id,
        name: name.as_bytes().to_vec(),
        read_version,
        not_after: None,
        state: state_columns(before, after, version, index_at),
        job: (!is_same_job).then(|| job_columns(name, after, data_generation)),
        rare: rare.filter(|parts| id.is_some() || is_any(parts)),
        data,
        history: Vec::new(),
        changes: Vec::new(),
        flags: FlagChanges::of(name, before, after),
    }
}

/// The most bytes of the values of one statement: with its text, it fits into a packet of 1 MiB. A
/// single record may be larger.
const STATEMENT: usize = MAX_DATA - (128 << 10);

/// Number of writes, in this order, that fit into one statement by number and by size.
fn fitting(order: &[usize], writes: &[Option<Write>]) -> usize {
    let mut bytes = 0;
    let mut fits = |i: &&usize| {
        bytes += writes[**i].as_ref().map_or(0, Write::len);
        bytes <= STATEMENT
    };
    order.iter().take(CHUNK).take_while(|i| fits(i)).count().max(1)
}

/// One error for several drafts.
fn fail(outcomes: &mut [Option<Result<Outcome<Version>>>], drafts: &[usize], error: &Error) {
    for i in drafts {
        outcomes[*i] = Some(Err(error.clone()));
    }
}
