//! A machine that dies at one of its steps.

use allora_conformance::faults::Hooks;
use allora_core::{
    Backend, Result,
    backend::{Applied, Batch},
    runtime::SimNode,
};
use async_trait::async_trait;
use futures::future::pending;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// The machine dies at one of its requests to the store: before the store has it, or after.
#[derive(Debug)]
pub(crate) struct DiesAt {
    pub(crate) left: Arc<AtomicU64>,
    pub(crate) is_applied: bool,
    pub(crate) node: SimNode,
}

#[async_trait]
impl Hooks for DiesAt {
    async fn reschedule(&self, store: &Arc<dyn Backend>, batch: Batch<'_>) -> Result<Applied> {
        // Heartbeats and empty searches are no steps of a run.
        let is_step = batch.operations.iter().any(|it| !it.name.starts_with("allora:"));
        if !is_step || self.left.fetch_sub(1, Relaxed) != 1 {
            return store.reschedule(batch).await;
        }
        if self.is_applied {
            let _ = store.reschedule(batch).await;
        }
        self.node.crash();
        pending().await
    }
}
