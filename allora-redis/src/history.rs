//! The history and the changes by clients, over all shards at the same time: pages, and their pruning.

use crate::{
    Redis,
    encoding::history::{cursor, member},
    keys::Shard,
    script::Call,
    store::Store,
};
use allora_core::{
    Result,
    backend::{HistoryCursor, HistoryEntry, HistoryQuery, HistoryTrim, Newest},
    record::{Change, codec},
    store::{ChangeStore, HistoryPruning, HistoryStore},
};
use async_trait::async_trait;
use futures::future::try_join_all;
use redis::FromRedisValue;
use std::cmp::Reverse;

/// The largest number of entries that one call reads.
const PAGE: usize = 500;

const ENTRIES: &str = "entries";
const PRUNE: &str = "prune";

#[async_trait]
impl HistoryStore for Redis {
    fn pruning(&self) -> &HistoryPruning {
        &self.store.history
    }

    async fn history_entries(&self, query: HistoryQuery<'_>) -> Result<Vec<HistoryEntry>> {
        let store = &self.store;
        if let Some(name) = query.name {
            return store.history_of(name, query).await;
        }
        let all = store.keys.all().map(|(_, shard)| store.history_in(shard, query));
        let mut all: Vec<HistoryEntry> = try_join_all(all).await?.into_iter().flatten().collect();
        all.sort_by(|a, b| (b.fence, &b.name).cmp(&(a.fence, &a.name)));
        all.truncate(query.limit);
        Ok(all)
    }

    async fn trim_history(&self, name: &str, kept: HistoryTrim) -> Result {
        let store = &self.store;
        let keys = store.keys.shard(store.keys.shard_of(name));
        let (rest, failures) = (keys.history_of(name), keys.failures_of(name));
        let all = [keys.history(), keys.history_entries(), rest, failures];
        let mut call = Call::new(&store.scripts.trim_history, &all);
        for kept in [kept.rest, kept.failures] {
            call.arg(kept.entries).arg(kept.from);
        }
        store.repeated(&call).await
    }
}

#[async_trait]
impl ChangeStore for Redis {
    fn pruning(&self) -> &HistoryPruning {
        &self.store.history
    }

    async fn change_entries(&self, query: HistoryQuery<'_>) -> Result<Vec<Change>> {
        let store = &self.store;
        if let Some(name) = query.name {
            let keys = store.keys.shard(store.keys.shard_of(name));
            return store.changes_in(&keys, keys.changes_of(name), query).await;
        }
        let all = store
            .keys
            .all()
            .map(|(_, keys)| async move { store.changes_in(&keys, keys.changes(), query).await });
        let mut all: Vec<Change> = try_join_all(all).await?.into_iter().flatten().collect();
        all.sort_by_key(|change| Reverse(change.cursor()));
        all.truncate(query.limit);
        Ok(all)
    }

    async fn trim_changes(&self, kept: Newest) -> Result {
        let store = &self.store;
        // Jobs are spread over the shards evenly, and so are their changes.
        let of_shard = kept.entries.div_ceil(store.keys.shards.into());
        for (_, keys) in store.keys.all() {
            let all = [keys.changes(), keys.change_entries()];
            let mut call = Call::new(&store.scripts.trim_changes, &all);
            call.arg(of_shard).arg(kept.from);
            store.repeated(&call).await?;
        }
        Ok(())
    }
}

impl Store {
    /// Calls a script that removes some at a time, until nothing is left to remove.
    async fn repeated(&self, call: &Call<'_>) -> Result {
        loop {
            let reply = self.connection.call(call).await;
            let reply = reply.map_err(|cause| self.failed(PRUNE, cause))?;
            let left = u64::from_redis_value(reply.value);
            if left.map_err(|_| self.unexpected_response(PRUNE))? == 0 {
                return Ok(());
            }
        }
    }

    /// A page of the changes in this sorted set of their places.
    async fn changes_in(
        &self,
        keys: &Shard,
        set: String,
        query: HistoryQuery<'_>,
    ) -> Result<Vec<Change>> {
        let mut places = Places::new(set, query.before.cloned());
        let mut all = Vec::new();
        while let Some(page) = places.next(self, query.limit - all.len()).await? {
            let texts = self.texts_at(keys.change_entries(), &page).await?;
            all.extend(texts.filter_map(|text| codec::decode_change(&text?).ok()));
        }
        Ok(all)
    }

    /// A page of one job: of its failures and its other entries, in one order.
    async fn history_of(&self, name: &str, query: HistoryQuery<'_>) -> Result<Vec<HistoryEntry>> {
        let keys = self.keys.shard(self.keys.shard_of(name));
        let mut from = match query.before {
            None => "+inf".to_owned(),
            // Of the entries with one fence, those of the lower names are below.
            Some(before) if name < &*before.name => before.fence.to_string(),
            Some(before) => format!("({}", before.fence),
        };
        let mut all = Vec::new();
        while all.len() < query.limit {
            let count = (query.limit - all.len()).min(PAGE);
            let parts = [keys.history_of(name), keys.failures_of(name)].map(|key| {
                let mut range = redis::cmd("ZREVRANGEBYSCORE");
                range.arg(key).arg(&from).arg("-inf").arg("LIMIT").arg(0).arg(count);
                async move { self.connection.ask::<Vec<Vec<u8>>>(&range).await }
            });
            let parts = try_join_all(parts).await.map_err(|cause| self.failed(ENTRIES, cause))?;
            let places = parts.iter().flatten().filter_map(|member| cursor(member));
            let mut places: Vec<HistoryCursor> = places.collect();
            places.sort_by(|a, b| b.cmp(a));
            // A run that was taken for lost, and then succeeded, is in both.
            places.dedup();
            places.truncate(count);
            let Some(last) = places.last() else { break };
            from = format!("({}", last.fence);
            all.extend(self.entries_at(&keys, &places).await?);
        }
        Ok(all)
    }

    async fn history_in(&self, keys: Shard, query: HistoryQuery<'_>) -> Result<Vec<HistoryEntry>> {
        let HistoryQuery { before, limit, .. } = query;
        let mut places = Places::new(keys.history(), before.cloned());
        let mut all = Vec::new();
        while let Some(page) = places.next(self, limit - all.len()).await? {
            all.extend(self.entries_at(&keys, &page).await?);
        }
        Ok(all)
    }

    /// The entries at these places. One that was pruned in between, or cannot be read, is left out.
    async fn entries_at(
        &self,
        keys: &Shard,
        places: &[HistoryCursor],
    ) -> Result<Vec<HistoryEntry>> {
        let texts = self.texts_at(keys.history_entries(), places).await?;
        Ok(texts.filter_map(|text| codec::decode_entry(&text?).ok()).collect())
    }

    /// The texts at these places of a hash.
    async fn texts_at(
        &self,
        hash: String,
        places: &[HistoryCursor],
    ) -> Result<impl Iterator<Item = Option<Vec<u8>>> + use<>> {
        let mut texts = Vec::new();
        if !places.is_empty() {
            let members: Vec<Vec<u8>> = places.iter().map(member).collect();
            let mut get = redis::cmd("HMGET");
            get.arg(hash).arg(&members);
            let read = self.connection.ask::<Vec<Option<Vec<u8>>>>(&get).await;
            texts = read.map_err(|cause| self.failed(ENTRIES, cause))?;
        }
        Ok(texts.into_iter())
    }
}

/// A sorted set of places of entries, read page by page, the highest first.
struct Places {
    key: String,
    /// The last place that was read.
    last: Option<HistoryCursor>,
    /// The number of places to leave out: those of the last fence that were read before.
    skipped: usize,
    has_ended: bool,
}

impl Places {
    fn new(key: String, last: Option<HistoryCursor>) -> Self {
        Self { key, last, skipped: 0, has_ended: false }
    }

    /// The next places, at most `limit`, perhaps none; `None` at the end.
    ///
    /// Each page begins at the fence of the last place: entries that are written or removed meanwhile
    /// neither hide nor repeat others.
    async fn next(&mut self, store: &Store, limit: usize) -> Result<Option<Vec<HistoryCursor>>> {
        if self.has_ended || limit == 0 {
            return Ok(None);
        }
        let from = self.last.as_ref().map_or("+inf".to_owned(), |last| last.fence.to_string());
        // The last place itself is read again.
        let count = limit.saturating_add(1).min(PAGE);
        let mut range = redis::cmd("ZREVRANGEBYSCORE");
        range.arg(&self.key).arg(from).arg("-inf").arg("LIMIT").arg(self.skipped).arg(count);
        let members = store.connection.ask::<Vec<Vec<u8>>>(&range).await;
        let members = members.map_err(|cause| store.failed(ENTRIES, cause))?;
        self.has_ended = members.len() < count;
        let mut places: Vec<HistoryCursor> = members.iter().filter_map(|m| cursor(m)).collect();
        places.retain(|at| self.last.as_ref().is_none_or(|last| at < last));
        // More than was asked for is read again with the next page.
        if places.len() > limit {
            places.truncate(limit);
            self.has_ended = false;
        }
        match places.last() {
            None => self.skipped += members.len(),
            Some(last) => (self.last, self.skipped) = (Some(last.clone()), 0),
        }
        Ok(Some(places))
    }
}
