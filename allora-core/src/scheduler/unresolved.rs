//! Claims whose reply is not known. A stopping scheduler repeats them, and releases what they have
//! claimed.

use super::{
    claimer::{MAX_BACKOFF, MIN_BACKOFF, OP, reschedule},
    node::{Node, later},
    store_health::Part,
    within::within,
};
use crate::{
    backend::{Action, Applied, Batch, Claim, Operation, Reply, TimeSource},
    error::Result,
    planner::Request,
};
use std::{collections::HashMap, sync::Arc, time::Instant};

/// The largest number of operations in one request.
const BATCH: usize = 1_000;

#[derive(Default)]
pub(super) struct Unresolved {
    claims: HashMap<Arc<str>, Unknown>,
}

/// The state of a claim.
enum Unknown {
    /// It may have succeeded. Its lease ends at the given time, at the latest.
    Claim(Box<Claim>, Instant),
    /// It has succeeded. The occurrence is to be released.
    Claimed { fence: i64 },
}

impl Unresolved {
    /// Remembers the claims of a request until their replies come.
    pub(super) fn sent(&mut self, node: &Node, requests: &[Request], now: Instant) {
        // A claim whose lease would have ended has nothing left to resolve.
        let is_open = |unknown: &Unknown| match unknown {
            Unknown::Claim(_, until) => now < *until,
            Unknown::Claimed { .. } => true,
        };
        self.claims.retain(|_, unknown| is_open(unknown));
        for request in requests {
            if let Action::Claim(claim) = request.operation().action {
                let until = later(later(now, node.config.store_timeout), claim.lease.duration);
                self.claims.insert(request.name.clone(), Unknown::Claim(Box::new(claim), until));
            }
        }
        node.shared().claiming = self.claims.len();
    }

    /// Forgets the claims that have replies.
    pub(super) fn answered(&mut self, node: &Node, requests: &[Request], applied: &Applied) {
        for (request, reply) in requests.iter().zip(&applied.replies) {
            if request.is_claim() && reply.is_ok() {
                self.claims.remove(&request.name);
            }
        }
        node.shared().claiming = self.claims.len();
    }

    /// Repeats the claims until each has a reply, and releases what they have claimed. The
    /// supervisor ends this with the grace period.
    pub(super) async fn resolve(mut self, node: &Node) {
        let (mut wait, mut limit) = (MIN_BACKOFF, BATCH);
        loop {
            node.shared().unresolved = self.claims.len();
            if self.claims.is_empty() {
                return;
            }
            let result = self.send(node, limit).await;
            if let Err(error) = result {
                node.store_failed(Part::Claims, error);
                node.runtime.sleep_until(later(node.runtime.now(), wait)).await;
                wait = (wait * 2).min(MAX_BACKOFF);
                limit = (limit.min(self.claims.len()) / 2).max(1);
            }
        }
    }

    async fn send(&mut self, node: &Node, limit: usize) -> Result {
        let names: Vec<Arc<str>> = self.claims.keys().take(limit).cloned().collect();
        let operations: Vec<Operation<'_>> = names
            .iter()
            .filter_map(|name| {
                let action = match self.claims.get(name)? {
                    Unknown::Claim(claim, _) => Action::Claim(Claim::clone(claim)),
                    Unknown::Claimed { fence } => Action::Release { fence: *fence },
                };
                Some(Operation::new(name, action))
            })
            .collect();
        let time = TimeSource::Store { fallback: node.runtime.wall() };
        let batch = Batch::new(&node.id, time, &operations);
        let applied = within(node, OP, reschedule(&*node.backend, batch)).await?;
        node.store_answered(Part::Claims);
        let mut failure = Ok(());
        for (name, reply) in names.iter().zip(applied.replies) {
            match reply {
                Ok(Reply::Claimed(claimed)) => {
                    let fence = claimed.fence;
                    self.claims.insert(name.clone(), Unknown::Claimed { fence });
                }
                Ok(_) => {
                    self.claims.remove(name);
                }
                Err(error) => failure = Err(error),
            }
        }
        failure
    }
}
