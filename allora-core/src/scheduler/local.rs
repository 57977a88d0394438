//! The backend of jobs that run on every node. The records are in this node's memory.

use crate::{
    backend::{Applied, Backend, Batch},
    error::Result,
    record::{HistoryBuffer, OpContext, Record, apply},
};
use async_trait::async_trait;
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

#[derive(Debug, Default)]
pub(crate) struct LocalBackend {
    records: Mutex<HashMap<String, Option<Record>>>,
}

#[async_trait]
impl Backend for LocalBackend {
    async fn reschedule(&self, batch: Batch<'_>) -> Result<Applied> {
        let now = batch.time.without_store_clock();
        let context = OpContext::new(batch.node, now);
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let replies = batch.operations.iter().map(|operation| {
            let record = records.entry(operation.name.to_owned()).or_default();
            apply(record, operation, context, &mut HistoryBuffer::off())
        });
        Ok(Applied::new(now, replies.collect()))
    }
}
