//! The index of due times, of which no more is read than is asked for.
//!
//! etcd walks over every key of a range to count them, whatever the limit, and also over those that
//! were deleted and that nobody has compacted yet. Therefore a range ends where the request does.
//! The next one behind it is looked for further and further ahead, and where that came to an end is
//! remembered as the place to read up to the next time. And a range begins at a *low mark*, below
//! which nothing stands. It is kept in etcd: who writes below it lowers it in the same transaction,
//! and who finds raises it now and then, comparing that nothing is below.

use crate::{
    error::strange,
    exchange::gets,
    keys::{Due, Keys, digits},
    store::Store,
};
use allora_core::{Result, Time, backend::Find, time::saturating_add};
use etcd_client::{Compare, CompareOp, GetOptions, GetResponse, Txn, TxnOp};
use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// After how many that were found the low marks are raised again: a write costs as much as walking
/// over some thousands that were deleted.
const RAISED: usize = 1_000;

/// How many seconds ahead of the end asked for the next one is looked for; then, to the end.
const AHEAD: [u64; 5] = [1, 60, 3_600, 200_000, 12_000_000];

/// Behind all digits.
const END: &str = "g";

/// What is remembered of the parts of the index.
#[derive(Default)]
pub(crate) struct Bounds {
    parts: Mutex<HashMap<String, Bound>>,
    /// How many are to be found before the low marks are raised.
    left: AtomicUsize,
}

/// Neither is relied on: the low mark is read again with the part, and the other is only a place
/// to read up to.
#[derive(Clone, Default)]
struct Bound {
    low: String,
    ahead: String,
}

impl Bounds {
    fn parts(&self) -> MutexGuard<'_, HashMap<String, Bound>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One part of the index, as it was read.
pub(crate) struct Part {
    beside: String,
    bound: Bound,
    /// The low mark's.
    revision: i64,
    /// What wants attention before the end asked for, with its key; one more than the limit.
    pub(crate) due: Vec<(Due, Vec<u8>)>,
    /// The first one behind the end.
    pub(crate) next: Option<Due>,
}

impl Part {
    fn range(&self, from: &str, to: &str, limit: i64) -> TxnOp {
        let options = GetOptions::new().with_range(format!("{}{to}", self.beside));
        let options = options.with_keys_only().with_limit(limit);
        TxnOp::get(format!("{}{from}", self.beside), Some(options))
    }

    fn dues(&self, until: &Until, limit: i64) -> TxnOp {
        self.range(self.bound.low.as_str().min(&until.before), &until.digits, limit)
    }

    fn read(&self, answer: &GetResponse) -> Vec<(Due, Vec<u8>)> {
        let due = |kv: &etcd_client::KeyValue| {
            Keys::read(&self.beside, kv.key()).map(|due| (due, kv.key().to_vec()))
        };
        answer.kvs().iter().filter_map(due).collect()
    }

    /// What was found when it was read from the end asked for up to here.
    fn read_ahead(&mut self, answer: &GetResponse, to: String) {
        let first = answer.kvs().first();
        self.bound.ahead = match first.and_then(|kv| kv.key().strip_prefix(self.beside.as_bytes()))
        {
            Some(found) => format!("{}\0", String::from_utf8_lossy(found)),
            None => to,
        };
        self.next = self.read(answer).pop().map(|(due, _)| due);
    }
}

/// The end of what is asked for.
struct Until {
    at: Time,
    /// The first instant that is not asked for.
    digits: String,
    /// A place in front of it, for ranges that must not be turned round.
    before: String,
}

impl Until {
    fn new(at: Time) -> Self {
        // What is asked for within a millisecond is asked for with all of it.
        let part = i64::from(!at.timestamp_subsec_nanos().is_multiple_of(1_000_000));
        let end = at.timestamp_millis().saturating_add(part);
        let before = if end > 0 { digits(end - 1) } else { String::new() };
        Self { at, digits: digits(end), before }
    }
}

impl Store {
    /// Reads these parts of the index, and what is to be read along.
    pub(crate) async fn parts(
        &self,
        op: &'static str,
        besides: Vec<String>,
        find: &Find<'_>,
        along: &[TxnOp],
    ) -> Result<(Vec<Part>, Vec<GetResponse>)> {
        let until = Until::new(find.until);
        let limit = i64::try_from(find.limit.saturating_add(1)).unwrap_or(i64::MAX);
        let mut parts = self.remembered(besides, &until);
        let mut ops = along.to_vec();
        for part in &parts {
            ops.push(TxnOp::get(self.keys.low(&part.beside), None));
            ops.push(part.dues(&until, limit));
            ops.push(part.range(&until.digits, &part.bound.ahead, 1));
        }
        let mut answers = self.gets(op, ops).await?.into_iter();
        let along = answers.by_ref().take(along.len()).collect();
        let mut again = Vec::new();
        for part in &mut parts {
            let (Some(low), Some(due), Some(next)) =
                (answers.next(), answers.next(), answers.next())
            else {
                return Err(strange(op));
            };
            part.revision = low.kvs().first().map_or(0, |kv| kv.mod_revision());
            let low = low.kvs().first().and_then(|kv| low_in(kv.value())).unwrap_or_default();
            let from = std::mem::replace(&mut part.bound.low, low);
            part.due = part.read(&due);
            let to = std::mem::take(&mut part.bound.ahead);
            part.read_ahead(&next, to);
            if part.bound.low < from {
                again.push(part);
            }
        }
        let ops: Vec<TxnOp> = again.iter().map(|part| part.dues(&until, limit)).collect();
        for (part, due) in again.into_iter().zip(self.gets(op, ops).await?) {
            part.due = part.read(&due);
        }
        // Else the next one is among them.
        if parts.iter().map(|part| part.due.len()).sum::<usize>() <= find.limit {
            self.look_ahead(op, &until, &mut parts).await?;
        }
        let mut bounds = self.bounds.parts();
        bounds.extend(parts.iter().map(|part| (part.beside.clone(), part.bound.clone())));
        drop(bounds);
        Ok((parts, along))
    }

    fn remembered(&self, besides: Vec<String>, until: &Until) -> Vec<Part> {
        let soon =
            digits(saturating_add(until.at, Duration::from_secs(AHEAD[0])).timestamp_millis());
        let bounds = self.bounds.parts();
        let part = |beside: String| {
            let mut bound = bounds.get(&beside).cloned().unwrap_or_default();
            if bound.ahead <= until.digits {
                bound.ahead = if soon > until.digits { soon.clone() } else { END.into() };
            }
            Part { beside, bound, revision: 0, due: Vec::new(), next: None }
        };
        besides.into_iter().map(part).collect()
    }

    /// Looks for the next one, in all parts up to the earliest of any.
    async fn look_ahead(&self, op: &'static str, until: &Until, parts: &mut [Part]) -> Result {
        let further = AHEAD[1..].iter().map(|seconds| Some(Duration::from_secs(*seconds)));
        for ahead in further.chain([None]) {
            let next = parts.iter().filter_map(|part| part.next.as_ref()).map(|due| due.at).min();
            let next = next.map(|at| digits(at.timestamp_millis()));
            let to = ahead.map(|ahead| digits(saturating_add(until.at, ahead).timestamp_millis()));
            let to = to.into_iter().chain(next).min().unwrap_or_else(|| END.into());
            let open = parts.iter_mut().filter(|part| part.next.is_none() && part.bound.ahead < to);
            let open: Vec<&mut Part> = open.collect();
            let ops = open.iter().map(|part| part.range(&part.bound.ahead, &to, 1)).collect();
            for (part, answer) in open.into_iter().zip(self.gets(op, ops).await?) {
                part.read_ahead(&answer, to.clone());
            }
        }
        Ok(())
    }

    /// Raises the low marks of these parts, now that so many more were found; not every time.
    pub(crate) async fn raise(
        &self,
        op: &'static str,
        parts: &[Part],
        find: &Find<'_>,
        found: usize,
    ) -> Result {
        let less = |left: usize| left.checked_sub(found);
        if self.bounds.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
            return Ok(());
        }
        self.bounds.left.store(RAISED, Ordering::Relaxed);
        let until = Until::new(find.until).digits;
        let raised = parts.iter().filter_map(|part| {
            let first = part.due.first().map(|(due, _)| digits(due.at.timestamp_millis()));
            let to = first.unwrap_or_else(|| until.clone());
            let low = &part.bound.low;
            (to > *low).then(|| {
                let below = format!("{}{low}", part.beside);
                let key = self.keys.low(&part.beside);
                let same = Compare::mod_revision(&*key, CompareOp::Equal, part.revision);
                let none = Compare::mod_revision(below, CompareOp::Equal, 0)
                    .with_range(format!("{}{to}", part.beside));
                let put = TxnOp::put(key, to, None);
                TxnOp::txn(Txn::new().when([same, none]).and_then([put]))
            })
        });
        let raised: Vec<TxnOp> = raised.collect();
        for some in raised.chunks(self.operations - 2) {
            self.txn(op, Txn::new().and_then(some)).await?;
        }
        Ok(())
    }

    /// Lowers a low mark that is above what is written with it; does nothing if there is none.
    pub(crate) fn lowered(&self, beside: &str, at: String) -> TxnOp {
        let key = self.keys.low(beside);
        let above = Compare::value(&*key, CompareOp::Greater, &*at);
        TxnOp::txn(Txn::new().when([above]).and_then([TxnOp::put(key, at, None)]))
    }

    /// Reads of any number, so many at once as the server allows.
    pub(crate) async fn gets(
        &self,
        op: &'static str,
        mut ops: Vec<TxnOp>,
    ) -> Result<Vec<GetResponse>> {
        let mut answers = Vec::with_capacity(ops.len());
        while !ops.is_empty() {
            let rest = ops.split_off(ops.len().min(self.operations));
            let answer = self.txn(op, Txn::new().and_then(ops)).await?;
            answers.extend(gets(&answer));
            ops = rest;
        }
        Ok(answers)
    }
}

/// A low mark, if it is one: of anything else nothing follows.
fn low_in(value: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(value).ok()?;
    let is_low = text.len() == 16 && i64::from_str_radix(text, 16).is_ok();
    is_low.then(|| text.to_owned())
}
