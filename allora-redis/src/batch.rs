//! One batch: what is known is moved by one call; the rest is read, decided, and written if nobody
//! else wrote in between.

use crate::{
    hash::{Fields, NAMES, ms},
    keys::Shard,
    known::{Cache, Known, Move},
    script::Call,
    store::{CHUNK, Head, Slot, Store, Stored, Work, decides},
};
use allora_core::{
    Error, Kind, Result, Time,
    backend::{Now, Past},
    record::{At, Record, TOMBSTONE},
    time::saturating_add,
};
use redis::Value;
use std::{
    collections::{HashMap, hash_map::Entry},
    mem,
};

/// How often a batch is read again because another node wrote first. Each time somebody's write has
/// succeeded, so this is no matter of waiting.
const TRIES: usize = 64;

/// One batch of one kind of work.
pub(crate) struct Batch<'a, W> {
    pub(crate) store: &'a Store,
    pub(crate) op: &'static str,
    pub(crate) names: &'a [&'a str],
    pub(crate) node: &'a str,
    pub(crate) now: Now,
    pub(crate) work: &'a W,
}

/// Where one name stands in a batch.
struct Positions {
    first: usize,
    more: Vec<usize>,
}

/// The instant that decided, and the answers by position.
pub(crate) type Answered<T> = (Time, Vec<(usize, T)>);

impl<W: Work> Batch<'_, W> {
    /// What is to be done in one shard.
    pub(crate) async fn run(&self, shard: u32, which: Vec<usize>) -> Result<Answered<W::Answer>> {
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
            if values.len() != jobs.len() {
                return Err(store.odd(op));
            }
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
