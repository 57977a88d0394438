//! Hints by `LISTEN` and `NOTIFY`, where the database has them.

use crate::Sql;
use allora_core::{
    Error, Result, Time,
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
impl Watch for Sql {
    async fn subscribe(&self) -> Result<BoxStream<'static, Hint>> {
        let store = &*self.store;
        let listening = store.driver.listen(&store.dialect.prefix).await;
        let told = listening.map_err(|cause| store.failed("watch", cause))?.ok_or_else(|| {
            Error::invalid(format!(
                "{} takes notifications and they do not arrive, so that changes are noticed by the \
                 safety poll only: is there a pooler on the way? Connect past it, or let it pool \
                 whole sessions, and start again",
                store.place
            ))
            .op("watch")
        })?;
        Ok(told.map(|payload| payload.map_or(Hint::Look, |text| hint(&text))).boxed())
    }
}

/// Whatever cannot be read says at least that something changed.
fn hint(payload: &str) -> Hint {
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
        assert_eq!(hint(&due(at)), Hint::DueAt(at));
        assert_eq!(hint(&job("a b")), Hint::Job("a b".into()));
        assert_eq!(hint(LOOK), Hint::Look);
        assert_eq!(hint("due soon"), Hint::Look);
    }
}
