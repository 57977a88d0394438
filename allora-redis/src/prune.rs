//! Removing tombstones whose time is over, and jobs in code that no code has any more.
//!
//! No call reports that a job was removed from the code. It is concluded: an occurrence is due, and
//! for a long time no node moves it although nodes are running. No live job is written to for this;
//! only the time since when nodes have watched is stored. Without that time, the first node after a
//! long outage would delete the jobs that the others are about to claim.

use crate::{
    encoding::ms,
    records::Write,
    script::Call,
    shards::CHUNK,
    store::{Store, StoredRecord, Version, bytes, number},
};
use allora_core::{
    Result, Time,
    backend::{Action, Notification, Operation, TimeSource},
    record::{HistoryBuffer, OpContext, Record, apply},
    time::saturating_add,
};
use chrono::DateTime;
use futures::future::try_join_all;
use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

const OP: &str = "prune";

/// The clock that decides which jobs are unused: always the server's.
const STORE_TIME: TimeSource = TimeSource::Store { fallback: Time::UNIX_EPOCH };

/// The number of records that one part of a search reads: the calling query waits for it.
const PART: usize = CHUNK / 10;

/// The longest delay of a query by a search.
const MAX_DELAY: Duration = Duration::from_millis(50);

/// The setting of unused jobs, and the progress of this node's search.
pub(crate) struct Unused {
    after: Duration,
    search: Mutex<Search>,
}

#[derive(Default)]
struct Search {
    next: Option<Instant>,
    place: Option<Place>,
}

/// The place up to which a search has come.
#[derive(Default)]
struct Place {
    shard: u32,
    /// The name after which it continues; `None` before the shard's first call.
    from: Option<Vec<u8>>,
}

impl Unused {
    pub(crate) fn new(after: Duration) -> Self {
        Self { after, search: Mutex::default() }
    }

    /// The time between two searches. Eight fit into the time: one that is left out is no gap.
    fn period(&self) -> Duration {
        self.after / 8
    }

    /// The longest time between two searches in which nodes count as running.
    fn gap(&self) -> Duration {
        self.after / 4
    }

    fn is_over(&self, from: Time, now: Time) -> bool {
        saturating_add(from, self.after) <= now
    }

    fn is_unused(&self, record: &Record, now: Time) -> bool {
        moved(record).is_some_and(|at| self.is_over(at, now))
    }

    fn search(&self) -> MutexGuard<'_, Search> {
        self.search.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place to continue; `None` if it is too early for a search, or one is running.
    fn begin(&self, now: Instant) -> Option<Place> {
        let mut search = self.search();
        if let Some(place) = search.place.take() {
            return Some(place);
        }
        let is_time = search.next.is_none_or(|next| next <= now);
        is_time.then(|| {
            search.next = now.checked_add(self.period());
            Place::default()
        })
    }
}

impl Store {
    /// Removes the tombstones whose time is over from the shards of these names: a deletion makes a
    /// tombstone, and removes old ones.
    pub(crate) async fn purge_tombstones(&self, deleted: &[&str], now: Time) -> Result {
        let shards: BTreeSet<u32> = deleted.iter().map(|name| self.keys.shard_of(name)).collect();
        let purged = shards.into_iter().map(|shard| async move {
            let keys = self.keys.shard(shard);
            let all = [keys.state(), keys.tombstones(), keys.hot()];
            let mut call = Call::new(&self.scripts.purge_tombstones, &all);
            call.arg(ms(now)).arg(keys.job(""));
            self.connection.call(&call).await.map_err(|cause| self.failed(OP, cause))
        });
        try_join_all(purged).await?;
        Ok(())
    }

    /// Deletes some of the unused jobs, if it is time for a search. An error is ignored: the next
    /// search is soon enough, and the calling query has its result.
    #[expect(clippy::disallowed_methods, reason = "this process's own interval between searches")]
    pub(crate) async fn delete_unused(&self) {
        let Some(unused) = &self.unused else { return };
        let begun = Instant::now();
        let Some(mut place) = unused.begin(begun) else { return };
        while let Ok(Some(next)) = self.search_part(unused, place).await {
            if begun.elapsed() >= MAX_DELAY {
                unused.search().place = Some(next);
                return;
            }
            place = next;
        }
    }

    /// Searches one part; returns the next place.
    async fn search_part(&self, unused: &Unused, place: Place) -> Result<Option<Place>> {
        let shard = place.shard;
        let next = Some(shard + 1).filter(|next| *next < self.keys.shards);
        let next = next.map(|shard| Place { shard, from: None });
        let Some(from) = place.from else {
            let is_watched = self.is_watched(shard, unused).await?;
            let first = Place { shard, from: Some(b"-".to_vec()) };
            return Ok(if is_watched { Some(first) } else { next });
        };
        let names = self.names(OP, shard, &from, b"+", PART).await?;
        let Some(last) = names.last() else { return Ok(next) };
        let from = Some([b"(", last.as_bytes()].concat());
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (prelude, read) = self.read(OP, shard, &names).await?;
        let now = prelude.now(STORE_TIME);
        let unused: Vec<Deletion> = read
            .into_iter()
            .filter(|stored| stored.readable().is_some_and(|job| unused.is_unused(job, now)))
            .filter_map(|stored| Deletion::new(stored, prelude.min_fence, now))
            .collect();
        if let Some(one) = unused.first() {
            let writes: Vec<Write<'_>> = unused.iter().map(|job| job.write(now)).collect();
            // A job that was claimed in between stays: its hot record is another one.
            self.write(OP, shard, &writes.iter().collect::<Vec<_>>()).await?;
            self.notify(vec![Notification::Changed]).await;
            self.purge_tombstones(&[&one.name], now).await?;
        }
        Ok(Some(Place { shard, from }))
    }

    /// True if it is this node's turn, and nodes have watched for long enough.
    async fn is_watched(&self, shard: u32, unused: &Unused) -> Result<bool> {
        let mut call = Call::new(&self.scripts.watch_unused, &[self.keys.shard(shard).state()]);
        for time in [unused.period(), unused.gap()] {
            call.arg(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        }
        let (prelude, rest) = self.call(OP, shard, &call).await?;
        let since = rest.into_iter().next().and_then(bytes).and_then(|word| number(&word));
        let since = since.and_then(DateTime::from_timestamp_micros);
        Ok(since.is_some_and(|since| unused.is_over(since, prelude.now(STORE_TIME))))
    }
}

/// The deletion of an unused job.
struct Deletion {
    name: String,
    version: Version,
    before: Record,
    after: Record,
}

impl Deletion {
    fn new(stored: StoredRecord, min_fence: i64, now: Time) -> Option<Self> {
        let StoredRecord { name, fields, record } = stored;
        let before = record?.ok()?;
        let mut after = Some(before.clone());
        let delete = Operation::new(&name, Action::Delete);
        let context = OpContext::new("unused", now);
        apply(&mut after, &delete, context, &mut HistoryBuffer::off()).ok()?;
        Some(Self { version: Version { fields, min_fence }, before, after: after?, name })
    }

    fn write(&self, now: Time) -> Write<'_> {
        Write {
            name: &self.name,
            version: &self.version,
            before: Some(&self.before),
            is_unreadable: false,
            after: &self.after,
            history: &[],
            not_after: None,
            decided_at: now,
        }
    }
}

/// When a job in code was last moved, or was due to be moved; `None` if that is unknown.
fn moved(record: &Record) -> Option<Time> {
    if !record.kind.is_empty() || !record.is_live() || record.paused.is_some() {
        return None;
    }
    // A fence is the time of the claim or the change that drew it, unless clocks went back.
    let drawn = DateTime::from_timestamp_micros(record.fence)?;
    let leases = record.leases.iter().map(|lease| lease.until);
    let retries = record.retries.iter().map(|retry| retry.not_before);
    let triggers = record.triggers.iter().map(|trigger| trigger.scheduled_at);
    let own = [record.cursor?.due_at, drawn].into_iter();
    own.chain(leases).chain(retries).chain(triggers).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use allora_core::{
        Occurrence,
        backend::{Lease, NextRun, OnExpiry, Pause},
        time::from_millis,
    };

    fn at(ms: i64) -> Time {
        from_millis(ms).unwrap()
    }

    /// The time of a job that was registered at 1 s and is due at 5 s, changed by `change`.
    fn moved_after(change: impl FnOnce(&mut Record)) -> Option<Time> {
        let mut slot = None;
        let first = Some(NextRun::from(at(5_000)));
        let register = Action::Register { definition: "d", version: 0, first };
        let register = Operation::new("a", register);
        let context = OpContext::new("n", at(1_000));
        apply(&mut slot, &register, context, &mut HistoryBuffer::off()).unwrap();
        let mut record = slot.unwrap();
        change(&mut record);
        moved(&record)
    }

    #[test]
    fn a_job_counts_from_its_due_time() {
        assert_eq!(moved_after(|_| {}), Some(at(5_000)));
    }

    #[test]
    fn a_later_event_counts_instead() {
        assert_eq!(moved_after(|record| record.fence = 7_000_000), Some(at(7_000)));
        let lease = |record: &mut Record| {
            let (run, until) = (Occurrence::from(at(5_000)), at(9_000));
            record.leases.push(Lease::new("n", 1, 1, run, until, OnExpiry::Retry));
        };
        assert_eq!(moved_after(lease), Some(at(9_000)));
        let trigger = Occurrence { scheduled_at: at(8_000), trigger: Some("t".into()) };
        assert_eq!(moved_after(|record| record.triggers.push(trigger)), Some(at(8_000)));
    }

    #[test]
    fn a_job_whose_last_move_is_unknown_stays() {
        assert_eq!(moved_after(|record| record.cursor = None), None, "ended, or run by triggers");
        assert_eq!(moved_after(|record| record.kind = "mail".into()), None, "stored");
        assert_eq!(moved_after(|record| record.deleted_at = Some(at(1))), None, "deleted");
        let pause = Pause { since: at(1), note: String::new() };
        assert_eq!(moved_after(|record| record.paused = Some(pause)), None, "paused");
    }
}
