//! The claims without a reply when the scheduler stops. They are repeated until each has one, and
//! what they have claimed is released.

use crate::{
    backend::Operation,
    condition::StorePart,
    error::Result,
    job::Placement,
    planner::Release,
    scheduler::{
        monotonic::later,
        node::Node,
        store_request::{self, MAX_BACKOFF, MIN_BACKOFF},
    },
};
use std::collections::VecDeque;

/// The largest number of operations in one request.
const BATCH: usize = 1_000;

/// The share of one part of a claimer of this placement in the number of unresolved claims of its node.
pub(in crate::scheduler) struct Counted {
    placement: Placement,
    claims: usize,
}

impl Counted {
    pub(in crate::scheduler) fn of(placement: Placement) -> Self {
        Self { placement, claims: 0 }
    }

    /// Sets the number. It replaces that of the claims that had no reply when the node stopped.
    pub(in crate::scheduler) fn set(&mut self, node: &Node, claims: usize) {
        let unresolved = {
            let mut shared = node.shared();
            shared.claiming[self.placement] = 0;
            shared.unresolved = shared.unresolved - self.claims + claims;
            shared.unresolved
        };
        self.claims = claims;
        node.board.seen().unresolved = unresolved;
    }
}

/// Gives these claims back. Those without a reply are repeated until each has one. The supervisor ends
/// this with the grace period.
pub(in crate::scheduler) async fn resolve(
    node: &Node,
    releases: Vec<Release>,
    mut counted: Counted,
) {
    let mut claims = VecDeque::from(releases);
    let (mut wait, mut limit) = (MIN_BACKOFF, BATCH);
    loop {
        counted.set(node, claims.len());
        if claims.is_empty() {
            return;
        }
        if let Err(error) = send(node, &mut claims, limit).await {
            node.store_failed(StorePart::Claims, &error);
            node.runtime.sleep_until(later(node.runtime.now(), wait)).await;
            wait = (wait * 2).min(MAX_BACKOFF);
            let sent = limit.min(claims.len());
            limit = (sent / 2).max(1);
            // Others come first, in case one of these hangs.
            claims.rotate_left(sent);
        }
    }
}

/// Sends the first claims as one request. Those that are not resolved become the last ones.
async fn send(node: &Node, claims: &mut VecDeque<Release>, limit: usize) -> Result {
    let operations: Vec<Operation<'_>> =
        claims.iter().take(limit).map(Release::operation).collect();
    let applied = store_request::send(node, &operations).await?;
    node.store_answered(StorePart::Claims);
    let mut failure = Ok(());
    for reply in applied.replies {
        let Some(claim) = claims.pop_front() else { break };
        match reply {
            Ok(reply) => claims.extend(claim.after(&reply)),
            Err(error) => {
                failure = Err(error);
                claims.push_back(claim);
            }
        }
    }
    failure
}
