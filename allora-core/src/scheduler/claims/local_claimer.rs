//! The claimer of jobs that run on every node.
//!
//! Their records are in this node's memory, so it never waits for the store. The one exception is
//! concurrency keys, which are in the store: requests about them are sent on the side, and only the
//! jobs of a key wait for them.

use super::{
    driver::{Driver, apply},
    unresolved::{Counted, resolve},
};
use crate::{
    backend::{Applied, Reply, TimeSource},
    condition::StorePart,
    error::Result,
    job::Placement,
    notify::yield_now,
    planner::{Input, Planner, Request, Unfinished},
    scheduler::{
        monotonic::later,
        node::{Node, Stop},
        side_request::SideRequest,
        store_request::{MAX_BACKOFF, MIN_BACKOFF, OP, within},
    },
    time::{saturating_add, since},
};
use futures::future::{Either, select};
use std::{
    future::poll_fn,
    pin::pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

pub(crate) struct LocalClaimer {
    driver: Driver,
    keys: Keys,
}

/// The requests about concurrency keys.
struct Keys {
    waiting: Vec<Request>,
    request: SideRequest<(Vec<Request>, Instant, Result<Applied>)>,
    /// The time of the next request after one that failed.
    retry_at: Option<Instant>,
    wait: Duration,
}

impl LocalClaimer {
    pub(crate) fn new(node: Arc<Node>, planner: Planner) -> Self {
        let keys = Keys {
            waiting: Vec::new(),
            request: SideRequest::default(),
            retry_at: None,
            wait: MIN_BACKOFF,
        };
        Self { driver: Driver::new(node, Placement::EveryNode, planner), keys }
    }

    /// Claims occurrences until the scheduler is stopped.
    pub(crate) async fn run(mut self) {
        await_clock(&self.driver.node.clone()).await;
        while !self.driver.is_stopping() {
            self.take_keys();
            let (tick, now) = self.driver.tick(true);
            let node = self.driver.node.clone();
            let (of_keys, requests): (Vec<_>, Vec<_>) =
                tick.requests.into_iter().partition(Request::is_about_key);
            self.keys.waiting.extend(of_keys);
            self.ask_for_keys();
            if requests.is_empty() {
                if tick.wake_at.is_some_and(|at| at <= now) {
                    // More is to be computed, which must not block the executor.
                    yield_now().await;
                }
                let wake_at = tick.wake_at.map(|at| later(node.runtime.now(), since(at, now)));
                self.sleep(wake_at.into_iter().chain(self.keys.retry_at).min()).await;
                continue;
            }
            let sent = node.runtime.now();
            let time = TimeSource::Fixed(now);
            let applied = apply(&node, &node.local, time, &requests).await;
            let result = match applied {
                Ok(applied) => self.driver.on_replies(requests, applied, sent),
                Err(error) => {
                    self.driver.on_lost(Input::Lost(requests));
                    Err(error)
                }
            };
            // The records are in memory, and no operation of a planner fails.
            debug_assert!(result.is_ok());
            // Not before the runs have their capacity: the other claimer would take it, too.
            yield_now().await;
        }
        // A key may be held whose claim has no reply yet.
        poll_fn(|cx| match self.keys.request.has_begun() {
            true => self.keys.request.poll(cx),
            false => Poll::Ready(()),
        })
        .await;
        self.take_keys();
        let requests = std::mem::take(&mut self.keys.waiting);
        self.driver.on_lost(Input::Lost(requests));
        let node = self.driver.node.clone();
        let Unfinished { releases, .. } = self.driver.stop();
        resolve(&node, releases, Counted::of(Placement::EveryNode)).await;
    }

    /// Sleeps until this time, a notification, or the reply to a request about keys.
    async fn sleep(&mut self, wake_at: Option<Instant>) {
        let node = self.driver.node.clone();
        let keys = &mut self.keys;
        let mut timer = wake_at.map(|at| node.runtime.sleep_until(at));
        let mut notified = pin!(node.claimers[Placement::EveryNode].notified());
        poll_fn(|cx| {
            let timed = timer.as_mut().is_some_and(|timer| timer.as_mut().poll(cx).is_ready());
            let others = [keys.request.poll(cx), notified.as_mut().poll(cx)];
            let is_ready = timed || others.iter().any(Poll::is_ready);
            if is_ready { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Sends what waits, unless a request is on its way.
    fn ask_for_keys(&mut self) {
        let node = self.driver.node.clone();
        let keys = &mut self.keys;
        let is_early = keys.retry_at.is_some_and(|at| node.runtime.now() < at);
        if !keys.waiting.is_empty() && !keys.request.has_begun() && !is_early {
            let requests = std::mem::take(&mut keys.waiting);
            keys.retry_at = None;
            keys.request.begin(async move {
                let sent = node.runtime.now();
                let time = TimeSource::Store { fallback: node.runtime.wall() };
                let call = apply(&node, &*node.backend, time, &requests);
                let applied = within(&node, OP, call).await;
                (requests, sent, applied)
            });
        }
    }

    /// Applies the replies to the last request, if they have come.
    fn take_keys(&mut self) {
        let Some((requests, sent, applied)) = self.keys.request.take() else { return };
        let node = self.driver.node.clone();
        let result = match applied {
            Ok(applied) => {
                node.on_contact(sent, applied.now);
                node.wrote();
                self.driver.on_replies(requests, by_the_nodes_clock(&node, applied, sent), sent)
            }
            Err(error) => {
                self.driver.on_lost(Input::Lost(requests));
                Err(error)
            }
        };
        match result {
            Ok(()) => {
                self.keys.wait = MIN_BACKOFF;
                node.store_answered(StorePart::Keys);
            }
            Err(error) => {
                node.store_failed(StorePart::Keys, &error);
                self.keys.retry_at = Some(later(node.runtime.now(), self.keys.wait));
                self.keys.wait = (self.keys.wait * 2).min(MAX_BACKOFF);
            }
        }
    }
}

/// Waits for the store's time, for as long as one request may take. After that, the node's own clock is
/// used until there is a reply.
async fn await_clock(node: &Node) {
    let limit = later(node.runtime.now(), node.config.store_timeout);
    let mut sleep = node.runtime.sleep_until(limit);
    let is_known = || {
        let shared = node.shared();
        shared.clock_is_known || shared.stop != Stop::No
    };
    while !is_known() {
        let notified = pin!(node.claimers[Placement::EveryNode].notified());
        match select(sleep, notified).await {
            Either::Left(_) => return,
            Either::Right((_, rest)) => sleep = rest,
        }
    }
}

/// The replies with the node's estimate of the store's time, with which the records in memory are
/// compared. No place of a key lasts longer by it than since the request was sent.
fn by_the_nodes_clock(node: &Node, applied: Applied, sent: Instant) -> Applied {
    let Applied { now: store, mut replies, .. } = applied;
    let now = node.now(&node.shared());
    let asked = now - node.runtime.now().saturating_duration_since(sent);
    for reply in &mut replies {
        if let Ok(Reply::Claimed(claimed)) = reply {
            claimed.until = saturating_add(asked, since(claimed.until, store));
        }
    }
    Applied::new(now, replies)
}
