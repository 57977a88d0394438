//! Notifications to the nodes of this process.

use crate::Memory;
use allora_core::{
    Result,
    backend::{Notification, Notifier},
};
use async_trait::async_trait;
use futures::{StreamExt, channel::mpsc, stream::BoxStream};
use std::sync::PoisonError;

#[async_trait]
impl Notifier for Memory {
    async fn subscribe(&self) -> Result<BoxStream<'static, Notification>> {
        let (subscriber, notifications) = mpsc::unbounded();
        self.shared.subscribers.lock().unwrap_or_else(PoisonError::into_inner).push(subscriber);
        Ok(notifications.boxed())
    }
}

impl Memory {
    /// Sends to every subscriber that is still there.
    pub(crate) fn send(&self, notifications: Vec<Notification>) {
        let mut subscribers =
            self.shared.subscribers.lock().unwrap_or_else(PoisonError::into_inner);
        for notification in notifications {
            subscribers.retain(|one| one.unbounded_send(notification.clone()).is_ok());
        }
    }
}
