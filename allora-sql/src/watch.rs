//! Hints by `LISTEN` and `NOTIFY`, where the database has them.

use crate::Sql;
use allora_core::{
    Error, Result,
    backend::{Hint, Watch},
};
use async_trait::async_trait;
use futures::{StreamExt, stream::BoxStream};

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
        Ok(told.map(|payload| payload.map_or(Hint::Look, |text| Hint::parse(&text))).boxed())
    }
}
