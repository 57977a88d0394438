//! The index of due times, of which no more is read than is needed.
//!
//! etcd walks over every key of a range to count them, whatever the limit, and also over deleted
//! keys that are not compacted yet. Therefore a range ends at the time that is asked for. The next
//! entry behind it is searched further and further ahead, and the place where it was found is
//! remembered as the end of the next search. And a range begins at a *low mark*, below which there is
//! no entry. The mark is stored in etcd: a write below it lowers it in the same transaction, and a
//! query raises it now and then, comparing that nothing is below.

use crate::{
    client::Client,
    error::unexpected_response,
    keys::{IndexEntry, Keys, digits},
};
use allora_core::{Result, Time, backend::DueQuery, time::saturating_add};
use etcd_client::{Compare, CompareOp, GetOptions, GetResponse, Txn, TxnOp};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// The number of found entries after which the low marks are raised again: a write costs as much as
/// walking over some thousands of deleted keys.
const RAISE_EVERY: usize = 1_000;

/// The distances, in seconds, from the end of the query to which the next entry is searched; then,
/// to the end.
const AHEAD: [u64; 5] = [1, 60, 3_600, 200_000, 12_000_000];

/// A text behind all digits.
const END: &str = "g";

/// The number of nodes whose entries a query passes to find as many of its own as it asks for. Entries
/// are small beside the records.
const PASSED: usize = 8;

/// The number of entries to read for a query.
fn entries_of(query: &DueQuery<'_>) -> usize {
    let nodes = query.preferred.map_or(1, |preferred| preferred.nodes().min(PASSED));
    query.limit.saturating_mul(nodes)
}

/// Access to the index, with what is remembered of its parts.
pub(crate) struct DueIndex {
    client: Arc<Client>,
    keys: Keys,
    bounds: Mutex<HashMap<String, Bound>>,
    /// The number of entries to find before the low marks are raised.
    until_raise: AtomicUsize,
}

/// Neither is relied on: the low mark is read again with the part, and `ahead` is only the end of a
/// search.
#[derive(Clone, Default)]
struct Bound {
    low: String,
    ahead: String,
}

/// One part of the index, as it was read.
pub(crate) struct Part {
    prefix: String,
    bound: Bound,
    /// The revision of the low mark.
    revision: i64,
    /// The entries before the end of the query, with their keys; one more than the limit.
    pub(crate) due: Vec<(IndexEntry, Vec<u8>)>,
    /// The first entry behind the end.
    pub(crate) next: Option<IndexEntry>,
}

impl Part {
    fn range(&self, from: &str, to: &str, limit: i64) -> TxnOp {
        let options = GetOptions::new().with_range(format!("{}{to}", self.prefix));
        let options = options.with_keys_only().with_limit(limit);
        TxnOp::get(format!("{}{from}", self.prefix), Some(options))
    }

    fn due_range(&self, until: &Until, limit: i64) -> TxnOp {
        self.range(self.bound.low.as_str().min(&until.before), &until.digits, limit)
    }

    fn entries(&self, reply: &GetResponse) -> Vec<(IndexEntry, Vec<u8>)> {
        let entry = |kv: &etcd_client::KeyValue| {
            Keys::index_entry(&self.prefix, kv.key()).map(|entry| (entry, kv.key().to_vec()))
        };
        reply.kvs().iter().filter_map(entry).collect()
    }

    /// Takes the result of a search from the end of the query up to `to`.
    fn on_search(&mut self, reply: &GetResponse, to: String) {
        let first = reply.kvs().first();
        self.bound.ahead = match first.and_then(|kv| kv.key().strip_prefix(self.prefix.as_bytes()))
        {
            Some(found) => format!("{}\0", String::from_utf8_lossy(found)),
            None => to,
        };
        self.next = self.entries(reply).pop().map(|(entry, _)| entry);
    }
}

/// The end of a query.
struct Until {
    at: Time,
    /// The first time that is not asked for.
    digits: String,
    /// A place in front of it, for ranges whose ends must not be swapped.
    before: String,
}

impl Until {
    fn new(at: Time) -> Self {
        // An end within a millisecond includes all of it.
        let part = i64::from(!at.timestamp_subsec_nanos().is_multiple_of(1_000_000));
        let end = at.timestamp_millis().saturating_add(part);
        let before = if end > 0 { digits(end - 1) } else { String::new() };
        Self { at, digits: digits(end), before }
    }
}

impl DueIndex {
    pub(crate) fn new(client: Arc<Client>, keys: Keys) -> Self {
        let (bounds, until_raise) = (Mutex::default(), AtomicUsize::default());
        Self { client, keys, bounds, until_raise }
    }

    fn bounds(&self) -> MutexGuard<'_, HashMap<String, Bound>> {
        self.bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads these parts of the index, and `along` in the same exchange.
    pub(crate) async fn read(
        &self,
        op: &'static str,
        prefixes: Vec<String>,
        query: &DueQuery<'_>,
        along: &[TxnOp],
    ) -> Result<(Vec<Part>, Vec<GetResponse>)> {
        let until = Until::new(query.until);
        let limit = entries_of(query);
        let most = i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX);
        let mut parts = self.remembered(prefixes, &until);
        let mut ops = along.to_vec();
        for part in &parts {
            ops.push(TxnOp::get(self.keys.low_mark(&part.prefix), None));
            ops.push(part.due_range(&until, most));
            ops.push(part.range(&until.digits, &part.bound.ahead, 1));
        }
        let mut replies = self.client.get_all(op, ops).await?.into_iter();
        let along = replies.by_ref().take(along.len()).collect();
        let mut repeated = Vec::new();
        for part in &mut parts {
            let (Some(low), Some(due), Some(next)) =
                (replies.next(), replies.next(), replies.next())
            else {
                return Err(unexpected_response(op));
            };
            part.revision = low.kvs().first().map_or(0, |kv| kv.mod_revision());
            let low = low.kvs().first().and_then(|kv| low_mark_in(kv.value())).unwrap_or_default();
            let from = std::mem::replace(&mut part.bound.low, low);
            part.due = part.entries(&due);
            let to = std::mem::take(&mut part.bound.ahead);
            part.on_search(&next, to);
            if part.bound.low < from {
                repeated.push(part);
            }
        }
        let ops: Vec<TxnOp> = repeated.iter().map(|part| part.due_range(&until, most)).collect();
        for (part, due) in repeated.into_iter().zip(self.client.get_all(op, ops).await?) {
            part.due = part.entries(&due);
        }
        // Otherwise the next entry is among them.
        if parts.iter().map(|part| part.due.len()).sum::<usize>() <= limit {
            self.search_ahead(op, &until, &mut parts).await?;
        }
        let mut bounds = self.bounds();
        bounds.extend(parts.iter().map(|part| (part.prefix.clone(), part.bound.clone())));
        drop(bounds);
        Ok((parts, along))
    }

    fn remembered(&self, prefixes: Vec<String>, until: &Until) -> Vec<Part> {
        let soon =
            digits(saturating_add(until.at, Duration::from_secs(AHEAD[0])).timestamp_millis());
        let bounds = self.bounds();
        let part = |prefix: String| {
            let mut bound = bounds.get(&prefix).cloned().unwrap_or_default();
            if bound.ahead <= until.digits {
                bound.ahead = if soon > until.digits { soon.clone() } else { END.into() };
            }
            Part { prefix, bound, revision: 0, due: Vec::new(), next: None }
        };
        prefixes.into_iter().map(part).collect()
    }

    /// Searches the next entry, in all parts up to the earliest of any.
    async fn search_ahead(&self, op: &'static str, until: &Until, parts: &mut [Part]) -> Result {
        let further = AHEAD[1..].iter().map(|seconds| Some(Duration::from_secs(*seconds)));
        for ahead in further.chain([None]) {
            let next = parts.iter().filter_map(|part| part.next.as_ref());
            let next = next.map(|entry| entry.at).min().map(|at| digits(at.timestamp_millis()));
            let to = ahead.map(|ahead| digits(saturating_add(until.at, ahead).timestamp_millis()));
            let to = to.into_iter().chain(next).min().unwrap_or_else(|| END.into());
            let open = parts.iter_mut().filter(|part| part.next.is_none() && part.bound.ahead < to);
            let open: Vec<&mut Part> = open.collect();
            let ops = open.iter().map(|part| part.range(&part.bound.ahead, &to, 1)).collect();
            for (part, reply) in open.into_iter().zip(self.client.get_all(op, ops).await?) {
                part.on_search(&reply, to.clone());
            }
        }
        Ok(())
    }

    /// Raises the low marks of these parts after `found` more entries; not every time.
    pub(crate) async fn raise(
        &self,
        op: &'static str,
        parts: &[Part],
        until: Time,
        found: usize,
    ) -> Result {
        let less = |left: usize| left.checked_sub(found);
        if self.until_raise.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
            return Ok(());
        }
        self.until_raise.store(RAISE_EVERY, Ordering::Relaxed);
        let until = Until::new(until).digits;
        let raised = parts.iter().filter_map(|part| {
            let first = part.due.first().map(|(entry, _)| digits(entry.at.timestamp_millis()));
            let to = first.unwrap_or_else(|| until.clone());
            let low = &part.bound.low;
            (to > *low).then(|| {
                let below = format!("{}{low}", part.prefix);
                let key = self.keys.low_mark(&part.prefix);
                let same = Compare::mod_revision(&*key, CompareOp::Equal, part.revision);
                let none = Compare::mod_revision(below, CompareOp::Equal, 0)
                    .with_range(format!("{}{to}", part.prefix));
                let put = TxnOp::put(key, to, None);
                TxnOp::txn(Txn::new().when([same, none]).and_then([put]))
            })
        });
        let raised: Vec<TxnOp> = raised.collect();
        for some in raised.chunks(self.client.max_operations() - 2) {
            self.client.txn(op, Txn::new().and_then(some)).await?;
        }
        Ok(())
    }

    /// Lowers a low mark that is above an entry that is written in the same transaction; does
    /// nothing if there is no mark.
    pub(crate) fn lower(&self, part: &str, at: String) -> TxnOp {
        let key = self.keys.low_mark(part);
        let above = Compare::value(&*key, CompareOp::Greater, &*at);
        TxnOp::txn(Txn::new().when([above]).and_then([TxnOp::put(key, at, None)]))
    }
}

/// A low mark, if it is one. Any other value is ignored.
fn low_mark_in(value: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(value).ok()?;
    let is_mark = text.len() == 16 && i64::from_str_radix(text, 16).is_ok();
    is_mark.then(|| text.to_owned())
}
