//! The history, over all shards at the same time: pages, and what its pruning reads and removes.

use crate::{
    Redis,
    encoding::history::{cursor, member},
    keys::Shard,
    script::Call,
    store::Store,
};
use allora_core::{
    Result,
    backend::{HistoryCursor, HistoryEntry, HistoryMark, HistoryQuery},
    record::codec,
    store::{HistoryCount, HistoryPruning, HistoryStore},
};
use async_trait::async_trait;
use futures::future::try_join_all;
use redis::FromRedisValue;
use std::collections::{BTreeMap, HashSet};

/// The largest number of entries that one call reads.
const PAGE: usize = 500;

const PRUNE: &str = "prune";

/// The direction in which entries are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    NewestFirst,
    OldestFirst,
}

#[async_trait]
impl HistoryStore for Redis {
    fn pruning(&self) -> &HistoryPruning {
        &self.store.history
    }

    async fn history_entries(&self, query: HistoryQuery<'_>) -> Result<Vec<HistoryEntry>> {
        let store = &self.store;
        let shards: Vec<u32> = match query.name {
            Some(name) => vec![store.keys.shard_of(name)],
            None => (0..store.keys.shards).collect(),
        };
        let all = shards.into_iter().map(|shard| store.history_in(shard, query));
        let mut all: Vec<HistoryEntry> = try_join_all(all).await?.into_iter().flatten().collect();
        all.sort_by(|a, b| (b.fence, &b.name).cmp(&(a.fence, &a.name)));
        all.truncate(query.limit);
        Ok(all)
    }

    async fn count_history(&self, _: Option<&HistoryCursor>) -> Result<HistoryCount> {
        let store = &self.store;
        let counts = store.keys.all().map(|(_, shard)| async move {
            let mut count = redis::cmd("ZCARD");
            count.arg(shard.history());
            store.connection.ask::<u64>(&count).await.map_err(|cause| store.failed("size", cause))
        });
        Ok(HistoryCount::all(try_join_all(counts).await?.into_iter().sum()))
    }

    async fn history_places(&self, places: &[(&str, u64)]) -> Result<Vec<Option<i64>>> {
        let mut shards: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (i, (name, _)) in places.iter().enumerate() {
            shards.entry(self.store.keys.shard_of(name)).or_default().push(i);
        }
        let found = shards.into_iter().map(|(shard, which)| async move {
            let of_shard = which.iter().map(|i| places[*i]);
            Ok::<_, allora_core::Error>((self.store.places_in(shard, of_shard).await?, which))
        });
        let mut fences = vec![None; places.len()];
        for (found, which) in try_join_all(found).await? {
            which.into_iter().zip(found).for_each(|(i, fence)| fences[i] = fence);
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
        let keys = store.keys.shard(store.keys.shard_of(name));
        let failed = |cause| store.failed(PRUNE, cause);
        let mut range = redis::cmd("ZREVRANGEBYSCORE");
        range.arg(keys.history_of(name)).arg(format!("({below}")).arg("-inf");
        range.arg("LIMIT").arg(0).arg(limit);
        let members: Vec<Vec<u8>> = store.connection.ask(&range).await.map_err(failed)?;
        let fences: Vec<i64> =
            members.iter().filter_map(|member| Some(cursor(member)?.fence)).collect();
        let Some(lowest) = fences.last() else { return Ok(Vec::new()) };
        let mut range = redis::cmd("ZRANGEBYSCORE");
        range.arg(keys.failures_of(name)).arg(*lowest).arg(format!("({below}"));
        let failures: Vec<Vec<u8>> = store.connection.ask(&range).await.map_err(failed)?;
        let failures: HashSet<i64> =
            failures.iter().filter_map(|member| Some(cursor(member)?.fence)).collect();
        let mark = |fence| HistoryMark { fence, is_failure: failures.contains(&fence) };
        Ok(fences.into_iter().map(mark).collect())
    }

    async fn oldest_history(
        &self,
        above: Option<&HistoryCursor>,
        limit: usize,
    ) -> Result<Vec<HistoryCursor>> {
        let store = &self.store;
        let oldest = store.keys.all().map(|(_, shard)| async move {
            let mut places = Places::new(Order::OldestFirst, shard.history(), above.cloned());
            let mut all = Vec::new();
            while let Some(page) = places.next(store, PRUNE, limit - all.len()).await? {
                all.extend(page);
            }
            Ok::<_, allora_core::Error>(all)
        });
        let mut all: Vec<HistoryCursor> =
            try_join_all(oldest).await?.into_iter().flatten().collect();
        all.sort_unstable();
        all.truncate(limit);
        Ok(all)
    }

    async fn remove_history(&self, entries: &[HistoryCursor]) -> Result {
        let store = &self.store;
        let mut shards: BTreeMap<u32, Vec<&HistoryCursor>> = BTreeMap::new();
        for entry in entries {
            shards.entry(store.keys.shard_of(&entry.name)).or_default().push(entry);
        }
        let removed = shards.into_iter().map(|(shard, entries)| async move {
            let keys = store.keys.shard(shard);
            for entries in entries.chunks(PAGE) {
                let all = [keys.history(), keys.history_entries()];
                let mut call = Call::new(&store.scripts.remove_history, &all);
                call.arg(keys.history_of("")).arg(keys.failures_of(""));
                for entry in entries {
                    call.arg(member(entry));
                }
                let done = store.connection.call(&call).await;
                done.map_err(|cause| store.failed(PRUNE, cause))?;
            }
            Ok::<_, allora_core::Error>(())
        });
        try_join_all(removed).await.map(drop)
    }
}

impl Store {
    async fn history_in(&self, shard: u32, query: HistoryQuery<'_>) -> Result<Vec<HistoryEntry>> {
        const OP: &str = "entries";
        let HistoryQuery { name, before, limit, .. } = query;
        let keys = self.keys.shard(shard);
        let key = name.map_or_else(|| keys.history(), |name| keys.history_of(name));
        let mut places = Places::new(Order::NewestFirst, key, before.cloned());
        let mut all = Vec::new();
        while let Some(page) = places.next(self, OP, limit - all.len()).await? {
            all.extend(self.entries_at(&keys, &page, OP).await?);
        }
        Ok(all)
    }

    /// The entries at these places. One that was pruned in between, or cannot be read, is left out.
    async fn entries_at(
        &self,
        keys: &Shard,
        places: &[HistoryCursor],
        op: &'static str,
    ) -> Result<Vec<HistoryEntry>> {
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let members: Vec<Vec<u8>> = places.iter().map(member).collect();
        let mut get = redis::cmd("HMGET");
        get.arg(keys.history_entries()).arg(&members);
        let texts = self.connection.ask::<Vec<Option<Vec<u8>>>>(&get).await;
        let texts = texts.map_err(|cause| self.failed(op, cause))?.into_iter();
        Ok(texts.filter_map(|text| codec::decode_entry(&text?).ok()).collect())
    }

    async fn places_in(
        &self,
        shard: u32,
        places: impl Iterator<Item = (&str, u64)>,
    ) -> Result<Vec<Option<i64>>> {
        let keys = self.keys.shard(shard);
        let mut call = Call::new(&self.scripts.history_places, &[keys.history()]);
        call.arg(keys.history_of(""));
        for (name, place) in places {
            call.arg(name).arg(place.saturating_sub(1));
        }
        let reply = self.connection.call(&call).await.map_err(|cause| self.failed(PRUNE, cause))?;
        let found = Vec::<Vec<u8>>::from_redis_value(reply.value);
        let found = found.map_err(|_| self.unexpected_response(PRUNE))?;
        Ok(found.iter().map(|member| Some(cursor(member)?.fence)).collect())
    }
}

/// A sorted set of places of entries, read page by page.
struct Places {
    order: Order,
    key: String,
    /// The last place that was read.
    last: Option<HistoryCursor>,
    /// The number of places to leave out: those of the last fence that were read before.
    skipped: usize,
    has_ended: bool,
}

impl Places {
    fn new(order: Order, key: String, last: Option<HistoryCursor>) -> Self {
        Self { order, key, last, skipped: 0, has_ended: false }
    }

    /// The next places, at most `limit`, perhaps none; `None` at the end.
    ///
    /// Each page begins at the fence of the last place: entries that are written or removed meanwhile
    /// neither hide nor repeat others.
    async fn next(
        &mut self,
        store: &Store,
        op: &'static str,
        limit: usize,
    ) -> Result<Option<Vec<HistoryCursor>>> {
        if self.has_ended || limit == 0 {
            return Ok(None);
        }
        let (command, far) = match self.order {
            Order::NewestFirst => ("ZREVRANGEBYSCORE", ["+inf", "-inf"]),
            Order::OldestFirst => ("ZRANGEBYSCORE", ["-inf", "+inf"]),
        };
        let from = self.last.as_ref().map_or(far[0].to_owned(), |last| last.fence.to_string());
        // The last place itself is read again.
        let count = limit.saturating_add(1).min(PAGE);
        let mut range = redis::cmd(command);
        range.arg(&self.key).arg(from).arg(far[1]).arg("LIMIT").arg(self.skipped).arg(count);
        let members = store.connection.ask::<Vec<Vec<u8>>>(&range).await;
        let members = members.map_err(|cause| store.failed(op, cause))?;
        self.has_ended = members.len() < count;
        let mut places: Vec<HistoryCursor> = members.iter().filter_map(|m| cursor(m)).collect();
        places.retain(|at| match (&self.last, self.order) {
            (None, _) => true,
            (Some(last), Order::NewestFirst) => at < last,
            (Some(last), Order::OldestFirst) => at > last,
        });
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
