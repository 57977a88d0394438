//! Claims without a reply when the scheduler stops: they are repeated, and what they have claimed is
//! released.

use super::{
    monotonic::later,
    node::Node,
    store_health::Part,
    store_request::{MAX_BACKOFF, MIN_BACKOFF, OP, reschedule, within},
};
use crate::{
    backend::{Action, Batch, Claim, Operation, Reply, TimeSource},
    error::Result,
    job::Placement,
    planner::KeyRelease,
};
use std::{collections::VecDeque, sync::Arc};

/// The largest number of operations in one request.
const BATCH: usize = 1_000;

/// A claim of the job of this name.
struct Unresolved {
    name: Arc<str>,
    state: State,
}

enum State {
    /// It may have succeeded.
    Unknown(Box<Claim>),
    /// It has succeeded. The occurrence is to be released.
    Claimed { fence: i64 },
    /// A concurrency key is or may be held.
    Key(Box<KeyRelease>),
}

/// The share of one part of a claimer of this placement in the number of unresolved claims of its node.
pub(super) struct Counted {
    placement: Placement,
    claims: usize,
}

impl Counted {
    pub(super) fn of(placement: Placement) -> Self {
        Self { placement, claims: 0 }
    }

    /// Sets the number. It replaces that of the claims that had no reply when the node stopped.
    pub(super) fn set(&mut self, node: &Node, claims: usize) {
        let unresolved = {
            let mut shared = node.shared();
            shared.claiming[self.placement] = 0;
            shared.unresolved = shared.unresolved - self.claims + claims;
            shared.unresolved
        };
        self.claims = claims;
        node.board.conditions().unresolved = unresolved;
    }
}

/// Repeats the claims until each has a reply, and releases what they have claimed. The supervisor
/// ends this with the grace period.
/// `leased`: names and fences of claimed occurrences without a run.
pub(super) async fn resolve(
    node: &Node,
    claims: Vec<(Arc<str>, Claim)>,
    keys: Vec<KeyRelease>,
    leased: Vec<(Arc<str>, i64)>,
    mut counted: Counted,
) {
    let unresolved = |(name, claim)| Unresolved { name, state: State::Unknown(Box::new(claim)) };
    let key = |key: KeyRelease| Unresolved { name: key.job(), state: State::Key(Box::new(key)) };
    let claimed = |(name, fence)| Unresolved { name, state: State::Claimed { fence } };
    let claims = claims.into_iter().map(unresolved).chain(keys.into_iter().map(key));
    let mut claims: VecDeque<_> = claims.chain(leased.into_iter().map(claimed)).collect();
    let (mut wait, mut limit) = (MIN_BACKOFF, BATCH);
    loop {
        counted.set(node, claims.len());
        if claims.is_empty() {
            return;
        }
        if let Err(error) = send(node, &mut claims, limit).await {
            node.store_failed(Part::Claims, error);
            node.runtime.sleep_until(later(node.runtime.now(), wait)).await;
            wait = (wait * 2).min(MAX_BACKOFF);
            limit = (limit.min(claims.len()) / 2).max(1);
        }
    }
}

/// Sends the first claims as one request. Those that are not resolved become the last ones.
async fn send(node: &Node, claims: &mut VecDeque<Unresolved>, limit: usize) -> Result {
    let operations: Vec<Operation<'_>> =
        claims.iter().take(limit).map(Unresolved::operation).collect();
    let time = TimeSource::Store { fallback: node.runtime.wall() };
    let batch = Batch::new(&node.id, time, &operations);
    let applied = within(node, OP, reschedule(&*node.backend, batch)).await?;
    node.store_answered(Part::Claims);
    let mut failure = Ok(());
    for reply in applied.replies {
        let Some(mut claim) = claims.pop_front() else { break };
        match reply {
            Ok(Reply::Claimed(claimed)) => {
                claim.state = match claim.state {
                    State::Key(key) => State::Key(Box::new(key.granted(&claimed))),
                    _ => State::Claimed { fence: claimed.fence },
                };
            }
            Ok(_) => continue,
            Err(error) => failure = Err(error),
        }
        claims.push_back(claim);
    }
    failure
}

impl Unresolved {
    fn operation(&self) -> Operation<'_> {
        let action = match &self.state {
            State::Unknown(claim) => Action::Claim(Claim::clone(claim)),
            State::Claimed { fence } => Action::Release { fence: *fence },
            State::Key(key) => return key.operation(),
        };
        Operation::new(&self.name, action)
    }
}
