//! Notifications by publish and subscribe.

use crate::{Redis, store::Store};
use allora_core::{
    Result,
    backend::{Notification, Notifier},
};
use async_trait::async_trait;
use futures::{StreamExt, stream::BoxStream};

#[async_trait]
impl Notifier for Redis {
    async fn subscribe(&self) -> Result<BoxStream<'static, Notification>> {
        let store = &*self.store;
        let subscription = store.connection.subscribe(&store.keys.notifications()).await;
        let subscription = subscription.map_err(|cause| store.failed("subscribe", cause))?;
        // The stream ends with its connection; the subscriber then subscribes again and reads.
        Ok(subscription.into_on_message().map(|message| parse(&message)).boxed())
    }
}

impl Store {
    /// Sends notifications to all nodes.
    pub(crate) async fn notify(&self, notifications: Vec<Notification>) {
        for notification in notifications {
            let mut publish = redis::cmd("PUBLISH");
            publish.arg(self.keys.notifications()).arg(notification.to_string());
            let _ = self.connection.send(&publish).await;
        }
    }
}

fn parse(message: &redis::Msg) -> Notification {
    Notification::parse(&String::from_utf8_lossy(message.get_payload_bytes()))
}
