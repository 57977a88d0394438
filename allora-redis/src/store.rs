//! The way of every operation: read the records, let core's state machine decide, write back what it
//! changed if nobody else wrote in between. Of jobs that are known here already, takes and finishes
//! are decided before anything is read, so that reading and writing is one call.

use crate::{
    hash::{Fields, NAMES, ms},
    keys::{Keys, Shard},
    known::{Cache, Known, Move, Span},
    link::{Confirm, Link},
    script::{Call, Scripts},
    unused::Unused,
};
use allora_core::{
    Error, Kind, Result, Time,
    backend::{Now, Past, State},
    record::{At, Ledger, Record, TOMBSTONE},
    time::saturating_add,
};
use chrono::DateTime;
use futures::future::try_join_all;
use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use std::{
    collections::{HashMap, hash_map::Entry},
    mem,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// How often a batch is read again because another node wrote first. Each time somebody's write has
/// succeeded, so this is no matter of waiting.
const TRIES: usize = 64;

/// How many jobs one script touches at most: others wait for it.
pub(crate) const CHUNK: usize = 1_000;

/// One installation behind a link.
pub(crate) struct Store {
    pub(crate) link: Link,
    pub(crate) keys: Keys,
    pub(crate) scripts: Scripts,
    /// Where it is, without its password: for errors.
    pub(crate) place: String,
    /// What the server may forget of what it has answered.
    pub(crate) caveat: Option<&'static str>,
    /// How many entries of history each shard keeps; 0 is none.
    pub(crate) history: u64,
    /// When unused jobs are forgotten.
    pub(crate) unused: Option<Unused>,
    /// What a take waits for.
    pub(crate) confirm: Option<Confirm>,
    /// By what each shard is known not to have been emptied.
    pub(crate) marks: Mutex<HashMap<u32, Vec<u8>>>,
    /// Drawn when the store was opened: what this node writes is like nothing that another writes.
    pub(crate) writer: String,
    pub(crate) written: AtomicU64,
    /// What was seen last.
    pub(crate) cache: Mutex<Cache>,
}

/// The record of one name between reading and writing.
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

/// Something to do with a batch of records.
pub(crate) trait Work: Sync {
    type Answer: Send;

    /// Decides about the `i`-th; may be asked several times, the last time counts.
    fn decide(&self, i: usize, slot: Slot<'_>, at: At<'_>, ledger: &mut Ledger) -> Self::Answer;

    /// After which instant, by the server's clock, the decision must not be carried out any more.
    fn fresh_until(&self, _i: usize) -> Option<Time> {
        None
    }

    /// If what is decided about the `i`-th depends on the clock only by when it holds and when a run
    /// ends: that.
    fn span(&self, _i: usize, _record: &Record) -> Option<Span> {
        None
    }

    /// Whether what was decided counts only when enough replicas have it.
    fn is_to_be_confirmed(&self) -> bool {
        false
    }
}

/// What came of it.
pub(crate) struct Done<T> {
    pub(crate) now: Option<Time>,
    pub(crate) answers: Vec<T>,
}

/// What a script says before it says anything about jobs.
pub(crate) struct Head {
    /// Microseconds.
    pub(crate) clock: i64,
    pub(crate) floor: i64,
}

impl Store {
    /// Gives `work` the record of each name in turn, and stores what it changed.
    pub(crate) async fn with<W: Work>(
        &self,
        op: &'static str,
        names: &[&str],
        node: &str,
        now: Now,
        work: &W,
    ) -> Result<Done<W::Answer>> {
        let mut shards: HashMap<u32, Vec<usize>> = HashMap::new();
        for (i, name) in names.iter().enumerate() {
            shards.entry(self.keys.shard_of(name)).or_default().push(i);
        }
        let batch = Batch { store: self, op, names, node, now, work };
        let all = try_join_all(shards.into_iter().map(|(shard, which)| batch.run(shard, which)));
        let mut answers: Vec<Option<W::Answer>> = names.iter().map(|_| None).collect();
        let mut latest = None;
        for (now, answered) in all.await? {
            latest = latest.max(Some(now));
            for (i, answer) in answered {
                answers[i] = Some(answer);
            }
        }
        // Every position is in one shard, and a shard answers all of its positions.
        Ok(Done { now: latest, answers: answers.into_iter().flatten().collect() })
    }

    /// Reads jobs as they are.
    pub(crate) async fn read(
        &self,
        op: &'static str,
        shard: u32,
        names: &[&str],
    ) -> Result<(Head, Vec<Stored>)> {
        let call = self.reads(&self.keys.shard(shard), names.iter().copied());
        let (head, rest) = self.call(op, shard, &call).await?;
        let read = names.iter().zip(rest).map(|(name, value)| Stored::new(name, value));
        Ok((head, read.collect()))
    }

    fn reads<'n>(&self, keys: &Shard, names: impl Iterator<Item = &'n str>) -> Call<'_> {
        let mut call = Call::new(&self.scripts.read, &[keys.state(), keys.lines()]);
        call.arg(keys.job(""));
        for name in names {
            call.arg(name);
        }
        call
    }

    /// Calls a script whose answer begins with a [`Head`].
    pub(crate) async fn call(
        &self,
        op: &'static str,
        shard: u32,
        call: &Call<'_>,
    ) -> Result<(Head, Vec<Value>)> {
        let answer = self.link.call(call).await.map_err(|cause| self.failed(op, cause))?;
        let Value::Array(mut values) = answer else { return Err(self.odd(op)) };
        if values.len() < 3 {
            return Err(self.odd(op));
        }
        let rest = values.split_off(3);
        let mut head = values.into_iter().map(bytes);
        let clock = head.next().flatten().and_then(|clock| number(&clock));
        let mark = head.next().flatten();
        let floor = head.next().flatten().and_then(|floor| number(&floor)).unwrap_or(0);
        let clock = clock.ok_or_else(|| self.odd(op))?;
        self.check_mark(op, shard, mark).await?;
        Ok((Head { clock, floor }, rest))
    }

    /// An emptied shard is told once, as an error; then it is a new one.
    async fn check_mark(&self, op: &'static str, shard: u32, mark: Option<Vec<u8>>) -> Result {
        let known = {
            let marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
            marks.get(&shard).cloned()
        };
        if mark.is_some() && mark == known {
            return Ok(());
        }
        self.open(op, shard).await?;
        let place = &self.place;
        let prefix = &self.keys.prefix;
        let lost = format!(
            "{place} was emptied: all that {prefix:?} had stored there is lost, stored schedules \
             for good; jobs in code are registered again"
        );
        Err(Error::new(Kind::Other, lost).op(op))
    }

    /// Marks a shard that has no mark, and remembers the one it has.
    pub(crate) async fn open(&self, op: &'static str, shard: u32) -> Result {
        let failed = |cause| self.failed(op, cause);
        let state = self.keys.shard(shard).state();
        let mut set = redis::cmd("HSETNX");
        set.arg(&state).arg("mark").arg(self.token());
        self.link.ask::<bool>(&set).await.map_err(failed)?;
        let mut get = redis::cmd("HGET");
        get.arg(&state).arg("mark");
        let mark: Vec<u8> = self.link.ask(&get).await.map_err(failed)?;
        self.marks.lock().unwrap_or_else(PoisonError::into_inner).insert(shard, mark);
        Ok(())
    }

    /// Keeps in mind what was seen.
    pub(crate) fn remember(&self, seen: Vec<(String, Box<Known>)>) {
        if self.history > 0 {
            // Nobody would ask for it.
            return;
        }
        let mut cache = Cache::lock(&self.cache);
        for (name, known) in seen {
            cache.put(name, known);
        }
    }

    /// A word that nobody has ever written.
    pub(crate) fn token(&self) -> String {
        let count = self.written.fetch_add(1, Ordering::Relaxed);
        format!("{}.{count:x}", self.writer)
    }

    /// Makes sure that enough replicas have what was written.
    async fn confirm(&self, op: &'static str, shard: u32) -> Result {
        let Some(confirm) = self.confirm else { return Ok(()) };
        let state = self.keys.shard(shard).state();
        let have = self.link.confirm(&state, confirm).await;
        let have = have.map_err(|cause| self.failed(op, cause))?;
        if have >= confirm.replicas {
            return Ok(());
        }
        let (place, want) = (&self.place, confirm.replicas);
        let few = format!("{place}: {have} of {want} replicas confirmed in time");
        Err(Error::new(Kind::Unavailable, few).op(op))
    }

    /// The error of an operation that came to nothing, or of which nobody knows.
    pub(crate) fn failed(&self, op: &'static str, cause: RedisError) -> Error {
        let place = &self.place;
        let (kind, said) = match cause.kind() {
            ErrorKind::AuthenticationFailed | ErrorKind::Server(ServerErrorKind::NoPerm) => {
                (Kind::Other, format!("{place} does not permit it to this user"))
            }
            ErrorKind::Server(_) | ErrorKind::Extension => {
                (Kind::Unavailable, format!("{place} refused the command"))
            }
            _ => (Kind::Unavailable, format!("{place} did not answer")),
        };
        Error::new(kind, said).op(op).source(cause)
    }

    /// The error for an answer that no script of ours gives.
    pub(crate) fn odd(&self, op: &'static str) -> Error {
        let odd = format!("{} gave an answer that no script of allora gives", self.place);
        Error::new(Kind::Other, odd).op(op)
    }

    fn ledger(&self) -> Ledger {
        if self.history > 0 { Ledger::kept() } else { Ledger::off() }
    }
}

/// One batch of one kind of work.
struct Batch<'a, W> {
    store: &'a Store,
    op: &'static str,
    names: &'a [&'a str],
    node: &'a str,
    now: Now,
    work: &'a W,
}

/// Where one name stands in a batch.
struct Positions {
    first: usize,
    more: Vec<usize>,
}

/// The instant that decided, and the answers by position.
type Answered<T> = (Time, Vec<(usize, T)>);

impl<W: Work> Batch<'_, W> {
    /// What is to be done in one shard.
    async fn run(&self, shard: u32, which: Vec<usize>) -> Result<Answered<W::Answer>> {
        let mut jobs: Vec<Positions> = Vec::with_capacity(which.len());
        let mut known: HashMap<&str, usize> = HashMap::with_capacity(which.len());
        for i in which {
            match known.entry(self.names[i]) {
                Entry::Occupied(job) => jobs[*job.get()].more.push(i),
                Entry::Vacant(place) => {
                    place.insert(jobs.len());
                    jobs.push(Positions { first: i, more: Vec::new() });
                }
            }
        }
        let mut all = Vec::with_capacity(jobs.len());
        let mut latest = None;
        while !jobs.is_empty() {
            let rest = jobs.split_off(jobs.len().min(CHUNK));
            let (now, answered) = self.run_chunk(shard, mem::replace(&mut jobs, rest)).await?;
            latest = latest.max(Some(now));
            all.extend(answered);
        }
        Ok((latest.unwrap_or_else(|| self.now.here()), all))
    }

    async fn run_chunk(&self, shard: u32, mut jobs: Vec<Positions>) -> Result<Answered<W::Answer>> {
        let Self { store, op, work, .. } = self;
        let keys = store.keys.shard(shard);
        let mut moves = self.moves(&jobs);
        let token = store.token();
        let mut answered = Vec::new();
        for _ in 0..TRIES {
            let call = match moves.is_empty() {
                true => store.reads(&keys, jobs.iter().map(|job| self.names[job.first])),
                false => self.call(&keys, &jobs, &moves, &token),
            };
            let (head, values) = store.call(op, shard, &call).await?;
            let now = decides(self.now, head.clock);
            let mut seen = Vec::new();
            let mut drafts = Vec::new();
            let mut moves = mem::take(&mut moves).into_iter().peekable();
            for (job, (positions, value)) in jobs.into_iter().zip(values).enumerate() {
                let moved = moves.next_if(|moved| moved.job == job);
                if value == Value::Int(1) {
                    let mut moved = moved.ok_or_else(|| store.odd(op))?;
                    moved.known.went(&moved.made, &token, now);
                    // As whoever asks again after its answer was lost is told what it won.
                    let slot = Slot::Sound(moved.known.slot());
                    let answer = self.decide_one(positions.first, slot, now, head.floor);
                    seen.push((moved.name, moved.known));
                    answered.push((positions.first, answer));
                    continue;
                }
                let stored = Stored::new(self.names[positions.first], value);
                let mut draft = self.decide(positions, stored, now, head.floor);
                if draft.is_changed() {
                    drafts.push(draft);
                } else {
                    draft.stored.record = draft.before.map(Ok);
                    seen.extend(draft.stored.known());
                    answered.extend(draft.answers);
                }
            }
            store.remember(seen);
            jobs = self.write(&keys, &head, drafts, &mut answered).await?;
            if jobs.is_empty() {
                if work.is_to_be_confirmed() {
                    store.confirm(op, shard).await?;
                }
                return Ok((now, answered));
            }
        }
        let busy = format!("{}: other nodes always wrote first", store.place);
        Err(Error::new(Kind::Unavailable, busy).op(op))
    }

    /// What becomes of those jobs of which it can be said already.
    fn moves(&self, jobs: &[Positions]) -> Vec<Moved> {
        // The history is written in the same step as the record, and scripts cannot count with all
        // instants.
        if self.store.history > 0 || given(self.now).is_none() {
            return Vec::new();
        }
        let mut cache = Cache::lock(&self.store.cache);
        let moved = jobs.iter().enumerate().filter_map(|(job, positions)| {
            // Two of one job are applied one after the other.
            let i = Some(positions.first).filter(|_| positions.more.is_empty())?;
            let (name, mut known) = cache.take(self.names[i])?;
            let span = self.work.span(i, known.record()?)?;
            let made = known.go(span, |slot, now| {
                self.decide_one(i, Slot::Sound(slot), now, 0);
            })?;
            Some(Moved { job, name, known, made })
        });
        moved.collect()
    }

    /// The call that carries the moves out, and reads the jobs that have none.
    fn call(&self, keys: &Shard, jobs: &[Positions], moves: &[Moved], token: &str) -> Call<'_> {
        let mut call = Call::new(&self.store.scripts.moves, &[keys.state(), keys.lines()]);
        call.arg(given(self.now).unwrap_or_default());
        let spans = || moves.iter().map(|moved| moved.made.span);
        call.optional(spans().filter_map(|span| span.from).max());
        call.optional(spans().filter_map(|span| span.until).min());
        call.arg(token).arg(keys.job("")).arg(keys.due("")).arg(jobs.len());
        for job in jobs {
            call.arg(self.names[job.first]);
        }
        let mut each = |part: fn(&Moved) -> &[u8]| {
            let mut moves = moves.iter().peekable();
            for job in 0..jobs.len() {
                call.arg(moves.next_if(|moved| moved.job == job).map_or(&[][..], part));
            }
        };
        each(|moved| &moved.known.line);
        each(|moved| &moved.made.tail);
        for Moved { job, known, made, .. } in moves {
            if let Some(notice) = made.notice {
                let kind = known.record().map_or("", |record| record.kind.as_str());
                call.arg(job + 1).arg(kind);
                call.optional(notice).optional(made.span.lasts);
            }
        }
        call
    }

    fn decide_one(&self, i: usize, slot: Slot<'_>, now: Time, floor: i64) -> W::Answer {
        let at = At { node: self.node, now, floor };
        self.work.decide(i, slot, at, &mut self.store.ledger())
    }

    fn decide(
        &self,
        positions: Positions,
        stored: Stored,
        now: Time,
        floor: i64,
    ) -> Draft<W::Answer> {
        let mut draft = Draft::new(stored, now, floor);
        let mut ledger = self.store.ledger();
        for i in std::iter::once(&positions.first).chain(&positions.more) {
            let at = At { node: self.node, now, floor: draft.floor };
            let slot = match &draft.parked {
                None => Slot::Sound(&mut draft.after),
                Some(reason) => Slot::Parked { reason, instead: &mut draft.after },
            };
            let answer = self.work.decide(*i, slot, at, &mut ledger);
            draft.answers.push((*i, answer));
        }
        draft.past = ledger.take();
        draft
    }

    /// Writes what is still as it was read; answers with what is not.
    async fn write(
        &self,
        keys: &Shard,
        head: &Head,
        drafts: Vec<Draft<W::Answer>>,
        answered: &mut Vec<(usize, W::Answer)>,
    ) -> Result<Vec<Positions>> {
        let store = self.store;
        if drafts.is_empty() {
            return Ok(Vec::new());
        }
        let (token, now) = (store.token(), decides(self.now, head.clock));
        let mut all = vec![keys.state(), keys.lines(), keys.names(), keys.gone()];
        all.extend([keys.kinds(), keys.past(), keys.told()]);
        let mut call = Call::new(&store.scripts.write, &all);
        call.arg(keys.due("")).arg(keys.job("")).arg(head.floor).arg(store.history);
        let mut written = Vec::with_capacity(drafts.len());
        for draft in &drafts {
            let fresh = draft.answers.iter().filter_map(|(i, _)| self.work.fresh_until(*i)).min();
            let fresh = fresh.filter(|_| matches!(self.now, Now::Store { .. }));
            written.push(draft.args(&mut call, &token, now, fresh));
        }
        let said = store.link.call(&call).await.map_err(|cause| store.failed(self.op, cause))?;
        let Value::Array(said) = said else { return Err(store.odd(self.op)) };
        if said.len() != drafts.len() {
            return Err(store.odd(self.op));
        }
        let (mut lost, mut seen) = (Vec::new(), Vec::new());
        for ((draft, fields), said) in drafts.into_iter().zip(written).zip(said) {
            if said == Value::Int(1) {
                let known =
                    fields.and_then(|fields| Known::new(fields.record().ok()?, fields.line));
                seen.extend(known.map(|known| (draft.stored.name, known)));
                answered.extend(draft.answers);
            } else {
                let mut positions = draft.answers.into_iter().map(|(i, _)| i);
                let first = positions.next().ok_or_else(|| store.odd(self.op))?;
                lost.push(Positions { first, more: positions.collect() });
            }
        }
        store.remember(seen);
        Ok(lost)
    }
}

/// What becomes of a job, and from what.
struct Moved {
    /// Which of a batch.
    job: usize,
    name: String,
    known: Box<Known>,
    made: Move,
}

/// A job as it was read.
pub(crate) struct Stored {
    pub(crate) name: String,
    /// `None`: there is nothing under its key.
    pub(crate) fields: Option<Fields>,
    /// The record, or why nobody can read it; `None` if there is none.
    pub(crate) record: Option<Result<Record, String>>,
}

impl Stored {
    pub(crate) fn new(name: &str, value: Value) -> Self {
        let mut stored = Self { name: name.to_owned(), fields: None, record: None };
        let Value::Array(values) = value else {
            stored.record = Some(Err("it was not answered with its fields".to_owned()));
            return stored;
        };
        if values.len() != NAMES.len() + 1 {
            let mut values = values.into_iter().map(|value| bytes(value).unwrap_or_default());
            let mut next = || values.next().unwrap_or_default();
            stored.fields = Some(Fields { line: next(), ..Fields::default() });
            let told = next();
            let told = String::from_utf8_lossy(&told);
            stored.record = Some(Err(format!("its key holds something else: {told}")));
            return stored;
        }
        if values.iter().all(|value| *value == Value::Nil) {
            return stored;
        }
        let has_text = values[3] != Value::Nil;
        let mut values = values.into_iter().map(|value| bytes(value).unwrap_or_default());
        let mut next = || values.next().unwrap_or_default();
        let fields =
            Fields { line: next(), cold: next(), kind: next(), text: next(), data: next() };
        stored.record = Some(match has_text {
            true => fields.record(),
            false => Err("its definition is missing".to_owned()),
        });
        stored.fields = Some(fields);
        stored
    }

    /// What is to be kept in mind of it.
    pub(crate) fn known(self) -> Option<(String, Box<Known>)> {
        Some((self.name, Known::new(self.record?.ok()?, self.fields?.line)?))
    }

    /// The job as its readers see it; `None` if there is none or it was deleted.
    pub(crate) fn state(&self) -> Option<State> {
        match self.record.as_ref()? {
            Ok(record) => record.is_live().then(|| record.state(&self.name)),
            Err(reason) => Some(State::parked(self.name.clone(), reason.clone())),
        }
    }
}

/// One job between reading and writing.
struct Draft<T> {
    stored: Stored,
    before: Option<Record>,
    after: Option<Record>,
    /// Why it cannot be read.
    parked: Option<String>,
    floor: i64,
    answers: Vec<(usize, T)>,
    past: Vec<Past>,
}

impl<T> Draft<T> {
    fn new(mut stored: Stored, now: Time, floor: i64) -> Self {
        let fence = stored.fields.as_ref().map_or(0, Fields::fence);
        let (mut before, mut parked, mut above) = (None, None, floor);
        match stored.record.take() {
            None => {}
            Some(Ok(record)) => {
                // A tombstone whose time has come is as good as none.
                let gone = record.gone.map(|gone| saturating_add(gone, TOMBSTONE));
                if gone.is_some_and(|over| over <= now) {
                    above = floor.max(record.fence);
                } else {
                    before = Some(record);
                }
            }
            Some(Err(reason)) => {
                above = floor.max(fence);
                parked = Some(reason);
            }
        }
        let after = before.clone();
        Self { stored, before, after, parked, floor: above, answers: Vec::new(), past: Vec::new() }
    }

    fn is_changed(&self) -> bool {
        self.after.is_some() && self.after != self.before
    }

    /// What the script that writes is told; answers with what it writes.
    fn args(
        &self,
        call: &mut Call<'_>,
        token: &str,
        now: Time,
        fresh: Option<Time>,
    ) -> Option<Fields> {
        let after = self.after.as_ref()?;
        let nothing = Fields::default();
        let before = self.stored.fields.as_ref().unwrap_or(&nothing);
        let fields = Fields::of(after, token, now.timestamp_micros());
        call.arg(&self.stored.name).arg(&before.line).arg(&fields.line);
        call.optional(fresh.map(|fresh| fresh.timestamp_micros()));
        call.arg(if self.parked.is_some() { "new" } else { "" });
        let is_new = self.parked.is_some() || self.stored.fields.is_none();
        let changed: Vec<_> = (0..NAMES.len())
            .filter(|i| is_new || before.parts()[*i] != fields.parts()[*i])
            .collect();
        call.arg(changed.len());
        for i in changed {
            call.arg(NAMES[i]).arg(fields.parts()[i]);
        }
        let (was, is) = (self.before.as_ref().and_then(indexed), indexed(after));
        let gone = was.filter(|(kind, _)| is.is_none_or(|(other, _)| other != *kind));
        call.arg(usize::from(gone.is_some()) + usize::from(is.is_some()));
        if let Some((kind, _)) = gone {
            call.arg(kind).arg("");
        }
        if let Some((kind, at)) = is {
            call.arg(kind).arg(at);
        }
        let was_live = self.before.as_ref().is_some_and(Record::is_live) || self.parked.is_some();
        call.arg(match (was_live, after.is_live()) {
            (false, true) => "+",
            (true, false) => "-",
            _ => "",
        });
        match (&self.stored.fields, after.gone) {
            (_, Some(gone)) => call.arg(ms(saturating_add(gone, TOMBSTONE))),
            (Some(_), None) if !was_live => call.arg("-"),
            _ => call.arg(""),
        };
        call.arg(self.past.len());
        for entry in &self.past {
            let [member, score, text] = crate::history::entry(entry);
            call.arg(member).arg(score).arg(text);
        }
        Some(fields)
    }
}

/// Where a record is looked for as work, and when.
fn indexed(record: &Record) -> Option<(&str, i64)> {
    record.notice_at().map(|at| (record.kind.as_str(), ms(at)))
}

/// The instant that decides: the request's, or the server's clock.
pub(crate) fn decides(now: Now, clock: i64) -> Time {
    match now {
        Now::At(at) => at,
        Now::Store { node } => DateTime::from_timestamp_micros(clock).unwrap_or(node),
    }
}

/// The clock as the scripts take it: nothing for the server's own. `None` for one that they cannot
/// count with.
fn given(now: Now) -> Option<String> {
    match now {
        Now::Store { .. } => Some(String::new()),
        // Lua's numbers are whole up to there.
        Now::At(at) => {
            let us = at.timestamp_micros();
            let whole = at.timestamp_subsec_nanos().is_multiple_of(1_000);
            (whole && (0..1 << 52).contains(&us)).then(|| us.to_string())
        }
    }
}

/// A string that was answered.
pub(crate) fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        _ => None,
    }
}

/// A number that was answered as a string.
pub(crate) fn number(bytes: &[u8]) -> Option<i64> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}
