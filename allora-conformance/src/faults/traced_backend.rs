//! Backends that write a [`Trace`] for the liveness check: one around the store, one around each
//! node's way to it.

use super::forward::{forward_the_rest, queries_of};
use crate::history::{Seen, Trace};
use allora_core::{
    Backend, ErrorKind, Result,
    backend::{
        Applied, Batch, ClaimDue, ClaimedDue, Due, DueQuery, JobState, Page, Queries, TimeSource,
    },
};
use async_trait::async_trait;
use std::{collections::BTreeSet, sync::Arc};

/// A store that writes down each record after each batch. Put every fault outside of it, so that
/// operations whose replies are lost are written down as well. It reads the records again, one by
/// one, and needs queries.
#[derive(Clone, Debug)]
pub struct TracedStore<B> {
    store: B,
    trace: Trace,
}

impl<B: Backend> TracedStore<B> {
    /// `store`, whose records are written to `trace`.
    pub fn new(store: B, trace: Trace) -> Self {
        Self { store, trace }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<B: Backend> Backend for TracedStore<B> {
    async fn reschedule(&self, batch: Batch<'_>) -> Result<Applied> {
        let applied = self.store.reschedule(batch).await;
        if let Some(queries) = self.store.queries() {
            let names: BTreeSet<&str> = batch.operations.iter().map(|one| one.name).collect();
            for name in names {
                match queries.get(name).await {
                    Ok(state) => self.trace.record(name, Some(state)),
                    Err(error) if error.kind() == ErrorKind::NotFound => {
                        self.trace.record(name, None);
                    }
                    Err(_) => {}
                }
            }
        }
        applied
    }

    async fn prune(&self, time: TimeSource) -> Result {
        self.store.prune(time).await
    }

    fn queries(&self) -> Option<&dyn Queries> {
        self.store.queries().map(|_| self as _)
    }

    forward_the_rest!();
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<B: Backend> Queries for TracedStore<B> {
    async fn find_due(&self, query: DueQuery<'_>, time: TimeSource) -> Result<Due> {
        queries_of(&self.store)?.find_due(query, time).await
    }

    fn claims_due(&self) -> bool {
        queries_of(&self.store).is_ok_and(|queries| queries.claims_due())
    }

    async fn claim_due(&self, query: ClaimDue<'_>, time: TimeSource) -> Result<ClaimedDue> {
        let due = queries_of(&self.store)?.claim_due(query, time).await?;
        for (state, _) in &due.claimed {
            self.trace.record(&state.name, Some(state.clone()));
        }
        Ok(due)
    }

    async fn get(&self, name: &str) -> Result<JobState> {
        queries_of(&self.store)?.get(name).await
    }

    async fn list(&self, page: Page<'_>) -> Result<Vec<JobState>> {
        queries_of(&self.store)?.list(page).await
    }

    async fn kinds(&self) -> Result<Vec<String>> {
        queries_of(&self.store)?.kinds().await
    }
}

/// A node's way to its store that writes down each request and its end. Put it outside of every
/// fault.
#[derive(Debug)]
pub struct TracedRequests<B> {
    store: B,
    trace: Trace,
}

impl<B: Backend> TracedRequests<B> {
    /// `store`, whose requests are written to `trace`.
    pub fn new(store: B, trace: Trace) -> Self {
        Self { store, trace }
    }
}

/// A request that is written down when it ends, also if it is dropped.
struct Request<'a> {
    trace: &'a Trace,
    node: Arc<str>,
    answered: bool,
    found: usize,
}

impl<'a> Request<'a> {
    fn of(trace: &'a Trace, node: &str) -> Self {
        Self { trace, node: node.into(), answered: false, found: 0 }
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        let (node, answered, found) = (self.node.clone(), self.answered, self.found);
        self.trace.write(Seen::Request { node, answered, found });
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<B: Backend> Backend for TracedRequests<B> {
    async fn reschedule(&self, batch: Batch<'_>) -> Result<Applied> {
        let mut request = Request::of(&self.trace, batch.node);
        let applied = self.store.reschedule(batch).await;
        request.answered = applied.is_ok();
        applied
    }

    async fn prune(&self, time: TimeSource) -> Result {
        self.store.prune(time).await
    }

    fn queries(&self) -> Option<&dyn Queries> {
        self.store.queries().map(|_| self as _)
    }

    forward_the_rest!();
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<B: Backend> Queries for TracedRequests<B> {
    async fn find_due(&self, query: DueQuery<'_>, time: TimeSource) -> Result<Due> {
        let mut request = Request::of(&self.trace, query.node);
        let due = queries_of(&self.store)?.find_due(query, time).await;
        request.answered = due.is_ok();
        request.found = due.as_ref().map_or(0, |due| due.found.len());
        due
    }

    fn claims_due(&self) -> bool {
        queries_of(&self.store).is_ok_and(|queries| queries.claims_due())
    }

    async fn claim_due(&self, query: ClaimDue<'_>, time: TimeSource) -> Result<ClaimedDue> {
        let mut request = Request::of(&self.trace, query.node);
        let due = queries_of(&self.store)?.claim_due(query, time).await;
        request.answered = due.is_ok();
        request.found = due.as_ref().map_or(0, |due| due.claimed.len());
        due
    }

    async fn get(&self, name: &str) -> Result<JobState> {
        queries_of(&self.store)?.get(name).await
    }

    async fn list(&self, page: Page<'_>) -> Result<Vec<JobState>> {
        queries_of(&self.store)?.list(page).await
    }

    async fn kinds(&self) -> Result<Vec<String>> {
        queries_of(&self.store)?.kinds().await
    }
}
