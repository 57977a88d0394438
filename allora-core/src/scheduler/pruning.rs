//! The removal of old tombstones and history: a request of its own, which nothing waits for.

use super::{monotonic::later, node::Node, side_request::SideRequest, store_request::within};
use crate::{backend::TimeSource, error::Result};
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

pub(super) struct Pruning {
    request: SideRequest<Result>,
    last: Instant,
}

impl Pruning {
    pub(super) fn new(now: Instant) -> Self {
        Self { request: SideRequest::default(), last: now }
    }

    /// Sends a request, if it is time for one. It has no timer of its own: the poll is often enough.
    pub(super) fn renew(&mut self, node: &Arc<Node>) {
        // What a failed request has left is removed by a later one.
        drop(self.request.take());
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
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.request.poll(cx)
    }
}
