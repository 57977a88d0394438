//! Endings applied under one lock.

use crate::Memory;
use allora_core::{
    Result,
    backend::{Hint, Leases, Settle, Settled},
    record::settle,
};
use async_trait::async_trait;

#[async_trait]
impl Leases for Memory {
    async fn settle(&self, request: Settle<'_>) -> Result<Vec<Settled>> {
        let now = self.decides(request.now);
        let mut settled = Vec::with_capacity(request.endings.len());
        let mut waiting = Vec::new();
        let mut store = self.store();
        for ending in request.endings {
            settled.push(store.with(ending.name, request.node, now, |record, at, ledger| {
                let answer = settle(record, ending, at, ledger);
                // Somebody may be waiting for this run's end.
                let head = record.as_ref().and_then(|record| record.head());
                if answer == Settled::Done && head.is_some_and(|head| head.due_at <= now) {
                    waiting.push(Hint::Job(ending.name.to_owned()));
                }
                answer
            }));
        }
        drop(store);
        self.tell(waiting);
        Ok(settled)
    }
}
