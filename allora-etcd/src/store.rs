//! Records: read, decided on, and written if nobody else wrote them meanwhile.
//!
//! The decisions are core's pure functions. What they make of a record is written by a transaction
//! that compares the revision under which the record was read; the transactions of a batch are
//! nested in one, so that each job is decided alone. A node remembers what it wrote or read last,
//! so that a take costs one exchange; whoever loses is told the truth by the same exchange.

use crate::{
    driver::{Driver, kv},
    error::strange,
    keys::{Keys, plain},
    marks::Marks,
};
use allora_core::{
    Error, Kind, Result, Time,
    backend::{Now, State},
    record::{At, Ledger, Record, codec},
    time::saturating_add,
};
use etcd_client::{Compare, CompareOp, GetOptions, GetResponse, Txn, TxnOp, TxnOpResponse};
use futures::{StreamExt, TryStreamExt};
use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// How often a batch is tried again where others were faster. In every turn somebody wins.
const TURNS: usize = 64;

/// At most so many bytes in one transaction; the server's own limit is 1.5 MiB.
const BYTES: usize = 1 << 20;

/// How many exchanges of one request are under way beside each other.
const AT_ONCE: usize = 8;

/// How many records are remembered.
const REMEMBERED: usize = 100_000;

/// When to look again at a run that is overdue by our clock while its node lives.
const RECHECK: Duration = Duration::from_secs(5);

/// When to look again, at the latest, at any run of another node: its end is by another clock.
const LATEST: Duration = Duration::from_secs(15);

/// The layout's version.
const VERSION: &str = "1";

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
    pub(crate) known: Mutex<HashMap<String, Known>>,
}

/// What this node wrote or read last; without the data.
#[derive(Clone)]
pub(crate) struct Known {
    record: Record,
    revision: i64,
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
    pub(crate) hint: Option<String>,
    /// Whether it may be answered to a write on what was only remembered: the write proves it.
    pub(crate) is_proved: bool,
}

/// What is known of a record.
struct Base {
    record: Result<Option<Record>, String>,
    revision: i64,
    source: Source,
    /// The floor and its revision.
    floor: Option<(i64, i64)>,
    /// The nodes whose marks were there.
    alive: Option<Arc<HashSet<Vec<u8>>>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Source {
    /// Without data, and perhaps old.
    Remembered,
    /// By the answer to a write that lost.
    Told,
    Read,
}

/// The names of a request that are one.
struct Group<'a, T> {
    name: &'a str,
    places: Vec<usize>,
    base: Option<Base>,
    answers: Option<Vec<T>>,
}

/// A record to be written.
struct Write<T> {
    group: usize,
    compares: Vec<Compare>,
    puts: Vec<TxnOp>,
    bytes: usize,
    /// It has a new promise of the asking node.
    promises: bool,
    /// The kind that it has now, if it had another one or none.
    kind: Option<String>,
    after: Option<Record>,
    answers: Vec<T>,
    hints: Vec<String>,
}

impl<T> Write<T> {
    fn weight(&self) -> usize {
        self.compares.len().max(self.puts.len()).max(2)
    }
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
        if foreign && base.source == Source::Told {
            let others = before.iter().flat_map(|record| &record.holds);
            if others.into_iter().any(|hold| hold.node != asker.node) {
                // Whether its node lives, only a read says.
                return Made::Unsure;
            }
        }
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

    /// The transaction that makes `after` of what the base is, without what there is to answer.
    fn written<T>(
        &self,
        name: &str,
        base: &Base,
        before: Option<&Record>,
        mut after: Option<Record>,
        node: &str,
    ) -> Write<T> {
        let keys = &self.keys;
        let mut compares =
            vec![Compare::mod_revision(keys.job(name), CompareOp::Equal, base.revision)];
        if before.is_none()
            && let Some((_, revision)) = base.floor
        {
            compares.push(Compare::mod_revision(keys.floor(), CompareOp::Equal, revision));
        }
        let (mut puts, mut bytes, mut promises) = (Vec::new(), 0, false);
        let (was, is) = (keys.notice(name, before), keys.notice(name, after.as_ref()));
        if was != is {
            puts.extend(was.map(|key| TxnOp::delete(key, None)));
            puts.extend(is.map(|key| TxnOp::put(key, "", None)));
        }
        if let Some(record) = &mut after {
            let data = std::mem::take(&mut record.data);
            if before.map_or(&[][..], |before| &before.data) != data {
                bytes += data.len();
                puts.push(match data.is_empty() {
                    true => TxnOp::delete(keys.data(name), None),
                    false => TxnOp::put(keys.data(name), data, None),
                });
            }
            let value = codec::encode(record);
            bytes += value.len();
            puts.push(TxnOp::put(keys.job(name), value, None));
            if let Some(gone) = record.gone
                && before.is_none_or(|before| before.gone != record.gone)
            {
                puts.push(TxnOp::put(keys.gone(gone, name), "", None));
            }
            let held = before.map_or(&[][..], |before| &before.holds);
            promises = record.holds.iter().any(|hold| {
                hold.node == node
                    && !held.iter().any(|old| old.fence == hold.fence && old.until == hold.until)
            });
        }
        let had = before.map_or("", |before| &before.kind);
        let kind = after.as_ref().map(|after| after.kind.clone()).filter(|kind| *kind != had);
        let (answers, hints) = (Vec::new(), Vec::new());
        Write { group: 0, compares, puts, bytes, promises, kind, after, answers, hints }
    }

    /// Sends what is to be written; whoever loses gets the truth as its base.
    async fn write<T: Send>(
        &self,
        asker: Asker<'_>,
        groups: &mut [Group<'_, T>],
        writes: Vec<Write<T>>,
    ) -> Result {
        let mut batches: Vec<Vec<Write<T>>> = Vec::new();
        let (mut bytes, mut weight, mut kinds) = (0, 0, 0);
        for write in writes {
            weight = weight.max(write.weight());
            bytes += write.bytes;
            kinds += usize::from(write.kind.is_some());
            // Beside the transactions there may be kinds and a hint, in the outer one.
            let fits = |batch: &Vec<Write<T>>| {
                batch.len() + kinds + 2 + weight <= self.operations && bytes <= BYTES
            };
            match batches.last_mut().filter(|batch| fits(batch)) {
                Some(batch) => batch.push(write),
                None => {
                    (bytes, weight) = (write.bytes, write.weight());
                    kinds = usize::from(write.kind.is_some());
                    batches.push(vec![write]);
                }
            }
        }
        let names = |write: &Write<T>| groups[write.group].name;
        let sent = batches.iter_mut().map(|batch| {
            let mut nested: Vec<TxnOp> = Vec::with_capacity(batch.len() + 1);
            for write in batch.iter_mut() {
                let name = names(write);
                let truth =
                    [TxnOp::get(self.keys.job(name), None), TxnOp::get(self.keys.data(name), None)];
                nested.push(TxnOp::txn(
                    Txn::new()
                        .when(std::mem::take(&mut write.compares))
                        .and_then(std::mem::take(&mut write.puts))
                        .or_else(truth),
                ));
            }
            let mut hints = batch.iter().flat_map(|write| &write.hints);
            if let Some(hint) = hints.next() {
                let more = hints.next().is_some();
                let hint = if more { crate::watch::LOOK } else { hint };
                nested.push(TxnOp::put(self.keys.told(), hint, None));
            }
            let kinds: HashSet<String> =
                batch.iter_mut().filter_map(|write| write.kind.take()).collect();
            let kinds = kinds.iter().filter(|kind| !kind.is_empty());
            nested.extend(kinds.map(|kind| TxnOp::put(self.keys.kind(kind), "", None)));
            let mut txn = Txn::new();
            if batch.iter().any(|write| write.promises) {
                let mark = self.keys.mark(asker.node);
                txn = txn.when([Compare::create_revision(mark, CompareOp::Greater, 0)]);
            }
            self.txn(asker.op, txn.and_then(nested))
        });
        let answers = at_once(sent).await?;
        for (batch, answer) in batches.into_iter().zip(answers) {
            if !answer.succeeded() {
                self.marks.is_gone(asker.node);
                let lost = "the node's mark was gone; ask again";
                return Err(Error::new(Kind::Unavailable, lost).op(asker.op));
            }
            let revision = answer.header().map_or(0, |header| header.revision());
            let mut known = self.known();
            let mut told = answer.op_responses().into_iter();
            for write in batch {
                let Some(TxnOpResponse::Txn(answer)) = told.next() else {
                    return Err(strange(asker.op));
                };
                let group = &mut groups[write.group];
                if answer.succeeded() {
                    remember(&mut known, group.name, write.after, revision);
                    group.answers = Some(write.answers);
                } else {
                    let mut truth = gets(&answer).into_iter();
                    let (Some(job), Some(data)) = (truth.next(), truth.next()) else {
                        return Err(strange(asker.op));
                    };
                    let base = Base::read(&job, &data, Source::Told);
                    base.remember(&mut known, group.name);
                    group.base = Some(base);
                }
            }
        }
        Ok(())
    }

    /// The records of these, with their data, as they are now.
    async fn read(&self, asker: Asker<'_>, names: &[&str]) -> Result<Vec<Base>> {
        let all_marks = || {
            let options = GetOptions::new().with_prefix().with_keys_only();
            TxnOp::get(self.keys.marks(), Some(options))
        };
        let sent = names.chunks((self.operations - 2) / 2).map(|chunk| {
            let mut ops = vec![TxnOp::get(self.keys.floor(), None), all_marks()];
            for name in chunk {
                ops.push(TxnOp::get(self.keys.job(name), None));
                ops.push(TxnOp::get(self.keys.data(name), None));
            }
            self.txn(asker.op, Txn::new().and_then(ops))
        });
        let mut bases = Vec::with_capacity(names.len());
        for answer in at_once(sent).await? {
            let mut answers = gets(&answer).into_iter();
            let (Some(floor), Some(marks)) = (answers.next(), answers.next()) else {
                return Err(strange(asker.op));
            };
            let floor = number(&floor);
            let alive = Arc::new(self.nodes_in(&marks));
            while let (Some(job), Some(data)) = (answers.next(), answers.next()) {
                let mut base = Base::read(&job, &data, Source::Read);
                base.floor = Some(floor);
                base.alive = Some(alive.clone());
                bases.push(base);
            }
        }
        let mut known = self.known();
        for (name, base) in names.iter().zip(&bases) {
            base.remember(&mut known, name);
        }
        Ok(bases)
    }

    /// The states of these jobs as the asker is to see them, by position; `None` for a job that is
    /// not there.
    pub(crate) async fn states(
        &self,
        asker: Asker<'_>,
        names: &[&str],
    ) -> Result<Vec<(Option<State>, i64)>> {
        let bases = self.read(asker, names).await?;
        let state = |(name, base): (&&str, Base)| match base.record {
            Err(reason) => (Some(State::parked(*name, reason)), base.revision),
            Ok(record) => {
                let live = record.filter(Record::is_live);
                let state = live.map(|mut record| {
                    if matches!(asker.now, Now::Store { .. }) {
                        let here = asker.now.here();
                        Seen::of(&mut record, asker.node, here, base.alive.as_deref());
                    }
                    record.state(name)
                });
                (state, base.revision)
            }
        };
        Ok(names.iter().zip(bases).map(state).collect())
    }

    pub(crate) async fn txn(&self, op: &'static str, txn: Txn) -> Result<etcd_client::TxnResponse> {
        self.driver
            .call(op, move |client| {
                let txn = txn.clone();
                async move { kv(&client).txn(txn).await }
            })
            .await
    }

    /// Makes sure that the namespace is there and of our version, and that it can be written.
    pub(crate) async fn open(&self, timeout: Duration) -> Result {
        const OP: &str = "connect";
        let key = self.keys.version();
        let txn = Txn::new()
            .when([Compare::value(key.clone(), CompareOp::Equal, VERSION)])
            // Written in any case: whoever may only read is told so now.
            .and_then([TxnOp::put(key.clone(), VERSION, None)])
            .or_else([TxnOp::txn(
                Txn::new()
                    .when([Compare::create_revision(key.clone(), CompareOp::Equal, 0)])
                    .and_then([TxnOp::put(key.clone(), VERSION, None)])
                    .or_else([TxnOp::get(key, None)]),
            )]);
        let asked = self.driver.call_within(OP, timeout, move |client| {
            let txn = txn.clone();
            async move { kv(&client).txn(txn).await }
        });
        let answer = asked.await?;
        if answer.succeeded() {
            return Ok(());
        }
        let Some(TxnOpResponse::Txn(inner)) = answer.op_responses().into_iter().next() else {
            return Err(strange(OP));
        };
        if inner.succeeded() {
            return Ok(());
        }
        let found = gets(&inner).into_iter().next();
        let found = found.and_then(|get| Some(get.kvs().first()?.value().to_vec()));
        let found = String::from_utf8_lossy(&found.unwrap_or_default()).into_owned();
        let wrong = format!(
            "the keys under {:?} have version {found:?}, and this build knows {VERSION:?}: update \
             it, or take another prefix",
            self.keys.all()
        );
        Err(Error::invalid(wrong).op(OP))
    }

    /// The jobs that this node knows to be run by another.
    pub(crate) fn run_by(&self, node: &str) -> Vec<String> {
        let by = |known: &Known| known.record.holds.iter().any(|hold| plain(&hold.node) == node);
        let known = self.known();
        known.iter().filter(|(_, known)| by(known)).map(|(name, _)| name.clone()).collect()
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Made<T> {
    /// Nothing is to be written.
    Nothing(Vec<T>),
    /// What is known is not enough.
    Unsure,
    Write(Box<Write<T>>),
}

impl Base {
    fn read(job: &GetResponse, data: &GetResponse, source: Source) -> Self {
        let (record, revision) = match job.kvs().first() {
            None => (Ok(None), 0),
            Some(kv) => match codec::decode(kv.value()) {
                Ok(mut record) => {
                    record.data =
                        data.kvs().first().map(|kv| kv.value().to_vec()).unwrap_or_default();
                    (Ok(Some(record)), kv.mod_revision())
                }
                Err(why) => (Err(why.to_string()), kv.mod_revision()),
            },
        };
        Self { record, revision, source, floor: None, alive: None }
    }

    fn remember(&self, known: &mut HashMap<String, Known>, name: &str) {
        let record = self.record.as_ref().ok().cloned().flatten();
        let record = record.map(|record| Record { data: Vec::new(), ..record });
        remember(known, name, record, self.revision);
    }
}

/// How the runs of other nodes are shown to a node: their ends are by other clocks, so that only
/// their nodes' marks say whether they live.
#[derive(Default)]
struct Seen {
    /// Fence, the end as it is, the end as it was shown.
    ends: Vec<(i64, Time, Time)>,
    /// The nodes that were taken for dead: the write must compare that they are.
    dead: Vec<String>,
}

impl Seen {
    fn of(record: &mut Record, node: &str, now: Time, alive: Option<&HashSet<Vec<u8>>>) -> Self {
        let mut seen = Self::default();
        for hold in record.holds.iter_mut().filter(|hold| hold.node != node) {
            let dead = alive.is_some_and(|alive| !alive.contains(plain(&hold.node).as_bytes()));
            let shown = if dead {
                hold.until.min(now)
            } else {
                hold.until.clamp(saturating_add(now, RECHECK), saturating_add(now, LATEST))
            };
            if dead && !seen.dead.contains(&hold.node) {
                seen.dead.push(hold.node.clone());
            }
            seen.ends.push((hold.fence, hold.until, shown));
            hold.until = shown;
        }
        seen
    }

    /// What was only shown is not written.
    fn put_back(&self, record: &mut Record) {
        for hold in &mut record.holds {
            let end = self.ends.iter().find(|(fence, ..)| *fence == hold.fence);
            if let Some((_, until, shown)) = end
                && hold.until == *shown
            {
                hold.until = *until;
            }
        }
    }
}

fn remember(known: &mut HashMap<String, Known>, name: &str, record: Option<Record>, revision: i64) {
    let Some(record) = record else {
        known.remove(name);
        return;
    };
    if known.get(name).is_some_and(|known| known.revision > revision) {
        return;
    }
    if known.len() >= REMEMBERED
        && !known.contains_key(name)
        && let Some(any) = known.keys().next().cloned()
    {
        known.remove(&any);
    }
    known.insert(name.to_owned(), Known { record, revision });
}

/// Several exchanges beside each other: each waits for the members' disks.
async fn at_once<T>(sent: impl Iterator<Item = impl Future<Output = Result<T>>>) -> Result<Vec<T>> {
    let sent: Vec<_> = sent.collect();
    futures::stream::iter(sent).buffered(AT_ONCE).try_collect().await
}

/// The answers to the reads of a transaction.
pub(crate) fn gets(answer: &etcd_client::TxnResponse) -> Vec<GetResponse> {
    let get = |op| match op {
        TxnOpResponse::Get(get) => Some(get),
        _ => None,
    };
    answer.op_responses().into_iter().filter_map(get).collect()
}

/// A number that is kept as text, and its revision; 0 and 0 if there is none.
pub(crate) fn number(answer: &GetResponse) -> (i64, i64) {
    answer.kvs().first().map_or((0, 0), |kv| {
        let value = std::str::from_utf8(kv.value()).ok().and_then(|text| text.parse().ok());
        (value.unwrap_or(0), kv.mod_revision())
    })
}
