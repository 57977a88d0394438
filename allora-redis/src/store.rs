//! The way of every operation: read the records, let core's state machine decide, write back what it
//! changed if nobody else wrote in between. Of jobs that are known here already, takes and finishes
//! are decided before anything is read, so that reading and writing is one call.

use crate::{
    batch::Batch,
    hash::{Fields, NAMES},
    keys::{Keys, Shard},
    known::{Cache, Known, Span},
    link::{Confirm, Link},
    script::{Call, Scripts},
    unused::Unused,
};
use allora_core::{
    Error, Kind, Result, Time,
    backend::{Now, State},
    record::{At, Ledger, Record},
};
use chrono::DateTime;
use futures::future::try_join_all;
use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

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

    pub(crate) fn reads<'n>(&self, keys: &Shard, names: impl Iterator<Item = &'n str>) -> Call<'_> {
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
    pub(crate) async fn confirm(&self, op: &'static str, shard: u32) -> Result {
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

    pub(crate) fn ledger(&self) -> Ledger {
        if self.history > 0 { Ledger::kept() } else { Ledger::off() }
    }
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

/// The instant that decides: the request's, or the server's clock.
pub(crate) fn decides(now: Now, clock: i64) -> Time {
    match now {
        Now::At(at) => at,
        Now::Store { node } => DateTime::from_timestamp_micros(clock).unwrap_or(node),
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
