//! The result of the last request to the store.

use std::sync::atomic::{AtomicU8, Ordering};

/// The store replies.
pub(super) const UP: u8 = 0;
/// The store does not reply.
pub(super) const DOWN: u8 = 1;
/// The store replies with an error.
pub(super) const FAILS: u8 = 2;

/// The result of the last request to the store.
#[derive(Debug, Default)]
pub(super) struct StoreHealth(AtomicU8);

impl StoreHealth {
    /// Returns true if it was another one before.
    pub(super) fn set(&self, state: u8) -> bool {
        self.0.swap(state, Ordering::AcqRel) != state
    }
}
