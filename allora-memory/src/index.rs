//! The records, and the maps that find them: by name, by due time, by deletion.

use crate::packed::PackedRecord;
use allora_core::{
    Time,
    backend::{HistoryCursor, HistoryEntry, HistoryTrim, Newest},
    record::{Change, FlagChanges, Record, TOMBSTONE},
    time::saturating_add,
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

/// One namespace.
#[derive(Default)]
pub(crate) struct Index {
    /// Boxed: a hash table keeps up to half of its places free, and these are large.
    records: HashMap<Arc<str>, Box<Stored>>,
    /// The number of the last write.
    writes: u64,
    /// The names of all live jobs, for lists.
    names: BTreeSet<Arc<str>>,
    /// The index time of each record, by kind. Jobs in code are seldom in it: their nodes know when
    /// they are due, and cost follows what is due.
    due: HashMap<String, BTreeSet<(Time, Arc<str>)>>,
    /// The names under each flag.
    flagged: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Deleted names, the oldest first, with the time to purge them.
    tombstones: VecDeque<(Time, Arc<str>)>,
    /// No fence at or below it is given to a name whose tombstone was purged.
    min_fence: i64,
    history: BTreeMap<HistoryCursor, HistoryEntry>,
    /// The fences of the entries of each job.
    history_of: HashMap<String, BTreeSet<i64>>,
    changes: BTreeMap<HistoryCursor, Change>,
}

#[derive(Default)]
struct Stored {
    record: PackedRecord,
    version: u64,
    /// The record's place in the due index.
    indexed: Option<Box<(Time, String)>>,
    /// The flags under which the record is found.
    flags: Box<[Arc<str>]>,
}

impl Index {
    /// The record of this name, or its tombstone, with its version.
    pub(crate) fn get(&self, name: &str) -> Option<(&PackedRecord, u64)> {
        self.records.get(name).map(|stored| (&stored.record, stored.version))
    }

    /// Writes a record.
    pub(crate) fn put(&mut self, name: &str, record: Record) {
        if !self.records.contains_key(name) {
            self.records.insert(name.into(), Box::default());
        }
        self.write(name, |_| true, |before| *before = Some(record));
    }

    /// Changes a live record in its place; `None` if there is none. The version grows also if the
    /// record stays the same.
    pub(crate) fn change<T>(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut Option<Record>) -> T,
    ) -> Option<T> {
        self.write(name, |before| before.deleted_at().is_none(), change)
    }

    /// The one place that writes, if the record before is as it `must_be`: the record, its version, and
    /// the maps that find it.
    fn write<T>(
        &mut self,
        name: &str,
        must_be: impl FnOnce(&PackedRecord) -> bool,
        change: impl FnOnce(&mut Option<Record>) -> T,
    ) -> Option<T> {
        let stored = self.records.get_mut(name)?;
        if !must_be(&stored.record) {
            return None;
        }
        let was_live = (stored.version > 0).then(|| stored.record.deleted_at().is_none());
        let before = stored.record.take();
        let summary = was_live.map(|_| before.flag_summary());
        let mut slot = Some(before);
        let result = change(&mut slot);
        let record = slot.get_or_insert_default();
        let flags = summary.and_then(|before| before.changes_to(record.flag_summary()));
        let flags = flags.unwrap_or_else(|| {
            let (was, mut added) = (&stored.flags, record.flags(name));
            let removed = was.iter().filter(|flag| !added.remove(&***flag));
            let removed = removed.map(|flag| flag.to_string()).collect();
            FlagChanges { added: added.into_iter().collect(), removed }
        });
        self.writes += 1;
        stored.version = self.writes;
        let indexed = stored.indexed.as_deref().map(|(at, kind)| (*at, kind.as_str()));
        let index_at = record.index_at().map(|at| (at, record.kind.as_str()));
        let moves = (indexed != index_at).then(|| index_at.map(|(at, kind)| (at, kind.to_owned())));
        let deleted_at = record.deleted_at;
        let was_made_or_deleted = was_live != Some(record.is_live());
        stored.record.set(slot.unwrap_or_default());
        if let Some(to) = moves {
            self.reindex(name, to);
        }
        if was_made_or_deleted {
            self.update_names(name, deleted_at);
        }
        if !flags.is_empty() {
            self.reflag(name, flags);
        }
        Some(result)
    }

    /// The live jobs after `after`, ordered by name.
    pub(crate) fn names_after<'a>(&'a self, after: &str) -> impl Iterator<Item = &'a str> {
        use std::ops::Bound::{Excluded, Unbounded};
        self.names.range::<str, _>((Excluded(after), Unbounded)).map(|name| &**name)
    }

    /// The names under this flag that begin with `prefix` and are after `after`.
    pub(crate) fn flagged<'a>(
        &'a self,
        flag: &str,
        prefix: &'a str,
        after: Option<&'a str>,
    ) -> impl Iterator<Item = &'a str> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let from = match after {
            Some(after) if after >= prefix => Excluded(after),
            _ => Included(prefix),
        };
        let names = self.flagged.get(flag).into_iter();
        let names = names.flat_map(move |names| names.range::<str, _>((from, Unbounded)));
        names.map(|name| &**name).take_while(move |name| name.starts_with(prefix))
    }

    /// The flags that begin with this text and have names.
    pub(crate) fn flags<'a>(&'a self, begin: &'a str) -> impl Iterator<Item = &'a str> {
        use std::ops::Bound::{Included, Unbounded};
        let flags = self.flagged.range::<str, _>((Included(begin), Unbounded));
        flags.map(|(flag, _)| &**flag).take_while(move |flag| flag.starts_with(begin))
    }

    /// The records of this kind in the due index, the earliest first.
    pub(crate) fn due<'a>(&'a self, kind: &str) -> impl Iterator<Item = (Time, &'a str)> {
        self.due.get(kind).into_iter().flatten().map(|(at, name)| (*at, &**name))
    }

    /// The kinds in the due index.
    pub(crate) fn kinds(&self) -> Vec<String> {
        let due = self.due.iter().filter(|(kind, due)| !kind.is_empty() && !due.is_empty());
        due.map(|(kind, _)| kind.clone()).collect()
    }

    pub(crate) fn min_fence(&self) -> i64 {
        self.min_fence
    }

    /// Removes the tombstones whose time is over, and keeps their highest fence.
    pub(crate) fn purge_tombstones(&mut self, now: Time) {
        while self.tombstones.front().is_some_and(|(until, _)| *until <= now) {
            let Some((until, name)) = self.tombstones.pop_front() else { return };
            let is_over = |record: &PackedRecord| {
                record.deleted_at().is_some_and(|at| saturating_add(at, TOMBSTONE) <= until)
            };
            if let Some((record, _)) = self.get(&name).filter(|(record, _)| is_over(record)) {
                self.min_fence = self.min_fence.max(record.fence());
                self.records.remove(&name);
            }
        }
    }

    /// History entries below this one, the newest first.
    pub(crate) fn history(
        &self,
        before: Option<&HistoryCursor>,
    ) -> impl Iterator<Item = &HistoryEntry> {
        below(&self.history, before)
    }

    /// Changes below this one, the newest first.
    pub(crate) fn changes(&self, before: Option<&HistoryCursor>) -> impl Iterator<Item = &Change> {
        below(&self.changes, before)
    }

    pub(crate) fn append_changes(&mut self, changes: Vec<Change>) {
        self.changes.extend(changes.into_iter().map(|change| (change.cursor(), change)));
    }

    /// Removes the changes that are not kept.
    pub(crate) fn trim_changes(&mut self, mut kept: Newest) {
        let fences = self.changes.keys().rev().map(|at| at.fence);
        let removed = fences.filter(|fence| kept.removes(*fence)).count();
        for _ in 0..removed {
            self.changes.pop_first();
        }
    }

    pub(crate) fn append_history(&mut self, entries: Vec<HistoryEntry>) {
        for entry in entries {
            if let Some(fences) = self.history_of.get_mut(&entry.name) {
                fences.insert(entry.fence);
            } else {
                self.history_of.insert(entry.name.clone(), BTreeSet::from([entry.fence]));
            }
            self.history.insert(entry.cursor(), entry);
        }
    }

    /// Removes what is not kept of the history of one job.
    pub(crate) fn trim_history(&mut self, name: &str, mut kept: HistoryTrim) {
        let Some(fences) = self.history_of.get_mut(name) else { return };
        let mut at = HistoryCursor { fence: 0, name: name.to_owned() };
        for fence in fences.iter().rev().copied().collect::<Vec<_>>() {
            at.fence = fence;
            let is_failure = |entry: &HistoryEntry| entry.outcome.is_failure();
            if self.history.get(&at).is_none_or(|entry| kept.removes(fence, is_failure(entry))) {
                self.history.remove(&at);
                fences.remove(&fence);
            }
        }
        if fences.is_empty() {
            self.history_of.remove(name);
        }
    }

    /// Moves a record to this place in the due index, or out of it.
    fn reindex(&mut self, name: &str, to: Option<(Time, String)>) {
        let Some(key) = self.key(name) else { return };
        let Some(stored) = self.records.get_mut(name) else { return };
        if let Some((at, kind)) = stored.indexed.take().map(|place| *place)
            && let Some(due) = self.due.get_mut(&kind)
        {
            due.remove(&(at, key.clone()));
            if due.is_empty() {
                self.due.remove(&kind);
            }
        }
        if let Some((at, kind)) = &to {
            self.due.entry(kind.clone()).or_default().insert((*at, key));
        }
        stored.indexed = to.map(Box::new);
    }

    /// The flags of a record change.
    fn reflag(&mut self, name: &str, changes: FlagChanges) {
        let Some(key) = self.key(name) else { return };
        let Some(stored) = self.records.get_mut(name) else { return };
        let mut flags = std::mem::take(&mut stored.flags).into_vec();
        for flag in &changes.removed {
            flags.retain(|own| **own != **flag);
            let Some(names) = self.flagged.get_mut(&**flag) else { continue };
            names.remove(name);
            if names.is_empty() {
                self.flagged.remove(&**flag);
            }
        }
        for flag in changes.added {
            let flag: Arc<str> = match self.flagged.get_key_value(&*flag) {
                Some((known, _)) => known.clone(),
                None => flag.into(),
            };
            self.flagged.entry(flag.clone()).or_default().insert(key.clone());
            flags.push(flag);
        }
        stored.flags = flags.into();
    }

    /// A job begins to live, or was deleted.
    fn update_names(&mut self, name: &str, deleted_at: Option<Time>) {
        let Some(key) = self.key(name) else { return };
        match deleted_at {
            Some(deleted_at) => {
                self.names.remove(name);
                self.tombstones.push_back((saturating_add(deleted_at, TOMBSTONE), key));
            }
            None => {
                self.names.insert(key);
            }
        }
    }

    /// The name as the maps share it.
    fn key(&self, name: &str) -> Option<Arc<str>> {
        self.records.get_key_value(name).map(|(key, _)| key.clone())
    }
}

/// The values below this place, the highest first.
fn below<'a, T>(
    of: &'a BTreeMap<HistoryCursor, T>,
    before: Option<&HistoryCursor>,
) -> impl Iterator<Item = &'a T> + use<'a, T> {
    use std::ops::Bound::{Excluded, Unbounded};
    let below = (Unbounded, before.map_or(Unbounded, Excluded));
    of.range::<HistoryCursor, _>(below).rev().map(|(_, value)| value)
}
