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
    contents: Mutex<Contents>,
}

#[derive(Default)]
struct Contents {
    records: HashMap<String, CachedRecord>,
    /// The number of the timeline that the records belong to.
    timeline: u64,
}

/// The place of a record in the history of the cluster.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// The number of the timeline when the request was sent.
    pub(crate) timeline: u64,
    /// The revision under which the record was read or written.
    pub(crate) revision: i64,
}

/// A record with its revision; without the data.
struct CachedRecord {
    record: Record,
    revision: i64,
    /// The next load reads the record again.
    must_read: bool,
}

impl Cache {
    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The results of `read` for the records of these names that are cached and need not be read
    /// from a member, with their revisions; by position.
    pub(crate) fn get<T>(
        &self,
        names: &[&str],
        timeline: u64,
        read: impl Fn(&Record, i64) -> T,
    ) -> Vec<Option<T>> {
        let mut contents = self.contents();
        contents.enter(timeline);
        let records = &contents.records;
        let get = |name: &&str| {
            let cached = records.get(*name).filter(|cached| !cached.must_read)?;
            Some(read(&cached.record, cached.revision))
        };
        names.iter().map(get).collect()
    }

    /// Has the next load read these records.
    pub(crate) fn must_read<'a>(&self, names: impl Iterator<Item = &'a str>) {
        let mut contents = self.contents();
        for name in names {
            if let Some(cached) = contents.records.get_mut(name) {
                cached.must_read = true;
            }
        }
    }

    /// Keeps what was read or written, unless something newer is there.
    pub(crate) fn put(&self, name: &str, record: Option<Record>, at: Place) {
        let mut contents = self.contents();
        if !contents.enter(at.timeline) {
            return;
        }
        let (records, revision) = (&mut contents.records, at.revision);
        let Some(record) = record else {
            records.remove(name);
            return;
        };
        let record = Record { data: Vec::new(), ..record };
        let cached = CachedRecord { record, revision, must_read: false };
        if let Some(old) = records.get_mut(name) {
            if old.revision <= revision {
                *old = cached;
            }
            return;
        }
        if records.len() >= CAPACITY
            && let Some(any) = records.keys().next().cloned()
        {
            records.remove(&any);
        }
        records.insert(name.to_owned(), cached);
    }

    /// Keeps what was read instead of what a commit has disproved, whatever its revision: a backup
    /// may have been restored, and revisions start again then.
    pub(crate) fn replace(&self, name: &str, record: Option<Record>, at: Place) {
        self.remove(name);
        self.put(name, record, at);
    }

    pub(crate) fn remove(&self, name: &str) {
        self.contents().records.remove(name);
    }

    pub(crate) fn clear(&self) {
        self.contents().records.clear();
    }

    /// The jobs that this node runs, by its id as it is in the keys.
    pub(crate) fn leased_by(&self, node: &str) -> Vec<String> {
        let is_leased = |cached: &CachedRecord| {
            cached.record.leases.iter().any(|lease| escape(&lease.node) == node)
        };
        let contents = self.contents();
        let leased = contents.records.iter().filter(|(_, cached)| is_leased(cached));
        leased.map(|(name, _)| name.clone()).collect()
    }
}

impl Contents {
    /// Drops the records of an earlier timeline; `false` if this one is earlier itself.
    fn enter(&mut self, timeline: u64) -> bool {
        if timeline > self.timeline {
            *self = Self { records: HashMap::new(), timeline };
        }
        timeline == self.timeline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fenced(fence: i64) -> Option<Record> {
        Some(Record { fence, data: b"data".to_vec(), ..Record::default() })
    }

    fn at(revision: i64) -> Place {
        Place { timeline: 1, revision }
    }

    fn fence_of(cache: &Cache) -> Option<i64> {
        fence_in(cache, 1)
    }

    fn fence_in(cache: &Cache, timeline: u64) -> Option<i64> {
        cache.get(&["job"], timeline, |record, _| record.fence)[0]
    }

    #[test]
    fn an_older_revision_replaces_only_what_a_commit_has_disproved() {
        let cache = Cache::default();
        cache.put("job", fenced(2), at(20));
        cache.put("job", fenced(1), at(10));
        assert_eq!(fence_of(&cache), Some(2));
        cache.replace("job", fenced(1), at(10));
        assert_eq!(fence_of(&cache), Some(1));
        cache.put("job", None, at(30));
        assert_eq!(fence_of(&cache), None);
    }

    #[test]
    fn records_of_an_earlier_timeline_are_dropped_and_not_kept() {
        let cache = Cache::default();
        cache.put("job", fenced(2), at(20));
        assert_eq!(fence_in(&cache, 2), None);
        cache.put("job", fenced(2), at(20));
        assert_eq!(fence_in(&cache, 2), None);
        cache.put("job", fenced(1), Place { timeline: 2, revision: 10 });
        assert_eq!(fence_in(&cache, 2), Some(1));
    }

    #[test]
    fn what_must_be_read_is_not_cached_until_then_and_never_with_its_data() {
        let cache = Cache::default();
        cache.put("job", fenced(1), at(10));
        assert_eq!(cache.get(&["job"], 1, |record, _| record.data.clone()), [Some(Vec::new())]);
        cache.must_read(["job", "other"].into_iter());
        assert_eq!(fence_of(&cache), None);
        cache.put("job", fenced(1), at(10));
        assert_eq!(fence_of(&cache), Some(1));
    }
}
