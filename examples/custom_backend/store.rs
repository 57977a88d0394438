//! A complete store: `load`, `commit` and `scan`. By the engine of `RecordStore` it has leases, every
//! policy, stored schedules and triggers.

use allora::{
    Result, async_trait,
    record::Record,
    store::{Commit, Load, Loaded, Outcome, RecordStore, Snapshot},
};
use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Unbounded},
    sync::{Mutex, PoisonError},
};

/// Each record under its name, with the number of its writes as its version.
#[derive(Debug, Default)]
pub(crate) struct Map {
    records: Mutex<BTreeMap<String, (Record, u64)>>,
}

#[async_trait]
impl RecordStore for Map {
    type Version = u64;

    async fn load(&self, load: Load<'_>) -> Result<Snapshot<u64>> {
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = load.names.iter().map(|name| match records.get(*name) {
            Some((record, version)) => Loaded::new(Some(record.clone()), *version),
            None => Loaded::new(None, 0),
        });
        Ok(Snapshot::new(load.time.without_store_clock(), loaded.collect()))
    }

    async fn commit(&self, commit: Commit<'_, u64>) -> Result<Vec<Result<Outcome<u64>>>> {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let outcomes = commit.drafts.into_iter().map(|draft| {
            let version = records.get(draft.name).map_or(0, |(_, version)| *version);
            if version != draft.loaded.version {
                return Ok(Outcome::Conflict(None));
            }
            records.insert(draft.name.to_owned(), (draft.after, version + 1));
            Ok(Outcome::Written { notified: false })
        });
        Ok(outcomes.collect())
    }

    async fn scan(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Result<Record, String>)>> {
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let found = records
            .range::<str, _>((after.map_or(Unbounded, Excluded), Unbounded))
            .filter(|(name, _)| name.starts_with(prefix))
            .map(|(name, (record, _))| (name.clone(), Ok(record.clone())));
        Ok(found.take(limit).collect())
    }
}
