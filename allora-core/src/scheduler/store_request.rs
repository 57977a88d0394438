//! A request to the store: its time limit, the check of its replies, the waits between two of them.

pub(super) use crate::backoff::{MAX_BACKOFF, MIN_BACKOFF};

use super::{monotonic::later, node::Node};
use crate::{
    backend::{Applied, Backend, Batch},
    error::{Error, ErrorKind, Result},
};
use futures::future::{Either, select};
use std::{pin::pin, time::Duration};

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
    let limit = node.runtime.sleep_until(later(sent, deadline));
    let answer = match select(pin!(call), limit).await {
        Either::Left((answer, _)) => answer,
        Either::Right(_) => {
            let late = format!("the store did not answer within {deadline:?}");
            Err(Error::new(ErrorKind::Unavailable, late).op(op))
        }
    };
    let took = node.runtime.now().saturating_duration_since(sent);
    node.metrics.requested(op, took, answer.as_ref().err());
    answer
}

/// Sends a batch, and checks that each operation has a reply.
pub(super) async fn reschedule(backend: &dyn Backend, batch: Batch<'_>) -> Result<Applied> {
    let applied = backend.reschedule(batch).await?;
    let (given, asked) = (applied.replies.len(), batch.operations.len());
    if given != asked {
        let wrong = format!(
            "the backend returned {given} replies to {asked} operations; report it to its author"
        );
        return Err(Error::new(ErrorKind::Other, wrong).op(OP));
    }
    Ok(applied)
}
