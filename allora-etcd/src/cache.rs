//! Cache of the records that this store last read or wrote, so that a claim needs one exchange
//! instead of two. Without the data: a claim needs none.

use crate::keys::escape;
use allora_core::record::Record;
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The number of cached records.
const CAPACITY: usize = 100_000;

#[derive(Default)]
pub(crate) struct Cache {
    records: Mutex<HashMap<String, CachedRecord>>,
}

/// A record with its revision; without the data.
#[derive(Clone)]
pub(crate) struct CachedRecord {
    pub(crate) record: Record,
    pub(crate) revision: i64,
    /// The next load reads the record again.
    must_read: bool,
}

impl Cache {
    fn records(&self) -> MutexGuard<'_, HashMap<String, CachedRecord>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The records of these names that are cached and need not be read, by position.
    pub(crate) fn get(&self, names: &[&str]) -> Vec<Option<CachedRecord>> {
        let records = self.records();
        let get = |name: &&str| records.get(*name).filter(|cached| !cached.must_read).cloned();
        names.iter().map(get).collect()
    }

    /// Has the next load read these records.
    pub(crate) fn must_read<'a>(&self, names: impl Iterator<Item = &'a str>) {
        let mut records = self.records();
        for name in names {
            if let Some(cached) = records.get_mut(name) {
                cached.must_read = true;
            }
        }
    }

    /// Keeps what was read or written at this revision, unless something newer is there.
    pub(crate) fn put(&self, name: &str, record: Option<Record>, revision: i64) {
        let mut records = self.records();
        let Some(record) = record else {
            records.remove(name);
            return;
        };
        if records.get(name).is_some_and(|cached| cached.revision > revision) {
            return;
        }
        if records.len() >= CAPACITY
            && !records.contains_key(name)
            && let Some(any) = records.keys().next().cloned()
        {
            records.remove(&any);
        }
        let record = Record { data: Vec::new(), ..record };
        records.insert(name.to_owned(), CachedRecord { record, revision, must_read: false });
    }

    /// Keeps what was read instead of what a commit has disproved, whatever its revision: revisions
    /// start again after a backup was restored.
    pub(crate) fn replace(&self, name: &str, record: Option<Record>, revision: i64) {
        self.remove(name);
        self.put(name, record, revision);
    }

    pub(crate) fn remove(&self, name: &str) {
        self.records().remove(name);
    }

    /// The jobs that this node runs, by its id as it is in the keys.
    pub(crate) fn leased_by(&self, node: &str) -> Vec<String> {
        let is_leased = |cached: &CachedRecord| {
            cached.record.leases.iter().any(|lease| escape(&lease.node) == node)
        };
        let records = self.records();
        let leased = records.iter().filter(|(_, cached)| is_leased(cached));
        leased.map(|(name, _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fenced(fence: i64) -> Option<Record> {
        Some(Record { fence, data: b"data".to_vec(), ..Record::default() })
    }

    fn fence_of(cache: &Cache) -> Option<i64> {
        cache.get(&["job"])[0].as_ref().map(|cached| cached.record.fence)
    }

    #[test]
    fn an_older_revision_replaces_only_what_a_commit_has_disproved() {
        let cache = Cache::default();
        cache.put("job", fenced(2), 20);
        cache.put("job", fenced(1), 10);
        assert_eq!(fence_of(&cache), Some(2));
        cache.replace("job", fenced(1), 10);
        assert_eq!(fence_of(&cache), Some(1));
        cache.put("job", None, 30);
        assert_eq!(fence_of(&cache), None);
    }

    #[test]
    fn what_must_be_read_is_not_cached_until_then_and_never_with_its_data() {
        let cache = Cache::default();
        cache.put("job", fenced(1), 10);
        assert_eq!(cache.get(&["job"])[0].as_ref().unwrap().record.data, b"");
        cache.must_read(["job", "other"].into_iter());
        assert_eq!(fence_of(&cache), None);
        cache.put("job", fenced(1), 10);
        assert_eq!(fence_of(&cache), Some(1));
    }
}
