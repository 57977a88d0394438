//! Hints by publish and subscribe.

use crate::{Redis, store::Store};
use allora_core::{
    Result,
    backend::{Hint, Watch},
};
use async_trait::async_trait;
use futures::{StreamExt, stream::BoxStream};

#[async_trait]
impl Watch for Redis {
    async fn subscribe(&self) -> Result<BoxStream<'static, Hint>> {
        let store = &*self.store;
        let listening = store.link.subscribe(&store.keys.hints()).await;
        let listening = listening.map_err(|cause| store.failed("watch", cause))?;
        // The stream ends with its connection; whoever listens subscribes again and looks.
        Ok(listening.into_on_message().map(|told| hint(&told)).boxed())
    }
}

impl Store {
    /// Tells those who listen. A lost hint is made up for by the poll.
    pub(crate) async fn tell(&self, hint: Hint) {
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(self.keys.hints()).arg(hint.to_string());
        let _ = self.link.send(&publish).await;
    }
}

fn hint(told: &redis::Msg) -> Hint {
    Hint::parse(&String::from_utf8_lossy(told.get_payload_bytes()))
}
