//! The half of a scheduler that keeps its runs alive: extends leases, records ends, cancels runs.

use super::{
    active_run::RunId,
    claimer::{MAX_BACKOFF, MIN_BACKOFF},
    node::{Node, Stop, later},
    pending_update::{Failed, PendingUpdate, is_local, send, send_local},
};
use crate::{error::Error, event::Event, run::Run};
use futures::future::{Either, select};
use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// The largest number of ends in one request.
const BATCH: usize = 1_000;

/// The longest part of the grace period that is left when runs are cancelled. The part is a tenth
/// of the period.
const CANCEL_HEADROOM: Duration = Duration::from_secs(5);

pub(crate) struct Supervisor {
    node: Arc<Node>,
    /// No more runs will be started.
    pub(crate) is_run: Arc<AtomicBool>,
    /// Runs that have ended and whose ends are not recorded.
    unrecorded: Vec<RunId>,
    wait: Duration,
    /// An extension is overdue.
    overdue: bool,
    stopping: Option<Stopping>,
    cancelled: usize,
}

/// The times of a stop.
#[derive(Clone, Copy)]
struct Stopping {
    cancel_at: Instant,
    drop_at: Instant,
    give_up_at: Instant,
}

/// The result of a stopped scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stopped {
    /// The number of runs that were cancelled at the end of the grace period.
    pub cancelled: usize,
    /// The number of runs whose result was not recorded. At most once they will be recorded as
    /// lost, at least once they will be run again.
    pub unrecorded: usize,
}

impl Supervisor {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self {
            node,
            is_run: Arc::default(),
            unrecorded: Vec::new(),
            wait: MIN_BACKOFF,
            overdue: false,
            stopping: None,
            cancelled: 0,
        }
    }

    /// Supervises runs until the scheduler is stopped and all ends are recorded.
    pub(crate) async fn run(mut self) -> Stopped {
        loop {
            let now = self.node.runtime.now();
            self.look_at_stop(now);
            self.collect();
            let mut extend = self.scan(now);
            self.update_local(&mut extend).await;
            if let Some(stopped) = self.is_over(now) {
                return stopped;
            }
            if self.unrecorded.is_empty() && extend.is_empty() {
                let give_up = self.stopping.map(|stopping| stopping.give_up_at);
                self.rest(give_up).await;
                continue;
            }
            let node = self.node.clone();
            // Extensions come first: a lease may end, while a recorded end can wait.
            let ended = self.unrecorded.len().min(BATCH.saturating_sub(extend.len()));
            let extended = extend.len().min(BATCH);
            let updates =
                PendingUpdate::gather(&node, &extend[..extended], &self.unrecorded[..ended]);
            match self.guarding(send(&node, &updates)).await {
                Ok(Failed { ended: again, error }) => {
                    self.unrecorded.drain(..ended);
                    self.unrecorded.extend(again);
                    self.overdue |= extend.len() > extended;
                    match error {
                        None => self.wait = MIN_BACKOFF,
                        Some(error) => self.back_off(error).await,
                    }
                }
                Err(error) => self.back_off(error).await,
            }
            if std::mem::take(&mut self.overdue) {
                node.shared().scan_soon(now);
            }
        }
    }

    /// Awaits a slow operation, and meanwhile ends the runs whose time is over.
    async fn guarding<T>(&mut self, slow: impl Future<Output = T>) -> T {
        let mut slow = pin!(slow);
        loop {
            match select(slow, pin!(self.rest(None))).await {
                Either::Left((done, _)) => return done,
                Either::Right(((), rest)) => slow = rest,
            }
            let now = self.node.runtime.now();
            self.look_at_stop(now);
            self.overdue |= !self.scan(now).is_empty();
        }
    }

    fn look_at_stop(&mut self, now: Instant) {
        let stop = self.node.shared().stop;
        let grace = match stop {
            Stop::No => return,
            Stop::Graceful if self.stopping.is_some() => return,
            Stop::Graceful => self.node.config.grace,
            Stop::Now => Duration::ZERO,
        };
        let drop_at = later(now, grace);
        let sooner = self.stopping.is_none_or(|stopping| drop_at < stopping.drop_at);
        if sooner {
            let last_word = (grace / 10).min(CANCEL_HEADROOM);
            self.stopping = Some(Stopping {
                cancel_at: later(now, grace - last_word),
                drop_at,
                give_up_at: later(drop_at, 2 * self.node.config.store_timeout),
            });
            self.node.shared().scan_at = Some(now);
        }
    }

    fn collect(&mut self) {
        let mut inside = self.node.shared();
        let ended = std::mem::take(&mut inside.ended);
        for id in ended {
            match inside.active.get(id) {
                // The store has no record of it, or the lease belongs to another node.
                Some(live) if live.lost => {
                    inside.active.remove(id);
                }
                Some(_) => self.unrecorded.push(id),
                None => {}
            }
        }
    }

    /// Waits, twice as long each time, so that ended runs do not cause more requests to a store
    /// that is down.
    async fn back_off(&mut self, error: Error) {
        let node = self.node.clone();
        node.store_failed(error);
        let wait = self.wait;
        self.wait = (wait * 2).min(MAX_BACKOFF);
        self.guarding(node.runtime.sleep_until(node.runtime.now() + wait)).await;
        self.overdue = true;
    }

    /// Records the updates of jobs that run on every node.
    async fn update_local(&mut self, extend: &mut Vec<RunId>) {
        let node = self.node.clone();
        let updates = {
            let shared = node.shared();
            let ended: Vec<_> =
                self.unrecorded.extract_if(.., |id| is_local(&shared, *id)).collect();
            let extend: Vec<_> = extend.extract_if(.., |id| is_local(&shared, *id)).collect();
            drop(shared);
            PendingUpdate::gather(&node, &extend, &ended)
        };
        if !updates.is_empty()
            && let Err(error) = send_local(&node, &updates).await
        {
            node.store_failed(error);
        }
    }

    /// Cancels and drops runs whose time is over. Returns those to extend.
    fn scan(&mut self, now: Instant) -> Vec<RunId> {
        let node = self.node.clone();
        let mut extend = Vec::new();
        let mut next: Option<Instant> = None;
        let mut wants = |at: Instant| next = Some(next.map_or(at, |next: Instant| next.min(at)));
        let mut events = Vec::new();
        let mut ends: Vec<(Run, bool)> = Vec::new();
        let mut inside = node.shared();
        if inside.scan_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        for (id, live) in inside.active.iter_mut().filter(|(_, live)| live.result.is_none()) {
            let (mut cancel_at, mut drop_at) = (None, None);
            if let Some(stopping) = self.stopping {
                (cancel_at, drop_at) = (Some(stopping.cancel_at), Some(stopping.drop_at));
            }
            if !live.lost {
                let kept = live.timers;
                if now >= kept.cancel_at && !live.run.is_cancelled() {
                    let (name, fence) = (live.run.shared_name(), live.run.fence());
                    events.push(Event::LeaseRenewalFailed { name, key: None, fence });
                }
                cancel_at = Some(cancel_at.map_or(kept.cancel_at, |at| at.min(kept.cancel_at)));
                drop_at = Some(drop_at.map_or(kept.drop_at, |at| at.min(kept.drop_at)));
                if now >= kept.extend_at {
                    extend.push(id);
                } else {
                    wants(kept.extend_at);
                }
            }
            match (cancel_at, drop_at) {
                (_, Some(drop_at)) if now >= drop_at => {
                    if !live.run.control().is_dropped() {
                        // A lease that ends meanwhile ends a run for another reason.
                        let stopped = self.stopping.is_some_and(|stopping| now >= stopping.drop_at);
                        self.cancelled += usize::from(stopped);
                        ends.push((live.run.clone(), true));
                    }
                }
                (Some(cancel_at), drop_at) if now >= cancel_at => {
                    drop_at.into_iter().for_each(&mut wants);
                    if !live.run.is_cancelled() {
                        ends.push((live.run.clone(), false));
                    }
                }
                (cancel_at, _) => cancel_at.into_iter().for_each(&mut wants),
            }
        }
        inside.scan_at = next;
        drop(inside);
        self.node.emit(events);
        for (run, drop) in ends {
            if drop {
                run.control().drop_now();
            } else {
                run.control().cancel();
            }
        }
        extend
    }

    fn is_over(&self, now: Instant) -> Option<Stopped> {
        let stopping = self.stopping?;
        let inside = self.node.shared();
        let idle = inside.active.is_empty() && inside.in_turn == 0;
        let is_done = self.is_run.load(Ordering::Acquire) && idle;
        let stopped = Stopped { cancelled: self.cancelled, unrecorded: inside.active.len() };
        (is_done || now >= stopping.give_up_at).then_some(stopped)
    }

    /// Waits until a run has ended, or its time comes.
    async fn rest(&self, give_up: Option<Instant>) {
        let node = &self.node;
        let scan_at = node.shared().scan_at;
        let Some(at) = scan_at.into_iter().chain(give_up).min() else {
            return node.supervisor.notified().await;
        };
        select(node.runtime.sleep_until(at), pin!(node.supervisor.notified())).await;
    }
}
