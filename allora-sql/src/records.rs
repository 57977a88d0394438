//! Load, commit and scan.

use crate::{
    Sql,
    client::{Client, decides, number, retry},
    dialect::{CHUNK, NewData, Write},
    driver::{Conn, Driver, Value},
    encoding::{StoredRow, columns, history_columns},
};
use allora_core::{
    Error, Result, Time,
    backend::{
        Batch, Due, DueQuery, HistoryEntry, HistoryQuery, Notification, Notifier, Page, TimeSource,
    },
    record::{MAX_DATA, Record},
    store::{Commit, Draft, FastPath, Load, Loaded, Outcome, RecordStore, Snapshot},
};
use async_trait::async_trait;
use std::{
    collections::{HashMap, HashSet},
    sync::atomic::Ordering,
};

/// The version of a row, as it was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// The number that every write raises; `None` if there is no row.
    row: Option<i64>,
    /// The key of the data.
    data_generation: Option<i64>,
}

impl Version {
    /// That of a row.
    pub(crate) fn of(row: i64, data_generation: Option<i64>) -> Self {
        Self { row: Some(row), data_generation }
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

    fn history_limit(&self) -> u64 {
        self.client.history_limit
    }

    async fn history_entries(&self, query: HistoryQuery<'_>) -> Result<Vec<HistoryEntry>> {
        self.client.history_entries(query).await
    }

    async fn prune(&self, deleted: &[&str], now: Time) -> Result {
        self.client.prune(deleted, now).await
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
            let read = self.read(self.own(), "load", self.dialect.load(names)).await?;
            clock = clock.max(read.clock);
            min_fence = min_fence.max(read.beside.unwrap_or_default());
            known.extend(read.rows.into_iter().map(|row| (row.name.clone(), row)));
        }
        let now = match load.names {
            [] => self.now("load", load.time).await?,
            _ => decides(load.time, clock),
        };
        let records = load.names.iter().map(|name| loaded(known.remove(*name)));
        Ok(Snapshot::new(now, records.collect()).min_fence(min_fence))
    }

    /// Writes the drafts, as many at once as fit into a statement.
    async fn commit(&self, commit: Commit<'_, Version>) -> Result<Vec<Result<Outcome<Version>>>> {
        let writes: Vec<Write> = commit.drafts.iter().map(write).collect();
        // In one order on every node, so that two commits cannot wait for each other.
        let mut order: Vec<usize> = (0..writes.len()).collect();
        order.sort_unstable_by(|a, b| writes[*a].name.cmp(&writes[*b].name));
        let driver = match commit.drafts.iter().all(is_of_a_run) {
            true => self.own(),
            false => &*self.driver,
        };
        let mut outcomes: Vec<Option<Result<Outcome<Version>>>> =
            writes.iter().map(|_| None).collect();
        let mut slots: Vec<Option<Write>> = writes.into_iter().map(Some).collect();
        let mut rest = &order[..];
        while !rest.is_empty() {
            let (chunk, more) = rest.split_at(fitting(rest, &slots));
            let writes: Vec<Write> = chunk.iter().filter_map(|i| slots[*i].take()).collect();
            let written = match retry!(self, "commit", self.write(driver, &writes)) {
                Ok(written) => written,
                Err(error) => {
                    // The others would wait for the same database.
                    fail(&mut outcomes, rest, error);
                    break;
                }
            };
            rest = more;
            for (i, write) in chunk.iter().zip(&writes) {
                let is_written = written.contains(&write.name);
                if is_written {
                    self.appended.fetch_add(write.history.len() as u64, Ordering::Relaxed);
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

    /// Writes records whose rows still have the versions that were read, and returns their names.
    async fn write(&self, driver: &dyn Driver, writes: &[Write]) -> sqlx::Result<HashSet<Vec<u8>>> {
        if let Some(statement) = self.dialect.flavour.write(&self.dialect, writes) {
            let mut writer = driver.writer().await?;
            let rows = writer.conn().rows(statement).await?;
            return Ok(rows.into_iter().flatten().filter_map(Value::into_bytes).collect());
        }
        let mut tx = driver.begin().await?;
        let names: Vec<&[u8]> = writes.iter().map(|write| &write.name[..]).collect();
        let rows = tx.conn().rows(self.dialect.lock_versions(&names)).await?;
        let mut versions = HashMap::new();
        let mut clock = None;
        for row in rows {
            let [now, name, version] = row.try_into().map_err(|_| sqlx::Error::RowNotFound)?;
            clock = clock.max(now.into_int());
            versions.insert(name.into_bytes().unwrap_or_default(), version.into_int());
        }
        if clock.is_none() && writes.iter().any(|write| write.not_after.is_some()) {
            clock = number(tx.conn().rows(self.dialect.now()).await?);
        }
        let in_time = |write: &&Write| write.not_after.is_none_or(|end| clock <= Some(end));
        let is_current =
            |write: &&Write| versions.get(&write.name).copied().flatten() == write.read_version;
        let current: Vec<&Write> = writes.iter().filter(is_current).filter(in_time).collect();
        self.put(tx.conn(), &current).await?;
        tx.commit().await?;
        Ok(current.into_iter().map(|write| write.name.clone()).collect())
    }

    /// Writes records whose rows this transaction has locked.
    pub(crate) async fn put(&self, conn: &mut dyn Conn, writes: &[&Write]) -> sqlx::Result<()> {
        for statement in self.dialect.put(writes) {
            conn.run(statement).await?;
        }
        Ok(())
    }
}

/// One record as it was read.
fn loaded(row: Option<StoredRow>) -> Loaded<Version> {
    let Some(row) = row else { return Loaded::new(None, Version::default()) };
    let StoredRow { version, data_generation, record, fence, .. } = row;
    let version = Version::of(version, data_generation);
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
    write
}

/// The row of a record that takes the place of another, if that can be read.
pub(crate) fn write_of(
    name: &str,
    version: Version,
    before: Option<&Record>,
    after: &Record,
) -> Write {
    let Version { row: read_version, mut data_generation } = version;
    let has_other_data = match (before, read_version) {
        (Some(before), _) => before.data != after.data,
        (None, Some(_)) => true,
        (None, None) => !after.data.is_empty(),
    };
    let mut data = None;
    if has_other_data {
        data_generation = (!after.data.is_empty()).then_some(after.generation);
        data = Some(NewData { generation: data_generation, data: after.data.clone() });
    }
    // A new row begins where no row of this name has been: fences never return.
    let version = read_version.map_or(after.fence, |version| version + 1);
    Write {
        name: name.as_bytes().to_vec(),
        read_version,
        not_after: None,
        job: columns(name, after, version, data_generation),
        data,
        history: Vec::new(),
    }
}

/// True if a draft extends leases or ends runs, and nothing else: it draws no fence, and leaves no
/// lease of a run that was not there.
fn is_of_a_run(draft: &Draft<'_, Version>) -> bool {
    draft.loaded.stored().is_some_and(|before| {
        let after = &draft.after;
        after.fence == before.fence
            && (&after.leases, &after.lost) != (&before.leases, &before.lost)
            && after.leases.iter().all(|lease| before.run(lease.fence).is_some())
    })
}

/// Number of writes, in this order, that fit into one statement by number and by size.
fn fitting(order: &[usize], writes: &[Option<Write>]) -> usize {
    let mut bytes = 0;
    let mut fits = |i: &&usize| {
        bytes += writes[**i].as_ref().map_or(0, Write::len);
        bytes <= MAX_DATA
    };
    order.iter().take(CHUNK).take_while(|i| fits(i)).count().max(1)
}

/// One error for several drafts.
fn fail(outcomes: &mut [Option<Result<Outcome<Version>>>], drafts: &[usize], error: Error) {
    let (kind, text) = (error.kind(), error.to_string());
    let mut first = Some(error);
    for i in drafts {
        let error = first.take().unwrap_or_else(|| Error::new(kind, text.clone()));
        outcomes[*i] = Some(Err(error));
    }
}
