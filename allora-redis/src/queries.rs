//! Queries: due jobs, lists and kinds, over all shards at the same time.

use crate::{
    client::Response,
    encoding::ms,
    fast_path::fixed_clock,
    keys::Shard,
    script::Call,
    shards::CHUNK,
    store::{Store, StoredRecord, bytes, number},
};
use allora_core::{
    Result, Time,
    backend::{ClaimDue, ClaimedDue, Due, DueQuery, JobState, Page, TimeSource},
    record::Record,
    time::from_millis,
};
use futures::future::{join_all, try_join_all};
use redis::{FromRedisValue, Value};
use std::{iter, sync::PoisonError};

/// The most jobs that one query finds in one shard: other clients wait for it.
const MAX_FOUND: usize = 10 * CHUNK;

/// The time after which a search is repeated that one of the shards has failed, in milliseconds. Nodes
/// search a second ahead.
const RETRY_MS: i64 = 2_000;

/// A name and its record, or the reason why it cannot be read.
type Listed = (String, Result<Record, String>);

impl Store {
    /// The jobs that want attention, the earliest first. Corrects index entries that differ from
    /// their jobs.
    pub(crate) async fn find_due(&self, query: DueQuery<'_>, time: TimeSource) -> Result<Due> {
        const OP: &str = "find_due";
        let mut kinds = query.kinds.to_vec();
        kinds.sort_unstable();
        kinds.dedup();
        let limit = query.limit.min(MAX_FOUND);
        // An index entry is whole milliseconds: it is before `until` if it is before this.
        let until = (query.until + chrono::TimeDelta::nanoseconds(999_999)).timestamp_millis();
        // The names are spread evenly over the shards.
        let skip = query.skip / self.keys.shards.max(1) as usize;
        let range = Range { until, skip, limit };
        let shards = self.keys.all().map(|(i, shard)| {
            let (kinds, range) = (&kinds, &range);
            async move { (i, self.find_due_in(OP, i, &shard, kinds, range, time).await) }
        });
        let mut entries = Vec::new();
        let (mut now, mut next, mut failure) = (None, None, None);
        for (shard, found) in join_all(shards).await {
            match found {
                Ok(found) => {
                    now = now.max(Some(found.now));
                    next = earlier(next, found.next);
                    entries.extend(found.entries.into_iter().map(|entry| (shard, entry)));
                }
                Err(error) => failure = Some(error),
            }
        }
        // The jobs of a shard that fails are found by the search after its return.
        let now = match (now, failure) {
            (None, Some(error)) => return Err(error),
            (Some(now), Some(_)) => {
                next = earlier(next, Some(ms(now) + RETRY_MS));
                now
            }
            (now, None) => now.unwrap_or_else(|| time.without_store_clock()),
        };
        // An unreadable job is found as the last one: its time is unknown.
        let order =
            |entry: &Entry| (entry.index_at().map_or(i64::MAX, ms), entry.stored.name.clone());
        entries.sort_by_cached_key(|(_, entry)| order(entry));
        if let Some((_, beyond)) = entries.get(limit) {
            next = earlier(next, Some(order(beyond).0.min(until)));
        }
        entries.truncate(limit);
        let (mut found, mut seen) = (Vec::with_capacity(entries.len()), Vec::new());
        for (shard, entry) in entries {
            let index_at = entry.index_at();
            let is_due = index_at.is_some_and(|at| ms(at) < until);
            if !is_due && !entry.is_unreadable() {
                self.repair_index(OP, shard, &entry, index_at.map(ms)).await?;
            }
            seen.extend(entry.stored.cached());
            let name = entry.stored.name;
            match entry.stored.record {
                Some(Ok(record)) if is_due => found.push(record.state(&name)),
                // It stays in the index: a node with a newer build may be able to read it.
                Some(Err(reason)) => found.push(JobState::unreadable(name, reason)),
                _ => {}
            }
        }
        self.remember(seen);
        Ok(Due::new(now, found, next.and_then(from_millis)))
    }

    /// `true` if one script finds and claims: not if there are shards, of which each has a part of what
    /// is due; nor if replicas must confirm a claim.
    pub(crate) fn claims_due(&self) -> bool {
        self.keys.shards == 1 && self.confirm.is_none()
    }

    /// Finds what is due and claims it; or finds what the node's last query has claimed.
    pub(crate) async fn claim_due(
        &self,
        query: ClaimDue<'_>,
        time: TimeSource,
    ) -> Result<ClaimedDue> {
        const OP: &str = "claim_due";
        let keys = self.keys.shard(0);
        let records = [keys.state(), keys.hot(), keys.definitions(), keys.rare()].into_iter();
        let all = records.chain([keys.claimed_by(query.node)]);
        let all: Vec<String> = all.chain(query.kinds.iter().map(|kind| keys.due(kind))).collect();
        let mut call = Call::new(&self.scripts.claim_due, &all);
        let clock = fixed_clock(time);
        // A node with a line feed has no place in a hot record.
        let is_off = clock.is_none() || !self.claims_due() || query.node.contains('\n');
        call.arg(clock.unwrap_or_default());
        call.optional(query.not_after.map(|until| until.timestamp_micros()));
        call.arg(if is_off { 0 } else { query.limit.min(MAX_FOUND) });
        call.arg(format!("{:x}", query.claim_id)).arg(self.version_stamp()).arg(query.node);
        call.arg(if query.is_repeated { "1" } else { "" });
        for kind in query.kinds {
            call.arg(*kind);
        }
        let (prelude, values) = self.call(OP, 0, &call).await?;
        let now = prelude.now(time);
        let mut values = values.into_iter();
        let names = values.next().map(Vec::<String>::from_redis_value);
        let Some(Ok(names)) = names else { return Err(self.unexpected_response(OP)) };
        let (groups, read) = match query.is_repeated {
            false => {
                let groups = values.next().map(Vec::<usize>::from_redis_value);
                let Some(Ok(groups)) = groups else { return Err(self.unexpected_response(OP)) };
                let count = match values.as_slice() {
                    [Value::Array(hot), ..] => hot.len(),
                    _ => return Err(self.unexpected_response(OP)),
                };
                let nothing = || Value::Array(vec![Value::Nil; count]);
                let parts = values.chain([nothing(), nothing()]);
                (groups, self.stored(OP, iter::repeat_n("", count), parts)?)
            }
            // They may have other parts since.
            true => {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                ((1..=names.len()).collect(), self.read(OP, 0, &names).await?.1)
            }
        };
        let claims = read.iter().map(|stored| {
            let record = stored.readable().filter(|record| query.kinds.contains(&&*record.kind))?;
            Some((record, stored.cached(), record.claimed_by(query.claim_id)?))
        });
        let claims: Vec<_> = claims.collect();
        let mut claimed = Vec::with_capacity(names.len());
        let mut seen = Vec::with_capacity(names.len());
        for (name, group) in names.into_iter().zip(groups) {
            let claim = group.checked_sub(1).and_then(|i| claims.get(i)?.as_ref());
            let Some((record, cached, claim)) = claim else { continue };
            claimed.push((record.state(&name), claim.clone()));
            seen.extend(cached.as_ref().map(|(_, cached)| (name, cached.clone())));
        }
        self.remember(seen);
        Ok(ClaimedDue::new(now, claimed))
    }

    async fn find_due_in(
        &self,
        op: &'static str,
        i: u32,
        shard: &Shard,
        kinds: &[&str],
        range: &Range,
        time: TimeSource,
    ) -> Result<Found> {
        let keys = [shard.state(), shard.hot(), shard.definitions(), shard.rare()].into_iter();
        let keys: Vec<String> = keys.chain(kinds.iter().map(|kind| shard.due(kind))).collect();
        let mut call = Call::new(&self.scripts.find_due, &keys);
        call.within = Some(self.time_of_shards(self.keys.shards as usize));
        call.arg(range.until).arg(range.skip).arg(range.limit);
        let (prelude, values) = self.call(op, i, &call).await?;
        let now = prelude.now(time);
        self.found(op, kinds, now, values)?.ok_or_else(|| self.unexpected_response(op))
    }

    /// The jobs of a reply; `None` if it is not one of `find_due.lua`.
    fn found(
        &self,
        op: &'static str,
        kinds: &[&str],
        now: Time,
        values: Vec<Value>,
    ) -> Result<Option<Found>> {
        let mut values = values.into_iter();
        let next = values.next().and_then(bytes).and_then(|at| number(&at));
        let mut found = Found { now, entries: Vec::new(), next };
        let Some(names) = values.next() else { return Ok(Some(found)) };
        let (Ok(names), Some(Ok(counts))) = (
            Vec::<String>::from_redis_value(names),
            values.next().map(Vec::<usize>::from_redis_value),
        ) else {
            return Ok(None);
        };
        let cold = Value::Array(vec![Value::Nil; names.len()]);
        let read = self.stored(op, names.iter().map(String::as_str), values.chain([cold]))?;
        let of_each = kinds.iter().zip(counts);
        let kinds = of_each.flat_map(|(kind, count)| iter::repeat_n(*kind, count));
        let entries = kinds.zip(read);
        found.entries.extend(entries.map(|(kind, stored)| Entry { kind: kind.to_owned(), stored }));
        Ok(Some(found))
    }

    /// Corrects or removes an entry of the due index, if its job still is as it was read.
    async fn repair_index(
        &self,
        op: &'static str,
        shard: u32,
        entry: &Entry,
        right: Option<i64>,
    ) -> Result {
        let keys = self.keys.shard(shard);
        let mut call = Call::new(&self.scripts.repair_index, &[keys.due(&entry.kind), keys.hot()]);
        let hot = entry.stored.fields.as_ref().map_or(&[][..], |fields| &fields.hot);
        call.arg(&entry.stored.name).arg(hot).optional(right);
        self.connection.call(&call).await.map_err(|cause| self.failed(op, cause))?;
        Ok(())
    }

    pub(crate) async fn list(&self, page: Page<'_>) -> Result<Vec<Listed>> {
        let shards = self.keys.all().map(|(i, _)| self.list_in(i, page));
        let mut all: Vec<Listed> = try_join_all(shards).await?.into_iter().flatten().collect();
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all.truncate(page.limit);
        Ok(all)
    }

    /// The part of a page that is in one shard.
    async fn list_in(&self, shard: u32, page: Page<'_>) -> Result<Vec<Listed>> {
        const OP: &str = "list";
        let (mut from, until) = range(page.prefix, page.after);
        let mut listed: Vec<Listed> = Vec::new();
        while listed.len() < page.limit {
            let all = self.keys.shard(shard).names();
            let names = self.names(OP, &all, &from, &until, page.limit.min(CHUNK)).await?;
            let Some(last) = names.last() else { break };
            from = [b"(", last.as_bytes()].concat();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let (_, read) = self.read(OP, shard, &names).await?;
            let read = read.into_iter().filter_map(|stored| Some((stored.name, stored.record?)));
            listed.extend(read.filter(|(_, record)| match record {
                Ok(record) => record.is_live() && page.kind.is_none_or(|kind| record.kind == kind),
                // Its kind is unknown.
                Err(_) => page.kind.is_none(),
            }));
        }
        Ok(listed)
    }

    /// The first names of a range of a sorted set, as `ZRANGEBYLEX` takes it.
    pub(crate) async fn names(
        &self,
        op: &'static str,
        set: &str,
        from: &[u8],
        until: &[u8],
        limit: usize,
    ) -> Result<Vec<String>> {
        let mut range = redis::cmd("ZRANGEBYLEX");
        range.arg(set).arg(from).arg(until);
        range.arg("LIMIT").arg(0).arg(limit);
        self.connection.ask(&range).await.map_err(|cause| self.failed(op, cause))
    }

    pub(crate) async fn kinds(&self) -> Result<Vec<String>> {
        let shards =
            self.keys.all().map(|(i, shard)| async move { self.kinds_in(i, &shard).await });
        let mut kinds: Vec<String> = try_join_all(shards).await?.into_iter().flatten().collect();
        kinds.sort_unstable();
        kinds.dedup();
        Ok(kinds)
    }

    /// The kinds of a shard; of one that fails, those that it had.
    async fn kinds_in(&self, i: u32, shard: &Shard) -> Result<Vec<String>> {
        const OP: &str = "kinds";
        let mut call = Call::new(&self.scripts.kinds, &[shard.kinds()]);
        call.arg(shard.due(""));
        call.within = Some(self.time_of_shards(self.keys.shards as usize));
        let reply = self.connection.call(&call).await;
        let mut known = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let kinds = match reply {
            Ok(Response { value, .. }) => {
                Vec::<String>::from_redis_value(value).map_err(|_| self.unexpected_response(OP))?
            }
            Err(failure) => {
                let kinds = known.get(&i).cloned();
                return kinds.ok_or_else(|| self.failed(OP, failure));
            }
        };
        known.insert(i, kinds.clone());
        Ok(kinds)
    }
}

/// The names with a prefix that are after this one, as `ZRANGEBYLEX` takes them.
pub(crate) fn range(prefix: &str, after: Option<&str>) -> (Vec<u8>, Vec<u8>) {
    let from = match after {
        Some(after) if after >= prefix => [b"(", after.as_bytes()].concat(),
        _ => [b"[", prefix.as_bytes()].concat(),
    };
    // No UTF-8 text has this byte: every name with the prefix is before it.
    (from, [b"(", prefix.as_bytes(), b"\xff"].concat())
}

/// The range that is read of the due index of each shard: before `until` in milliseconds, behind the
/// first `skip`.
struct Range {
    until: i64,
    skip: usize,
    limit: usize,
}

/// The part of a due query that is in one shard.
struct Found {
    now: Time,
    entries: Vec<Entry>,
    /// The first index time that is not found.
    next: Option<i64>,
}

/// One entry of the due index, and its job.
struct Entry {
    kind: String,
    stored: StoredRecord,
}

impl Entry {
    /// When the job wants attention under the kind of this entry.
    fn index_at(&self) -> Option<Time> {
        let record = self.stored.readable().filter(|record| record.kind == self.kind);
        record.and_then(Record::index_at)
    }

    fn is_unreadable(&self) -> bool {
        matches!(self.stored.record, Some(Err(_)))
    }
}

fn earlier(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    a.into_iter().chain(b).min()
}
