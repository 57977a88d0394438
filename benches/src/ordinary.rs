//! A store without queries that claim: nodes find what is due, and claim it by operations.

use allora_core::{
    Backend, Error, ErrorKind, Result, async_trait,
    backend::{
        Applied, Batch, Due, DueQuery, History, JobState, Notifier, Page, Queries, TimeSource,
    },
};

/// The store, but for its queries that claim.
#[derive(Debug)]
pub struct Ordinary<B>(pub B);

#[async_trait]
impl<B: Backend> Backend for Ordinary<B> {
    async fn reschedule(&self, batch: Batch<'_>) -> Result<Applied> {
        self.0.reschedule(batch).await
    }
    fn namespace(&self) -> &str {
        self.0.namespace()
    }
    async fn prune(&self, time: TimeSource) -> Result {
        self.0.prune(time).await
    }
    fn queries(&self) -> Option<&dyn Queries> {
        self.0.queries().map(|_| self as _)
    }
    fn history(&self) -> Option<&dyn History> {
        self.0.history()
    }
    fn notifier(&self) -> Option<&dyn Notifier> {
        self.0.notifier()
    }
}

impl<B: Backend> Ordinary<B> {
    fn inner(&self) -> Result<&dyn Queries> {
        let none = || Error::new(ErrorKind::Unsupported, "the store has no queries");
        self.0.queries().ok_or_else(none)
    }
}

#[async_trait]
impl<B: Backend> Queries for Ordinary<B> {
    async fn find_due(&self, query: DueQuery<'_>, time: TimeSource) -> Result<Due> {
        self.inner()?.find_due(query, time).await
    }
    async fn get(&self, name: &str) -> Result<JobState> {
        self.inner()?.get(name).await
    }
    async fn list(&self, page: Page<'_>) -> Result<Vec<JobState>> {
        self.inner()?.list(page).await
    }
    async fn kinds(&self) -> Result<Vec<String>> {
        self.inner()?.kinds().await
    }
}
