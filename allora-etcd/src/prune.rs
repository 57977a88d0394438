//! Pruning: tombstones whose time is over, and kinds without schedules.
//!
//! All of it runs beside the batches, on the driver's thread, one at a time and a part of the work at a
//! time: no reply waits for them.

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
use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp};
use futures::{FutureExt, channel::oneshot};
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, MutexGuard, PoisonError, atomic::Ordering},
};

/// The number of tombstones that one call removes.
const TOMBSTONES_PER_CALL: i64 = 20;

const OP: &str = "prune";

impl Store {
    /// Prunes in the background, unless that is under way. What fails is left to a later call. The
    /// returned future ends with it; dropped, it stops nothing.
    pub(crate) fn start_pruning(self: &Arc<Self>, now: Time) -> impl Future<Output = ()> + use<> {
        let (ended, end) = oneshot::channel::<()>();
        let end = end.map(drop);
        if self.is_pruning.swap(true, Ordering::Relaxed) {
            return end;
        }
        let store = Arc::downgrade(self);
        self.client.spawn(async move {
            let _ended = ended;
            let Some(store) = store.upgrade() else { return };
            loop {
                let result = store.prune(now).await;
                store.is_pruning.store(false, Ordering::Relaxed);
                if let Err(error) = result {
                    return tracing::debug!(%error, "pruning failed; a later call tries again");
                }
                // A batch that ended meanwhile has started nothing.
                let is_done = store.left_kinds().is_empty();
                if is_done || store.is_pruning.swap(true, Ordering::Relaxed) {
                    return;
                }
            }
        });
        end
    }

    async fn prune(&self, now: Time) -> Result {
        self.prune_tombstones(now).await?;
        let left = std::mem::take(&mut *self.left_kinds());
        for kind in left {
            self.forget_kind(&kind).await?;
        }
        Ok(())
    }

    pub(crate) fn left_kinds(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.left_kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn examples(&self) -> MutexGuard<'_, HashMap<String, Vec<u8>>> {
        self.examples.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a kind without schedules. One schedule of it is remembered: etcd counts all of a range
    /// to find any.
    async fn forget_kind(&self, kind: &str) -> Result {
        let example = self.examples().get(kind).cloned();
        if let Some(example) = example {
            let read = self.client.get_all(OP, vec![TxnOp::get(example, None)]).await?;
            if read.iter().any(|read| read.count() > 0) {
                return Ok(());
            }
        }
        let all = self.keys.of_kind(kind, "");
        let any = GetOptions::new().with_range(end_of(&all)).with_keys_only().with_limit(1);
        let read = self.client.get_all(OP, vec![TxnOp::get(all.clone(), Some(any))]).await?;
        let found = read.first().and_then(|read| Some(read.kvs().first()?.key().to_vec()));
        if let Some(found) = found {
            self.examples().insert(kind.to_owned(), found);
            return Ok(());
        }
        self.examples().remove(kind);
        let none = Compare::create_revision(&*all, CompareOp::Equal, 0).with_range(end_of(&all));
        let forget = Txn::new().when([none]).and_then([TxnOp::delete(self.keys.kind(kind), None)]);
        self.client.txn(OP, forget).await.map(drop)
    }

    /// Removes tombstones whose time is over. The minimum fence guards their names from then on.
    async fn prune_tombstones(&self, now: Time) -> Result {
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
}
