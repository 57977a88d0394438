//! Claims without a reply when the scheduler stops: they are repeated, and what they have claimed is
//! released.

use crate::{
    backend::{Action, Batch, Claim, Completion, Cursor, Operation, Reply, TimeSource},
    condition::StorePart,
    error::Result,
    job::Placement,
    planner::{KeyRelease, LeftLease},
    scheduler::{
        monotonic::later,
        node::Node,
        store_request::{MAX_BACKOFF, MIN_BACKOFF, OP, reschedule, within},
    },
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
    /// It may have succeeded. With the cursor's move by a completion.
    Unknown(Box<Claim>, Cursor),
    /// It has succeeded, and a later request may have changed the fence: the record is read.
    Changed { lease: Lease, claim_id: u128 },
    /// The occurrence is to be released.
    Claimed(Lease),
    /// An operator has cancelled it: it is completed, because no attempt follows.
    Cancelled { fence: i64, then: Cursor },
    /// A concurrency key is or may be held.
    Key(Box<KeyRelease>),
}

#[derive(Clone, Copy)]
struct Lease {
    fence: i64,
    /// The cursor's move by a completion, if it is known.
    then: Option<Cursor>,
}

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

/// Repeats the claims until each has a reply, and releases what they have claimed. The supervisor
/// ends this with the grace period.
/// `leased`: claimed occurrences without a run.
pub(in crate::scheduler) async fn resolve(
    node: &Node,
    claims: Vec<(Arc<str>, Claim, Cursor)>,
    keys: Vec<KeyRelease>,
    leased: Vec<LeftLease>,
    mut counted: Counted,
) {
    let unresolved = |(name, claim, then)| {
        let state = State::Unknown(Box::new(claim), then);
        Unresolved { name, state }
    };
    let key = |key: KeyRelease| Unresolved { name: key.job(), state: State::Key(Box::new(key)) };
    let claimed = |LeftLease { name, fence, then, claim_id }| {
        let lease = Lease { fence, then };
        let state = claim_id.map(|claim_id| State::Changed { lease, claim_id });
        Unresolved { name, state: state.unwrap_or(State::Claimed(lease)) }
    };
    let claims = claims.into_iter().map(unresolved).chain(keys.into_iter().map(key));
    let mut claims: VecDeque<_> = claims.chain(leased.into_iter().map(claimed)).collect();
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
async fn send(node: &Node, claims: &mut VecDeque<Unresolved>, limit: usize) -> Result {
    let operations: Vec<Operation<'_>> =
        claims.iter().take(limit).map(Unresolved::operation).collect();
    let time = TimeSource::Store { fallback: node.runtime.wall() };
    let batch = Batch::new(&node.id, time, &operations);
    let applied = within(node, OP, reschedule(node, &*node.backend, batch)).await?;
    node.store_answered(StorePart::Claims);
    let mut failure = Ok(());
    for reply in applied.replies {
        let Some(claim) = claims.pop_front() else { break };
        match reply {
            Ok(reply) => {
                let Some(state) = claim.state.after(reply) else { continue };
                claims.push_back(Unresolved { state, ..claim });
            }
            Err(error) => {
                failure = Err(error);
                claims.push_back(claim);
            }
        }
    }
    failure
}

impl State {
    /// The state after this reply; `None` if nothing is left to do.
    fn after(self, reply: Reply) -> Option<Self> {
        match (self, reply) {
            (State::Key(key), reply) => Some(State::Key(Box::new(key.after(&reply)?))),
            (State::Unknown(claim, then), Reply::Claimed(claimed)) => {
                // An earlier request with this claim id may have claimed another occurrence.
                let then = Some(then).filter(|_| claimed.occurrence == claim.start);
                Some(State::Claimed(Lease { fence: claimed.fence, then }))
            }
            (State::Changed { lease: Lease { fence, then }, claim_id }, Reply::State(state)) => {
                let lease = state.leases.iter().find(|lease| lease.claim_id == claim_id)?;
                let then = then.filter(|_| lease.fence == fence);
                Some(State::Claimed(Lease { fence: lease.fence, then }))
            }
            // Without the cursor's move, the end of the lease completes it.
            (State::Claimed(Lease { fence, then }), Reply::CancelRequested(_)) => {
                then.map(|then| State::Cancelled { fence, then })
            }
            _ => None,
        }
    }
}

impl Unresolved {
    fn operation(&self) -> Operation<'_> {
        let action = match &self.state {
            State::Unknown(claim, _) => Action::Claim(Claim::clone(claim)),
            State::Changed { .. } => return Operation::read(&self.name),
            State::Claimed(lease) => Action::Release { fence: lease.fence },
            State::Cancelled { fence, then } => {
                let (fence, then, completion) = (*fence, *then, Completion::Cancelled);
                Action::Complete { fence, then, completion }
            }
            State::Key(key) => return key.operation(),
        };
        Operation::new(&self.name, action)
    }
}
