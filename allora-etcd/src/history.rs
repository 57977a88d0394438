//! The history and the changes by clients: pages, and their pruning.
//!
//! The entries are ordered by fence, for pages over all jobs. A second key by job and fence, without
//! a value, makes a page of one job cost that job's entries only.

use crate::{
    error::unexpected_response,
    keys::{Keys, Log, end_of},
    store::{Etcd, Store},
};
use allora_core::{
    Result,
    backend::{HistoryCursor, HistoryEntry, HistoryQuery, HistoryTrim, Newest},
    record::{Change, codec},
    store::{ChangeStore, HistoryPruning, HistoryStore},
};
use async_trait::async_trait;
use etcd_client::{GetOptions, KeyValue, Txn, TxnOp};

/// The number of history entries that one exchange reads.
const HISTORY_PAGE: usize = 1_000;

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
        // An entry that cannot be read is left out.
        self.store.page(Log::History, query, |value| codec::decode_entry(value).ok()).await
    }

    async fn trim_history(&self, name: &str, kept: HistoryTrim) -> Result {
        self.store.trim(name, kept).await
    }
}

#[async_trait]
impl ChangeStore for Etcd {
    fn pruning(&self) -> &HistoryPruning {
        &self.store.history
    }

    async fn change_entries(&self, query: HistoryQuery<'_>) -> Result<Vec<Change>> {
        self.store.page(Log::Changes, query, |value| codec::decode_change(value).ok()).await
    }

    async fn trim_changes(&self, kept: Newest) -> Result {
        self.store.trim_changes(kept).await
    }
}

impl Store {
    /// Reads the keys of all changes, the newest first, and removes those that are not kept.
    async fn trim_changes(&self, mut kept: Newest) -> Result {
        let all = self.keys.entries(Log::Changes);
        let mut from = all.clone().into_bytes();
        loop {
            let range = GetOptions::new().with_range(end_of(&all)).with_keys_only();
            let range = range.with_limit(i64::try_from(HISTORY_PAGE).unwrap_or(i64::MAX));
            let page = self.client.get_all(PRUNE, vec![TxnOp::get(from, Some(range))]).await?;
            let page = page.first().ok_or_else(|| unexpected_response(PRUNE))?;
            let Some(last) = page.kvs().last() else { return Ok(()) };
            from = [last.key(), &[0]].concat();
            let mut deletes = Vec::new();
            for key in page.kvs().iter().map(KeyValue::key) {
                let Some(at) = Keys::cursor_in(&all, key).filter(|at| kept.removes(at.fence))
                else {
                    continue;
                };
                let of_job = self.keys.entries_of_up_to(Log::Changes, &at.name, at.fence);
                deletes.extend([TxnOp::delete(key, None), TxnOp::delete(of_job, None)]);
            }
            self.delete_pairs(deletes).await?;
            if page.kvs().len() < HISTORY_PAGE {
                return Ok(());
            }
        }
    }

    /// Both keys of an entry in one transaction.
    async fn delete_pairs(&self, deletes: Vec<TxnOp>) -> Result {
        for some in deletes.chunks(self.client.max_operations() / 2 * 2) {
            self.client.txn(PRUNE, Txn::new().and_then(some)).await?;
        }
        Ok(())
    }

    /// Reads the keys of a job, the newest first, and removes those that are not kept.
    async fn trim(&self, name: &str, mut kept: HistoryTrim) -> Result {
        let all = self.keys.entries_of(Log::History, name);
        let mut from = all.clone().into_bytes();
        loop {
            let op = first_keys(from, &end_of(&all), HISTORY_PAGE);
            let page = self.client.get_all(PRUNE, vec![op]).await?;
            let page = page.first().ok_or_else(|| unexpected_response(PRUNE))?;
            let Some(last) = page.kvs().last() else { return Ok(()) };
            from = [last.key(), &[0]].concat();
            let mut deletes = Vec::new();
            for kv in page.kvs() {
                let Some(fence) = Keys::fence_in(&all, kv.key()) else { continue };
                if kept.removes(fence, kv.value() == FAILURE.as_bytes()) {
                    let entry = HistoryCursor { fence, name: name.to_owned() };
                    deletes.push(TxnOp::delete(kv.key(), None));
                    deletes.push(TxnOp::delete(self.keys.entry(Log::History, &entry), None));
                }
            }
            self.delete_pairs(deletes).await?;
            if page.kvs().len() < HISTORY_PAGE {
                return Ok(());
            }
        }
    }

    /// A page of entries, of one job or of all.
    async fn page<T>(
        &self,
        log: Log,
        query: HistoryQuery<'_>,
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Vec<T>> {
        match query.name {
            Some(name) => self.page_of(log, name, query, read).await,
            None => self.page_of_all(log, query, read).await,
        }
    }

    async fn page_of_all<T>(
        &self,
        log: Log,
        query: HistoryQuery<'_>,
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Vec<T>> {
        let HistoryQuery { before, limit, .. } = query;
        let all = self.keys.entries(log);
        let mut from = match before {
            Some(before) => [self.keys.entry(log, before), vec![0]].concat(),
            None => all.clone().into_bytes(),
        };
        let mut found = Vec::new();
        while found.len() < limit {
            let op = first_keys(from, &end_of(&all), limit - found.len());
            let page = self.client.get_all(HISTORY, vec![op]).await?;
            let page = page.first().ok_or_else(|| unexpected_response(HISTORY))?;
            let Some(last) = page.kvs().last() else { break };
            from = [last.key(), &[0]].concat();
            found.extend(page.kvs().iter().filter_map(|kv| read(kv.value())));
        }
        Ok(found)
    }

    /// The fences of the job's entries, and then these entries.
    async fn page_of<T>(
        &self,
        log: Log,
        name: &str,
        query: HistoryQuery<'_>,
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Vec<T>> {
        let HistoryQuery { before, limit, .. } = query;
        let all = self.keys.entries_of(log, name);
        let mut from = match before {
            // Of the entries with one fence, those of the lower names are below.
            Some(before) => {
                let at = self.keys.entries_of_up_to(log, name, before.fence).into_bytes();
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
            let keys = fences
                .map(|fence| self.keys.entry(log, &HistoryCursor { fence, name: name.to_owned() }));
            let reads = keys.map(|key| TxnOp::get(key, None)).collect();
            // An entry that was removed meanwhile is left out.
            let entries = self.client.get_all(HISTORY, reads).await?;
            let entries = entries.iter().flat_map(|entry| entry.kvs());
            found.extend(entries.filter_map(|kv| read(kv.value())));
        }
        Ok(found)
    }
}

/// The first keys of a range, as many as are missing or as one exchange reads.
fn first_keys(from: Vec<u8>, end: &[u8], missing: usize) -> TxnOp {
    let limit = i64::try_from(missing.min(HISTORY_PAGE)).unwrap_or(i64::MAX);
    TxnOp::get(from, Some(GetOptions::new().with_range(end).with_limit(limit)))
}
