//! The claimer of jobs that run on one of the nodes: it asks the planner for operations, sends them
//! to the store, and sleeps until something is due.

use super::{
    capacity::Capacity,
    driver::{Driver, apply},
    due_claims::{self, DueClaims},
    on_way::{Answered, Requests},
    search::{Found, Reply, Search},
    search_pace::SearchPace,
    subscription::Subscription,
    unresolved::{Counted, resolve},
    woken_by::WokenBy,
};
use crate::{
    backend::{Applied, Notification, TimeSource},
    condition::{Code, Condition, StorePart},
    error::{ErrorKind, Result},
    event::Event,
    job::Placement,
    name::{is_calendar_record, is_internal, is_key_record},
    notify::yield_now,
    planner::{
        FoundRecords, FoundWork, Input, Planner, QueryReply, Request, Tick, Unfinished, When,
    },
    scheduler::{
        monotonic::later,
        node::{CLOCK_SKEW, Node, Stop},
        store_request::{MAX_BACKOFF, MIN_BACKOFF, OP, within},
        upkeep::pruning::Pruning,
    },
    time::{Time, since, whole_millis},
};
use chrono::TimeDelta;
use futures::{
    FutureExt,
    future::{Either, join, pending, select},
};
use std::{
    future::poll_fn,
    mem,
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

/// The part of the store's time limit after which a request does not keep others waiting.
const PATIENCE: u32 = 8;

/// The longest interval between searches while no notification tells what has changed: an occurrence
/// that an operator resumes or triggers starts within two seconds.
const WITHOUT_NOTIFICATIONS: Duration = Duration::from_millis(1_500);

/// The longest random wait before a claim.
const CLAIM_JITTER: Duration = Duration::from_millis(1);

/// The delay of a timer that is reported.
const TIMER_DELAYED: Duration = Duration::from_secs(1);

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
    requests: Requests,
    /// The time of the last reply to a request with operations, or to a read of the clock.
    answered_at: Option<Instant>,
    subscription: Subscription,
    search: Search,
    due_claims: DueClaims,
    pace: SearchPace,
    pruning: Pruning,
    /// The time of the next poll.
    poll_at: Instant,
    wait: Duration,
    /// The difference between the store's clock and this node's is reported.
    is_off: bool,
    ready: bool,
    /// A request was lost, and the store has answered nothing since.
    has_failed: bool,
    /// The store has refused the last request at once, as one does that is down. Until it answers, only
    /// its clock is read: requests that fail at once would follow each other without an end.
    is_refused: bool,
    /// A request was lost: the ends of this node's runs go before the next claims of the same jobs.
    /// Once for each loss, because the ends may be what the store does not answer.
    ends_go_first: bool,
    capacity: Capacity,
}

impl Claimer {
    pub(crate) fn new(node: Arc<Node>, planner: Planner) -> Self {
        let now = node.runtime.now();
        let search = Search::new(node.clone());
        Self {
            driver: Driver::new(node.clone(), Placement::OneNode, planner),
            node,
            requests: Requests::default(),
            answered_at: None,
            subscription: Subscription::new(now),
            search,
            due_claims: DueClaims::default(),
            pace: SearchPace::new(now),
            pruning: Pruning::new(now),
            poll_at: now,
            wait: MIN_BACKOFF,
            is_off: false,
            ready: false,
            has_failed: false,
            is_refused: false,
            ends_go_first: false,
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
                    (self.has_failed, self.ends_go_first) = (true, true);
                    self.node.store_failed(StorePart::Claims, &error);
                    self.back_off().await;
                }
            }
        }
        while self.requests.has_any() {
            poll_fn(|cx| self.requests.poll(cx)).await;
            let _ = self.take_replies();
        }
        // The requests beside the claims are dropped: a stopping node needs no reply to them.
        let Self { node, driver, due_claims, .. } = self;
        let Unfinished { releases, queries } = driver.stop();
        // A query that has no reply does not keep what is known from its release.
        let known = resolve(&node, releases, Counted::of(Placement::OneNode));
        join(known, due_claims.resolve(&node, queries)).await;
    }

    async fn tick(&mut self) -> Result {
        // Before the first read, so that a store which answers in time sends every notification.
        if self.subscription.renew(&self.node) {
            self.search.at_once();
            self.node.board.seen().is_subscribed = true;
            self.node.end_condition(Code::NotificationsDown, "");
        }
        if !self.ready {
            self.first_read().await?;
        }
        if self.has_failed && self.is_refused {
            self.read_clock().await?;
        }
        if mem::take(&mut self.ends_go_first) {
            // Claims would record these runs as lost, or as expired.
            self.driver.hold_all_overdue();
        }
        while let Some(notification) = self.subscription.take() {
            self.on_notification(notification);
        }
        if let Some(reply) = self.due_claims.take() {
            self.on_claimed_due(reply);
        }
        if let Some(reply) = self.search.take() {
            self.on_found(reply);
        }
        self.take_replies()?;
        self.pruning.renew(&self.node);
        let was_claiming = self.driver.status.is_claiming_due;
        // A store whose replies are always ready must not block the executor. And an executor may keep
        // the task that was woken last for this thread, as tokio does; `next_at` may block the thread.
        let before = self.node.runtime.now();
        yield_now().await;
        if self.node.runtime.now().saturating_duration_since(before) > TIMER_DELAYED {
            // The process was stopped meanwhile: the ends of its runs go before claims of the same
            // jobs.
            self.driver.hold_all_overdue();
        }
        let (turn, scope, now) = self.plan();
        if let Some(query) = turn.query {
            if !was_claiming {
                self.pace.claims_begin(self.node.runtime.now());
            }
            let (kinds, router) = (self.search.stored_kinds(), self.node.router());
            let kinds: Vec<_> = kinds.filter(|kind| !router.is_limited(kind)).collect();
            match kinds.is_empty() && !query.is_repeated {
                // The node has run out of kinds since it has found something for the query.
                true => {
                    let reply = QueryReply::Rejected;
                    self.driver.apply(Input::Queried { is_repeated: false, reply });
                }
                false => self.due_claims.begin(&self.node, query, kinds),
            }
        }
        if turn.requests.is_empty() && scope == ReadScope::No {
            self.sleep(&turn, now).await;
            return Ok(());
        }
        self.ask(turn.requests, turn.are_suspects, scope).await
    }

    /// Awaits `call`, while the requests beside the claims go on.
    async fn beside<T>(&mut self, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        poll_fn(|cx| {
            let result = call.as_mut().poll(cx);
            if result.is_pending() {
                let _ = self.poll_others(cx);
            }
            result
        })
        .await
    }

    /// Ready if a request beside the claims has a reply, or a notification has come.
    fn poll_others(&mut self, cx: &mut Context<'_>) -> Poll<WokenBy> {
        let notified = self.subscription.poll(cx);
        let replies = [
            self.requests.poll(cx),
            self.search.poll(cx),
            self.due_claims.poll(cx),
            self.pruning.poll(cx),
        ];
        if notified.is_ready() {
            Poll::Ready(WokenBy::Notification)
        } else if replies.iter().any(Poll::is_ready) {
            Poll::Ready(WokenBy::Reply)
        } else {
            Poll::Pending
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

    fn on_notification(&mut self, notification: Notification) {
        if let Notification::Cancel(name) = &notification {
            self.node.extend_now(name);
        }
        match notification {
            Notification::Job(name) if is_key_record(&name) => {
                self.node.key_is_free(Some(&Arc::from(name)));
            }
            Notification::Job(name) if is_calendar_record(&name) => self.node.calendars.on_change(),
            Notification::Job(name) if is_internal(&name) => {}
            Notification::Job(name) | Notification::Cancel(name) => {
                self.search.on_change();
                // It has no destructor of the user.
                let input = Input::Changed(name.into());
                let _ = self.node.shared().inboxes[Placement::OneNode].push(input);
            }
            Notification::DueAt(at) => self.search.on_notification(When::At(at)),
            Notification::Changed => {
                self.search.on_notification(When::Next);
                self.node.key_is_free(None);
            }
        }
    }

    fn plan(&mut self) -> (Tick, ReadScope, Time) {
        self.driver.on_way = self.requests.load();
        let (mut turn, now) = self.driver.tick(self.subscription.is_on());
        let mono = self.node.runtime.now();
        if let Some(event) = self.capacity.observe(turn.full, self.node.config.concurrency, mono) {
            self.node.emit([event]);
        }
        self.search.renew(mem::take(&mut turn.at_limit));
        if let Some(search_by) = turn.search_by {
            self.search.stored_by(search_by);
        }
        let poll = mono >= self.poll_at;
        // The rest of what is due can wait until the known part is sent, or has a place. But what is
        // due next comes before what follows it.
        let is_known = turn.more && !turn.full || turn.full && self.search.has_enough();
        let find = self.search.is_due(now, mono) && !is_known && self.may_search(turn.full, mono);
        let kinds = self.search.kinds_at().is_some_and(|at| at <= mono);
        let scope = match poll || find || kinds {
            true if self.search.has_begun() => ReadScope::No,
            true if self.search.is_on() => ReadScope::Find,
            true if poll => ReadScope::Poll,
            _ => ReadScope::No,
        };
        (turn, scope, now)
    }

    /// The time of the next poll, after one or after a search.
    fn next_poll(&self) -> Instant {
        let interval = self.node.config.poll_interval;
        let is_told = self.subscription.is_on() || !self.search.is_on();
        let interval = if is_told { interval } else { interval.min(WITHOUT_NOTIFICATIONS) };
        later(self.node.runtime.now(), interval)
    }

    /// `false` if queries claim what a search has found, until the next poll; and before this time.
    fn may_search(&self, is_full: bool, mono: Instant) -> bool {
        !self.driver.status.knows_due && self.search_from(is_full) <= mono
    }

    /// The earliest time of the next search, except by polling.
    fn search_from(&self, is_full: bool) -> Instant {
        let is_busy = is_full || self.driver.status.is_claiming_due;
        self.pace.next(is_busy, self.node.config.poll_interval)
    }

    /// Sleeps until the next tick: something is due, a notification or a reply comes, or capacity is
    /// free.
    async fn sleep(&mut self, turn: &Tick, now: Time) {
        let node = self.node.clone();
        let asleep = node.runtime.now();
        let due_in = turn.wake_at.map(|at| since(at, now));
        let known = due_in.map(|span| later(asleep, span));
        let known = known.into_iter().chain(self.subscription.renew_at(&node));
        let first = known.chain(self.capacity.report_at()).chain(self.search_at(turn, now)).min();
        let wake = first.map(|first| first.max(asleep) + self.jitter());
        let timed_by = if first == Some(self.poll_at) { WokenBy::Poll } else { WokenBy::Timer };
        node.metrics.next_due(turn.wake_at.into_iter().chain(self.search.next_at()).min());
        let mut timer = match wake {
            Some(wake) => node.runtime.sleep_until(wake),
            None => pending().boxed(),
        };
        let mut notified = pin!(node.claimers[Placement::OneNode].notified());
        let woken = poll_fn(|cx| {
            if timer.as_mut().poll(cx).is_ready() {
                return Poll::Ready(timed_by);
            }
            let others = self.poll_others(cx);
            let by_node = notified.as_mut().poll(cx).map(|()| WokenBy::Node);
            if others.is_ready() { others } else { by_node }
        });
        let woken_by = woken.await;
        node.metrics.woken(woken_by.word());
        if let (true, Some(wake)) = (woken_by == timed_by, wake) {
            let late = node.runtime.now().saturating_duration_since(wake);
            if late > TIMER_DELAYED {
                node.emit([Event::TimerDelayed { by: late }]);
            }
        }
    }

    /// The time of the next search or poll, unless a search is on its way.
    fn search_at(&self, turn: &Tick, now: Time) -> Option<Instant> {
        if self.search.has_begun() {
            return None;
        }
        let mono = self.node.runtime.now();
        let is_known = turn.full && self.search.has_enough();
        let find_in = (!is_known).then(|| self.search.due_in(now, mono)).flatten();
        let find_at = find_in.map(|span| later(mono, span));
        let find_at = find_at.filter(|_| !self.driver.status.knows_due);
        let find_at = find_at.map(|at| at.max(self.search_from(turn.full)));
        let times = find_at.into_iter().chain(self.search.kinds_at());
        Some(times.fold(self.poll_at, Instant::min))
    }

    /// A random wait, longer on a busy node. It varies the order in which nodes act whose timers
    /// fire at the same time.
    fn jitter(&self) -> Duration {
        let node = &self.node;
        let load = node.shared().running as f64 / node.config.concurrency.max(1) as f64;
        let drawn = (node.runtime.random() >> 11) as f64 / (1u64 << 53) as f64;
        CLAIM_JITTER.mul_f64((drawn + load.min(1.0)) / 2.0)
    }

    async fn ask(
        &mut self,
        requests: Vec<Request>,
        are_suspects: bool,
        scope: ReadScope,
    ) -> Result {
        let asked = !requests.is_empty();
        if asked {
            self.send(requests, are_suspects).await;
        }
        let result = self.take_replies();
        match scope {
            // After the replies, which may show what it would find.
            ReadScope::Find => self.find_due(),
            ReadScope::Poll if result.is_ok() => {
                if !asked {
                    self.read_clock().await?;
                }
                self.poll_at = self.next_poll();
            }
            ReadScope::Poll | ReadScope::No => {}
        }
        result
    }

    /// Sends a request, and waits for its reply for a while. Nothing waits for one about jobs whose
    /// operations fail.
    async fn send(&mut self, requests: Vec<Request>, are_suspects: bool) {
        let node = self.node.clone();
        let number = self.requests.begin(&node, requests, are_suspects);
        if are_suspects {
            return;
        }
        let until = later(node.runtime.now(), node.config.store_timeout / PATIENCE);
        let mut timer = None;
        poll_fn(|cx| {
            let _ = self.poll_others(cx);
            let is_full = self.requests.is_full();
            if self.requests.is_answered(number) || is_full && self.requests.has_reply() {
                return Poll::Ready(());
            }
            if is_full {
                return Poll::Pending;
            }
            let timer = timer.get_or_insert_with(|| node.runtime.sleep_until(until));
            timer.as_mut().poll(cx)
        })
        .await;
    }

    /// Applies the replies that have come.
    ///
    /// # Errors
    /// If the store has refused a request at once, and has answered nothing since. One about jobs whose
    /// operations fail delays no other.
    fn take_replies(&mut self) -> Result {
        let mut result = Ok(());
        for answered in self.requests.take() {
            let Answered { requests, are_suspects, load, sent, before, result: reply, .. } =
                answered;
            let node = self.node.clone();
            let claims = requests.iter().filter(|request| request.claims_occurrence()).count();
            node.metrics.claimed(claims, node.runtime.now().saturating_duration_since(sent));
            let is_late = self.answered_at.is_some_and(|at| at > sent);
            match reply {
                Ok(applied) => {
                    self.on_applied(requests, applied, sent, before);
                    self.was_answered();
                }
                Err(error) => {
                    let load = (!are_suspects || !is_late).then_some(load);
                    self.driver.on_lost(Input::TimedOut { requests, load });
                    self.has_failed |= !is_late;
                    self.ends_go_first |= !is_late;
                    let took = node.runtime.now().saturating_duration_since(sent);
                    self.is_refused = self.has_failed && took < node.config.store_timeout / 2;
                    // One that was not answered in time has waited long enough.
                    match self.is_refused && !are_suspects && !is_late {
                        true => result = Err(error),
                        false => node.store_failed(StorePart::Claims, &error),
                    }
                }
            }
        }
        result
    }

    /// The store has answered: an outage is over.
    fn was_answered(&mut self) {
        self.answered_at = Some(self.node.runtime.now());
        (self.wait, self.has_failed) = (MIN_BACKOFF, false);
    }

    fn on_applied(
        &mut self,
        requests: Vec<Request>,
        applied: Applied,
        sent: Instant,
        before: Time,
    ) {
        self.node.wrote();
        self.on_contact(sent, before, applied.now);
        // Operations that fail while others do not are repeated after waits of their own.
        match self.driver.on_replies(requests, applied, sent) {
            Ok(()) => self.answered(),
            Err(error) => self.node.store_failed(StorePart::Claims, &error),
        }
    }

    /// Notes that the store has replied, unless it does not reply about some job.
    fn answered(&self) {
        if !self.driver.status.is_failing {
            self.node.store_answered(StorePart::Claims);
        }
    }

    /// Searches the due records that this node does not have in memory.
    fn find_due(&mut self) {
        let Some(search) = self.driver.apply(Input::Search).search else { return };
        self.pace.begins(self.node.runtime.now());
        self.search.begin(&self.node, self.poll_at, search);
    }

    /// Applies the replies to a search. A failure delays the next search, and no claim.
    fn on_found(&mut self, reply: Reply) {
        let node = self.node.clone();
        let Reply { kinds, due, limit, number, is_whole, has_stored, is_first, wall } = reply;
        match kinds {
            Some(Ok(kinds)) => self.search.learn_kinds(&node, kinds),
            Some(Err(error)) => {
                self.search.kinds_failed();
                node.store_failed(StorePart::Search, &error);
            }
            None => {}
        }
        let due = match due {
            Ok(due) => due,
            Err(error) => {
                node.store_failed(StorePart::Search, &error);
                let took = self.pace.since_begin(node.runtime.now());
                let is_refused = took < node.config.store_timeout / 2;
                self.poll_at = self.search.failed(&node, is_refused);
                self.driver.apply(Input::SearchFailed);
                return;
            }
        };
        self.pace.ends(node.runtime.now());
        // A page of one part says nothing of the other, which is polled all the same.
        if !self.search.is_in_parts() || node.runtime.now() >= self.poll_at {
            self.poll_at = self.next_poll();
        }
        self.compare_clocks(wall, due.now);
        node.store_answered(StorePart::Search);
        if !self.has_failed {
            self.answered();
        }
        let (now, next_due, records) = (due.now, due.next_due, due.found.len());
        let is_full = records >= limit;
        let of_code = due.found.iter().filter(|state| state.kind.is_empty()).count();
        let kinds = has_stored.then(|| self.search.stored_kinds().count());
        let found = FoundRecords {
            states: due.found,
            now: whole_millis(now),
            number,
            is_full,
            kinds,
            is_first,
            is_whole,
        };
        let Some(work) = self.driver.apply(Input::Found(found)).found else { return };
        let claimed_at = work.claimed_at.filter(|_| has_stored && next_due.is_some());
        let work = FoundWork { claimed_at, ..work };
        let found = Found { now, next_due, records, of_code, is_full, work };
        self.search.answered(&node, found);
    }

    /// Applies the reply to a query that claims, and starts the claimed runs.
    fn on_claimed_due(&mut self, reply: due_claims::Reply) {
        let node = self.node.clone();
        let due_claims::Reply { result, is_repeated, sent, before } = reply;
        match result {
            Ok(due) => {
                let (now, claims) = (due.now, due.claimed.len());
                node.metrics.claimed(claims, node.runtime.now().saturating_duration_since(sent));
                node.wrote();
                self.on_contact(sent, before, now);
                let reply = QueryReply::Claimed(due);
                let output = self.driver.apply(Input::Queried { is_repeated, reply });
                self.answered();
                if self.driver.status.was_shared {
                    self.pace.was_shared(node.runtime.now());
                }
                self.driver.start(output.starts, sent, now);
            }
            Err(error) => {
                let reply = match error.kind() {
                    ErrorKind::Unavailable => QueryReply::Lost,
                    _ => QueryReply::Rejected,
                };
                self.driver.apply(Input::Queried { is_repeated, reply });
                node.store_failed(StorePart::Claims, &error);
            }
        }
    }

    /// A round trip without an operation: it brings the store's time.
    async fn read_clock(&mut self) -> Result {
        let node = self.node.clone();
        let (sent, before) = (node.runtime.now(), node.runtime.wall());
        let time = TimeSource::Store { fallback: before };
        let call = within(&node, OP, apply(&node, &*node.backend, time, &[]));
        let applied = self.beside(call).await?;
        self.on_contact(sent, before, applied.now);
        self.answered();
        self.was_answered();
        Ok(())
    }

    /// Applies the store's time `now` in a reply to a request that was sent at `sent`, when the
    /// node's wall clock showed `before`.
    fn on_contact(&mut self, sent: Instant, before: Time, now: Time) {
        self.node.on_contact(sent, now);
        self.compare_clocks((before, self.node.runtime.wall()), now);
    }

    /// Compares the store's time in a reply with the node's wall clock before the request and after
    /// the reply.
    fn compare_clocks(&mut self, (before, after): (Time, Time), store: Time) {
        let off = if store < before {
            store - before
        } else if store > after {
            store - after
        } else {
            TimeDelta::zero()
        };
        self.node.metrics.clock_offset(-off);
        let offset_ms = -off.num_milliseconds();
        self.node.board.seen().clock_offset_ms = Some(offset_ms);
        let is_off = self.is_off;
        // It ends at half of the difference at which it starts, so that it does not flicker.
        self.is_off = off.abs() > if is_off { CLOCK_SKEW / 2 } else { CLOCK_SKEW };
        match (is_off, self.is_off) {
            (_, true) => self.node.begin_condition(Condition::ClockSkew { offset_ms }),
            (true, false) => self.node.end_condition(Code::ClockSkew, ""),
            (false, false) => {}
        }
        if let Some(error) = self.subscription.failure_to_report() {
            self.node.begin_condition(Condition::NotificationsDown { error: error.chain() });
        }
    }

    /// Waits before the next request to the store. A stopping scheduler does not wait.
    async fn back_off(&mut self) {
        let node = self.node.clone();
        let wait = self.wait;
        self.wait = (wait * 2).min(MAX_BACKOFF);
        let mut sleep = node.runtime.sleep_until(node.runtime.now() + wait);
        let wait = async {
            while node.shared().stop == Stop::No {
                let notified = node.claimers[Placement::OneNode].notified();
                match select(sleep, pin!(notified)).await {
                    Either::Left(_) => return,
                    Either::Right((_, rest)) => sleep = rest,
                }
            }
        };
        self.beside(wait).await;
    }
}
