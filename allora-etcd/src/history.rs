//! The history: pages, and its pruning.
//!
//! The entries are ordered by fence, for pages over all jobs. A second key by job and fence, without
//! a value, makes a page of one job cost that job's entries only.

use crate::{
    error::unexpected_response,
    keys::{Keys, end_of},
    store::{Etcd, Store},
};
use allora_core::{
    Result,
    backend::{HistoryCursor, HistoryEntry, HistoryQuery, HistoryTrim},
    record::codec,
    store::{HistoryPruning, HistoryStore},
};
use async_trait::async_trait;
use etcd_client::{GetOptions, Txn, TxnOp};

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
        self.store.history_page(query).await
    }

    async fn trim_history(&self, name: &str, kept: HistoryTrim) -> Result {
        self.store.trim(name, kept).await
    }
}

impl Store {
    /// Reads the keys of a job, the newest first, and removes those that are not kept.
    async fn trim(&self, name: &str, mut kept: HistoryTrim) -> Result {
        let all = self.keys.history_of(name);
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
                    deletes.push(TxnOp::delete(self.keys.history_entry(&entry), None));
                }
            }
            // Both keys of an entry in one transaction.
            for some in deletes.chunks(self.client.max_operations() / 2 * 2) {
                self.client.txn(PRUNE, Txn::new().and_then(some)).await?;
            }
            if page.kvs().len() < HISTORY_PAGE {
                return Ok(());
            }
        }
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
