//! The half of a scheduler that claims occurrences: it gets operations from the planner, sends them
//! to the store, and sleeps.

use super::{
    active_run::ActiveRun,
    capacity::Capacity,
    driver::Driver,
    node::{CLOCK_SKEW, Node, later},
    notify::yield_now,
    search::{Found, Search},
    store_health::Part,
    unresolved::Unresolved,
    within::within,
};
use crate::{
    backend::{Applied, Backend, Batch, Notification, Operation, TimeSource},
    error::{Error, ErrorKind, Result},
    event::Event,
    job::Placement,
    planner::{Planner, Request, Tick},
    time::{Time, since, whole_millis},
};
use chrono::TimeDelta;
use futures::{
    FutureExt, StreamExt,
    future::{Either, pending, select},
    stream::BoxStream,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// The first wait after a failure of the store; doubled each time up to [`MAX_BACKOFF`].
pub(super) const MIN_BACKOFF: Duration = Duration::from_millis(50);
/// The longest wait between two tries to reach the store.
pub(super) const MAX_BACKOFF: Duration = Duration::from_millis(800);

/// The delay of a timer that is reported.
const TIMER_DELAYED: Duration = Duration::from_secs(1);

/// The operation's name in errors.
pub(super) const OP: &str = "reschedule";

/// The read in addition to the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadScope {
    No,
    /// Only the store's clock is read.
    Poll,
    /// Records that want attention are searched.
    Find,
}

pub(crate) struct Claimer {
    node: Arc<Node>,
    driver: Driver,
    notifications: Option<BoxStream<'static, Notification>>,
    /// The time of the next subscription, if there is none.
    listen_at: Instant,
    /// The result of the last subscription. An error is reported once, if the store answers other
    /// requests.
    subscription: Subscription,
    search: Search,
    /// The time of the next poll.
    poll_at: Instant,
    wait: Duration,
    /// The last difference between the store's clock and this node's.
    off: TimeDelta,
    ready: bool,
    /// The last request failed.
    has_failed: bool,
    unresolved: Unresolved,
    capacity: Capacity,
}

/// The result of the last subscription to notifications.
enum Subscription {
    No,
    Because(Error),
    Reported,
}

impl Claimer {
    pub(crate) fn new(node: Arc<Node>, planner: Planner) -> Self {
        let now = node.runtime.now();
        let search = Search::new(node.backend.queries().is_some());
        Self {
            driver: Driver::new(node.clone(), Placement::OneNode, planner),
            node,
            notifications: None,
            listen_at: now,
            subscription: Subscription::No,
            search,
            poll_at: now,
            wait: MIN_BACKOFF,
            off: TimeDelta::zero(),
            ready: false,
            has_failed: false,
            unresolved: Unresolved::default(),
            capacity: Capacity::default(),
        }
    }

    /// Claims occurrences until the scheduler is stopped. Then it resolves the claims whose replies
    /// were lost.
    pub(crate) async fn run(mut self) {
        while !self.driver.is_stopping() {
            match self.tick().await {
                Ok(()) => {}
                Err(error) => {
                    self.has_failed = true;
                    self.node.store_failed(Part::Claims, error);
                    self.back_off().await;
                }
            }
        }
        let Self { node, unresolved, .. } = self;
        unresolved.resolve(&node).await;
    }

    async fn tick(&mut self) -> Result {
        self.subscribe().await;
        if !self.ready {
            self.first_read().await?;
        }
        if self.has_failed {
            self.own_runs_first().await?;
            self.has_failed = false;
        }
        self.take_notifications();
        let (turn, scope, now) = self.plan();
        if turn.requests.is_empty() && scope == ReadScope::No {
            self.sleep(&turn, now).await;
            return Ok(());
        }
        // A store whose replies are always ready must not block the executor.
        yield_now().await;
        self.ask(turn.requests, scope).await
    }

    /// Subscribes to notifications before the first read, so that none is missed. Without
    /// notifications, polling finds the changes.
    async fn subscribe(&mut self) {
        let node = self.node.clone();
        let Some(watch) = node.backend.notifier() else { return };
        let now = node.runtime.now();
        if self.notifications.is_some() || now < self.listen_at {
            return;
        }
        self.listen_at = now + MAX_BACKOFF;
        match within(&node, "watch", watch.subscribe()).await {
            Ok(stream) => {
                self.notifications = Some(stream);
                self.subscription = Subscription::No;
                // Earlier changes had no notification.
                self.search.at_once();
            }
            Err(error) => {
                self.listen_at = now + node.config.poll_interval.max(MAX_BACKOFF);
                if matches!(self.subscription, Subscription::No) {
                    self.subscription = Subscription::Because(error);
                }
            }
        }
    }

    /// The first reply brings the store's time. Jobs are registered only after it, so that a wrong
    /// clock of the node does not select a first occurrence.
    async fn first_read(&mut self) -> Result {
        self.read_clock().await?;
        self.ready = true;
        let jobs = self.node.jobs();
        self.node.emit([Event::Ready { node: self.node.id.clone(), jobs }]);
        Ok(())
    }

    /// After an outage: when the store answers, the extensions and ends of this node's runs go before
    /// its claims, which would record these runs as lost, or as expired. Waits at most for the next
    /// request of each.
    async fn own_runs_first(&mut self) -> Result {
        let node = self.node.clone();
        let are_overdue = || {
            let now = node.runtime.now();
            let is_overdue = |active: &ActiveRun| {
                active.placement() == Placement::OneNode && now >= active.timers.drop_at
            };
            node.shared().active.iter().any(|(_, active)| !active.lost && is_overdue(active))
        };
        if !are_overdue() {
            return Ok(());
        }
        self.read_clock().await?;
        let until = later(node.runtime.now(), MAX_BACKOFF + node.config.store_timeout);
        while are_overdue() && node.runtime.now() < until && !self.driver.is_stopping() {
            node.runtime.sleep_until(later(node.runtime.now(), MIN_BACKOFF)).await;
        }
        Ok(())
    }

    fn take_notifications(&mut self) {
        while let Some(stream) = &mut self.notifications {
            match stream.next().now_or_never() {
                Some(Some(notification)) => self.on_notification(notification),
                Some(None) => self.notifications = None,
                None => return,
            }
        }
    }

    fn on_notification(&mut self, notification: Notification) {
        match notification {
            Notification::Job(name) if self.node.groups.on_notification(&name) => {}
            Notification::Job(name) => {
                self.search.on_change();
                self.driver.planner.on_notification(&name);
            }
            Notification::DueAt(at) => self.search.on_notification(at),
            Notification::Changed => self.search.on_notification(Time::MIN_UTC),
        }
    }

    fn plan(&mut self) -> (Tick, ReadScope, Time) {
        let (turn, now) = self.driver.tick();
        let mono = self.node.runtime.now();
        if let Some(event) = self.capacity.observe(turn.full, self.node.config.concurrency, mono) {
            self.node.emit([event]);
        }
        if let Some(look_at) = self.driver.planner.forgotten_due() {
            self.search.by(look_at);
        }
        let poll = mono >= self.poll_at;
        // The rest of what is due can wait until the known part is sent.
        let find = self.search.is_due(now, mono) && !turn.more;
        let kinds = self.search.kinds_at().is_some_and(|at| at <= mono);
        let scope = match poll || find || kinds {
            true if self.search.is_on() => ReadScope::Find,
            true if poll => ReadScope::Poll,
            _ => ReadScope::No,
        };
        (turn, scope, now)
    }

    /// Sleeps until the next tick: something is due, a notification comes, or capacity is free.
    async fn sleep(&mut self, turn: &Tick, now: Time) {
        let node = self.node.clone();
        let wake_at = turn.wake_at.filter(|_| !turn.full);
        let find_in = (!turn.full).then(|| self.search.due_in(now, node.runtime.now())).flatten();
        let wake_in = wake_at.map(|at| since(at, now));
        let asleep = node.runtime.now();
        let listen_at = (self.notifications.is_none() && node.backend.notifier().is_some())
            .then_some(self.listen_at);
        let known = [wake_in, find_in].into_iter().flatten().map(|span| later(asleep, span));
        let first = known.chain(listen_at).chain(self.search.kinds_at());
        let first = first.chain(self.capacity.report_at());
        let first = first.fold(self.poll_at, Instant::min);
        let wake = first.max(asleep) + self.jitter();
        let notification = match &mut self.notifications {
            Some(stream) => stream.next().left_future(),
            None => pending().right_future(),
        };
        let notified = std::pin::pin!(node.claimers[Placement::OneNode].notified());
        let wake_up = select(notification, notified);
        let notification = match select(node.runtime.sleep_until(wake), wake_up).await {
            Either::Left(_) => {
                let late = node.runtime.now().saturating_duration_since(wake);
                if late > TIMER_DELAYED {
                    node.emit([Event::TimerDelayed { by: late }]);
                }
                return;
            }
            Either::Right((Either::Left((notification, _)), _)) => notification,
            Either::Right((Either::Right(_), _)) => return,
        };
        match notification {
            Some(notification) => self.on_notification(notification),
            None => self.notifications = None,
        }
    }

    /// A random wait, longer on a busy node. It varies the order in which nodes act whose timers
    /// fire at the same time.
    fn jitter(&self) -> Duration {
        let node = &self.node;
        let longest = node.config.claim_jitter;
        if longest.is_zero() {
            return longest;
        }
        let load = node.shared().running as f64 / node.config.concurrency.max(1) as f64;
        let drawn = (node.runtime.random() >> 11) as f64 / (1u64 << 53) as f64;
        longest.mul_f64((drawn + load.min(1.0)) / 2.0)
    }

    async fn ask(&mut self, requests: Vec<Request>, scope: ReadScope) -> Result {
        let asked = !requests.is_empty();
        if asked {
            self.ask_store(requests).await?;
        }
        match scope {
            ReadScope::Find => self.find_due().await,
            ReadScope::Poll if !asked => {
                self.read_clock().await?;
            }
            ReadScope::Poll | ReadScope::No => {}
        }
        if scope == ReadScope::Poll {
            self.poll_at = later(self.node.runtime.now(), self.node.config.poll_interval);
        }
        self.wait = MIN_BACKOFF;
        Ok(())
    }

    /// Sends the requests in one round trip.
    async fn ask_store(&mut self, requests: Vec<Request>) -> Result {
        let node = self.node.clone();
        let (sent, before) = (node.runtime.now(), node.runtime.wall());
        let time = TimeSource::Store { fallback: before };
        self.unresolved.sent(&node, &requests, sent);
        let applied = match within(&node, OP, apply(&node, &*node.backend, time, &requests)).await {
            Ok(applied) => applied,
            Err(error) => {
                self.driver.planner.on_timeout(requests.len());
                self.driver.on_lost_replies(requests);
                return Err(error);
            }
        };
        self.driver.planner.on_answer(requests.len());
        self.on_contact(sent, before, applied.now);
        if applied.replies.iter().all(Result::is_ok) {
            node.store_answered(Part::Claims);
        }
        self.unresolved.answered(&node, &requests, &applied);
        let (lost, result) = self.driver.on_replies(requests, applied, sent);
        self.driver.on_lost_replies(lost);
        result
    }

    /// Finds the due records that this node does not have in memory. A failure delays the next
    /// search, and no claim.
    async fn find_due(&mut self) {
        let node = self.node.clone();
        let Some(queries) = node.backend.queries() else { return };
        self.search.learn_kinds(&node, self.poll_at).await;
        let kinds = self.search.kinds(&node);
        let kinds: Vec<&str> = kinds.iter().map(|kind| &**kind).collect();
        self.driver.take_inputs();
        let known = self.driver.planner.known_stored();
        let now = {
            let shared = node.shared();
            node.now(&shared)
        };
        let query = self.search.find(&kinds, now, known).node(&node.id);
        let (sent, before) = (node.runtime.now(), node.runtime.wall());
        let time = TimeSource::Store { fallback: before };
        let due = within(&node, "find_due", queries.find_due(query, time)).await;
        let due = match due {
            Ok(due) => due,
            Err(error) => {
                node.store_failed(Part::Search, error);
                self.poll_at = self.search.failed(&node);
                return;
            }
        };
        self.poll_at = later(node.runtime.now(), node.config.poll_interval);
        self.on_contact(sent, before, due.now);
        node.store_answered(Part::Search);
        self.driver.take_inputs();
        let mut events = Vec::new();
        let mut is_new = false;
        for state in &due.found {
            is_new |= self.driver.planner.found(state, whole_millis(due.now), &mut events);
        }
        node.emit(events);
        let records = due.found.len();
        let of_code = due.found.iter().filter(|state| state.kind.is_empty()).count();
        let is_full = records >= query.limit;
        let found =
            Found { now: due.now, next_due: due.next_due, records, of_code, is_full, is_new };
        self.search.answered(&node, found, self.driver.planner.is_losing());
    }

    /// A round trip without an operation: it brings the store's time.
    async fn read_clock(&mut self) -> Result {
        let node = self.node.clone();
        let (sent, before) = (node.runtime.now(), node.runtime.wall());
        let time = TimeSource::Store { fallback: before };
        let applied = within(&node, OP, apply(&node, &*node.backend, time, &[])).await?;
        self.on_contact(sent, before, applied.now);
        node.store_answered(Part::Claims);
        Ok(())
    }

    /// Applies a reply to a request that was sent at `sent`, when the node's wall clock showed
    /// `before`; `now` is the store's time.
    fn on_contact(&mut self, sent: Instant, before: Time, now: Time) {
        let node = self.node.clone();
        self.measure(sent, before, now);
        if matches!(self.subscription, Subscription::Because(_))
            && let Subscription::Because(error) =
                std::mem::replace(&mut self.subscription, Subscription::Reported)
        {
            node.emit([Event::StoreError { error: Arc::new(error) }]);
        }
    }

    /// Updates the estimate of the store's time from one round trip, and compares the clocks.
    fn measure(&mut self, sent: Instant, before: Time, store: Time) {
        let node = &self.node;
        node.on_contact(sent, store);
        let after = node.runtime.wall();
        let off = if store < before {
            store - before
        } else if store > after {
            store - after
        } else {
            TimeDelta::zero()
        };
        let was = std::mem::replace(&mut self.off, off);
        if off.abs() > CLOCK_SKEW && was.abs() <= CLOCK_SKEW {
            let by = off.abs().to_std().unwrap_or_default();
            node.emit([Event::ClockSkew { ahead: off < TimeDelta::zero(), by }]);
        }
    }

    /// Waits before the next request to the store. A stopping scheduler does not wait.
    async fn back_off(&mut self) {
        let wait = self.wait;
        self.wait = (wait * 2).min(MAX_BACKOFF);
        let until = self.node.runtime.now() + wait;
        let mut sleep = self.node.runtime.sleep_until(until);
        while !self.driver.is_stopping() {
            let notified = self.node.claimers[Placement::OneNode].notified();
            match select(sleep, std::pin::pin!(notified)).await {
                Either::Left(_) => return,
                Either::Right((_, rest)) => sleep = rest,
            }
        }
    }
}

/// Sends requests as one batch.
pub(super) async fn apply(
    node: &Node,
    backend: &dyn Backend,
    time: TimeSource,
    requests: &[Request],
) -> Result<Applied> {
    let operations: Vec<Operation<'_>> = requests.iter().map(Request::operation).collect();
    reschedule(backend, Batch::new(&node.id, time, &operations)).await
}

/// Sends a batch, and checks that each operation has a reply.
pub(super) async fn reschedule(backend: &dyn Backend, batch: Batch<'_>) -> Result<Applied> {
    let applied = backend.reschedule(batch).await?;
    let (given, asked) = (applied.replies.len(), batch.operations.len());
    if given != asked {
        let wrong = format!(
            "the backend returned {given} replies to {asked} operations; report it to its author"
        );
        return Err(Error::new(ErrorKind::Other, wrong).op(OP));
    }
    Ok(applied)
}
