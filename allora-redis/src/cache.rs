//! Cache of the records that this process last read or wrote, so that a claim or completion needs one
//! call instead of two.
//!
//! Every write stores a unique version stamp in the hot record. A server whose hot record has the stamp
//! of the cached one has the whole record as it is cached, and replaces the hot record by the one that
//! was computed here. If the cached record is old or was evicted, the server returns the stored one,
//! and the operation takes the general way. Correctness does not depend on the cache.

use crate::encoding::{Fields, hot_prefix, hot_suffix, is_plain, ms, rare_counters, rare_outcome};
use allora_core::{
    Time,
    backend::{Counters, Outcome},
    record::Record,
    time::{end_of_time, whole_millis},
};
use chrono::{DateTime, TimeDelta};
use std::{
    collections::HashMap,
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The size of one generation; two generations are kept. A record takes about a kilobyte.
const GENERATION: usize = 16_384;

/// Records by name, in two generations: when the new one is full, the old one is evicted.
#[derive(Default)]
pub(crate) struct Cache {
    new: HashMap<String, Box<CachedRecord>>,
    old: HashMap<String, Box<CachedRecord>>,
}

impl Cache {
    pub(crate) fn lock(cache: &Mutex<Self>) -> MutexGuard<'_, Self> {
        cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&mut self, name: String, cached: Box<CachedRecord>) {
        if self.new.len() >= GENERATION {
            self.old = mem::take(&mut self.new);
        }
        self.new.insert(name, cached);
    }

    /// Removes a record: the call that updates it puts the new one back.
    pub(crate) fn take(&mut self, name: &str) -> Option<(String, Box<CachedRecord>)> {
        self.new.remove_entry(name).or_else(|| self.old.remove_entry(name))
    }
}

/// A plain record without its large parts, and its version stamp.
#[derive(Clone)]
pub(crate) struct CachedRecord {
    pub(crate) stamp: String,
    /// Always `Some`: the form in which operations are applied.
    record: Option<Record>,
}

/// The times between which a decision holds, and the length of the lease from then on, in
/// microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Validity {
    pub(crate) from: Option<i64>,
    pub(crate) until: Option<i64>,
    pub(crate) duration: Option<i64>,
}

/// The update of a record, computed before the server's clock was read.
pub(crate) struct SpeculativeUpdate {
    pub(crate) validity: Validity,
    /// True if the record gets a new fence.
    draws_fence: bool,
    /// The rest of the new hot record.
    pub(crate) suffix: Vec<u8>,
    /// The index time at the latest; `None` for a job in code.
    pub(crate) index_at: Option<Option<i64>>,
}

impl SpeculativeUpdate {
    /// True if the new hot record does not refer to the time of its write.
    pub(crate) fn is_timeless(&self) -> bool {
        !self.draws_fence && self.validity.duration.is_none()
    }
}

impl CachedRecord {
    /// The copy of a record with this version stamp; `None` if it is not plain.
    pub(crate) fn of(record: &Record, stamp: &str) -> Option<Box<Self>> {
        if !is_plain(record) {
            return None;
        }
        let record = Record {
            kind: record.kind.clone(),
            version: record.version,
            incarnation: record.incarnation,
            generation: record.generation,
            cursor: record.cursor,
            last_started: record.last_started,
            fence: record.fence,
            leases: record.leases.clone(),
            ended: record.ended,
            last: record.last.clone(),
            counters: record.counters,
            ..Record::default()
        };
        Some(Box::new(Self { stamp: stamp.to_owned(), record: Some(record) }))
    }

    pub(crate) fn record(&self) -> Option<&Record> {
        self.record.as_ref()
    }

    pub(crate) fn slot(&mut self) -> &mut Option<Record> {
        &mut self.record
    }

    /// Applies `apply` at a time of the validity, if the result fits into the hot record. Otherwise
    /// the cached record is no longer usable.
    pub(crate) fn update(
        &mut self,
        mut validity: Validity,
        apply: impl FnOnce(&mut Option<Record>, Time),
    ) -> Option<SpeculativeUpdate> {
        let before = self.record.as_ref()?;
        // Any time of the validity. Above the record's fence, so that a new fence equals the time.
        let above = before.fence.checked_add(1)?;
        let tried = validity.from.map_or(above, |from| from.max(above));
        let before = Before::of(before);
        apply(&mut self.record, DateTime::from_timestamp_micros(tried)?);
        let after = self.record.as_mut()?;
        let is_whole = |at: Time| whole_millis(at) == at && at.timestamp() >= 0;
        let whole =
            after.cursor.is_none_or(|next| is_whole(next.scheduled_at) && is_whole(next.due_at));
        if !whole || !is_plain(after) || !before.has_become(after) {
            return None;
        }
        let draws_fence = after.fence == tried;
        if draws_fence {
            validity.from = Some(tried);
        }
        let suffix = hot_suffix(after, tried, validity.duration);
        let index_at = if after.kind.is_empty() {
            None
        } else {
            if let (Some(lease), Some(_)) = (after.leases.first_mut(), validity.duration) {
                // The server computes the lease's end.
                lease.until = end_of_time();
            }
            Some(after.index_at().map(ms))
        };
        Some(SpeculativeUpdate { validity, draws_fence, suffix, index_at })
    }

    /// Follows the server, which has applied the update with this version stamp at this time.
    pub(crate) fn commit(&mut self, update: &SpeculativeUpdate, stamp: &str, now: Time) {
        let Some(record) = &mut self.record else { return };
        let written = now.timestamp_micros();
        if let Some(lease) = record.leases.first_mut() {
            if update.draws_fence {
                lease.fence = written;
                lease.started_at = whole_millis(now);
            }
            if let Some(duration) = update.validity.duration {
                lease.until = whole_millis(now + TimeDelta::microseconds(duration));
            }
        }
        if update.draws_fence {
            record.fence = written;
        }
        stamp.clone_into(&mut self.stamp);
        debug_assert!(
            self.equals_stored([hot_prefix(stamp, written).as_bytes(), &update.suffix].concat()),
            "{}",
            String::from_utf8_lossy(&update.suffix)
        );
    }

    /// True if this hot record is read as this record.
    fn equals_stored(&self, hot: Vec<u8>) -> bool {
        let Some(record) = &self.record else { return false };
        // The parts in other fields.
        let fields = Fields { hot, ..Fields::of(record, &self.stamp, 0) };
        fields.record().as_ref() == Ok(record)
    }
}

/// The parts of a record that tell whether an operation has changed it, and only its hot record.
struct Before {
    fence: i64,
    leases: usize,
    until: Option<Time>,
    last: Option<Outcome>,
    counters: Counters,
}

impl Before {
    fn of(record: &Record) -> Self {
        let Record { fence, counters, leases, .. } = record;
        let until = leases.first().map(|lease| lease.until);
        let last = rare_outcome(record).cloned();
        let counters = rare_counters(*counters);
        Self { fence: *fence, leases: leases.len(), until, last, counters }
    }

    fn has_become(&self, after: &Record) -> bool {
        let until = after.leases.first().map(|lease| lease.until);
        let is_changed =
            after.fence != self.fence || after.leases.len() != self.leases || until != self.until;
        // The cached record lacks these parts; a run does not change them.
        let lacks_other_parts =
            after.definition.is_empty() && after.data.is_empty() && after.dead.is_empty();
        is_changed
            && lacks_other_parts
            && rare_outcome(after) == self.last.as_ref()
            && rare_counters(after.counters) == self.counters
    }
}

/// A duration in whole microseconds, if Lua's numbers can represent it.
pub(crate) fn micros(duration: Duration) -> Option<i64> {
    let whole = duration.subsec_nanos().is_multiple_of(1_000);
    i64::try_from(duration.as_micros()).ok().filter(|us| whole && *us < 1 << 52)
}

#[cfg(test)]
mod tests {
    use super::*;
    use allora_core::{
        backend::{Action, Claim, Claimed, Completion, Cursor, NextRun, Operation, Reply, Sharing},
        record::{HistoryBuffer, OpContext, apply},
        time::from_millis,
    };

    const LEASE: Duration = Duration::from_secs(60);

    fn at(us: i64) -> Time {
        DateTime::from_timestamp_micros(us).unwrap()
    }

    fn next(ms: i64) -> NextRun {
        from_millis(ms).unwrap().into()
    }

    fn act(slot: &mut Option<Record>, action: Action<'_>, now: Time) -> Reply {
        let operation = Operation::new("a", action);
        apply(slot, &operation, OpContext::new("n", now), &mut HistoryBuffer::off()).unwrap()
    }

    /// A stored schedule that is due at 5 s, and its cached record.
    fn stored() -> (Record, Box<CachedRecord>) {
        let mut slot = None;
        let action = Action::Register { definition: "d", version: 3, first: Some(next(5_000)) };
        act(&mut slot, action, at(1_000_000));
        let record = Record { kind: "mail".into(), data: vec![1], ..slot.unwrap() };
        let fields = Fields::of(&record, "stamp", 1_000_000);
        (record.clone(), CachedRecord::of(&record, fields.stamp()).unwrap())
    }

    fn at_least_once(record: &Record) -> Action<'static> {
        let expected = next(5_000).scheduled_at.into();
        Action::Claim(Claim::at_least_once(7, record.fence, expected, LEASE))
    }

    /// An update that was computed before the clock was read equals the operation at that time.
    #[test]
    fn a_speculative_update_equals_the_operation_at_the_servers_time() {
        let duration = micros(LEASE);
        for now in [5_000_000, 5_000_001, 7_123_456].map(at) {
            let (record, mut cached) = stored();
            let claim = || at_least_once(&record);
            let validity = Validity { from: Some(5_000_000), until: None, duration };
            let update =
                cached.update(validity, |slot, now| drop(act(slot, claim(), now))).unwrap();
            assert_eq!(update.index_at, Some(Some(ms(end_of_time()))), "the server computes it");
            cached.commit(&update, "next", now);
            let mut slot = Some(record.clone());
            let reply = act(&mut slot, claim(), now);
            assert_eq!(act(cached.slot(), claim(), now), reply, "a repeated claim");
            let Reply::Claimed(Claimed { fence, .. }) = reply else { panic!("{reply:?}") };

            let then = Cursor::To(Some(next(65_000)));
            let complete = Action::Complete { fence, then, completion: Completion::Succeeded };
            let extend = Action::Extend { fence, duration: LEASE };
            let mut hot = Vec::new();
            for (action, later, duration) in
                [(extend, 9_000_000, duration), (complete, 9_500_000, None)]
            {
                let validity = Validity { from: Some(8_000_000), until: None, duration };
                let update = cached
                    .update(validity, |slot, now| drop(act(slot, action.clone(), now)))
                    .unwrap();
                cached.commit(&update, "next", at(later));
                hot = [hot_prefix("next", later).as_bytes(), &update.suffix].concat();
                let reply = act(&mut slot, action.clone(), at(later));
                assert_ne!(reply, Reply::LeaseLost);
                assert_eq!(act(cached.slot(), action, at(later)), reply);
            }
            let slot = slot.unwrap();
            let hot_parts = Record {
                definition: String::new(),
                due_lease: None,
                data: Vec::new(),
                ..slot.clone()
            };
            assert_eq!(cached.record(), Some(&hot_parts));
            let fields = Fields { hot, ..Fields::of(&slot, "stamp", 0) };
            assert_eq!(fields.record(), Ok(slot));
        }
    }

    #[test]
    fn a_change_beyond_the_hot_record_takes_the_general_way() {
        let (record, mut cached) = stored();
        let validity = Validity { from: Some(5_000_000), until: None, duration: micros(LEASE) };
        let lost = |fence, then| {
            let expected = next(5_000).scheduled_at.into();
            Action::Claim(Claim::at_most_once(7, fence, expected, then, LEASE, Sharing::Shared))
        };
        // One expects another fence, one leaves the cursor where it is.
        for action in [lost(3, Cursor::To(None)), lost(record.fence, Cursor::Keep)] {
            let update = cached.update(validity, |slot, now| drop(act(slot, action, now)));
            assert!(update.is_none());
            cached = stored().1;
        }
        let update =
            cached.update(validity, |slot, now| drop(act(slot, at_least_once(&record), now)));
        cached.commit(&update.unwrap(), "next", at(5_000_000));
        let then = Cursor::To(Some(next(65_000)));
        let completion = Completion::Failed("no");
        let action = Action::Complete { fence: 5_000_000, then, completion };
        let update = cached.update(Validity::default(), |slot, now| drop(act(slot, action, now)));
        assert!(update.is_none(), "the error is a field of its own");
    }

    #[test]
    fn the_cache_is_bounded_and_keeps_the_newest_records() {
        let mut cache = Cache::default();
        for i in 0..3 * GENERATION {
            cache.put(i.to_string(), Box::new(CachedRecord { stamp: String::new(), record: None }));
            assert!(cache.new.len() <= GENERATION && cache.old.len() <= GENERATION);
        }
        assert!((2 * GENERATION..3 * GENERATION).all(|i| cache.take(&i.to_string()).is_some()));
        assert!(cache.take("0").is_none());
    }
}
