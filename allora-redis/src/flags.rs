//! The index of flags, over all shards at the same time: names by flag, and their numbers.

use crate::{Redis, queries::range};
use allora_core::{Result, store::FlagStore};
use async_trait::async_trait;
use futures::future::try_join_all;
use std::collections::BTreeSet;

const FLAGGED: &str = "flagged";
const COUNTS: &str = "counts";

#[async_trait]
impl FlagStore for Redis {
    async fn flagged_names(
        &self,
        key: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>> {
        let store = &self.store;
        let (from, until) = range(prefix, after);
        let sets: Vec<String> = store.keys.all().map(|(_, shard)| shard.flag(key)).collect();
        let shards = sets.iter().map(|set| store.names(FLAGGED, set, &from, &until, limit));
        let mut names = try_join_all(shards).await?.concat();
        names.sort_unstable();
        names.truncate(limit);
        Ok(names)
    }

    async fn count_flagged(&self, keys: &[String], prefix: &str) -> Result<Vec<u64>> {
        let store = &self.store;
        let (from, until) = range(prefix, None);
        let mut numbers = Vec::with_capacity(keys.len());
        for key in keys {
            let shards = store.keys.all().map(|(_, shard)| {
                let mut count = redis::cmd("ZLEXCOUNT");
                count.arg(shard.flag(key)).arg(&from).arg(&until);
                async move { store.connection.ask::<u64>(&count).await }
            });
            let of_each = try_join_all(shards).await;
            numbers.push(of_each.map_err(|cause| store.failed(COUNTS, cause))?.iter().sum());
        }
        Ok(numbers)
    }

    async fn flag_keys(&self, begin: &str, limit: usize) -> Result<Vec<String>> {
        let store = &self.store;
        let shards = store.keys.all().map(|(_, shard)| {
            let mut all = redis::cmd("SMEMBERS");
            all.arg(shard.flags());
            async move { store.connection.ask::<Vec<String>>(&all).await }
        });
        let all = try_join_all(shards).await.map_err(|cause| store.failed(COUNTS, cause))?;
        let keys: BTreeSet<String> =
            all.into_iter().flatten().filter(|key| key.starts_with(begin)).collect();
        Ok(keys.into_iter().take(limit).collect())
    }
}
