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
//! One thing is lost: a run that ends between the count and the removal, after its job has made more
//! entries than the history keeps. Readers count what is above the mark, or open, by themselves.

use super::{
    HistoryStore, RecordStore,
    batch::{Commit, Draft, Load, Loaded, Outcome},
};
use crate::{
    backend::{Action, Batch, HistoryCursor, HistoryEntry, HistoryQuery, Operation, TimeSource},
    error::{Error, ErrorKind, Result},
    hours::{Day, KEPT, day_of, last_fence, start_of_day},
    name::{HOURS, hours_of_day, hours_record},
    record::{Record, next_fence},
    time::Time,
};
use std::collections::{BTreeMap, HashSet};

/// The number of counts of one job that other nodes may be ahead of.
const ATTEMPTS: usize = 8;

/// The number of records of one request to remove them.
const PAGE: usize = 100;

/// The client that is named to the store.
const CLIENT: &str = "client";

/// Counts the entries of a job that are not counted yet.
pub(super) async fn count<S: RecordStore>(
    store: &S,
    history: &dyn HistoryStore,
    name: &str,
    time: TimeSource,
) -> Result {
    for _ in 0..ATTEMPTS {
        let (mut counting, leases) = Counting::begin(store, name, time).await?;
        counting.read(history, &leases).await?;
        if counting.commit(store).await? {
            return Ok(());
        }
    }
    let busy = format!("{name:?}: other nodes counted its history first {ATTEMPTS} times");
    Err(Error::new(ErrorKind::Unavailable, busy).op("prune"))
}

/// Removes the counts of the days that are too old.
pub(super) async fn forget<S: RecordStore>(store: &S, time: TimeSource, now: Time) -> Result {
    let end = hours_of_day(now - KEPT);
    let mut after: Option<String> = None;
    loop {
        let page = store.scan(HOURS, after.as_deref(), PAGE).await?;
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
    /// Reads the job and its last days; all of its days, if today has no record yet. Returns the fences
    /// of the active runs, too.
    async fn begin<S: RecordStore<Version = V>>(
        store: &S,
        name: &'a str,
        time: TimeSource,
    ) -> Result<(Self, HashSet<i64>)> {
        let load = Load { fresh: true, ..Load::new(CLIENT, time, &[name]) };
        let mut snapshot = store.load(load).await?;
        let loaded = snapshot.records.pop().transpose()?;
        let job = loaded.as_ref().and_then(Loaded::stored);
        // Whatever comes later draws a higher fence than the record has, or the clock shows.
        let bound = job.map_or(snapshot.now.timestamp_micros() - 1, |job| job.fence);
        let leases = job.into_iter().flat_map(|job| &job.leases).map(|lease| lease.fence);
        let (now, min_fence) = (snapshot.now, snapshot.min_fence);
        let today = day_of(now.timestamp_micros());
        // A clock may have been ahead.
        let bound = bound.min(last_fence(today + 1));
        let leases = leases.collect();
        let mut counting = Self { name, time, now, min_fence, bound, days: BTreeMap::new() };
        counting.load(store, today - 1..=today + 1).await?;
        if counting.days.get(&today).is_none_or(|day| day.before.is_none()) {
            let first = day_of((now - KEPT).timestamp_micros());
            counting.load(store, first..=today - 2).await?;
        }
        Ok((counting, leases))
    }

    /// Reads the records of these days. One that is damaged, or of a later build, stays as it is.
    async fn load<S: RecordStore<Version = V>>(
        &mut self,
        store: &S,
        days: std::ops::RangeInclusive<i64>,
    ) -> Result {
        let records: Vec<(i64, String)> =
            days.map(|day| (day, hours_record(start_of_day(day), self.name))).collect();
        let names: Vec<&str> = records.iter().map(|(_, record)| &**record).collect();
        let load = Load { fresh: true, ..Load::new(CLIENT, self.time, &names) };
        let snapshot = store.load(load).await?;
        self.min_fence = self.min_fence.max(snapshot.min_fence);
        for ((day, record), loaded) in records.into_iter().zip(snapshot.records) {
            let loaded = loaded?;
            let stored = loaded.record.as_ref().map(|record| record.as_ref());
            let before = match stored.map(|record| record.filter(|record| record.is_live())) {
                Err(_) => continue,
                Ok(None) => None,
                Ok(Some(record)) => match Day::parse(&record.data) {
                    None => continue,
                    before => before,
                },
            };
            let counted = before.clone().unwrap_or_default();
            self.days.insert(day, Loading { record, loaded, before, day: counted });
        }
        Ok(())
    }

    /// Counts what is above the marks, and the open runs that have ended.
    async fn read(&mut self, history: &dyn HistoryStore, leases: &HashSet<i64>) -> Result {
        let first = self.days.keys().next().map_or(i64::MAX, |day| last_fence(day - 1));
        let mark = self.days.values().filter_map(|day| Some(day.before.as_ref()?.mark)).max();
        let lowest = mark.map_or(first, |mark| mark.max(first));
        let mut seen = HashSet::new();
        let mut below = self.place(self.bound);
        let page = usize::try_from(history.pruning().slack()).unwrap_or(usize::MAX);
        let page = page.saturating_add(1).min(super::history::PAGE);
        'pages: loop {
            let entries = self.entries(history, &below, page).await?;
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
        let opened: Vec<(i64, i64)> = self.days.iter().flat_map(|(number, day)| {
            day.day.open.iter().filter(|fence| !leases.contains(fence)).map(|fence| (*number, *fence))
        }).collect();
        for (number, fence) in opened {
            let found = self.entries(history, &self.place(fence), 1).await?;
            // Without an entry, it was removed.
            found.iter().filter(|entry| entry.fence == fence).for_each(|entry| self.count(entry));
            self.days.get_mut(&number).map(|day| day.day.open.remove(&fence));
        }
        let open = |fence: &&i64| **fence > lowest && !seen.contains(fence);
        for fence in leases.iter().filter(open) {
            self.days.get_mut(&day_of(*fence)).map(|day| day.day.open.insert(*fence));
        }
        Ok(())
    }

    fn count(&mut self, entry: &HistoryEntry) {
        if let Some(day) = self.days.get_mut(&day_of(entry.fence)) {
            day.day.count(entry);
        }
    }

    /// The place of a page that begins with this fence.
    fn place(&self, fence: i64) -> HistoryCursor {
        HistoryCursor { fence: fence.saturating_add(1), name: String::new() }
    }

    async fn entries(
        &self,
        history: &dyn HistoryStore,
        below: &HistoryCursor,
        limit: usize,
    ) -> Result<Vec<HistoryEntry>> {
        let query = HistoryQuery::new(limit).name(self.name).before(below);
        history.history_entries(query).await
    }

    /// Writes the days that have changed, the earliest first: entries up to the mark of a later day are
    /// counted. Returns `false` if another node was first.
    async fn commit<S: RecordStore<Version = V>>(self, store: &S) -> Result<bool> {
        let Self { time, now, min_fence, bound, .. } = self;
        for (number, Loading { record: name, loaded, before, mut day }) in self.days {
            if day == before.unwrap_or_default() {
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
            let (name, history) = (&*name, Vec::new());
            let (not_after, notification) = (None, None);
            let drafts = vec![Draft { name, loaded, after, history, not_after, notification }];
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
