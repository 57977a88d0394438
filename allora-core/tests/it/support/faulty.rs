//! A store that fails as told: any backend, with requests and replies lost, late and doubled.

use allora_core::{
    Backend, Error, Kind, Result, Runtime,
    backend::{
        Act, End, Ended, Ending, History, Leases, Plan, Reschedule, Rescheduled, Schedules, Settle,
        Settled, Watch,
    },
};
use async_trait::async_trait;
use futures::future::pending;
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// How often what goes wrong, each of a thousand calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rates {
    /// The store never hears of it.
    pub(crate) lose_request: u64,
    /// The store does it and nobody is told.
    pub(crate) lose_reply: u64,
    /// The store says no, and does nothing.
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
    /// No take is answered; it is done nevertheless.
    pub(crate) deaf_to_takes: AtomicBool,
    /// No ending or extension of this job's is heard by the store.
    pub(crate) mute: Mutex<Option<String>>,
    pub(crate) calls: AtomicU64,
    pub(crate) lost_takes: AtomicU64,
    pub(crate) settles: AtomicU64,
    /// Every request must have at most one plan for a name; how often it had more.
    pub(crate) doubled_plans: AtomicU64,
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
pub(crate) struct Faulty<B> {
    inner: B,
    runtime: Arc<dyn Runtime>,
    faults: Arc<Faults>,
}

/// What becomes of one call.
enum Fate {
    Answered,
    RequestLost,
    ReplyLost,
    Doubled,
    Lingers(Duration),
}

impl<B: Backend + Clone> Faulty<B> {
    pub(crate) fn new(inner: B, runtime: Arc<dyn Runtime>, faults: Arc<Faults>) -> Self {
        Self { inner, runtime, faults }
    }

    async fn sleep(&self, span: Duration) {
        if !span.is_zero() {
            self.runtime.sleep_until(self.runtime.now() + span).await;
        }
    }

    fn draw(&self, below: u64) -> u64 {
        self.runtime.random() % below.max(1)
    }

    /// What becomes of this call, and how long it takes on the way there and back.
    fn fate(&self) -> Result<(Fate, Duration, Duration)> {
        self.faults.calls.fetch_add(1, Relaxed);
        let down = || Error::new(Kind::Unavailable, "the store is down");
        if self.faults.down.load(Relaxed) {
            return Err(down());
        }
        if self.faults.refuses.load(Relaxed) {
            return Err(Error::new(Kind::Other, "the store was emptied"));
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
impl<B: Backend + Clone> Backend for Faulty<B> {
    async fn reschedule(&self, request: Reschedule<'_>) -> Result<Rescheduled> {
        let mut names: Vec<_> = request.plans.iter().map(|plan| plan.name).collect();
        names.sort_unstable();
        names.dedup();
        if names.len() != request.plans.len() {
            self.faults.doubled_plans.fetch_add(1, Relaxed);
        }
        let takes = request.plans.iter().any(|plan| matches!(plan.act, Act::Take(_)));
        let (mut fate, there, back) = self.fate()?;
        if takes && self.faults.deaf_to_takes.load(Relaxed) {
            fate = Fate::ReplyLost;
        }
        self.sleep(there).await;
        match fate {
            Fate::Answered => {
                let answer = self.inner.reschedule(request).await;
                self.sleep(back).await;
                answer
            }
            Fate::Doubled => {
                self.inner.reschedule(request).await?;
                self.inner.reschedule(request).await
            }
            Fate::RequestLost => pending().await,
            Fate::ReplyLost => {
                self.inner.reschedule(request).await?;
                self.faults.lost_takes.fetch_add(u64::from(takes), Relaxed);
                pending().await
            }
            Fate::Lingers(after) => {
                let plans = request.plans.iter().filter_map(kept).collect::<Vec<_>>();
                let (inner, runtime) = (self.inner.clone(), self.runtime.clone());
                let (node, now) = (request.node.to_owned(), request.now);
                self.runtime.spawn(Box::pin(async move {
                    runtime.sleep_until(runtime.now() + after).await;
                    let plans: Vec<_> =
                        plans.iter().map(|(name, act)| Plan::new(name, act.clone())).collect();
                    let _ = inner.reschedule(Reschedule::new(&node, now, &plans)).await;
                }));
                pending().await
            }
        }
    }

    fn namespace(&self) -> &str {
        self.inner.namespace()
    }

    fn leases(&self) -> Option<&dyn Leases> {
        self.inner.leases().map(|_| self as _)
    }

    fn schedules(&self) -> Option<&dyn Schedules> {
        self.inner.schedules()
    }

    fn history(&self) -> Option<&dyn History> {
        self.inner.history()
    }

    fn watch(&self) -> Option<&dyn Watch> {
        self.inner.watch()
    }
}

#[async_trait]
impl<B: Backend + Clone> Leases for Faulty<B> {
    async fn settle(&self, request: Settle<'_>) -> Result<Vec<Settled>> {
        self.faults.settles.fetch_add(1, Relaxed);
        let mute = self.faults.mute.lock().unwrap().clone();
        if mute.is_some_and(|name| request.endings.iter().any(|ending| ending.name == name)) {
            return pending().await;
        }
        let (fate, there, back) = self.fate()?;
        self.sleep(there).await;
        let no = || Error::new(Kind::Unsupported, "no leases");
        let leases = self.inner.leases().ok_or_else(no)?;
        match fate {
            Fate::Answered => {
                let answer = leases.settle(request).await;
                self.sleep(back).await;
                answer
            }
            Fate::Doubled => {
                leases.settle(request).await?;
                leases.settle(request).await
            }
            Fate::RequestLost => pending().await,
            Fate::ReplyLost => {
                leases.settle(request).await?;
                pending().await
            }
            Fate::Lingers(after) => {
                let endings: Vec<_> = request.endings.iter().map(owned).collect();
                let (inner, runtime) = (self.inner.clone(), self.runtime.clone());
                let (node, now) = (request.node.to_owned(), request.now);
                self.runtime.spawn(Box::pin(async move {
                    runtime.sleep_until(runtime.now() + after).await;
                    let endings: Vec<_> = endings
                        .iter()
                        .map(|(name, fence, end)| Ending::new(name, *fence, end.clone()))
                        .collect();
                    if let Some(leases) = inner.leases() {
                        let _ = leases.settle(Settle::new(&node, now, &endings)).await;
                    }
                }));
                pending().await
            }
        }
    }
}

/// What can be carried out later; the rest is lost.
fn kept(plan: &Plan<'_>) -> Option<(String, Act<'static>)> {
    let act = match &plan.act {
        Act::Take(take) => Act::Take(take.clone()),
        Act::Skip(skip) => Act::Skip(*skip),
        Act::Reap => Act::Reap,
        _ => return None,
    };
    Some((plan.name.to_owned(), act))
}

fn owned(ending: &Ending<'_>) -> (String, i64, End<'static>) {
    let end = match &ending.end {
        End::Extend { lasts } => End::Extend { lasts: *lasts },
        End::Release => End::Release,
        End::Retry { at, .. } => End::Retry { at: *at, error: "failed" },
        End::Finish { then, outcome } => {
            let outcome = match outcome {
                Ended::Ran => Ended::Ran,
                Ended::Cancelled => Ended::Cancelled,
                Ended::Failed(_) => Ended::Failed("failed"),
                Ended::Dead(_) => Ended::Dead("failed"),
            };
            End::Finish { then: *then, outcome }
        }
    };
    (ending.name.to_owned(), ending.fence, end)
}

/// A backend that can only reschedule: everything that is optional is missing.
#[derive(Debug)]
pub(crate) struct Bare<B>(pub(crate) B);

#[async_trait]
impl<B: Backend> Backend for Bare<B> {
    async fn reschedule(&self, request: Reschedule<'_>) -> Result<Rescheduled> {
        self.0.reschedule(request).await
    }
}
