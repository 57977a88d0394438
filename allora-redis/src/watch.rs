//! Hints by publish and subscribe.

use crate::{Redis, store::Store};
use allora_core::{
    Result, Time,
    backend::{Hint, Watch},
    time::from_millis,
};
use async_trait::async_trait;
use futures::{StreamExt, stream::BoxStream};

/// The payload that says no more than that something changed.
pub(crate) const LOOK: &str = "look";

/// The payload for a change of this job.
pub(crate) fn job(name: &str) -> String {
    format!("job {name}")
}

/// The payload for something that is due then.
pub(crate) fn due(at: Time) -> String {
    format!("due {}", at.timestamp_millis())
}

#[async_trait]
impl Watch for Redis {
    async fn subscribe(&self) -> Result<BoxStream<'static, Hint>> {
        let store = &*self.store;
        let listening = store.link.subscribe(&store.keys.hints()).await;
        let listening = listening.map_err(|cause| store.failed("watch", cause))?;
        // The stream ends with its connection; whoever listens subscribes again and looks.
        Ok(listening.into_on_message().map(|told| hint(told.get_payload_bytes())).boxed())
    }
}

impl Store {
    /// Tells those who listen. A lost hint is made up for by the poll.
    pub(crate) async fn tell(&self, payload: &str) {
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(self.keys.hints()).arg(payload);
        let _ = self.link.send(&publish).await;
    }
}

/// Whatever cannot be read says at least that something changed.
fn hint(payload: &[u8]) -> Hint {
    let payload = std::str::from_utf8(payload).unwrap_or(LOOK);
    match payload.split_once(' ') {
        Some(("job", name)) => Hint::Job(name.to_owned()),
        Some(("due", ms)) => match ms.parse().ok().and_then(from_millis) {
            Some(at) => Hint::DueAt(at),
            None => Hint::Look,
        },
        _ => Hint::Look,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_read_back() {
        let at = from_millis(5_000).unwrap();
        assert_eq!(hint(due(at).as_bytes()), Hint::DueAt(at));
        assert_eq!(hint(job("a b").as_bytes()), Hint::Job("a b".into()));
        assert_eq!(hint(LOOK.as_bytes()), Hint::Look);
        assert_eq!(hint(b"due soon"), Hint::Look);
        assert_eq!(hint(b"\xff"), Hint::Look);
    }
}
