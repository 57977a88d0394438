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
    time::{Duration, Instant},
};

const TIMES: u32 = 30;

/// The most keys whose facts are kept.
const MOST: usize = 64;

/// The facts, for each of the keys by which readers ask for them. A clone has the same ones.
pub(crate) struct Kept<K, T> {
    slots: Arc<Mutex<BTreeMap<K, Slot<T>>>>,
}

type Slot<T> = Arc<AsyncMutex<Option<Reading<T>>>>;

/// The last reading.
struct Reading<T> {
    facts: Result<Arc<T>>,
    /// The number of changes before it began.
    changes: u64,
    ended: Instant,
    /// The end of its facts.
    until: Instant,
}

impl<K: Ord, T> Kept<K, T> {
    /// The facts for this key: those that are kept, or new ones. Of several that wait for them, one reads, and all
    /// have what it gets, an error as well: a store that does not answer is not asked by one after the other.
    /// `changes`: the number of changes by way of this console; no facts are older than the last one.
    pub(crate) async fn get(
        &self,
        key: K,
        changes: u64,
        runtime: &dyn Runtime,
        read: impl Future<Output = Result<T>>,
    ) -> Result<Arc<T>> {
        let (slot, asked) = (self.slot(key), runtime.now());
        let mut last = slot.lock().await;
        let begin = runtime.now();
        let is_new = |last: &&Reading<T>| asked < last.ended || begin < last.until;
        if let Some(last) = last.as_ref().filter(|last| last.changes == changes).filter(is_new) {
            return last.facts.clone();
        }
        let facts = read.await.map(Arc::new);
        let ended = runtime.now();
        let took =
            if facts.is_ok() { ended.saturating_duration_since(begin) } else { Duration::ZERO };
        let until = ended + took * TIMES;
        *last = Some(Reading { facts: facts.clone(), changes, ended, until });
        facts
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
    use allora_core::{Error, ErrorKind};
    use std::sync::atomic::{AtomicU64, Ordering};

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

    #[test]
    fn a_store_that_does_not_answer_is_asked_once_for_all_who_wait() {
        let (sim, asked) = (Sim::new(1), AtomicU64::new(0));
        let (node, kept) = (sim.node(), Kept::<_, ()>::default());
        let get = || {
            let (kept, node, asked) = (&kept, &node, &asked);
            kept.get("all", 0, node, async move {
                asked.fetch_add(1, Ordering::SeqCst);
                node.sleep_until(node.now() + Duration::from_secs(10)).await;
                Err(Error::new(ErrorKind::Unavailable, "no answer"))
            })
        };
        sim.block_on(async {
            let begin = node.now();
            let all = futures::future::join_all((0..10).map(|_| get())).await;
            assert!(all.iter().all(Result::is_err));
            assert_eq!(node.now() - begin, Duration::from_secs(10));
            assert_eq!(asked.load(Ordering::SeqCst), 1);
            assert!(get().await.is_err(), "whoever asks later asks anew");
            assert_eq!(asked.load(Ordering::SeqCst), 2);
        });
    }
}
