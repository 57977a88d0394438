//! The removal of old tombstones and history, in a request of its own, for which nothing waits.
//!
//! If a store pruned in the batch that writes, it would delay the replies of that batch, or lose
//! them; and a store spawns no task. So the scheduler asks for it: every ten seconds while the node
//! writes, and otherwise once an hour. In between, a history exceeds its limits by what is written.
//! A program without a scheduler removes nothing.

use crate::{
    backend::TimeSource,
    condition::StorePart,
    error::{ErrorKind, Result},
    scheduler::{monotonic::later, node::Node, side_request::SideRequest, store_request::within},
};
use std::{
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
    time::{Duration, Instant},
};

/// The interval while this node writes.
const WRITING: Duration = Duration::from_secs(10);

/// The interval while this node writes nothing: programs that delete jobs do not stay to remove the
/// tombstones.
const IDLE: Duration = Duration::from_secs(3_600);

pub(in crate::scheduler) struct Pruning {
    request: SideRequest<Result>,
    last: Instant,
}

impl Pruning {
    pub(in crate::scheduler) fn new(now: Instant) -> Self {
        Self { request: SideRequest::default(), last: now }
    }

    /// Sends a request, if it is time for one. It has no timer of its own: the poll is often enough.
    pub(in crate::scheduler) fn renew(&mut self, node: &Arc<Node>) {
        match self.request.take() {
            Some(Ok(())) => node.store_answered(StorePart::Pruning),
            Some(Err(error)) => {
                // The next request removes the rest, also if this node writes nothing more.
                node.has_written.store(true, Ordering::Relaxed);
                // A request that takes too long has removed a part.
                if error.kind() != ErrorKind::Unavailable {
                    node.store_failed(StorePart::Pruning, &error);
                }
            }
            None => {}
        }
        let now = node.runtime.now();
        let interval = if node.has_written.load(Ordering::Relaxed) { WRITING } else { IDLE };
        if self.request.has_begun() || now < later(self.last, interval) {
            return;
        }
        self.last = now;
        node.has_written.store(false, Ordering::Relaxed);
        let node = node.clone();
        self.request.begin(async move {
            let time = TimeSource::Store { fallback: node.runtime.wall() };
            within(&node, "prune", node.backend.prune(time)).await
        });
    }

    /// Ready if a request has ended.
    pub(in crate::scheduler) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.request.poll(cx)
    }
}
