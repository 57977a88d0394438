//! A job in code whose schedule panics for a while.

use allora_core::{BoxError, Job, Run, Time};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

/// Every ten seconds; its schedule panics while the flag is set.
pub(crate) struct Moody(pub(crate) Arc<AtomicBool>);

#[async_trait::async_trait]
impl Job for Moody {
    fn next_at(&self, after: Time) -> Option<Time> {
        assert!(!self.0.load(Relaxed), "for a moment");
        Some(after + chrono::TimeDelta::seconds(10))
    }

    async fn run(&self, _: Run) -> Result<(), BoxError> {
        Ok(())
    }
}
