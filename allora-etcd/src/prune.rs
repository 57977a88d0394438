//! Pruning: tombstones whose time is over, and history beyond its limit.

use crate::{
    client::gets,
    encoding::{Stored, number},
    keys::{Keys, digits, end_of},
    store::Store,
};
use allora_core::{
    Result, Time,
    record::{Record, TOMBSTONE},
    time::saturating_add,
};
use etcd_client::{Compare, CompareOp, DeleteOptions, GetOptions, Txn, TxnOp};
use std::sync::atomic::Ordering;

/// The number of tombstones that one call removes.
const TOMBSTONES_PER_CALL: i64 = 20;

const OP: &str = "prune";

impl Store {
    /// Removes tombstones whose time is over. The minimum fence guards their names from then on.
    pub(crate) async fn prune_tombstones(&self, now: Time) -> Result {
        let old = now.timestamp_millis() - i64::try_from(TOMBSTONE.as_millis()).unwrap_or(i64::MAX);
        let prefix = self.keys.tombstones();
        let range = GetOptions::new().with_range(format!("{prefix}{}", digits(old)));
        let range = range.with_keys_only().with_limit(TOMBSTONES_PER_CALL);
        let op = TxnOp::get(prefix.clone(), Some(range));
        let reply = self.client.txn(OP, Txn::new().and_then([op])).await?;
        for kv in gets(&reply).iter().flat_map(|reply| reply.kvs()) {
            self.prune_tombstone(now, &prefix, kv.key()).await?;
        }
        Ok(())
    }

    async fn prune_tombstone(&self, now: Time, prefix: &str, key: &[u8]) -> Result {
        let Some(entry) = Keys::index_entry(prefix, key) else { return Ok(()) };
        let (job, min_fence) = (self.keys.job(&entry.name), self.keys.min_fence());
        let read = [TxnOp::get(min_fence.clone(), None), TxnOp::get(job.clone(), None)];
        let reply = self.client.txn(OP, Txn::new().and_then(read)).await?;
        let mut replies = gets(&reply).into_iter();
        let (Some(fence), Some(stored)) = (replies.next(), replies.next()) else { return Ok(()) };
        let (fence, fence_revision) = number(&fence);
        let (record, revision) = match stored.kvs().first() {
            None => (None, 0),
            Some(kv) => (Stored::of(kv, Vec::new()).record().cloned(), kv.mod_revision()),
        };
        let is_over = |record: &Record| {
            record.deleted_at.is_some_and(|at| saturating_add(at, TOMBSTONE) <= now)
        };
        let mut ops = vec![TxnOp::delete(key, None)];
        if let Some(record) = record.filter(is_over) {
            ops.push(TxnOp::delete(job.clone(), None));
            ops.push(TxnOp::put(min_fence.clone(), fence.max(record.fence).to_string(), None));
        }
        let txn = Txn::new()
            .when([
                Compare::mod_revision(job, CompareOp::Equal, revision),
                Compare::mod_revision(min_fence, CompareOp::Equal, fence_revision),
            ])
            .and_then(ops);
        // On a conflict another node has removed it, or a later call does.
        self.client.txn(OP, txn).await?;
        self.cache.remove(&entry.name);
        Ok(())
    }

    /// Removes history beyond the limit; not every time.
    pub(crate) async fn prune_history(&self) -> Result {
        let every = (self.history_limit as u64 / 10).max(1);
        if self.history_limit == 0 || self.appended.load(Ordering::Relaxed) < every {
            return Ok(());
        }
        self.appended.store(0, Ordering::Relaxed);
        let (first, end) = (self.keys.history(), end_of(&self.keys.history()));
        let limit = i64::try_from(self.history_limit).unwrap_or(i64::MAX).saturating_add(1);
        let range = GetOptions::new().with_range(end.clone()).with_keys_only().with_limit(limit);
        let op = TxnOp::get(first, Some(range));
        let reply = self.client.txn(OP, Txn::new().and_then([op])).await?;
        let pages = gets(&reply);
        let Some(page) = pages.first().filter(|page| page.kvs().len() > self.history_limit) else {
            return Ok(());
        };
        let Some(oldest) = page.kvs().last() else { return Ok(()) };
        let rest = DeleteOptions::new().with_range(end);
        let delete = TxnOp::delete(oldest.key(), Some(rest));
        self.client.txn(OP, Txn::new().and_then([delete])).await.map(drop)
    }
}
