//! The history by the hour: entries are counted before they are removed.
//!
//! A job has one record for each day in which something was counted. It has a mark: all entries up to
//! this fence are counted, so the next count reads only what is newer, and whoever loses the comparison
//! of the commit reads again. An entry that stays in the history for longer is not counted twice, and a
//! node that stops between the count and the removal leaves nothing behind but entries to be removed.
//!
//! A run has its entry at its end, but its fence from its beginning, so an entry below the mark may come
//! late. That is why the leases are read first: what had a lease then and has no entry is open, and is
//! looked up once the lease is gone. Nothing else comes late, because every other entry is written with
//! the record that has drawn its fence.
//!
//! Jobs are counted before they are trimmed and, once an hour, those with new entries, so that readers find
//! little that is not counted, even of jobs that run once a day and are trimmed by age alone.
//!
//! What is written between the count and the removal and removed at once is lost: a run that ends in these
//! milliseconds after its job has made more entries than the history keeps, or more new entries than that.
//! Readers count by themselves what is above the mark, or open and ended.

use super::{
    RecordStore,
    batch::{Commit, Draft, Load, Loaded, Outcome},
    history::{HistoryStore, PAGE},
};
use crate::{
    backend::{
        Action, Backend, Batch, HistoryCursor, HistoryEntry, HistoryQuery, Operation, TimeSource,
    },
    error::{Error, ErrorKind, Result},
    hours::{Day, KEPT, day_of, last_fence, start_of_day},
    job::{JobHistory, history_of},
    name::{HOURS, hours_of_day, hours_record},
    record::{Record, next_fence},
    time::Time,
};
use std::{
    collections::{BTreeMap, HashSet},
    ops::RangeInclusive,
};

/// The number of counts of one job that other nodes may be ahead of.
const ATTEMPTS: usize = 8;

/// The number of records that one request removes.
const FORGOTTEN: usize = 100;

/// The client that is named to the store.
const CLIENT: &str = "client";

/// Counts the entries of a job that are not counted yet. Returns the limits of its history in its
/// definition, which it has read for that.
pub(super) async fn count<S: RecordStore>(
    store: &S,
    history: &dyn HistoryStore,
    name: &str,
    (time, now): (TimeSource, Time),
) -> Result<Option<JobHistory>> {
    for _ in 0..ATTEMPTS {
        let mut counting = Counting::begin(store, name, time, now).await?;
        counting.read(history).await?;
        let limits = counting.limits;
        if counting.commit(store).await? {
            return Ok(limits);
        }
    }
    let busy = format!("{name:?}: other nodes counted its history first {ATTEMPTS} times");
    // Not `Unavailable`, which would keep the other jobs from being pruned.
    Err(Error::new(ErrorKind::Other, busy).op("prune"))
}

/// Removes the counts of the days that are too old.
pub(super) async fn forget<S: RecordStore>(store: &S, time: TimeSource, now: Time) -> Result {
    let end = hours_of_day(now - KEPT);
    let mut after: Option<String> = None;
    loop {
        let page = store.scan(HOURS, after.as_deref(), FORGOTTEN).await?;
        let read = page.len();
        let old: Vec<_> = page.into_iter().take_while(|(name, _)| *name < end).collect();
        let is_last = old.len() < read || read == 0;
        let is_live = |record: &Result<Record, String>| record.as_ref().is_ok_and(Record::is_live);
        let live = old.iter().filter(|(_, record)| is_live(record));
        let deletes: Vec<Operation<'_>> =
            live.map(|(name, _)| Operation::new(name, Action::Delete)).collect();
        if !deletes.is_empty() {
            store.reschedule(Batch::new(CLIENT, time, &deletes)).await?;
        }
        if is_last {
            return Ok(());
        }
        after = old.into_iter().next_back().map(|(name, _)| name);
    }
}

/// One attempt to count the entries of one job.
struct Counting<'a, V> {
    name: &'a str,
    time: TimeSource,
    now: Time,
    min_fence: i64,
    /// Entries up to this fence are counted: all of them are written, or have leases.
    bound: i64,
    /// The fences of the active runs.
    leases: HashSet<i64>,
    /// The limits of the job's history.
    limits: Option<JobHistory>,
    days: BTreeMap<i64, Loading<V>>,
}

/// A day, with its record.
struct Loading<V> {
    record: String,
    loaded: Loaded<V>,
    before: Option<Day>,
    day: Day,
}

impl<'a, V: Send + Sync> Counting<'a, V> {
    /// Reads the job and its last days; all of its days, if today has no record yet.
    async fn begin<S: RecordStore<Version = V>>(
        store: &S,
        name: &'a str,
        time: TimeSource,
        now: Time,
    ) -> Result<Self> {
        let (leases, days) = (HashSet::new(), BTreeMap::new());
        let mut counting =
            Self { name, time, now, min_fence: 0, bound: 0, leases, limits: None, days };
        let today = day_of(now.timestamp_micros());
        let job = counting.load(store, today - 1..=today + 1).await?;
        let job = job.as_ref().and_then(Loaded::stored);
        // Whatever comes later draws a higher fence than the record has, or the clock shows.
        let bound = job.map_or(counting.now.timestamp_micros() - 1, |job| job.fence);
        counting.limits = job.and_then(|job| history_of(&job.definition));
        // The clock may have been ahead.
        counting.bound = bound.min(last_fence(today + 1));
        let leases = job.into_iter().flat_map(|job| &job.leases);
        counting.leases = leases.map(|lease| lease.fence).collect();
        if counting.days.get(&today).is_none_or(|day| day.before.is_none()) {
            let first = day_of((now - KEPT).timestamp_micros());
            counting.load(store, first..=today - 2).await?;
        }
        Ok(counting)
    }

    /// Reads the records of these days, and returns that of the job. One of a day that is damaged, or
    /// of a later build, stays as it is.
    async fn load<S: RecordStore<Version = V>>(
        &mut self,
        store: &S,
        days: RangeInclusive<i64>,
    ) -> Result<Option<Loaded<V>>> {
        let records: Vec<(i64, String)> =
            days.map(|day| (day, hours_record(start_of_day(day), self.name))).collect();
        let names = std::iter::once(self.name).chain(records.iter().map(|(_, name)| &**name));
        let names: Vec<&str> = names.collect();
        let load = Load { fresh: true, ..Load::new(CLIENT, self.time, &names) };
        let snapshot = store.load(load).await?;
        (self.now, self.min_fence) = (snapshot.now, self.min_fence.max(snapshot.min_fence));
        let mut all = snapshot.records.into_iter();
        let job = all.next().transpose()?;
        for ((day, record), loaded) in records.into_iter().zip(all) {
            let loaded = loaded?;
            let before = match &loaded.record {
                Ok(Some(record)) if record.is_live() => match Day::parse(&record.data) {
                    None => continue,
                    before => before,
                },
                Ok(_) => None,
                Err(_) => continue,
            };
            let counted = before.clone().unwrap_or_else(|| Day::new(self.name));
            self.days.insert(day, Loading { record, loaded, before, day: counted });
        }
        Ok(job)
    }

    /// Counts what is above the marks, and the open runs that have ended.
    async fn read(&mut self, history: &dyn HistoryStore) -> Result {
        let first = self.days.keys().next().map_or(i64::MAX, |day| last_fence(day - 1));
        let marks = self.days.values().filter_map(|day| Some(day.before.as_ref()?.mark));
        let lowest = marks.max().map_or(first, |mark| mark.max(first));
        // One page, if no other node runs the job.
        let mut limit = usize::try_from(history.pruning().slack()).map_or(PAGE, |slack| slack + 1);
        let (mut seen, mut below) = (HashSet::new(), place(self.bound));
        'pages: loop {
            limit = limit.min(PAGE);
            let entries = self.entries(history, &below, limit).await?;
            limit *= 2;
            let Some(last) = entries.last() else { break };
            below = last.cursor();
            for entry in &entries {
                if entry.fence <= lowest {
                    break 'pages;
                }
                seen.insert(entry.fence);
                self.count(entry);
            }
        }
        let all = self.days.values().flat_map(|day| &day.day.open);
        let ended: Vec<i64> = all.filter(|fence| !self.leases.contains(*fence)).copied().collect();
        for fence in ended {
            let found = self.entries(history, &place(fence), 1).await?;
            // Without an entry, it was removed.
            found.iter().filter(|entry| entry.fence == fence).for_each(|entry| self.count(entry));
            if let Some(day) = self.day(fence) {
                day.open.remove(&fence);
            }
        }
        let is_open = |fence: &i64| *fence > lowest && !seen.contains(fence);
        for fence in std::mem::take(&mut self.leases).into_iter().filter(is_open) {
            if let Some(day) = self.day(fence) {
                day.open.insert(fence);
            }
        }
        Ok(())
    }

    fn count(&mut self, entry: &HistoryEntry) {
        if let Some(day) = self.day(entry.fence) {
            day.count(entry);
        }
    }

    /// The day of a fence, unless it is too old or cannot be read.
    fn day(&mut self, fence: i64) -> Option<&mut Day> {
        self.days.get_mut(&day_of(fence)).map(|day| &mut day.day)
    }

    async fn entries(
        &self,
        history: &dyn HistoryStore,
        below: &HistoryCursor,
        limit: usize,
    ) -> Result<Vec<HistoryEntry>> {
        history.history_entries(HistoryQuery::new(limit).name(self.name).before(below)).await
    }

    /// Writes the days that have changed, the earliest first: entries up to the mark of a later day are
    /// counted. Returns `false` if another node was first.
    async fn commit<S: RecordStore<Version = V>>(self, store: &S) -> Result<bool> {
        let Self { time, now, min_fence, bound, .. } = self;
        for (number, Loading { record: name, loaded, before, mut day }) in self.days {
            if day == before.unwrap_or_else(|| Day::new(&day.job)) {
                continue;
            }
            day.mark = day.mark.max(bound.min(last_fence(number)));
            let stored = loaded.stored();
            let fence = next_fence(stored.map_or(0, |record| record.fence).max(min_fence), now);
            let after = Record {
                incarnation: stored.map_or(fence, |record| record.incarnation),
                generation: fence,
                fence,
                data: day.to_text().into_bytes(),
                ..Record::default()
            };
            let (name, history, changes) = (&*name, Vec::new(), Vec::new());
            let (not_after, notification) = (None, None);
            let drafts =
                vec![Draft { name, loaded, after, history, changes, not_after, notification }];
            let commit = Commit { node: CLIENT, time, now, drafts };
            match store.commit(commit).await?.pop() {
                Some(Ok(Outcome::Written { .. })) => {}
                Some(Err(error)) => return Err(error),
                Some(Ok(Outcome::Conflict(_))) | None => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// The place of a page that begins with this fence.
fn place(fence: i64) -> HistoryCursor {
    HistoryCursor { fence: fence.saturating_add(1), name: String::new() }
}
