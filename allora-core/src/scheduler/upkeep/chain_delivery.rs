//! The delivery of outboxes: what follows the ends of runs. See `record/chain.rs`.
//!
//! The node that ends a run learns of the outbox by the same reply, and delivers it. If it dies before
//! that, any node that writes the record learns of it, too. Nodes whose jobs in code run after others
//! look at the jobs before them at each poll, and nodes with handlers for stored schedules search for
//! outboxes once a minute. A node that has neither looks at nothing.

use crate::scheduler::{
    monotonic::later,
    node::Node,
    store_request::{MAX_BACKOFF, MIN_BACKOFF},
};
use futures::future::{Either, pending, select};
use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// The time between two searches for outboxes of jobs that this node does not know.
const SEARCH: Duration = Duration::from_secs(60);

/// Delivers outboxes until the scheduler is over.
pub(in crate::scheduler) async fn deliver(node: Arc<Node>, is_over: Arc<AtomicBool>) {
    let (chains, schedules) = (&node.chains, &node.schedules);
    let (mut look_at, mut search_at) = (node.runtime.now(), node.runtime.now());
    let (mut retry_at, mut wait) = (None::<Instant>, MIN_BACKOFF);
    loop {
        // What was written before is delivered once more.
        let is_last = is_over.load(Ordering::Acquire);
        let now = node.runtime.now();
        let mut failed = false;
        let after = chains.known().after.clone();
        if !is_last && !after.is_empty() && look_at <= now {
            look_at = later(now, node.config.poll_interval);
            let jobs: Vec<_> = after.iter().map(|(name, after)| (&**name, after)).collect();
            match schedules.look_before(&jobs).await {
                Ok(names) => chains.found(names),
                // The other parts report a store that does not answer.
                Err(_) => failed = true,
            }
        }
        let searches = node.backend.queries().is_some() && !node.router().is_empty();
        if !is_last && searches && search_at <= now {
            search_at = later(now, SEARCH);
            if let Ok(names) = schedules.outboxes().await {
                chains.found(names);
            }
        }
        if is_last || retry_at.is_none_or(|at| at <= now) {
            let names = std::mem::take(&mut chains.known().outboxes);
            for name in names {
                let delivered = schedules.deliver(&name).await;
                if is_last && delivered.is_err() {
                    // A store that does not answer keeps no scheduler from its end: other nodes deliver.
                    return;
                }
                if !matches!(delivered, Ok(true)) {
                    failed = true;
                    chains.known().outboxes.insert(name);
                }
            }
        }
        if is_last {
            return;
        }
        (retry_at, wait) = match (failed, retry_at) {
            (true, _) => (Some(later(now, wait)), (wait * 2).min(MAX_BACKOFF)),
            (false, Some(at)) if at > now => (Some(at), wait),
            (false, _) => (None, MIN_BACKOFF),
        };
        let looks = (!after.is_empty()).then_some(look_at);
        let next = [looks, searches.then_some(search_at), retry_at].into_iter().flatten().min();
        let sleep = async {
            match next {
                Some(at) => node.runtime.sleep_until(at).await,
                None => pending().await,
            }
        };
        if let Either::Left(_) = select(pin!(chains.wake.notified()), pin!(sleep)).await {
            // A job was added, or an outbox was found.
            if !chains.known().after.keys().all(|name| after.contains_key(name)) {
                look_at = node.runtime.now();
            }
        }
    }
}
