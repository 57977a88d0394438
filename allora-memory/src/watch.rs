//! Hints to those who watch.

use crate::Memory;
use allora_core::{
    Result,
    backend::{Hint, Watch},
};
use async_trait::async_trait;
use futures::{StreamExt, channel::mpsc, stream::BoxStream};
use std::sync::PoisonError;

#[async_trait]
impl Watch for Memory {
    async fn subscribe(&self) -> Result<BoxStream<'static, Hint>> {
        let (watcher, hints) = mpsc::unbounded();
        self.shared.watchers.lock().unwrap_or_else(PoisonError::into_inner).push(watcher);
        Ok(hints.boxed())
    }
}
