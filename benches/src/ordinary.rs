//! A store without queries that claim: nodes find what is due, and claim it by operations.

use allora_conformance::faults::{Hooks, Wrapped};
use allora_core::{Backend, async_trait, backend::Queries};

/// The store, but for its queries that claim.
pub fn ordinary(store: impl Backend) -> Wrapped<impl Hooks> {
    Wrapped::around(store, Ordinary)
}

#[derive(Debug)]
struct Ordinary;

#[async_trait]
impl Hooks for Ordinary {
    fn claims_due(&self, _: &dyn Queries) -> bool {
        false
    }
}
