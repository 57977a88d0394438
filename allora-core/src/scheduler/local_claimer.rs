//! The claimer of jobs that run on every node. Its records are in this node's memory, and it never
//! waits for the store.

use super::{
    driver::{Driver, apply},
    monotonic::later,
    node::Node,
    notify::yield_now,
};
use crate::{backend::TimeSource, job::Placement, planner::Planner, time::since};
use futures::future::{Either, select};
use std::{pin::pin, sync::Arc};

pub(crate) struct LocalClaimer {
    driver: Driver,
}

impl LocalClaimer {
    pub(crate) fn new(node: Arc<Node>, planner: Planner) -> Self {
        Self { driver: Driver::new(node, Placement::EveryNode, planner) }
    }

    /// Claims occurrences until the scheduler is stopped.
    pub(crate) async fn run(mut self) {
        self.await_clock().await;
        while !self.driver.is_stopping() {
            let (tick, now) = self.driver.tick();
            let node = self.driver.node.clone();
            if tick.requests.is_empty() {
                if tick.wake_at.is_some_and(|at| at <= now) {
                    // More is to be computed, which must not block the executor.
                    yield_now().await;
                }
                let notified = pin!(node.claimers[Placement::EveryNode].notified());
                match tick.wake_at {
                    Some(at) => {
                        let at = later(node.runtime.now(), since(at, now));
                        select(node.runtime.sleep_until(at), notified).await;
                    }
                    None => notified.await,
                }
                continue;
            }
            yield_now().await;
            let sent = node.runtime.now();
            let time = TimeSource::Fixed(now);
            let applied = apply(&node, &node.local, time, &tick.requests).await;
            let result = match applied {
                Ok(applied) => self.driver.on_replies(tick.requests, applied, sent),
                Err(error) => {
                    self.driver.on_lost_replies(tick.requests);
                    Err(error)
                }
            };
            // The records are in memory, and no operation of a planner fails.
            debug_assert!(result.is_ok());
        }
    }

    /// Waits for the store's time, for as long as one request may take. After that, the node's own
    /// clock is used until there is a reply.
    async fn await_clock(&self) {
        let node = &self.driver.node;
        let limit = later(node.runtime.now(), node.config.store_timeout);
        let mut sleep = node.runtime.sleep_until(limit);
        while !node.shared().clock_is_known && !self.driver.is_stopping() {
            let notified = pin!(node.claimers[Placement::EveryNode].notified());
            match select(sleep, notified).await {
                Either::Left(_) => return,
                Either::Right((_, rest)) => sleep = rest,
            }
        }
    }
}
