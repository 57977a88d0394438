//! Notifications by `LISTEN` and `NOTIFY`, where the database has them.

use crate::{Sql, client::Client};
use allora_core::{
    Error, Result,
    backend::{Notification, Notifier},
};
use async_trait::async_trait;
use futures::{StreamExt, stream::BoxStream};

#[async_trait]
impl Notifier for Sql {
    async fn subscribe(&self) -> Result<BoxStream<'static, Notification>> {
        const OP: &str = "subscribe";
        let client = &*self.client;
        let payloads = client.driver.listen(&client.dialect.prefix).await;
        let payloads = payloads.map_err(|cause| client.failed(OP, cause))?.ok_or_else(|| {
            Error::invalid(format!(
                "{} accepts LISTEN and delivers no notification, so that only the poll finds \
                 changes; if there is a pooler between, connect past it or let it pool whole \
                 sessions, and start again",
                client.place
            ))
            .op(OP)
        })?;
        let parse = |text: String| Notification::parse(&text);
        Ok(payloads.map(move |text| text.map_or(Notification::Changed, parse)).boxed())
    }
}

impl Client {
    /// Notifies all nodes, where the database can. The poll makes up for a lost notification.
    pub(crate) async fn notify(&self, notifications: Vec<Notification>) {
        for notification in notifications {
            let payload = notification.to_string();
            let statement = self.dialect.flavour.notify(&self.dialect.prefix, &payload);
            if let Some(statement) = statement {
                let _ = self.driver.rows(statement).await;
            }
        }
    }
}
