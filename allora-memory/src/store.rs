//! The records, an index of what wants attention when, and the history.

use allora_core::{
    Time,
    backend::{Past, State},
    record::{At, Ledger, Record, TOMBSTONE},
    time::saturating_add,
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

/// One namespace.
#[derive(Default)]
pub(crate) struct Store {
    /// Boxed: a hash table keeps up to half of its places free, and these are large.
    slots: HashMap<Arc<str>, Box<Slot>>,
    /// The names of all live jobs, for lists.
    names: BTreeSet<Arc<str>>,
    /// When each record is to be noticed, by kind. Jobs in code are seldom in it: their nodes know
    /// when they are due, and cost follows what is due.
    due: HashMap<String, BTreeSet<(Time, Arc<str>)>>,
    /// Deleted names, the oldest first, with the time to forget them.
    tombstones: VecDeque<(Time, Arc<str>)>,
    /// No fence at or below it is given to a name whose tombstone is forgotten.
    floor: i64,
    history: BTreeMap<(i64, String), Past>,
    history_limit: usize,
}

#[derive(Default)]
struct Slot {
    record: Option<Record>,
    /// Where the due index has it.
    indexed: Option<(Time, String)>,
}

impl Store {
    /// Gives `work` the record of `name`, and brings the index and the history in step with what
    /// it did.
    pub(crate) fn with<T>(
        &mut self,
        name: &str,
        node: &str,
        now: Time,
        work: impl FnOnce(&mut Option<Record>, At<'_>, &mut Ledger) -> T,
    ) -> T {
        let mut at = At::new(node, now);
        at.floor = self.floor;
        let mut ledger = if self.history_limit > 0 { Ledger::kept() } else { Ledger::off() };
        let answer = if let Some(slot) = self.slots.get_mut(name) {
            let was_live = slot.record.as_ref().is_some_and(Record::is_live);
            let answer = work(&mut slot.record, at, &mut ledger);
            let record = slot.record.as_ref();
            let is_live = record.is_some_and(Record::is_live);
            let notice_at = record.and_then(Record::notice_at);
            let notice = notice_at.zip(record.map(|record| record.kind.as_str()));
            let indexed = slot.indexed.as_ref().map(|(at, kind)| (*at, kind.as_str()));
            if was_live != is_live || indexed != notice {
                self.index(name);
            }
            answer
        } else {
            let mut record = None;
            let answer = work(&mut record, at, &mut ledger);
            if record.is_some() {
                self.slots.insert(name.into(), Box::new(Slot { record, indexed: None }));
                self.index(name);
            }
            answer
        };
        self.remember(ledger.take());
        answer
    }

    /// The job as its readers see it.
    pub(crate) fn state(&self, name: &str) -> Option<State> {
        let record = self.slots.get(name)?.record.as_ref()?;
        record.is_live().then(|| record.state(name))
    }

    /// The live jobs from `after` on, ordered by name.
    pub(crate) fn names_after<'a>(&'a self, after: &str) -> impl Iterator<Item = &'a str> {
        use std::ops::Bound::{Excluded, Unbounded};
        self.names.range::<str, _>((Excluded(after), Unbounded)).map(|name| &**name)
    }

    /// The stored schedules of this kind that want attention, the earliest first.
    pub(crate) fn due<'a>(&'a self, kind: &str) -> impl Iterator<Item = (Time, &'a str)> {
        self.due.get(kind).into_iter().flatten().map(|(at, name)| (*at, &**name))
    }

    /// The kinds of which there is something in the due index.
    pub(crate) fn kinds(&self) -> Vec<String> {
        let due = self.due.iter().filter(|(kind, due)| !kind.is_empty() && !due.is_empty());
        due.map(|(kind, _)| kind.clone()).collect()
    }

    /// Forgets the tombstones whose time has come. What they guarded, the floor guards now.
    pub(crate) fn forget(&mut self, now: Time) {
        while self.tombstones.front().is_some_and(|(until, _)| *until <= now) {
            let Some((until, name)) = self.tombstones.pop_front() else { return };
            let forgotten = |record: &Record| {
                record.gone.is_some_and(|gone| saturating_add(gone, TOMBSTONE) <= until)
            };
            let record = self.slots.get(&name).and_then(|slot| slot.record.as_ref());
            if let Some(record) = record.filter(|record| forgotten(record)) {
                self.floor = self.floor.max(record.fence);
                self.slots.remove(&name);
            }
        }
    }

    pub(crate) fn keep_history(&mut self, limit: usize) {
        self.history_limit = limit;
        self.trim_history();
    }

    pub(crate) fn keeps_history(&self) -> bool {
        self.history_limit > 0
    }

    /// History entries below this fence, the newest first.
    pub(crate) fn past(&self, before: Option<i64>) -> impl Iterator<Item = &Past> {
        let end = (before.unwrap_or(i64::MAX), String::new());
        self.history.range(..end).rev().map(|(_, past)| past)
    }

    fn remember(&mut self, entries: Vec<Past>) {
        for past in entries {
            self.history.insert((past.fence, past.name.clone()), past);
        }
        self.trim_history();
    }

    fn trim_history(&mut self) {
        while self.history.len() > self.history_limit {
            self.history.pop_first();
        }
    }

    /// Brings the lists that point at a record in step with it.
    fn index(&mut self, name: &str) {
        let Some((key, _)) = self.slots.get_key_value(name) else { return };
        let key = key.clone();
        let Some(slot) = self.slots.get_mut(name) else { return };
        let Some(record) = &slot.record else { return };
        let after = record.notice_at().map(|at| (at, record.kind.clone()));
        if slot.indexed != after {
            if let Some((at, kind)) = slot.indexed.take()
                && let Some(due) = self.due.get_mut(&kind)
            {
                due.remove(&(at, key.clone()));
                if due.is_empty() {
                    self.due.remove(&kind);
                }
            }
            if let Some((at, kind)) = &after {
                self.due.entry(kind.clone()).or_default().insert((*at, key.clone()));
            }
            slot.indexed = after;
        }
        match record.gone {
            Some(gone) => {
                self.names.remove(&key);
                self.tombstones.push_back((saturating_add(gone, TOMBSTONE), key));
            }
            None => {
                self.names.insert(key);
            }
        }
    }
}
