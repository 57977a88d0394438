//! The history: pages, and what its pruning reads and removes.
//!
//! The entries are ordered by fence, for pages over all jobs. A second key by job and fence, without
//! a value, makes a page of one job cost that job's entries only.

use crate::{
    client::gets,
    error::unexpected_response,
    keys::{Keys, end_of},
    oldest_page::OldestPage,
    store::{Etcd, Store},
};
use allora_core::{
    Result,
    backend::{HistoryCursor, HistoryEntry, HistoryMark, HistoryQuery},
    record::codec,
    store::{HistoryCount, HistoryPruning, HistoryStore},
};
use async_trait::async_trait;
use etcd_client::{GetOptions, GetResponse, Txn, TxnOp};
use std::sync::atomic::Ordering;

/// The number of history entries that one exchange reads.
const HISTORY_PAGE: usize = 1_000;

/// The number of keys that one exchange reads to find places.
const PLACES: u64 = 4_000;

const HISTORY: &str = "history";

const PRUNE: &str = "prune";

/// The value of the key by job of an entry that is a failure. That of others is empty.
pub(crate) const FAILURE: &str = "f";

#[async_trait]
impl HistoryStore for Etcd {
    fn pruning(&self) -> &HistoryPruning {
        &self.store.history
    }

    async fn history_entries(&self, query: HistoryQuery<'_>) -> Result<Vec<HistoryEntry>> {
        self.store.history_page(query).await
    }

    async fn count_history(&self, _: Option<&HistoryCursor>) -> Result<HistoryCount> {
        let store = &self.store;
        let all = GetOptions::new().with_prefix().with_count_only();
        let count = store.get_one(HISTORY, TxnOp::get(store.keys.history(), Some(all))).await?;
        Ok(HistoryCount::all(u64::try_from(count.count()).unwrap_or_default()))
    }

    async fn history_places(&self, places: &[(&str, u64)]) -> Result<Vec<Option<i64>>> {
        let mut fences = Vec::with_capacity(places.len());
        let mut rest = places;
        while let Some((first, more)) = rest.split_first() {
            let mut keys = 0;
            let fits = |(_, place): &&(&str, u64)| {
                keys += *place;
                keys <= PLACES
            };
            let count = rest.iter().take_while(fits).count();
            if count == 0 {
                fences.push(self.store.far_place(*first).await?);
                rest = more;
                continue;
            }
            let (some, more) = rest.split_at(count);
            fences.extend(self.store.near_places(some).await?);
            rest = more;
        }
        Ok(fences)
    }

    async fn history_marks(
        &self,
        name: &str,
        below: i64,
        limit: usize,
    ) -> Result<Vec<HistoryMark>> {
        let store = &self.store;
        let all = store.keys.history_of(name);
        let from = store.keys.history_of_up_to(name, below.saturating_sub(1));
        let read = first_keys(from.into_bytes(), &end_of(&all), limit);
        let page = store.get_one(PRUNE, read).await?;
        let mark = |kv: &etcd_client::KeyValue| {
            let fence = Keys::fence_in(&all, kv.key())?;
            Some(HistoryMark { fence, is_failure: kv.value() == FAILURE.as_bytes() })
        };
        Ok(page.kvs().iter().filter_map(mark).collect())
    }

    async fn oldest_history(
        &self,
        above: Option<&HistoryCursor>,
        limit: usize,
    ) -> Result<Vec<HistoryCursor>> {
        self.store.oldest_history(above, limit).await
    }

    async fn remove_history(&self, entries: &[HistoryCursor]) -> Result {
        let store = &self.store;
        let deletes = entries.iter().flat_map(|entry| {
            let of_job = store.keys.history_of_up_to(&entry.name, entry.fence);
            [of_job.into_bytes(), store.keys.history_entry(entry)]
        });
        let deletes: Vec<TxnOp> = deletes.map(|key| TxnOp::delete(key, None)).collect();
        // Both keys of an entry in one transaction.
        for some in deletes.chunks(store.client.max_operations() / 2 * 2) {
            store.client.txn(PRUNE, Txn::new().and_then(some)).await?;
        }
        Ok(())
    }
}

impl Store {
    async fn get_one(&self, op: &'static str, read: TxnOp) -> Result<GetResponse> {
        let reply = self.client.txn(op, Txn::new().and_then([read])).await?;
        gets(&reply).into_iter().next().ok_or_else(|| unexpected_response(op))
    }

    /// The fences at places near the newest entries, in few exchanges.
    async fn near_places(&self, places: &[(&str, u64)]) -> Result<Vec<Option<i64>>> {
        let read = |(name, place): &(&str, u64)| {
            let all = self.keys.history_of(name);
            let limit = i64::try_from(*place).unwrap_or(i64::MAX);
            let keys = GetOptions::new().with_range(end_of(&all)).with_keys_only();
            TxnOp::get(all, Some(keys.with_limit(limit)))
        };
        let pages = self.client.get_all(PRUNE, places.iter().map(read).collect()).await?;
        let fence = |((name, place), page): (&(&str, u64), GetResponse)| {
            let before = usize::try_from(*place).ok()?.checked_sub(1)?;
            Keys::fence_in(&self.keys.history_of(name), page.kvs().get(before)?.key())
        };
        Ok(places.iter().zip(pages).map(fence).collect())
    }

    /// The fence at a place that is far from the newest entry, page by page.
    async fn far_place(&self, (name, place): (&str, u64)) -> Result<Option<i64>> {
        let all = self.keys.history_of(name);
        let (mut from, mut left) = (all.clone().into_bytes(), place);
        loop {
            let count = left.min(PLACES);
            let keys = GetOptions::new().with_range(end_of(&all)).with_keys_only();
            let keys = keys.with_limit(i64::try_from(count).unwrap_or(i64::MAX));
            let page = self.get_one(PRUNE, TxnOp::get(from, Some(keys))).await?;
            left -= count;
            let Some(last) = page.kvs().last().filter(|_| page.kvs().len() as u64 == count) else {
                return Ok(None);
            };
            if left == 0 {
                return Ok(Keys::fence_in(&all, last.key()));
            }
            from = [last.key(), &[0]].concat();
        }
    }

    /// The lowest entries above this one. They have the last keys: etcd counts what is behind a key,
    /// and a search by counts finds a key with some behind it, but not too many.
    async fn oldest_history(
        &self,
        above: Option<&HistoryCursor>,
        limit: usize,
    ) -> Result<Vec<HistoryCursor>> {
        let all = self.keys.history();
        let end = above.map_or_else(|| end_of(&all), |above| self.keys.history_entry(above));
        let newest = GetOptions::new().with_range(&*end).with_keys_only().with_limit(1);
        let newest = self.get_one(PRUNE, TxnOp::get(&*all, Some(newest))).await?;
        let newest = newest.kvs().first().and_then(|kv| Keys::fence_in(&all, kv.key()));
        let Some(newest) = newest else { return Ok(Vec::new()) };
        // Others may have the fence of the one that they are above of.
        let none = above.map_or(-1, |above| above.fence.saturating_sub(1));
        let mut search = OldestPage::new(none, newest, self.page_span.load(Ordering::Relaxed));
        while let Some(fence) = search.next() {
            let counted = GetOptions::new().with_range(&*end).with_count_only();
            let from = self.keys.history_up_to(fence);
            let count = self.get_one(PRUNE, TxnOp::get(from, Some(counted))).await?.count();
            search.on_count(fence, usize::try_from(count).unwrap_or(0));
        }
        let Some(fence) = search.found() else { return Ok(Vec::new()) };
        self.page_span.store(fence.saturating_sub(none), Ordering::Relaxed);
        let keys = GetOptions::new().with_range(&*end).with_keys_only();
        let read = TxnOp::get(self.keys.history_up_to(fence), Some(keys));
        let page = self.get_one(PRUNE, read).await?;
        let cursor = |kv: &etcd_client::KeyValue| {
            let fence = Keys::fence_in(&all, kv.key())?;
            Some(HistoryCursor { fence, name: self.keys.history_name(kv.key())? })
        };
        Ok(page.kvs().iter().rev().filter_map(cursor).take(limit.max(1)).collect())
    }

    /// A page of the history.
    async fn history_page(&self, query: HistoryQuery<'_>) -> Result<Vec<HistoryEntry>> {
        match query.name {
            Some(name) => self.entries_of(name, query).await,
            None => self.entries_of_all(query).await,
        }
    }

    async fn entries_of_all(&self, query: HistoryQuery<'_>) -> Result<Vec<HistoryEntry>> {
        let HistoryQuery { before, limit, .. } = query;
        let end = end_of(&self.keys.history());
        let mut from = match before {
            Some(before) => [self.keys.history_entry(before), vec![0]].concat(),
            None => self.keys.history().into_bytes(),
        };
        let mut found = Vec::new();
        while found.len() < limit {
            let op = first_keys(from, &end, limit - found.len());
            let page = self.client.get_all(HISTORY, vec![op]).await?;
            let page = page.first().ok_or_else(|| unexpected_response(HISTORY))?;
            let Some(last) = page.kvs().last() else { break };
            from = [last.key(), &[0]].concat();
            found.extend(page.kvs().iter().filter_map(readable));
        }
        Ok(found)
    }

    /// The fences of the job's entries, and then these entries.
    async fn entries_of(&self, name: &str, query: HistoryQuery<'_>) -> Result<Vec<HistoryEntry>> {
        let HistoryQuery { before, limit, .. } = query;
        let all = self.keys.history_of(name);
        let mut from = match before {
            // Of the entries with one fence, those of the lower names are below.
            Some(before) => {
                let at = self.keys.history_of_up_to(name, before.fence).into_bytes();
                let is_below = name < before.name.as_str();
                if is_below { at } else { [at, vec![0]].concat() }
            }
            None => all.clone().into_bytes(),
        };
        let mut found = Vec::new();
        while found.len() < limit {
            let op = first_keys(from, &end_of(&all), limit - found.len());
            let fences = self.client.get_all(HISTORY, vec![op]).await?;
            let fences = fences.first().ok_or_else(|| unexpected_response(HISTORY))?;
            let Some(last) = fences.kvs().last() else { break };
            from = [last.key(), &[0]].concat();
            let fences = fences.kvs().iter().filter_map(|kv| Keys::fence_in(&all, kv.key()));
            let keys = fences.map(|fence| {
                self.keys.history_entry(&HistoryCursor { fence, name: name.to_owned() })
            });
            let reads = keys.map(|key| TxnOp::get(key, None)).collect();
            // An entry that was removed meanwhile is left out.
            let entries = self.client.get_all(HISTORY, reads).await?;
            found.extend(entries.iter().flat_map(|entry| entry.kvs()).filter_map(readable));
        }
        Ok(found)
    }
}

/// The first keys of a range, as many as are missing or as one exchange reads.
fn first_keys(from: Vec<u8>, end: &[u8], missing: usize) -> TxnOp {
    let limit = i64::try_from(missing.min(HISTORY_PAGE)).unwrap_or(i64::MAX);
    TxnOp::get(from, Some(GetOptions::new().with_range(end).with_limit(limit)))
}

/// An entry; one that cannot be read is left out.
fn readable(kv: &etcd_client::KeyValue) -> Option<HistoryEntry> {
    codec::decode_entry(kv.value()).ok()
}
