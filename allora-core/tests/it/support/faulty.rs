//! A store with programmed faults: any backend, with requests and replies lost, late and doubled.

use allora_conformance::faults::{Hooks, Wrapped};
use allora_core::{
    Backend, Error, ErrorKind, Result, Runtime,
    backend::{
        Action, Applied, Batch, ClaimDue, ClaimedDue, Completion, Due, DueQuery, Notification,
        Notifier, Operation, Queries, Reply, RetryCause, TimeSource,
    },
};
use async_trait::async_trait;
use futures::{
    future::pending,
    stream::{self, BoxStream, StreamExt as _},
};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// The rates of the faults, per thousand calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rates {
    /// The request is lost.
    pub(crate) lose_request: u64,
    /// The store applies the request, and the reply is lost.
    pub(crate) lose_reply: u64,
    /// The store returns an error, and does nothing.
    pub(crate) refuse: u64,
    /// The store does it twice.
    pub(crate) double: u64,
    /// The store does it long after the caller has given up.
    pub(crate) linger: u64,
    /// It takes up to the delay, on both ways.
    pub(crate) delay: u64,
    /// The longest delay of one way, in milliseconds.
    pub(crate) delay_ms: u64,
}

/// Selects operations.
pub(crate) type Which = fn(&Operation<'_>) -> bool;

/// The switches of one node's way to the store, and what went over it.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    rates: Mutex<Rates>,
    /// Every call is refused.
    pub(crate) down: AtomicBool,
    /// It answers, and refuses everything.
    pub(crate) refuses: AtomicBool,
    /// No call is answered; what is asked is done nevertheless.
    pub(crate) deaf: AtomicBool,
    /// It does not notify anybody.
    pub(crate) is_silent: AtomicBool,
    /// It does not notify those that have subscribed.
    pub(crate) loses_notifications: AtomicBool,
    /// The time that it needs for each operation of a batch. A call that is abandoned meanwhile is
    /// not done.
    pub(crate) per_operation: Mutex<Duration>,
    /// No claim is answered; it is done nevertheless.
    pub(crate) deaf_to_claims: AtomicBool,
    /// No query that claims reaches the store.
    pub(crate) loses_queries: AtomicBool,
    /// No query that claims is answered; it is done nevertheless.
    pub(crate) deaf_to_queries: AtomicBool,
    /// The store has no query that claims. Read when the scheduler is built.
    pub(crate) has_no_due_claims: AtomicBool,
    /// The claims of occurrences that were answered, and those of them that started no run.
    pub(crate) claims: AtomicU64,
    pub(crate) failed_claims: AtomicU64,
    /// Every query that claims is rejected.
    pub(crate) rejects_queries: AtomicBool,
    /// No search is answered.
    pub(crate) deaf_to_searches: AtomicBool,
    /// No request to prune is answered.
    pub(crate) deaf_to_pruning: AtomicBool,
    /// Every request to prune is refused.
    pub(crate) refuses_pruning: AtomicBool,
    /// The number of requests to prune that were answered.
    pub(crate) pruned: AtomicU64,
    /// No write of a node's record is answered.
    pub(crate) deaf_to_registry: AtomicBool,
    /// Every write of a node's record is refused.
    pub(crate) refuses_registry: AtomicBool,
    /// No read of a named calendar is answered, if its name begins so.
    pub(crate) deaf_to_calendars: Mutex<Option<String>>,
    /// No subscription to notifications is answered.
    pub(crate) deaf_to_subscriptions: AtomicBool,
    /// The time that a subscription takes, in milliseconds.
    pub(crate) subscription_ms: AtomicU64,
    /// The number of subscriptions that have begun.
    pub(crate) subscriptions: AtomicU64,
    /// No batch with such an operation is answered. The other operations of the batch are done.
    pub(crate) hangs: Mutex<Option<Which>>,
    /// Such operations are rejected, each by itself.
    pub(crate) rejects: Mutex<Option<Which>>,
    /// Each batch with such an operation is rejected.
    pub(crate) rejects_batches: Mutex<Option<Which>>,
    /// No extension or end of a run of this job reaches the store.
    pub(crate) mute: Mutex<Option<String>>,
    pub(crate) calls: AtomicU64,
    pub(crate) lost_claims: AtomicU64,
    pub(crate) updates: AtomicU64,
    /// The number of operations in all batches.
    pub(crate) operations: AtomicU64,
    /// The first request in which the planner had two operations for a name; of keys, it may have several.
    pub(crate) doubled: Mutex<Option<String>>,
}

impl Faults {
    pub(crate) fn set(&self, rates: Rates) {
        *self.rates.lock().unwrap() = rates;
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Relaxed)
    }
}

/// One node's way to the store.
#[derive(Debug)]
pub(crate) struct Faulty {
    runtime: Arc<dyn Runtime>,
    faults: Arc<Faults>,
}

/// The fate of one call.
enum Fate {
    Answered,
    RequestLost,
    ReplyLost,
    Doubled,
    Lingers(Duration),
}

impl Faulty {
    /// The way to `store`.
    pub(crate) fn to(
        store: impl Backend,
        runtime: Arc<dyn Runtime>,
        faults: Arc<Faults>,
    ) -> Wrapped<Self> {
        Wrapped::around(store, Self { runtime, faults })
    }

    async fn sleep(&self, span: Duration) {
        if !span.is_zero() {
            self.runtime.sleep_until(self.runtime.now() + span).await;
        }
    }

    fn draw(&self, below: u64) -> u64 {
        self.runtime.random() % below.max(1)
    }

    fn count_claims(&self, batch: &Batch<'_>, applied: &Result<Applied>) {
        let replies = applied.iter().flat_map(|applied| &applied.replies);
        let claims = batch.operations.iter().zip(replies);
        for (_, reply) in claims.filter(|(one, _)| matches!(one.action, Action::Claim(_))) {
            self.faults.claims.fetch_add(1, Relaxed);
            let has_failed = !matches!(reply, Ok(Reply::Claimed(_)));
            self.faults.failed_claims.fetch_add(u64::from(has_failed), Relaxed);
        }
    }

    /// The fate of this call, and its delays on the way there and back.
    fn fate(&self) -> Result<(Fate, Duration, Duration)> {
        self.faults.calls.fetch_add(1, Relaxed);
        let down = || Error::new(ErrorKind::Unavailable, "the store is down");
        if self.faults.down.load(Relaxed) {
            return Err(down());
        }
        if self.faults.refuses.load(Relaxed) {
            return Err(Error::new(ErrorKind::Other, "the store was emptied"));
        }
        let rates = *self.faults.rates.lock().unwrap();
        let way = || match rates.delay > 0 && self.draw(1_000) < rates.delay {
            true => Duration::from_millis(self.draw(rates.delay_ms + 1)),
            false => Duration::ZERO,
        };
        let (there, back) = (way(), way());
        if self.faults.deaf.load(Relaxed) {
            return Ok((Fate::ReplyLost, there, back));
        }
        if rates == Rates::default() {
            return Ok((Fate::Answered, there, back));
        }
        let mut drawn = self.draw(1_000);
        let mut hit = |rate: u64| {
            let hit = drawn < rate;
            drawn = if hit { u64::MAX } else { drawn - rate };
            hit
        };
        // Each rate is a slice of the thousand.
        let fate = if hit(rates.refuse) {
            return Err(down());
        } else if hit(rates.lose_request) {
            Fate::RequestLost
        } else if hit(rates.lose_reply) {
            Fate::ReplyLost
        } else if hit(rates.double) {
            Fate::Doubled
        } else if hit(rates.linger) {
            Fate::Lingers(Duration::from_millis(self.draw(30_000)))
        } else {
            Fate::Answered
        };
        Ok((fate, there, back))
    }
}

#[async_trait]
impl Hooks for Faulty {
    async fn reschedule(&self, store: &Arc<dyn Backend>, batch: Batch<'_>) -> Result<Applied> {
        self.faults.operations.fetch_add(batch.operations.len() as u64, Relaxed);
        let hangs = *self.faults.hangs.lock().unwrap();
        if let Some(hangs) = hangs.filter(|hangs| batch.operations.iter().any(hangs)) {
            self.faults.calls.fetch_add(1, Relaxed);
            let others: Vec<_> =
                batch.operations.iter().filter(|one| !hangs(one)).cloned().collect();
            store.reschedule(Batch::new(batch.node, batch.time, &others)).await?;
            return pending().await;
        }
        let rejects = *self.faults.rejects_batches.lock().unwrap();
        if rejects.is_some_and(|rejects| batch.operations.iter().any(rejects)) {
            self.faults.calls.fetch_add(1, Relaxed);
            return Err(Error::new(ErrorKind::Other, "the disk of this row is broken"));
        }
        let rejects = *self.faults.rejects.lock().unwrap();
        if let Some(rejects) = rejects.filter(|rejects| batch.operations.iter().any(rejects)) {
            self.faults.calls.fetch_add(1, Relaxed);
            let others: Vec<_> =
                batch.operations.iter().filter(|one| !rejects(one)).cloned().collect();
            let others = Batch::new(batch.node, batch.time, &others);
            let mut applied = store.reschedule(others).await?;
            let mut replies = std::mem::take(&mut applied.replies).into_iter();
            let rejected = || Err(Error::new(ErrorKind::Other, "the disk of this row is broken"));
            let all = batch.operations.iter().map(|one| match rejects(one) {
                true => rejected(),
                false => replies.next().unwrap(),
            });
            applied.replies = all.collect();
            return Ok(applied);
        }
        let is_update = batch.operations.iter().any(|operation| is_update(&operation.action));
        if is_update {
            self.faults.updates.fetch_add(1, Relaxed);
            let mute = self.faults.mute.lock().unwrap().clone();
            if mute.is_some_and(|name| batch.operations.iter().any(|one| one.name == name)) {
                return pending().await;
            }
        } else {
            // Several jobs may have the same concurrency key, and what a query has claimed goes its own way.
            let is_apart = |one: &&Operation<'_>| match one.action {
                Action::ClaimKey(_) | Action::ReleaseKey { .. } => true,
                Action::Advance(advance) => advance.holder.is_some(),
                // Before a release, its record may be read.
                Action::Extend { .. } | Action::Release { .. } | Action::Read => true,
                _ => false,
            };
            let others: Vec<_> = batch.operations.iter().filter(|one| !is_apart(one)).collect();
            let mut names: Vec<_> = others.iter().map(|one| one.name).collect();
            names.sort_unstable();
            if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
                let both: Vec<_> = others.iter().filter(|one| one.name == pair[0]).collect();
                let told = format!("two plans for one name in one request: {both:?}");
                self.faults.doubled.lock().unwrap().get_or_insert(told);
            }
        }
        if batch.operations.iter().any(|one| one.name.starts_with("allora:node:")) {
            if self.faults.deaf_to_registry.load(Relaxed) {
                return pending().await;
            }
            if self.faults.refuses_registry.load(Relaxed) {
                return Err(Error::new(ErrorKind::Other, "this role may not write"));
            }
        }
        let deaf_to = self.faults.deaf_to_calendars.lock().unwrap().clone();
        if let Some(calendars) = deaf_to.map(|name| format!("allora:calendar:{name}"))
            && batch.operations.iter().any(|one| one.name.starts_with(&calendars))
        {
            return pending().await;
        }
        let claims = batch
            .operations
            .iter()
            .any(|one| matches!(one.action, Action::Claim(_) | Action::ClaimKey(_)));
        let slow = *self.faults.per_operation.lock().unwrap();
        self.sleep(slow * batch.operations.len() as u32).await;
        let (mut fate, there, back) = self.fate()?;
        if claims && self.faults.deaf_to_claims.load(Relaxed) {
            fate = Fate::ReplyLost;
        }
        self.sleep(there).await;
        match fate {
            Fate::Answered => {
                let applied = store.reschedule(batch).await;
                self.count_claims(&batch, &applied);
                self.sleep(back).await;
                applied
            }
            Fate::Doubled => {
                store.reschedule(batch).await?;
                store.reschedule(batch).await
            }
            Fate::RequestLost => pending().await,
            Fate::ReplyLost => {
                store.reschedule(batch).await?;
                self.faults.lost_claims.fetch_add(u64::from(claims), Relaxed);
                pending().await
            }
            Fate::Lingers(after) => {
                let kept = batch.operations.iter().filter_map(owned).collect::<Vec<_>>();
                let (store, runtime) = (store.clone(), self.runtime.clone());
                let (node, time) = (batch.node.to_owned(), batch.time);
                self.runtime.spawn(Box::pin(async move {
                    runtime.sleep_until(runtime.now() + after).await;
                    let operations: Vec<_> = kept
                        .iter()
                        .map(|(name, action)| Operation::new(name, action.clone()))
                        .collect();
                    let _ = store.reschedule(Batch::new(&node, time, &operations)).await;
                }));
                pending().await
            }
        }
    }

    async fn prune(&self, store: &dyn Backend, time: TimeSource) -> Result {
        if self.faults.deaf_to_pruning.load(Relaxed) {
            return pending().await;
        }
        if self.faults.refuses_pruning.load(Relaxed) {
            return Err(Error::new(ErrorKind::Other, "this role may not delete"));
        }
        self.faults.pruned.fetch_add(1, Relaxed);
        store.prune(time).await
    }

    fn has_notifier(&self) -> bool {
        !self.faults.is_silent.load(Relaxed)
    }

    async fn subscribe(&self, store: &dyn Notifier) -> Result<BoxStream<'static, Notification>> {
        if self.faults.deaf_to_subscriptions.load(Relaxed) {
            return pending().await;
        }
        self.sleep(Duration::from_millis(self.faults.subscription_ms.load(Relaxed))).await;
        let stream = store.subscribe().await;
        self.faults.subscriptions.fetch_add(1, Relaxed);
        match self.faults.loses_notifications.load(Relaxed) {
            true => Ok(stream::pending().boxed()),
            false => stream,
        }
    }

    async fn find_due(
        &self,
        store: &dyn Queries,
        query: DueQuery<'_>,
        time: TimeSource,
    ) -> Result<Due> {
        if self.faults.deaf_to_searches.load(Relaxed) {
            return pending().await;
        }
        let (fate, there, back) = self.fate()?;
        self.sleep(there).await;
        match fate {
            Fate::Answered | Fate::Doubled => {
                let due = store.find_due(query, time).await;
                self.sleep(back).await;
                due
            }
            Fate::RequestLost | Fate::ReplyLost | Fate::Lingers(_) => pending().await,
        }
    }

    fn claims_due(&self, store: &dyn Queries) -> bool {
        store.claims_due() && !self.faults.has_no_due_claims.load(Relaxed)
    }

    async fn claim_due(
        &self,
        store: &dyn Queries,
        query: ClaimDue<'_>,
        time: TimeSource,
    ) -> Result<ClaimedDue> {
        if self.faults.rejects_queries.load(Relaxed) {
            return Err(Error::new(ErrorKind::Other, "this role may not claim"));
        }
        if self.faults.loses_queries.load(Relaxed) {
            return pending().await;
        }
        let slow = *self.faults.per_operation.lock().unwrap();
        self.sleep(slow * if query.is_repeated { 1 } else { query.limit as u32 }).await;
        let (mut fate, there, back) = self.fate()?;
        if self.faults.deaf_to_queries.load(Relaxed) {
            fate = Fate::ReplyLost;
        }
        self.sleep(there).await;
        let fate = match self.faults.deaf_to_claims.load(Relaxed) {
            true => Fate::ReplyLost,
            false => fate,
        };
        if let Fate::Lingers(late) = fate {
            self.sleep(late).await;
        }
        let reply = match fate {
            Fate::RequestLost => return pending().await,
            _ => store.claim_due(query, time).await,
        };
        match fate {
            Fate::Answered | Fate::Doubled => {
                self.sleep(back).await;
                reply
            }
            _ => pending().await,
        }
    }
}

/// `true` if it is an extension or an end of a run.
fn is_update(action: &Action<'_>) -> bool {
    matches!(
        action,
        Action::Extend { .. }
            | Action::Complete { .. }
            | Action::Retry { .. }
            | Action::Release { .. }
    )
}

/// The operations that can be applied later; the others are lost.
fn owned(operation: &Operation<'_>) -> Option<(String, Action<'static>)> {
    let action = match &operation.action {
        Action::Claim(claim) => Action::Claim(claim.clone()),
        Action::Advance(advance) => Action::Advance(*advance),
        Action::Reap => Action::Reap,
        Action::Extend { fence, duration } => Action::Extend { fence: *fence, duration: *duration },
        Action::Release { fence } => Action::Release { fence: *fence },
        Action::Retry { fence, not_before, .. } => Action::Retry {
            fence: *fence,
            not_before: *not_before,
            cause: RetryCause::Failed("failed"),
        },
        Action::Complete { fence, then, completion } => {
            let completion = match completion {
                Completion::Succeeded => Completion::Succeeded,
                Completion::Cancelled => Completion::Cancelled,
                Completion::Failed(_) => Completion::Failed("failed"),
                Completion::Dead(_) => Completion::Dead("failed"),
            };
            Action::Complete { fence: *fence, then: *then, completion }
        }
        _ => return None,
    };
    Some((operation.name.to_owned(), action))
}
