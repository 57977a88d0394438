//! Work beside the workers, and what it has found so far.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::JoinHandle;

/// Dropped, the work ends.
pub(super) struct Background<T> {
    found: Found<T>,
    task: JoinHandle<()>,
}

/// The findings of the work so far.
pub(super) struct Found<T>(Arc<Mutex<T>>);

impl<T> Drop for Background<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<T: Default + Send + 'static> Background<T> {
    /// Begins to work.
    pub(super) fn start<F>(work: impl FnOnce(Found<T>) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let found = Found(Arc::default());
        #[expect(clippy::disallowed_methods, reason = "the command has one runtime")]
        let task = tokio::spawn(work(Found(found.0.clone())));
        Self { found, task }
    }

    /// The findings, and ends the work.
    pub(super) fn end(self) -> T {
        std::mem::take(&mut *self.found.lock())
    }
}

impl<T> Found<T> {
    /// The findings so far.
    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
