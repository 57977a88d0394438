//! Facts that are read once for all viewers of a page.
//!
//! They are kept for [`TIMES`] times as long as their reading took: of a small store they are always new, and of a
//! large one, any number of viewers costs the store a twentieth of its time at most.

use allora_core::{Result, Runtime};
use futures::lock::Mutex as AsyncMutex;
use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

const TIMES: u32 = 20;

/// The most keys whose facts are kept.
const MOST: usize = 64;

/// The facts, for each of the keys by which readers ask for them. A clone has the same ones.
pub(crate) struct Kept<K, T> {
    slots: Arc<Mutex<BTreeMap<K, Slot<T>>>>,
    /// The number of times that they were forgotten.
    forgotten: Arc<AtomicU64>,
}

type Slot<T> = Arc<AsyncMutex<Option<(Until, Arc<T>)>>>;

/// The end of facts, and how often others had been forgotten when they were read.
type Until = (Instant, u64);

impl<K: Ord, T> Kept<K, T> {
    /// The facts for this key: those that are kept, or new ones. Of several that wait for them, one reads.
    pub(crate) async fn get(
        &self,
        key: K,
        runtime: &dyn Runtime,
        read: impl Future<Output = Result<T>>,
    ) -> Result<Arc<T>> {
        let slot = self.slot(key);
        let mut kept = slot.lock().await;
        let forgotten = self.forgotten.load(Ordering::SeqCst);
        if let Some(((until, at), facts)) = &*kept
            && *at == forgotten
            && runtime.now() < *until
        {
            return Ok(facts.clone());
        }
        let begin = runtime.now();
        let facts = Arc::new(read.await?);
        let end = runtime.now();
        let until = end + end.saturating_duration_since(begin) * TIMES;
        *kept = Some(((until, forgotten), facts.clone()));
        Ok(facts)
    }

    /// After a change: whoever asks next reads anew.
    pub(crate) fn forget(&self) {
        self.forgotten.fetch_add(1, Ordering::SeqCst);
    }

    fn slot(&self, key: K) -> Slot<T> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.len() >= MOST && !slots.contains_key(&key) {
            slots.clear();
        }
        slots.entry(key).or_default().clone()
    }
}

impl<K, T> Default for Kept<K, T> {
    fn default() -> Self {
        Self { slots: Arc::default(), forgotten: Arc::default() }
    }
}

impl<K, T> Clone for Kept<K, T> {
    fn clone(&self) -> Self {
        Self { slots: self.slots.clone(), forgotten: self.forgotten.clone() }
    }
}

impl<K, T> fmt::Debug for Kept<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use allora::runtime::{Sim, SimNode};
    use std::time::Duration;

    /// Takes so long to read the next number.
    async fn next(node: &SimNode, counter: &AtomicU64, takes: Duration) -> Result<u64> {
        node.sleep_until(node.now() + takes).await;
        Ok(counter.fetch_add(1, Ordering::SeqCst))
    }

    #[test]
    fn facts_are_read_once_for_all_who_ask_within_their_time() {
        let (sim, counter) = (Sim::new(1), AtomicU64::new(0));
        let (node, kept) = (sim.node(), Kept::default());
        let all = || Access::reader("ann").limits();
        let get = |limits| {
            let takes = Duration::from_millis(100);
            let (kept, node, counter) = (&kept, &node, &counter);
            async move { *kept.get(limits, node, next(node, counter, takes)).await.unwrap() }
        };
        sim.block_on(async {
            let both = futures::join!(get(all()), get(all()));
            assert_eq!(both, (0, 0), "they wait for the same facts");
            node.sleep_until(node.now() + Duration::from_millis(1_999)).await;
            assert_eq!(get(all()).await, 0);
            assert_eq!(get(Access::reader("bob").only_prefixes(["b/"]).limits()).await, 1);
            node.sleep_until(node.now() + Duration::from_millis(1)).await;
            assert_eq!(get(all()).await, 2);
            kept.forget();
            assert_eq!(get(all()).await, 3, "something was changed");
        });
    }

    #[test]
    fn what_was_read_during_a_change_is_not_kept() {
        let (sim, counter) = (Sim::new(1), AtomicU64::new(0));
        let (node, kept) = (sim.node(), Kept::default());
        let limits = || Access::reader("ann").limits();
        sim.block_on(async {
            let reads = async {
                kept.forget();
                next(&node, &counter, Duration::from_millis(100)).await
            };
            assert_eq!(*kept.get(limits(), &node, reads).await.unwrap(), 0);
            let reads = next(&node, &counter, Duration::ZERO);
            assert_eq!(*kept.get(limits(), &node, reads).await.unwrap(), 1);
        });
    }
}
