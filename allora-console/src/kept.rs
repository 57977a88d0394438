//! Facts that are read once for all viewers of a page.
//!
//! They are kept for [`TIMES`] times as long as their reading took: of a small store they are always new, and of a
//! large one, any number of viewers costs the store a thirtieth of its time at most.

use allora_core::{Result, Runtime};
use futures::lock::Mutex as AsyncMutex;
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

const TIMES: u32 = 30;

/// The most keys whose facts are kept.
const MOST: usize = 64;

/// The facts, for each of the keys by which readers ask for them. A clone has the same ones.
pub(crate) struct Kept<K, T> {
    slots: Arc<Mutex<BTreeMap<K, Slot<T>>>>,
}

type Slot<T> = Arc<AsyncMutex<Option<(Until, Arc<T>)>>>;

/// The end of facts, and the number of changes before they were read.
type Until = (Instant, u64);

impl<K: Ord, T> Kept<K, T> {
    /// The facts for this key: those that are kept, or new ones. Of several that wait for them, one reads.
    /// `changes`: the number of changes by this console, since whoever makes one sees it at once.
    pub(crate) async fn get(
        &self,
        key: K,
        changes: u64,
        runtime: &dyn Runtime,
        read: impl Future<Output = Result<T>>,
    ) -> Result<Arc<T>> {
        let slot = self.slot(key);
        let mut kept = slot.lock().await;
        if let Some(((until, at), facts)) = &*kept
            && *at == changes
            && runtime.now() < *until
        {
            return Ok(facts.clone());
        }
        let begin = runtime.now();
        let facts = Arc::new(read.await?);
        let end = runtime.now();
        let until = end + end.saturating_duration_since(begin) * TIMES;
        *kept = Some(((until, changes), facts.clone()));
        Ok(facts)
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
        Self { slots: Arc::default() }
    }
}

impl<K, T> Clone for Kept<K, T> {
    fn clone(&self) -> Self {
        Self { slots: self.slots.clone() }
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
    use allora::runtime::{Sim, SimNode};
    use std::{
        sync::atomic::{AtomicU64, Ordering},
        time::Duration,
    };

    /// Takes so long to read the next number.
    async fn next(node: &SimNode, counter: &AtomicU64, takes: Duration) -> Result<u64> {
        node.sleep_until(node.now() + takes).await;
        Ok(counter.fetch_add(1, Ordering::SeqCst))
    }

    #[test]
    fn facts_are_read_once_for_all_who_ask_within_their_time_and_anew_after_a_change() {
        let (sim, counter) = (Sim::new(1), AtomicU64::new(0));
        let (node, kept) = (sim.node(), Kept::default());
        let get = |key, changes| {
            let takes = Duration::from_millis(100);
            let (kept, node, counter) = (&kept, &node, &counter);
            async move { *kept.get(key, changes, node, next(node, counter, takes)).await.unwrap() }
        };
        sim.block_on(async {
            let both = futures::join!(get("all", 0), get("all", 0));
            assert_eq!(both, (0, 0), "they wait for the same facts");
            node.sleep_until(node.now() + Duration::from_millis(2_999)).await;
            assert_eq!(get("all", 0).await, 0);
            assert_eq!(get("acme/", 0).await, 1);
            node.sleep_until(node.now() + Duration::from_millis(1)).await;
            assert_eq!(get("all", 0).await, 2);
            assert_eq!(get("all", 1).await, 3, "something was changed");
            assert_eq!(get("all", 1).await, 3);
        });
    }
}
