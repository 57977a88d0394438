//! The knowledge of a node about jobs that run one after the other, and about outboxes to be delivered.

use crate::{backend::After, notify::Notify};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The knowledge of a node about jobs that run one after the other.
#[derive(Debug, Default)]
pub(in crate::scheduler) struct Chains {
    known: Mutex<Known>,
    pub(in crate::scheduler) wake: Notify,
}

#[derive(Debug, Default)]
pub(super) struct Known {
    /// The jobs whose outboxes are to be delivered.
    pub(super) outboxes: BTreeSet<String>,
    /// The jobs in code of this node that run after others.
    pub(super) after: BTreeMap<Arc<str>, After>,
}

impl Chains {
    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has these outboxes delivered.
    pub(in crate::scheduler) fn found(&self, names: impl IntoIterator<Item = String>) {
        let mut names = names.into_iter().peekable();
        if names.peek().is_some() {
            self.known().outboxes.extend(names);
            self.wake.notify();
        }
    }

    /// This node has a job that runs after another one.
    pub(in crate::scheduler) fn add(&self, name: Arc<str>, after: After) {
        self.known().after.insert(name, after);
        self.wake.notify();
    }

    /// This node has the job no more.
    pub(in crate::scheduler) fn remove(&self, name: &str) {
        self.known().after.remove(name);
    }
}
