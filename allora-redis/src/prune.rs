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
    unused::{Place, Unused},
};
use allora_core::{
    Result, Time,
    backend::{Action, Notification, Operation, TimeSource},
    record::{HistoryBuffer, OpContext, Record, apply},
};
use chrono::DateTime;
use futures::future::try_join_all;
use std::time::{Duration, Instant};

const OP: &str = "prune";

/// The clock that decides which jobs are unused: always the server's.
const STORE_TIME: TimeSource = TimeSource::Store { fallback: Time::UNIX_EPOCH };

/// The number of records that one part of a search reads: the calling query waits for it.
const PART: usize = CHUNK / 10;

/// The longest delay of a query by a search.
const MAX_DELAY: Duration = Duration::from_millis(50);

impl Store {
    /// Removes the tombstones whose time is over from all shards.
    pub(crate) async fn purge_tombstones(&self, now: Time) -> Result {
        self.purge_shards(0..self.keys.shards, now).await
    }

    async fn purge_shards(&self, shards: impl IntoIterator<Item = u32>, now: Time) -> Result {
        let purged = shards.into_iter().map(|shard| async move {
            let keys = self.keys.shard(shard);
            let all = [&keys.records()[..], &[keys.tombstones()]].concat();
            let mut call = Call::new(&self.scripts.purge_tombstones, &all);
            call.arg(ms(now));
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
        let all = self.keys.shard(shard).names();
        let names = self.names(OP, &all, &from, b"+", PART).await?;
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
            let writes: Vec<&Write<'_>> = writes.iter().collect();
            self.write(OP, shard, &writes, self.connection.timeout).await?;
            self.notify(vec![Notification::Changed]);
            self.purge_shards([self.keys.shard_of(&one.name)], now).await?;
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
            changes: &[],
            not_after: None,
            decided_at: now,
            is_proof: false,
        }
    }
}
