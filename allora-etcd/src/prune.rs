//! Pruning: tombstones whose time is over, kinds without schedules, and history beyond its limit.
//!
//! All of it runs beside the batches, on the driver's thread, one at a time and a part of the work at a
//! time: no reply waits for them.

use crate::{
    client::gets,
    encoding::{Stored, number},
    keys::{Keys, digits, end_of},
    oldest_page::{OldestPage, Page},
    store::Store,
};
use allora_core::{
    Result, Time,
    record::{Record, TOMBSTONE},
    time::saturating_add,
};
use etcd_client::{Compare, CompareOp, DeleteOptions, GetOptions, Txn, TxnOp};
use futures::{FutureExt, channel::oneshot};
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, MutexGuard, PoisonError, atomic::Ordering},
};

/// The number of tombstones that one call removes.
const TOMBSTONES_PER_CALL: i64 = 20;

/// The number of such transactions in one call.
const PAGES_PER_CALL: usize = 10;

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
                let is_done = store.left_kinds().is_empty() && !store.has_excess();
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
        self.prune_history().await
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

    /// `true` if there may be a tenth more history than the limit.
    fn has_excess(&self) -> bool {
        let every = (self.history_limit as u64 / 10).max(1);
        self.history_limit > 0 && self.appended.load(Ordering::Relaxed) >= every
    }

    /// Removes a part of the history beyond the limit; not every time.
    async fn prune_history(&self) -> Result {
        if !self.has_excess() {
            return Ok(());
        }
        self.appended.store(0, Ordering::Relaxed);
        let newest = GetOptions::new().with_prefix().with_keys_only().with_limit(1);
        let op = TxnOp::get(self.keys.history(), Some(newest));
        let reply = self.client.txn(OP, Txn::new().and_then([op])).await?;
        let pages = gets(&reply);
        let Some(page) = pages.first() else { return Ok(()) };
        let all = self.keys.history();
        let newest = page.kvs().first().and_then(|kv| Keys::fence_in(&all, kv.key()));
        let mut excess = usize::try_from(page.count()).unwrap_or(0);
        excess = excess.saturating_sub(self.history_limit);
        for _ in 0..PAGES_PER_CALL {
            let Some(newest) = newest.filter(|_| excess > 0) else { return Ok(()) };
            let removed = self.prune_page(newest, excess).await?;
            if removed == 0 {
                return Ok(());
            }
            excess = excess.saturating_sub(removed);
        }
        if excess > 0 {
            // The next call removes more.
            let every = (self.history_limit as u64 / 10).max(1);
            self.appended.fetch_add(every, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Removes some of the oldest entries, at most this number. Returns how many.
    async fn prune_page(&self, newest: i64, excess: usize) -> Result<usize> {
        let mut search = OldestPage::new(*self.oldest_page(), newest, excess);
        while let Some(fence) = search.next() {
            let counted = GetOptions::new().with_range(end_of(&self.keys.history()));
            let op = TxnOp::get(self.keys.history_up_to(fence), Some(counted.with_count_only()));
            let reply = self.client.txn(OP, Txn::new().and_then([op])).await?;
            let count = gets(&reply).first().map_or(0, |page| page.count());
            search.on_count(fence, usize::try_from(count).unwrap_or(0));
        }
        let Some((fence, count)) = search.found else {
            *self.oldest_page() = Page::default();
            return Ok(0);
        };
        self.prune_entries(fence).await?;
        let mut page = self.oldest_page();
        *page = page.up_to(fence);
        Ok(count)
    }

    /// Removes the entries up to this fence. Their keys by job go first: what is left behind by a
    /// process that ends meanwhile is found again.
    async fn prune_entries(&self, fence: i64) -> Result {
        let (from, end) = (self.keys.history_up_to(fence), end_of(&self.keys.history()));
        let range = GetOptions::new().with_range(end.clone()).with_keys_only();
        let op = TxnOp::get(from.clone(), Some(range));
        let reply = self.client.txn(OP, Txn::new().and_then([op])).await?;
        let pages = gets(&reply);
        let keys = pages.iter().flat_map(|page| page.kvs()).map(|kv| kv.key());
        let jobs: BTreeSet<String> = keys.filter_map(|key| self.keys.history_name(key)).collect();
        let of_job = |job: &String| {
            let rest = DeleteOptions::new().with_range(end_of(&self.keys.history_of(job)));
            TxnOp::delete(self.keys.history_of_up_to(job, fence), Some(rest))
        };
        let mut deletes: Vec<TxnOp> = jobs.iter().map(of_job).collect();
        deletes.push(TxnOp::delete(from, Some(DeleteOptions::new().with_range(end))));
        for some in deletes.chunks(self.client.max_operations()) {
            self.client.txn(OP, Txn::new().and_then(some)).await?;
        }
        Ok(())
    }

    fn oldest_page(&self) -> MutexGuard<'_, Page> {
        self.pruned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
