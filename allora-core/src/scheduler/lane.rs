//! A queue of updates to the store with one request at a time. Extensions and ends have one each,
//! so that neither waits for the other, and each fails by itself.

use super::{
    active_run::RunId,
    monotonic::later,
    node::Node,
    pending_update::{Failed, PendingUpdate, send},
    store_health::Part,
    store_request::{MAX_BACKOFF, MIN_BACKOFF},
};
use crate::{
    backend::MAX_BYTES,
    backoff,
    error::{Error, Result},
};
use futures::future::{BoxFuture, FutureExt, pending};
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

/// The largest number of updates in one request.
const BATCH: usize = 1_000;

/// The number of updates by which a request may be larger after one that succeeded.
const GROWTH: usize = 50;

/// The number of failures from which on the wait of a run does not grow.
const OFTEN: u32 = 6;

pub(super) struct Lane {
    part: Part,
    /// The runs whose updates wait, by the number of requests that failed with them. Requests that
    /// fail do not delay the updates of other runs.
    waiting: BTreeMap<u32, Vec<RunId>>,
    request: Option<Request>,
    /// The runs whose updates failed while others did not, by the time of their next request and the
    /// number of requests that failed with them.
    failing: BTreeMap<(Instant, u32), Vec<RunId>>,
    /// The time of the next request, if the last one failed as a whole.
    retry_at: Option<Instant>,
    /// The store has answered since this was last taken.
    has_answer: bool,
    wait: Duration,
    /// The largest number of updates in the next request: halved when a request fails as a whole,
    /// which may have been too much for the store.
    limit: usize,
}

struct Request {
    /// The number of failed requests before.
    failures: u32,
    runs: Vec<RunId>,
    result: BoxFuture<'static, Result<Failed>>,
}

impl Lane {
    pub(super) fn new(part: Part) -> Self {
        Self {
            part,
            waiting: BTreeMap::new(),
            request: None,
            failing: BTreeMap::new(),
            retry_at: None,
            has_answer: false,
            wait: MIN_BACKOFF,
            limit: BATCH,
        }
    }

    pub(super) fn push(&mut self, runs: impl IntoIterator<Item = RunId>) {
        self.add(0, runs);
    }

    fn add(&mut self, failures: u32, runs: impl IntoIterator<Item = RunId>) {
        let mut runs = runs.into_iter().peekable();
        if runs.peek().is_some() {
            self.waiting.entry(failures).or_default().extend(runs);
        }
    }

    /// The time of the next request, if it waits for that.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        if self.request.is_some() {
            return None;
        }
        let failing_at = self.failing.keys().next().map(|(at, _)| *at);
        match self.retry_at {
            Some(at) if self.waiting.is_empty() => failing_at.map(|failing_at| failing_at.max(at)),
            Some(at) => Some(at),
            None => failing_at,
        }
    }

    /// Moves the runs whose wait is over back among the others, together with those whose wait is
    /// over soon.
    fn take_failing(&mut self, now: Instant) {
        let is_due = self.failing.keys().next().is_some_and(|(at, _)| *at <= now);
        let soon = if is_due { now + MAX_BACKOFF / 2 } else { now };
        while let Some(entry) = self.failing.first_entry().filter(|entry| entry.key().0 <= soon) {
            let ((_, failures), runs) = entry.remove_entry();
            self.add(failures, runs);
        }
    }

    /// Sends a request, if there is none on its way. `is_wanted` selects the runs that still need
    /// the update. Those whose leases end first are sent first.
    pub(super) fn send(&mut self, node: &Arc<Node>, now: Instant, is_wanted: IsWanted) {
        if self.request.is_some() || self.retry_at.is_some_and(|at| now < at) {
            return;
        }
        self.take_failing(now);
        while let Some((failures, mut runs)) = self.waiting.pop_first() {
            let updates = {
                let shared = node.shared();
                let active = |id: &RunId| shared.active.get(*id).filter(|active| is_wanted(active));
                runs.retain(|id| active(id).is_some());
                if runs.len() > self.limit {
                    runs.sort_by_key(|id| active(id).map(|active| active.timers.drop_at));
                    let rest = runs.split_off(self.limit);
                    self.waiting.entry(failures).or_default().extend(rest);
                }
                let updates =
                    runs.iter().filter_map(|id| Some(PendingUpdate::of(*id, active(id)?)));
                updates.collect::<Vec<_>>()
            };
            let updates = self.within_bytes(failures, &mut runs, updates);
            if updates.is_empty() {
                continue;
            }
            let node = node.clone();
            let result = async move { send(&node, &updates).await }.boxed();
            self.request = Some(Request { failures, runs, result });
            return;
        }
        if self.failing.is_empty() {
            node.store.idle(self.part);
        }
    }

    /// Takes the first updates that one request may have; the runs of the others wait.
    fn within_bytes(
        &mut self,
        failures: u32,
        runs: &mut Vec<RunId>,
        mut updates: Vec<PendingUpdate>,
    ) -> Vec<PendingUpdate> {
        let mut bytes = 0;
        let too_many = updates.iter().position(|update| {
            bytes += update.bytes();
            bytes > MAX_BYTES
        });
        if let Some(count) = too_many.map(|count| count.max(1)) {
            updates.truncate(count);
            let rest = runs.split_off(count);
            self.add(failures, rest);
        }
        updates
    }

    /// Waits for the reply. If the future is dropped, the next call waits for the same one.
    pub(super) async fn reply(&mut self, node: &Node) {
        let Some(request) = &mut self.request else { return pending().await };
        let result = (&mut request.result).await;
        let Some(Request { failures, runs, .. }) = self.request.take() else { return };
        let failures = failures.saturating_add(1);
        match result {
            Ok(Failed { again, error }) => {
                self.has_answer = true;
                self.limit = (self.limit + GROWTH).min(BATCH);
                (self.retry_at, self.wait) = (None, MIN_BACKOFF);
                if !again.is_empty() {
                    // Those that have failed often share a request.
                    let failures = failures.min(OFTEN);
                    let at = later(node.runtime.now(), backoff::after(failures));
                    self.failing.entry((at, failures)).or_default().extend(again);
                }
                match error {
                    Some(error) => node.store_failed(self.part, error),
                    None if self.has_failing() => {}
                    None => node.store_answered(self.part),
                }
            }
            Err(error) => {
                self.limit = (runs.len() / 2).max(1);
                self.add(failures, runs);
                self.back_off(node, error);
            }
        }
    }

    /// The store has answered the other lane: an outage is over, and what waits here is sent before
    /// its leases end.
    pub(super) fn after(&mut self, other: &mut Self) {
        if std::mem::take(&mut other.has_answer) {
            self.retry_at = None;
        }
    }

    /// `true` if the last update of some run has failed.
    fn has_failing(&self) -> bool {
        !self.failing.is_empty() || self.waiting.keys().any(|failures| *failures > 0)
    }

    /// Waits, twice as long each time, so that a store that is down has few requests.
    fn back_off(&mut self, node: &Node, error: Error) {
        node.store_failed(self.part, error);
        self.retry_at = Some(later(node.runtime.now(), self.wait));
        self.wait = (self.wait * 2).min(MAX_BACKOFF);
    }
}

type IsWanted = fn(&super::active_run::ActiveRun) -> bool;
