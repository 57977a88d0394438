//! A queue of updates to the store. There is one for extensions and one for ends, so neither waits
//! for the other, and each fails by itself.
//!
//! A lane has one request on its way at a time. But a request may contain a run whose shard or
//! record hangs, so if it is not answered soon, the next one follows. The updates of a lost request
//! are divided among several requests, down to one run each, and no other update waits for those.

use super::{
    active_run::RunId,
    pending_update::{Failed, PendingUpdate, send},
};
use crate::{
    backend::MAX_BYTES,
    backoff,
    condition::StorePart,
    error::{Error, Result},
    scheduler::{
        monotonic::later,
        node::Node,
        store_request::{MAX_BACKOFF, MIN_BACKOFF},
    },
};
use futures::{
    StreamExt,
    future::{BoxFuture, FutureExt, pending},
    stream::FuturesUnordered,
};
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

/// The largest number of updates in one request.
const BATCH: usize = 1_000;

/// The number of updates by which a request may be larger after one that succeeded.
const GROWTH: usize = 50;

/// The number of failures from which on the wait of a run does not grow.
const OFTEN: u32 = 6;

/// The largest number of requests on their way with updates that have not failed.
const FRESH: usize = 8;

/// The largest number of requests on their way with updates that have failed, and the number of parts
/// into which the updates of a lost request are divided.
const SUSPECTS: usize = 8;

/// The same while the store is down.
const SUSPECTS_WHILE_DOWN: usize = 4;

/// The largest number of updates on their way with which those that have failed are sent at once
/// although the store is down: few enough to find out soon which of them hang.
const FEW: usize = 16;

/// The part of the store's time limit after which a request does not keep others waiting.
const PATIENCE: u32 = 8;

pub(in crate::scheduler) struct Lane {
    part: StorePart,
    /// The runs whose updates wait and have not failed.
    fresh: Vec<RunId>,
    /// The runs whose last update failed, or was in a lost request. Others do not wait for them.
    failing: BTreeMap<Wait, Vec<RunId>>,
    /// The jobs of which an update was lost in a request of its own. Their next updates share no
    /// request with those of others until one has a reply.
    hanging: HashSet<Arc<str>>,
    requests: FuturesUnordered<BoxFuture<'static, Reply>>,
    on_way: Vec<Request>,
    /// The number of the last request.
    last: u64,
    /// The time of the next request, if the last one was lost and the store has answered nothing
    /// since.
    retry_at: Option<Instant>,
    /// A request was lost, and the store has answered nothing since.
    is_down: bool,
    /// The store has answered since this was last taken.
    has_answer: bool,
    answered_at: Option<Instant>,
    wait: Duration,
    /// The largest number of updates on their way: halved when a request is lost, which may have been
    /// too much for the store.
    limit: usize,
    patience: Duration,
}

/// The next request about runs whose last update failed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Wait {
    at: Instant,
    /// The number of requests that failed with them.
    failures: u32,
    /// The largest number of updates in the request.
    most: usize,
}

/// A request on its way.
struct Request {
    number: u64,
    sent: Instant,
    failures: u32,
    most: usize,
    runs: Vec<RunId>,
    /// The job of the only update.
    alone: Option<Arc<str>>,
    /// The number of updates on their way when it was sent, with its own.
    load: usize,
}

struct Reply {
    number: u64,
    result: Result<Failed>,
}

impl Lane {
    pub(in crate::scheduler) fn new(part: StorePart, store_timeout: Duration) -> Self {
        Self {
            part,
            fresh: Vec::new(),
            failing: BTreeMap::new(),
            hanging: HashSet::new(),
            requests: FuturesUnordered::new(),
            on_way: Vec::new(),
            last: 0,
            retry_at: None,
            is_down: false,
            has_answer: false,
            answered_at: None,
            wait: MIN_BACKOFF,
            limit: BATCH,
            patience: store_timeout / PATIENCE,
        }
    }

    pub(in crate::scheduler) fn push(&mut self, runs: impl IntoIterator<Item = RunId>) {
        self.fresh.extend(runs);
    }

    /// The time of the next request, if it waits for that.
    pub(in crate::scheduler) fn retry_at(&self) -> Option<Instant> {
        let may_send = !self.fresh.is_empty() && self.on_way_of(false) < FRESH;
        let fresh = may_send.then(|| self.fresh_from()).flatten();
        let failing = self.failing.keys().next().map(|wait| wait.at);
        let failing = failing.map(|at| at.max(self.retry_at.unwrap_or(at)));
        let failing = failing.filter(|at| self.may_retry(*at));
        fresh.into_iter().chain(failing).min()
    }

    /// `true` if updates may be sent that have failed. A store that is down has few.
    fn may_retry(&self, now: Instant) -> bool {
        let on_way = || self.on_way.iter().map(|request| request.runs.len()).sum::<usize>();
        let is_early = || on_way() >= FEW || self.retry_at.is_some_and(|at| now < at);
        let most = if self.is_down { SUSPECTS_WHILE_DOWN } else { SUSPECTS };
        self.on_way_of(true) < most && !(self.is_down && is_early())
    }

    /// The number of requests on their way with updates that have failed, or have not.
    fn on_way_of(&self, has_failed: bool) -> usize {
        self.on_way.iter().filter(|request| (request.failures > 0) == has_failed).count()
    }

    /// The time from which updates are sent that have not failed.
    fn fresh_from(&self) -> Option<Instant> {
        let fresh = self.on_way.iter().filter(|request| request.failures == 0);
        fresh.map(|request| later(request.sent, self.patience)).chain(self.retry_at).max()
    }

    /// Sends requests, if none waits for a reply that has not come. `is_wanted` selects the runs that
    /// still need the update. Those whose leases end first are sent first.
    pub(in crate::scheduler) fn send(
        &mut self,
        node: &Arc<Node>,
        now: Instant,
        is_wanted: IsWanted,
    ) {
        let may_send = self.on_way_of(false) < FRESH;
        if may_send && self.fresh_from().is_none_or(|at| at <= now) {
            let runs = self.take_fresh(node, now);
            let most = self.limit.saturating_sub(self.load()).max(1);
            self.begin(node, Wait { at: now, failures: 0, most }, runs, is_wanted);
        }
        while self.may_retry(now)
            && let Some((wait, runs)) = self.take_failing(now)
        {
            self.begin(node, wait, runs, is_wanted);
        }
        if self.on_way.is_empty() && self.fresh.is_empty() && self.failing.is_empty() {
            node.store_is_idle(self.part);
        }
    }

    /// The runs whose updates have not failed, without those of jobs of which another one hangs.
    fn take_fresh(&mut self, node: &Node, now: Instant) -> Vec<RunId> {
        let runs = std::mem::take(&mut self.fresh);
        if self.hanging.is_empty() {
            return runs;
        }
        let shared = node.shared();
        let hangs = |id: &RunId| {
            let active = shared.active.get(*id);
            active.is_some_and(|active| self.hanging.contains(active.run.name()))
        };
        let (apart, runs) = runs.into_iter().partition::<Vec<_>, _>(hangs);
        if !apart.is_empty() {
            let wait = Wait { at: now, failures: 1, most: 1 };
            self.failing.entry(wait).or_default().extend(apart);
        }
        runs
    }

    /// The runs whose wait is over, together with those whose wait is over soon. First those that have
    /// failed least: they may only have shared a request with one that hangs, and many may hang.
    fn take_failing(&mut self, now: Instant) -> Option<(Wait, Vec<RunId>)> {
        let due = self.failing.keys().copied().take_while(|wait| wait.at <= now);
        let first = due.min_by_key(|wait| (wait.failures, wait.at))?;
        let mut runs = self.failing.remove(&first)?;
        let is_alike = |wait: &Wait| (wait.failures, wait.most) == (first.failures, first.most);
        let is_soon = |wait: &Wait| wait.at <= now + MAX_BACKOFF / 2 && is_alike(wait);
        let soon: Vec<Wait> = self.failing.keys().copied().filter(is_soon).collect();
        for wait in soon {
            runs.extend(self.failing.remove(&wait).unwrap_or_default());
        }
        Some((first, runs))
    }

    /// Sends the first of these updates; the others wait.
    fn begin(&mut self, node: &Arc<Node>, wait: Wait, mut runs: Vec<RunId>, is_wanted: IsWanted) {
        let mut rest = Vec::new();
        let updates = {
            let shared = node.shared();
            let active = |id: &RunId| shared.active.get(*id).filter(|active| is_wanted(active));
            runs.retain(|id| active(id).is_some());
            if runs.len() > wait.most {
                runs.sort_by_key(|id| active(id).map(|active| active.timers.drop_at));
                rest = runs.split_off(wait.most);
            }
            let updates = runs.iter().filter_map(|id| Some(PendingUpdate::of(*id, active(id)?)));
            updates.collect::<Vec<_>>()
        };
        let updates = within_bytes(&mut runs, updates, &mut rest);
        match wait.failures {
            0 => self.fresh.extend(rest),
            _ if rest.is_empty() => {}
            _ => self.failing.entry(wait).or_default().extend(rest),
        }
        if updates.is_empty() {
            return;
        }
        let (node, sent, Wait { failures, most, .. }) = (node.clone(), node.runtime.now(), wait);
        let load = self.load() + runs.len();
        self.last += 1;
        let number = self.last;
        let alone = updates.first().filter(|_| updates.len() == 1).map(PendingUpdate::job);
        self.on_way.push(Request { number, sent, failures, most, runs, alone, load });
        let request = async move { Reply { number, result: send(&node, &updates).await } };
        self.requests.push(request.boxed());
    }

    /// The number of updates on their way. A single one is never too much for the store.
    fn load(&self) -> usize {
        let runs = self.on_way.iter().map(|request| request.runs.len());
        runs.filter(|runs| *runs > 1).sum()
    }

    /// Waits for a reply. If the future is dropped, the next call waits for the same ones.
    pub(in crate::scheduler) async fn reply(&mut self, node: &Node) {
        let Some(Reply { number, result }) = self.requests.next().await else {
            return pending().await;
        };
        let Some(place) = self.on_way.iter().position(|request| request.number == number) else {
            return;
        };
        let request = self.on_way.swap_remove(place);
        match result {
            Ok(failed) => self.answered(node, request, failed),
            Err(error) => self.lost(node, request, error),
        }
    }

    fn answered(&mut self, node: &Node, request: Request, Failed { again, error }: Failed) {
        let now = node.runtime.now();
        self.has_answer = true;
        self.answered_at = Some(now);
        self.limit = (self.limit + GROWTH).min(BATCH);
        (self.retry_at, self.wait) = (None, MIN_BACKOFF);
        self.recovered(now);
        if let Some(job) = &request.alone {
            self.hanging.remove(job);
        }
        // Those that have failed often share a request.
        let most = if request.failures == 0 { BATCH } else { request.most };
        self.failed(now, request.failures, most, again);
        match error {
            Some(error) => node.store_failed(self.part, &error),
            None if self.has_failing() => {}
            None => node.store_answered(self.part),
        }
    }

    /// No reply came to a request. Other updates wait, too, unless some were answered since: then only
    /// something in this request hangs.
    fn lost(&mut self, node: &Node, request: Request, error: Error) {
        let now = node.runtime.now();
        let Request { sent, failures, runs, load, alone, .. } = request;
        node.store_failed(self.part, &error);
        self.hanging.extend(alone);
        // Also another sort of request: then it is not the whole store that hangs.
        let answered_at = self.answered_at.max(node.shared().contacted_at);
        let is_answering = answered_at.is_some_and(|at| at > sent);
        if load > 1 && !(is_answering && failures > 0) {
            self.limit = (load.min(self.limit) / 2).max(1);
        }
        if !is_answering {
            self.is_down = true;
            // Twice as long each time.
            self.retry_at = Some(later(now, self.wait));
            self.wait = (self.wait * 2).min(MAX_BACKOFF);
        }
        self.failed(now, failures, runs.len().div_ceil(SUSPECTS), runs);
    }

    /// The updates of these runs are sent again after a while, at most so many with one request.
    fn failed(&mut self, now: Instant, failures: u32, most: usize, runs: Vec<RunId>) {
        if !runs.is_empty() {
            let failures = failures.saturating_add(1).min(OFTEN);
            let wait = Wait { at: later(now, backoff::after(failures)), failures, most };
            self.failing.entry(wait).or_default().extend(runs);
        }
    }

    /// The store has answered the other lane: an outage is over, and what waits here is sent before
    /// its leases end.
    pub(in crate::scheduler) fn after(&mut self, other: &mut Self, now: Instant) {
        if std::mem::take(&mut other.has_answer) {
            self.retry_at = None;
            self.recovered(now);
        }
    }

    /// The store answers: what was lost in an outage is sent now.
    fn recovered(&mut self, now: Instant) {
        if std::mem::take(&mut self.is_down) {
            for (wait, runs) in std::mem::take(&mut self.failing) {
                let wait = Wait { at: wait.at.min(now), ..wait };
                self.failing.entry(wait).or_default().extend(runs);
            }
        }
    }

    /// `true` if the last update of some run has failed.
    fn has_failing(&self) -> bool {
        !self.failing.is_empty() || self.on_way_of(true) > 0
    }
}

/// The first updates that one request may have; the runs of the others are added to `rest`.
fn within_bytes(
    runs: &mut Vec<RunId>,
    mut updates: Vec<PendingUpdate>,
    rest: &mut Vec<RunId>,
) -> Vec<PendingUpdate> {
    let mut bytes = 0;
    let too_many = updates.iter().position(|update| {
        bytes += update.bytes();
        bytes > MAX_BYTES
    });
    if let Some(count) = too_many.map(|count| count.max(1)) {
        updates.truncate(count);
        rest.extend(runs.split_off(count));
    }
    updates
}

type IsWanted = fn(&super::active_run::ActiveRun) -> bool;
