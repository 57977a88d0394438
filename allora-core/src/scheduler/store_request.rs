//! One request to the store: its time limit, the check of its replies, and the waits before the
//! next one.

pub(super) use crate::backoff::{MAX_BACKOFF, MIN_BACKOFF};

use super::{monotonic, node::Node};
use crate::{
    backend::{Applied, Backend, Batch, HistoryEntry, Operation, Outcome, TimeSource},
    error::Result,
    event::Event,
    name::is_internal,
    time::{Time, since},
};
use std::time::Duration;

/// The operation's name in errors.
pub(super) const OP: &str = "reschedule";

/// Awaits a request to the store, up to its time limit.
pub(super) async fn within<T>(
    node: &Node,
    op: &'static str,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    within_limit(node, op, node.config.store_timeout, call).await
}

/// Awaits a request to the store, up to this limit.
pub(super) async fn within_limit<T>(
    node: &Node,
    op: &'static str,
    deadline: Duration,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    let sent = node.runtime.now();
    let answer = monotonic::within(&*node.runtime, op, deadline, call).await;
    let took = node.runtime.now().saturating_duration_since(sent);
    node.metrics.requested(op, took, answer.as_ref().err());
    answer
}

/// Sends operations of the node to the store by themselves, as one batch.
pub(super) async fn send(node: &Node, operations: &[Operation<'_>]) -> Result<Applied> {
    let time = TimeSource::Store { fallback: node.runtime.wall() };
    within(node, OP, reschedule(node, &*node.backend, Batch::new(&node.id, time, operations))).await
}

/// Sends a batch, checks that each operation has a reply, and reports the runs that it has recorded as
/// lost or expired.
pub(super) async fn reschedule(
    node: &Node,
    backend: &dyn Backend,
    batch: Batch<'_>,
) -> Result<Applied> {
    let applied = backend.reschedule(batch).await?.checked(batch.operations.len())?;
    node.chains.found(applied.outboxes.iter().cloned());
    let lapsed_runs = applied.lapsed.iter().filter(|entry| !is_internal(&entry.name));
    node.emit(lapsed_runs.map(|entry| lapsed(entry, applied.now)));
    node.report_streaks(applied.reports.iter().cloned());
    Ok(applied)
}

/// The event of a run that was recorded as lost or expired.
fn lapsed(entry: &HistoryEntry, now: Time) -> Event {
    let (name, node) = (entry.name.as_str().into(), entry.node.as_str().into());
    let (scheduled_at, fence) = (entry.occurrence.scheduled_at, entry.fence);
    let age = entry.started_at.map(|started| since(now, started)).unwrap_or_default();
    match entry.outcome {
        Outcome::Expired => Event::RunExpired { name, scheduled_at, fence, node, age },
        _ => Event::RunLost { name, scheduled_at, fence, node, age },
    }
}
