//! Records: read, decided on, and written if nobody else wrote them meanwhile.
//!
//! The decisions are core's pure functions. What they make of a record is written by a transaction
//! that compares the revision under which the record was read; the transactions of a batch are
//! nested in one, so that each job is decided alone. A node remembers what it wrote or read last,
//! so that a take costs one exchange; whoever loses is told the truth by the same exchange.

use crate::{
    base::{Base, Known, Source},
    driver::Driver,
    error::strange,
    index::Bounds,
    keys::Keys,
    marks::Marks,
    seen::Seen,
    write::Write,
};
use allora_core::{
    Error, Kind, Result,
    backend::{Hint, Now},
    record::{At, Ledger, Record},
};
use etcd_client::{Compare, CompareOp, TxnOp};
use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// How often a batch is tried again where others were faster. In every turn somebody wins.
const TURNS: usize = 64;

/// One namespace of one cluster.
pub(crate) struct Store {
    pub(crate) driver: Driver,
    pub(crate) keys: Keys,
    pub(crate) namespace: String,
    /// How long a call may take.
    pub(crate) timeout: Duration,
    /// How many entries of history are kept.
    pub(crate) history: usize,
    /// How many have been written since the last trim.
    pub(crate) noted: AtomicU64,
    /// How many operations the server allows in one transaction.
    pub(crate) operations: usize,
    pub(crate) marks: Marks,
    pub(crate) bounds: Bounds,
    pub(crate) known: Mutex<HashMap<String, Known>>,
}

/// A record for those who work on it.
pub(crate) enum Slot<'a> {
    Sound(&'a mut Option<Record>),
    /// It cannot be read; `instead` is written if it is filled.
    Parked {
        reason: &'a str,
        instead: &'a mut Option<Record>,
    },
}

/// Who asks.
#[derive(Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub(crate) op: &'static str,
    pub(crate) node: &'a str,
    pub(crate) now: Now,
}

/// What was made of a record.
pub(crate) struct Done<T> {
    pub(crate) answer: T,
    /// What others are to be told if it is written.
    pub(crate) hint: Option<Hint>,
    /// Whether it may be answered to a write on what was only remembered: the write proves it.
    pub(crate) is_proved: bool,
}

/// The names of a request that are one.
pub(crate) struct Group<'a, T> {
    pub(crate) name: &'a str,
    pub(crate) places: Vec<usize>,
    pub(crate) base: Option<Base>,
    pub(crate) answers: Option<Vec<T>>,
}

impl Store {
    /// Gives `work` each record, and writes what it made of it. The names may repeat; `work` is
    /// called with the place of each, again for those that others were faster with.
    pub(crate) async fn with<T: Send>(
        self: &Arc<Self>,
        asker: Asker<'_>,
        names: &[&str],
        remember: bool,
        work: impl Fn(usize, Slot<'_>, At<'_>, &mut Ledger) -> Done<T> + Send + Sync,
    ) -> Result<Vec<T>> {
        let mut groups: Vec<Group<'_, T>> = Vec::new();
        let mut by_name: HashMap<&str, usize> = HashMap::new();
        for (place, name) in names.iter().enumerate() {
            let group = *by_name.entry(name).or_insert_with(|| {
                groups.push(Group { name, places: Vec::new(), base: None, answers: None });
                groups.len() - 1
            });
            groups[group].places.push(place);
        }
        if remember {
            let known = self.known();
            for group in &mut groups {
                group.base = known.get(group.name).map(|known| Base {
                    record: Ok(Some(known.record.clone())),
                    revision: known.revision,
                    source: Source::Remembered,
                    floor: None,
                    alive: None,
                });
            }
        }
        for _ in 0..TURNS {
            let mut writes = self.decide(asker, &mut groups, &work);
            let decided: HashSet<usize> = writes.iter().map(|write| write.group).collect();
            let missing: Vec<usize> = (0..groups.len())
                .filter(|i| groups[*i].answers.is_none() && !decided.contains(i))
                .collect();
            if !missing.is_empty() {
                let names: Vec<&str> = missing.iter().map(|i| groups[*i].name).collect();
                for (i, base) in missing.iter().zip(self.read(asker, &names).await?) {
                    groups[*i].base = Some(base);
                }
                writes.extend(self.decide_some(asker, &mut groups, &missing, &work));
            }
            self.write(asker, &mut groups, writes).await?;
            if groups.iter().all(|group| group.answers.is_some()) {
                let mut answers: Vec<Option<T>> = names.iter().map(|_| None).collect();
                for group in groups {
                    for (place, answer) in
                        group.places.iter().zip(group.answers.into_iter().flatten())
                    {
                        answers[*place] = Some(answer);
                    }
                }
                let all: Option<Vec<T>> = answers.into_iter().collect();
                return all.ok_or_else(|| strange(asker.op));
            }
        }
        let busy = "others were always faster; ask again";
        Err(Error::new(Kind::Unavailable, busy).op(asker.op))
    }

    fn decide<T>(
        &self,
        asker: Asker<'_>,
        groups: &mut [Group<'_, T>],
        work: &impl Fn(usize, Slot<'_>, At<'_>, &mut Ledger) -> Done<T>,
    ) -> Vec<Write<T>> {
        let open: Vec<usize> = (0..groups.len())
            .filter(|i| groups[*i].answers.is_none() && groups[*i].base.is_some())
            .collect();
        self.decide_some(asker, groups, &open, work)
    }

    /// Decides on these; what cannot be decided on what is known loses its base.
    fn decide_some<T>(
        &self,
        asker: Asker<'_>,
        groups: &mut [Group<'_, T>],
        which: &[usize],
        work: &impl Fn(usize, Slot<'_>, At<'_>, &mut Ledger) -> Done<T>,
    ) -> Vec<Write<T>> {
        let mut writes = Vec::new();
        for i in which {
            let group = &mut groups[*i];
            let Some(base) = group.base.take() else { continue };
            match self.made(asker, group, &base, work) {
                Made::Nothing(answers) => group.answers = Some(answers),
                Made::Unsure => {}
                Made::Write(mut write) => {
                    write.group = *i;
                    writes.push(*write);
                }
            }
        }
        writes
    }

    fn made<T>(
        &self,
        asker: Asker<'_>,
        group: &Group<'_, T>,
        base: &Base,
        work: &impl Fn(usize, Slot<'_>, At<'_>, &mut Ledger) -> Done<T>,
    ) -> Made<T> {
        let here = asker.now.here();
        let mut at = At::new(asker.node, here);
        at.floor = base.floor.map_or(0, |(floor, _)| floor);
        let (before, parked) = match &base.record {
            Ok(record) => (record.clone(), None),
            Err(reason) => (None, Some(reason)),
        };
        let foreign = matches!(asker.now, Now::Store { .. });
        if before.is_none() && base.floor.is_none() {
            return Made::Unsure;
        }
        let mut after = before.clone();
        let mut seen = Seen::default();
        if foreign && let Some(record) = &mut after {
            seen = Seen::of(record, asker.node, here, base.alive.as_deref());
        }
        let shown = after.clone();
        let mut ledger = if self.history > 0 { Ledger::kept() } else { Ledger::off() };
        let mut done = Vec::new();
        for place in &group.places {
            let slot = match parked {
                None => Slot::Sound(&mut after),
                Some(reason) => Slot::Parked { reason, instead: &mut after },
            };
            done.push(work(*place, slot, at, &mut ledger));
        }
        let is_proved = done.iter().all(|done| done.is_proved);
        let hints = done.iter_mut().filter_map(|done| done.hint.take()).collect();
        let answers = done.into_iter().map(|done| done.answer).collect();
        if after == shown {
            let fresh = base.source != Source::Remembered;
            return if fresh { Made::Nothing(answers) } else { Made::Unsure };
        }
        if base.source == Source::Remembered && !is_proved {
            return Made::Unsure;
        }
        if let Some(record) = &mut after {
            seen.put_back(record);
        }
        let mut write = self.written(group.name, base, before.as_ref(), after, asker.node);
        write.promises &= foreign;
        for dead in seen.dead {
            write.compares.push(Compare::create_revision(
                self.keys.mark(&dead),
                CompareOp::Equal,
                0,
            ));
        }
        // An entry replaces an earlier one of the same name and fence.
        let entries = ledger.take();
        let mut noted = HashSet::new();
        self.noted.fetch_add(entries.len() as u64, Ordering::Relaxed);
        for past in entries.iter().rev().filter(|past| noted.insert(past.fence)) {
            let value = crate::history::encode(past);
            write.bytes += value.len();
            write.puts.push(TxnOp::put(self.keys.past(past.fence, &past.name), value, None));
        }
        Made::Write(Box::new(Write { answers, hints, ..write }))
    }
}

enum Made<T> {
    /// Nothing is to be written.
    Nothing(Vec<T>),
    /// What is known is not enough.
    Unsure,
    Write(Box<Write<T>>),
}
