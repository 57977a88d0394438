//! Backends that write a [`Trace`] for the liveness check: one around the store, one around each
//! node's way to it.

use super::{Hooks, Wrapped};
use crate::history::{Delays, Seen, Trace};
use allora_core::{
    Backend, ErrorKind, Result,
    backend::{
        Action, Applied, Batch, ClaimDue, ClaimedDue, Due, DueQuery, Operation, Queries, TimeSource,
    },
};
use async_trait::async_trait;
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// A store that writes down each record after each batch. Put every fault outside of it, so that
/// operations whose replies are lost are written down as well. It reads the records again, one by
/// one, and needs queries.
pub type TracedStore = Wrapped<TracesRecords>;

/// The hooks of a [`TracedStore`].
#[derive(Clone, Debug)]
pub struct TracesRecords(Trace);

impl Wrapped<TracesRecords> {
    /// `store`, whose records are written to `trace`.
    pub fn new(store: impl Backend, trace: Trace) -> Self {
        Self::around(store, TracesRecords(trace))
    }
}

#[async_trait]
impl Hooks for TracesRecords {
    async fn reschedule(&self, store: &Arc<dyn Backend>, batch: Batch<'_>) -> Result<Applied> {
        let applied = store.reschedule(batch).await;
        if let Some(queries) = store.queries() {
            let names: BTreeSet<&str> = batch.operations.iter().map(|one| one.name).collect();
            for name in names {
                match queries.get(name).await {
                    Ok(state) => self.0.record(name, Some(state)),
                    Err(error) if error.kind() == ErrorKind::NotFound => {
                        self.0.record(name, None);
                    }
                    Err(_) => {}
                }
            }
        }
        applied
    }

    async fn claim_due(
        &self,
        store: &dyn Queries,
        query: ClaimDue<'_>,
        time: TimeSource,
    ) -> Result<ClaimedDue> {
        let due = store.claim_due(query, time).await?;
        for (state, _) in &due.claimed {
            self.0.record(&state.name, Some(state.clone()));
        }
        Ok(due)
    }
}

/// A node's way to its store that writes down each request and its end. Put it outside of every
/// fault.
pub type TracedRequests = Wrapped<TracesRequests>;

/// The hooks of [`TracedRequests`].
#[derive(Debug)]
pub struct TracesRequests {
    trace: Trace,
    /// The store has answered nothing yet, or refused the last request: the node waits for its clock.
    needs_clock: AtomicBool,
}

impl Wrapped<TracesRequests> {
    /// `store`, whose requests are written to `trace`.
    pub fn new(store: impl Backend, trace: Trace) -> Self {
        Self::around(store, TracesRequests { trace, needs_clock: true.into() })
    }
}

/// A request that is written down when it ends, also if it is dropped.
struct Request<'a> {
    trace: &'a Trace,
    node: Arc<str>,
    answered: bool,
    found: usize,
    delays: Delays,
}

impl<'a> Request<'a> {
    /// A request that delays this work, as long as it has no reply.
    fn of(trace: &'a Trace, node: &str, delays: Delays) -> Self {
        Self { trace, node: node.into(), answered: false, found: 0, delays }
    }

    fn answer(&mut self, is_ok: bool) {
        self.answered = is_ok;
        if is_ok {
            self.delays = Delays::Nothing;
        }
    }
}

/// The work that waits for these operations.
fn delayed<'a>(operations: impl Iterator<Item = &'a Operation<'a>>) -> Delays {
    let mut jobs: Vec<Arc<str>> = Vec::new();
    for Operation { name, action, .. } in operations {
        match action {
            // A calendar.
            Action::Read if name.starts_with("allora:") => return Delays::All,
            Action::ClaimKey(claim) => {
                // A job that runs on every node adds the name of its node.
                jobs.push(claim.job.split(' ').next().unwrap_or_default().into());
            }
            // No start waits for the end of a run, or for its lease.
            Action::Extend { .. }
            | Action::Complete { .. }
            | Action::Retry { .. }
            | Action::Release { .. }
            | Action::ReleaseKey { .. } => {}
            _ => jobs.push((*name).into()),
        }
    }
    if jobs.is_empty() { Delays::Nothing } else { Delays::Jobs(jobs.into()) }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        let (node, answered, found) = (self.node.clone(), self.answered, self.found);
        let delays = std::mem::take(&mut self.delays);
        self.trace.write(Seen::Request { node, answered, found, delays });
    }
}

#[async_trait]
impl Hooks for TracesRequests {
    async fn reschedule(&self, store: &Arc<dyn Backend>, batch: Batch<'_>) -> Result<Applied> {
        let operations = batch.operations;
        let delays = match operations.is_empty() {
            true if self.needs_clock.load(Relaxed) => Delays::All,
            true => Delays::Nothing,
            false => delayed(operations.iter()),
        };
        let mut request = Request::of(&self.trace, batch.node, delays);
        let applied = store.reschedule(batch).await;
        request.answered = applied.is_ok();
        self.needs_clock.store(applied.is_err(), Relaxed);
        if let Ok(applied) = &applied {
            let failed =
                operations.iter().zip(&applied.replies).filter(|(_, reply)| reply.is_err());
            request.delays = delayed(failed.map(|(operation, _)| operation));
        }
        applied
    }

    async fn find_due(
        &self,
        store: &dyn Queries,
        query: DueQuery<'_>,
        time: TimeSource,
    ) -> Result<Due> {
        let mut request = Request::of(&self.trace, query.node, Delays::Found);
        let due = store.find_due(query, time).await;
        request.answer(due.is_ok());
        request.found = due.as_ref().map_or(0, |due| due.found.len());
        due
    }

    async fn claim_due(
        &self,
        store: &dyn Queries,
        query: ClaimDue<'_>,
        time: TimeSource,
    ) -> Result<ClaimedDue> {
        let mut request = Request::of(&self.trace, query.node, Delays::Found);
        let due = store.claim_due(query, time).await;
        request.answer(due.is_ok());
        request.found = due.as_ref().map_or(0, |due| due.claimed.len());
        due
    }
}
