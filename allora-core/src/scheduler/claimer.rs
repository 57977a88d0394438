//! The half of a scheduler that claims occurrences: it gets operations from the planner, sends them
//! to the store, and sleeps.

use super::{
    node::{Node, Stop, later},
    notify::yield_now,
    search::{Found, Search},
    within::within,
};
use crate::{
    backend::{Applied, Backend, Batch, Notification, Operation, TimeSource},
    error::{Error, ErrorKind, Result},
    event::Event,
    job::Placement,
    planner::{Answer, Request, Tick},
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

/// The difference between the store's clock and this node's that is reported.
const CLOCK_SKEW: TimeDelta = TimeDelta::seconds(1);

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
}

/// The result of the last subscription to notifications.
enum Subscription {
    No,
    Because(Error),
    Reported,
}

impl Claimer {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        let now = node.runtime.now();
        let search = Search::new(node.backend.queries().is_some());
        Self {
            node,
            notifications: None,
            listen_at: now,
            subscription: Subscription::No,
            search,
            poll_at: now,
            wait: MIN_BACKOFF,
            off: TimeDelta::zero(),
            ready: false,
        }
    }

    /// Claims occurrences until the scheduler is stopped.
    pub(crate) async fn run(mut self) {
        while self.node.shared().stop == Stop::No {
            if let Err(error) = self.tick().await {
                self.node.store_failed(error);
                self.back_off().await;
            }
        }
    }

    async fn tick(&mut self) -> Result {
        self.subscribe().await;
        if !self.ready {
            self.first_read().await?;
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
        let jobs = self.node.shared().planner.len();
        self.node.emit([Event::Ready { node: self.node.id.clone(), jobs }]);
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
                self.node.shared().planner.on_notification(&name);
            }
            Notification::DueAt(at) => self.search.on_notification(at),
            Notification::Changed => self.search.on_notification(Time::MIN_UTC),
        }
    }

    fn plan(&mut self) -> (Tick, ReadScope, Time) {
        let mut events = Vec::new();
        let (mut turn, scope, now) = {
            let mut inside = self.node.shared();
            let now = self.node.now(&inside);
            let room = self.node.config.concurrency.saturating_sub(inside.running);
            let turn = inside.planner.tick(now, room, &mut events);
            inside.full = turn.full;
            if let Some(look_at) = inside.planner.forgotten_due() {
                self.search.by(look_at);
            }
            let poll = self.node.runtime.now() >= self.poll_at;
            // The rest of what is due can wait until the known part is sent.
            let find = self.search.is_due(now) && !turn.more;
            let kinds = self.search.kinds_at().is_some_and(|at| at <= self.node.runtime.now());
            let scope = match poll || find || kinds {
                true if self.search.is_on() => ReadScope::Find,
                true if poll => ReadScope::Poll,
                _ => ReadScope::No,
            };
            (turn, scope, now)
        };
        // Their captured values may have destructors that call the scheduler.
        drop(std::mem::take(&mut turn.removed));
        self.node.emit(events);
        (turn, scope, now)
    }

    /// Sleeps until the next tick: something is due, a notification comes, or capacity is free.
    async fn sleep(&mut self, turn: &Tick, now: Time) {
        let node = self.node.clone();
        let wake_at = turn.wake_at.filter(|_| !turn.full);
        let find_in = (!turn.full).then(|| self.search.due_in(now)).flatten();
        let wake_in = wake_at.map(|at| since(at, now));
        let asleep = node.runtime.now();
        let listen_at = (self.notifications.is_none() && node.backend.notifier().is_some())
            .then_some(self.listen_at);
        let known = [wake_in, find_in].into_iter().flatten().map(|span| later(asleep, span));
        let first = known.chain(listen_at).chain(self.search.kinds_at());
        let first = first.fold(self.poll_at, Instant::min);
        let wake = first.max(asleep) + self.jitter();
        let notification = match &mut self.notifications {
            Some(stream) => stream.next().left_future(),
            None => pending().right_future(),
        };
        let notified = std::pin::pin!(node.claimer.notified());
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
        let node = self.node.clone();
        let (local, shared): (Vec<_>, Vec<_>) =
            requests.into_iter().partition(|request| request.placement == Placement::EveryNode);
        if !local.is_empty() {
            let now = node.now(&node.shared());
            let sent = node.runtime.now();
            let applied = apply(&node, &node.local, TimeSource::Fixed(now), &local).await?;
            self.on_replies(local, applied, sent)?;
        }
        let asked = !shared.is_empty();
        if asked {
            self.ask_store(shared).await?;
        }
        match scope {
            ReadScope::Find => self.find_due().await?,
            ReadScope::Poll if !asked => {
                self.read_clock().await?;
            }
            ReadScope::Poll | ReadScope::No => {}
        }
        if scope == ReadScope::Poll {
            self.poll_at = later(node.runtime.now(), node.config.poll_interval);
        }
        self.wait = MIN_BACKOFF;
        Ok(())
    }

    /// Sends the requests in one round trip.
    async fn ask_store(&mut self, requests: Vec<Request>) -> Result {
        let node = self.node.clone();
        let (sent, before) = (node.runtime.now(), node.runtime.wall());
        let time = TimeSource::Store { fallback: before };
        match within(&node, OP, apply(&node, &*node.backend, time, &requests)).await {
            Ok(applied) => {
                node.shared().planner.on_answer(requests.len());
                self.on_contact(sent, before, applied.now);
                self.on_replies(requests, applied, sent)
            }
            Err(error) => {
                let mut events = Vec::new();
                {
                    let mut shared = node.shared();
                    let now = node.now(&shared);
                    shared.planner.on_timeout(requests.len());
                    shared.planner.on_lost_replies(requests, now, &mut events);
                }
                node.emit(events);
                Err(error)
            }
        }
    }

    /// Finds the due records that this node does not have in memory.
    async fn find_due(&mut self) -> Result {
        let node = self.node.clone();
        let Some(queries) = node.backend.queries() else { return Ok(()) };
        self.search.learn_kinds(&node, self.poll_at).await;
        let kinds = self.search.kinds(&node);
        let kinds: Vec<&str> = kinds.iter().map(|kind| &**kind).collect();
        let query = {
            let shared = node.shared();
            let (known, most) = (shared.planner.known_stored(), shared.planner.window());
            self.search.find(&kinds, node.now(&shared), known, most).node(&node.id)
        };
        let (sent, before) = (node.runtime.now(), node.runtime.wall());
        let time = TimeSource::Store { fallback: before };
        let due = within(&node, "find_due", queries.find_due(query, time)).await;
        let due = due.inspect_err(|_| node.shared().planner.on_timeout(query.limit))?;
        self.on_contact(sent, before, due.now);
        let mut events = Vec::new();
        let mut is_new = false;
        {
            let mut shared = node.shared();
            shared.planner.on_answer(due.found.len());
            for state in &due.found {
                is_new |= shared.planner.found(state, whole_millis(due.now), &mut events);
            }
        }
        self.poll_at = later(node.runtime.now(), node.config.poll_interval);
        node.emit(events);
        let records = due.found.len();
        let of_code = due.found.iter().filter(|state| state.kind.is_empty()).count();
        let is_full = records >= query.limit;
        let found =
            Found { now: due.now, next_due: due.next_due, records, of_code, is_full, is_new };
        self.search.answered(&node, found);
        Ok(())
    }

    /// A round trip without an operation: it brings the store's time.
    async fn read_clock(&mut self) -> Result {
        let node = self.node.clone();
        let (sent, before) = (node.runtime.now(), node.runtime.wall());
        let time = TimeSource::Store { fallback: before };
        let applied = within(&node, OP, apply(&node, &*node.backend, time, &[])).await?;
        self.on_contact(sent, before, applied.now);
        Ok(())
    }

    /// Applies a reply to a request that was sent at `sent`, when the node's wall clock showed
    /// `before`; `now` is the store's time.
    fn on_contact(&mut self, sent: Instant, before: Time, now: Time) {
        let node = self.node.clone();
        node.store_is_up();
        self.measure(sent, before, now);
        if matches!(self.subscription, Subscription::Because(_))
            && let Subscription::Because(error) =
                std::mem::replace(&mut self.subscription, Subscription::Reported)
        {
            node.emit([Event::StoreError { error: Arc::new(error) }]);
        }
    }

    /// Passes the replies to the planner, and starts the claimed runs.
    fn on_replies(&mut self, requests: Vec<Request>, applied: Applied, sent: Instant) -> Result {
        let node = &self.node;
        let now = applied.now;
        let mut events = Vec::new();
        let (mut starts, mut lost, mut failure) = (Vec::new(), Vec::new(), None);
        {
            let mut shared = node.shared();
            for (request, reply) in requests.into_iter().zip(applied.replies) {
                match reply {
                    Ok(reply) => {
                        let answer = Answer::new(reply, whole_millis(now));
                        let answer = answer.min_fence(applied.min_fence);
                        starts.extend(shared.planner.on_reply(request, answer, &mut events));
                    }
                    Err(error) => {
                        lost.push(request);
                        failure = Some(error);
                    }
                }
            }
            let now = node.now(&shared);
            shared.planner.on_lost_replies(lost, now, &mut events);
        }
        node.emit(events);
        node.start(starts, sent, now);
        failure.map_or(Ok(()), Err)
    }

    /// Updates the estimate of the store's time from one round trip.
    fn measure(&mut self, sent: Instant, before: Time, store: Time) {
        let node = &self.node;
        node.shared().clock.observe(sent, node.runtime.now(), store);
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
        while self.node.shared().stop == Stop::No {
            match select(sleep, std::pin::pin!(self.node.claimer.notified())).await {
                Either::Left(_) => return,
                Either::Right((_, rest)) => sleep = rest,
            }
        }
    }
}

/// Sends requests as one batch.
async fn apply(
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
