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
        let messages = store.connection.subscribe(&store.keys.notifications());
        let messages = messages.map_err(|failure| store.failed("subscribe", failure))?;
        // The stream ends with its connection; the subscriber then subscribes again and reads. What
        // was sent before the subscription began is unknown.
        let parsed = |message: Option<redis::Msg>| {
            message.map_or(Notification::Changed, |message| parse(&message))
        };
        Ok(messages.map(parsed).boxed())
    }
}

impl Store {
    /// Sends notifications to all nodes.
    pub(crate) fn notify(&self, notifications: Vec<Notification>) {
        for notification in notifications {
            self.connection.publish(self.keys.notifications(), notification.to_string());
        }
    }
}

fn parse(message: &redis::Msg) -> Notification {
    Notification::parse(&String::from_utf8_lossy(message.get_payload_bytes()))
}
