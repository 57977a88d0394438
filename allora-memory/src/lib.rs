//! allora in process memory: the reference store.
//!
//! Its contents are lost when the process ends. All schedulers with clones of one [`Memory`] share
//! it, as machines share a database. Two processes do not share it: use it in one process, and in
//! tests.
//!
//! It is a [`RecordStore`](allora_core::store::RecordStore) with an index: `records` has load, commit
//! and scan, `queries` has the queries, `index` has the maps, and `packed` keeps a record in less
//! memory.
//!
//! ```
//! use allora::Backend;
//! use allora::Memory;
//!
//! let store = Memory::new().with_history(10_000);
//! let another_node = store.clone();
//! assert!(another_node.history().is_some());
//! ```

mod fast_path;
mod history;
mod index;
mod notifier;
mod packed;
mod queries;
mod records;

use allora_core::{
    Time,
    backend::{HistoryLimits, Notification, TimeSource},
    store::HistoryPruning,
};
use futures::channel::mpsc::UnboundedSender;
use index::Index;
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A store in process memory. A clone is another node's handle on the same store.
///
/// It reads no clock: the time comes with each request, from the node's
/// [`Runtime`](allora_core::Runtime), unless [`with_clock`](Self::with_clock) sets one.
#[derive(Clone)]
pub struct Memory {
    namespace: Arc<str>,
    clock: Option<Clock>,
    pruning: Arc<HistoryPruning>,
    shared: Arc<Shared>,
}

type Clock = Arc<dyn Fn() -> Time + Send + Sync>;

#[derive(Default)]
struct Shared {
    index: Mutex<Index>,
    subscribers: Mutex<Vec<UnboundedSender<Notification>>>,
}

impl Memory {
    /// An empty store.
    pub fn new() -> Self {
        let pruning = Arc::new(pruning(None));
        Self { namespace: "allora".into(), clock: None, pruning, shared: Arc::default() }
    }

    /// Keeps a history within these [limits](HistoryLimits), for this handle and its later clones. A
    /// number alone is that of each job's failures, and of its other entries; 0 keeps no history.
    /// Default: none. With `HistoryLimits::default()`, 100 of each.
    #[must_use]
    pub fn with_history(mut self, limits: impl Into<HistoryLimits>) -> Self {
        self.pruning = Arc::new(pruning(Some(limits.into())));
        self
    }

    /// Uses this clock, as a store on a machine of its own does: for tests with nodes whose clocks
    /// differ.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Fn() -> Time + Send + Sync + 'static) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// The first part of this store's occurrence keys. Default: `allora`.
    #[must_use]
    pub fn with_namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        self.namespace = namespace.into();
        self
    }

    fn now(&self, time: TimeSource) -> Time {
        match (time, &self.clock) {
            (TimeSource::Store { .. }, Some(clock)) => clock(),
            _ => time.without_store_clock(),
        }
    }

    /// No method panics under the lock, so that a poisoned lock still guards a sound index.
    fn index(&self) -> MutexGuard<'_, Index> {
        self.shared.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn pruning(limits: Option<HistoryLimits>) -> HistoryPruning {
    HistoryPruning::new(limits, history::PER_JOB).changes(history::CHANGES)
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}
