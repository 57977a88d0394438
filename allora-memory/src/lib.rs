//! allora in process memory: the reference backend, written to be imitated.
//!
//! It has every capability. All schedulers that are given clones of one [`Memory`] share it, as
//! machines share a database; what it holds is gone when the process ends, so that at-least-once
//! delivery means something only between schedulers of one process (and in tests).
//!
//! The state machine is core's: each method locks the store, runs
//! [`step`](allora_core::record::step), [`settle`](allora_core::record::settle) or
//! [`change`](allora_core::record::change), and keeps the due index in step with the record.
//!
//! ```
//! use allora_core::Backend;
//! use allora_memory::Memory;
//!
//! let store = Memory::new().with_history(10_000);
//! let another_node = store.clone();
//! assert!(another_node.history().is_some());
//! ```

mod history;
mod leases;
mod reschedule;
mod schedules;
mod store;
mod watch;

use allora_core::{
    Time,
    backend::{Hint, Now},
};
use futures::channel::mpsc::UnboundedSender;
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use store::Store;

/// A store in process memory; a clone is another node's handle on the same store.
///
/// It reads no clock: the time comes with each request, from the node's
/// [`Runtime`](allora_core::Runtime), unless [`with_clock`](Self::with_clock) gives it one.
#[derive(Clone)]
pub struct Memory {
    namespace: Arc<str>,
    clock: Option<Clock>,
    shared: Arc<Shared>,
}

type Clock = Arc<dyn Fn() -> Time + Send + Sync>;

#[derive(Default)]
struct Shared {
    store: Mutex<Store>,
    watchers: Mutex<Vec<UnboundedSender<Hint>>>,
}

impl Memory {
    /// An empty store.
    pub fn new() -> Self {
        Self { namespace: "allora".into(), clock: None, shared: Arc::default() }
    }

    /// Keeps the newest `limit` entries of history; 0 keeps none, which is the default. Applies to
    /// all clones.
    #[must_use]
    pub fn with_history(self, limit: usize) -> Self {
        self.store().keep_history(limit);
        self
    }

    /// Decides by this clock, as a store on a machine of its own does: for tests with nodes whose
    /// clocks differ.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Fn() -> Time + Send + Sync + 'static) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// The first part of this store's occurrence keys; `allora` unless given.
    #[must_use]
    pub fn with_namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// What a store with a clock of its own does with [`Now`].
    fn decides(&self, now: Now) -> Time {
        match (now, &self.clock) {
            (Now::Store { .. }, Some(clock)) => clock(),
            _ => now.here(),
        }
    }

    /// No step panics, so that a poisoned lock still guards a sound store.
    fn store(&self) -> MutexGuard<'_, Store> {
        self.shared.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes word on to those who watch.
    fn tell(&self, hints: impl IntoIterator<Item = Hint>) {
        let mut hints = hints.into_iter().peekable();
        if hints.peek().is_none() {
            return;
        }
        let mut watchers = self.shared.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        for hint in hints {
            watchers.retain(|watcher| watcher.unbounded_send(hint.clone()).is_ok());
        }
    }
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
