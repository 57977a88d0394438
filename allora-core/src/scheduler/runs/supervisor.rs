//! The part of a scheduler that keeps its runs alive: it extends leases, records ends, and cancels
//! runs.

use super::{
    active_run::{RunId, Turn},
    lane::Lane,
    pending_update::{PendingUpdate, send_local},
};
use crate::{
    condition::StorePart,
    event::Event,
    job::Placement,
    run::Run,
    scheduler::{
        monotonic::later,
        node::{Node, SharedState, Stop},
    },
};
use futures::future::{Either, pending, select};
use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// The longest part of the grace period that is left when runs are cancelled. The part is a tenth
/// of the period.
const CANCEL_HEADROOM: Duration = Duration::from_secs(5);

/// The time between the cancellation of a run and the end of its future, with this grace period.
fn last_word(grace: Duration) -> Duration {
    (grace / 10).min(CANCEL_HEADROOM)
}

pub(crate) struct Supervisor {
    node: Arc<Node>,
    /// No more runs will be started.
    pub(crate) has_claimed: Arc<AtomicBool>,
    /// Runs whose leases are to be extended.
    extensions: Lane,
    /// Runs that have ended and whose ends are not recorded.
    ends: Lane,
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
    /// The number of claims whose reply was lost and that could not be repeated, or whose
    /// occurrences could not be released. At most once these may be recorded as lost, at least once
    /// they will be run by another node.
    pub unresolved: usize,
}

impl Stopped {
    /// The result of a scheduler whose executor has ended.
    pub(in crate::scheduler) fn with_runtime(node: &Node) -> Self {
        Self::of(&node.shared(), 0)
    }

    fn of(shared: &SharedState, cancelled: usize) -> Self {
        let claiming = &shared.claiming;
        let claiming = claiming[Placement::OneNode] + claiming[Placement::EveryNode];
        let unresolved = shared.unresolved + claiming;
        Self { cancelled, unrecorded: shared.active.len(), unresolved }
    }
}

impl Supervisor {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        let store_timeout = node.config.store_timeout;
        Self {
            node,
            has_claimed: Arc::default(),
            extensions: Lane::new(StorePart::Extensions, store_timeout),
            ends: Lane::new(StorePart::Ends, store_timeout),
            stopping: None,
            cancelled: 0,
        }
    }

    /// Supervises runs until the scheduler is stopped and all ends are recorded.
    pub(crate) async fn run(mut self) -> Stopped {
        loop {
            let now = self.node.runtime.now();
            self.look_at_stop(now);
            self.collect().await;
            self.extend(now).await;
            self.ends.after(&mut self.extensions, now);
            self.extensions.after(&mut self.ends, now);
            self.ends.send(&self.node, now, |_| true);
            self.extensions.send(&self.node, now, |active| active.result.is_none() && !active.lost);
            if let Some(stopped) = self.is_over(now) {
                return stopped;
            }
            self.rest().await;
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
            let last_word = last_word(grace);
            self.stopping = Some(Stopping {
                cancel_at: later(now, grace - last_word),
                drop_at,
                give_up_at: later(drop_at, 2 * self.node.config.store_timeout),
            });
            self.node.shared().look_at_all(now);
        }
    }

    /// Collects the runs that have ended.
    async fn collect(&mut self) {
        let (mut shared_ends, mut lost, mut local) = (Vec::new(), Vec::new(), Vec::new());
        {
            let mut shared = self.node.shared();
            for id in std::mem::take(&mut shared.ended) {
                match shared.active.get(id) {
                    // The store has no record of it, or the lease belongs to another node.
                    Some(active) if active.lost && active.key.is_none() => {
                        lost.extend(shared.active.try_remove(id))
                    }
                    Some(active) if active.is_in_memory() => {
                        local.push(PendingUpdate::of(id, active));
                    }
                    Some(_) => shared_ends.push(id),
                    None => {}
                }
            }
        }
        drop(lost);
        self.ends.push(shared_ends);
        self.update_local(local).await;
    }

    /// Extends the leases that need it.
    async fn extend(&mut self, now: Instant) {
        let due = self.look(now);
        let (mut shared_runs, mut local) = (Vec::new(), Vec::new());
        {
            let mut shared = self.node.shared();
            for id in due {
                let Some(active) = shared.active.get_mut(id) else { continue };
                match active.is_in_memory() {
                    true => local.push(PendingUpdate::of(id, active)),
                    false => {
                        active.extending = true;
                        shared_runs.push(id);
                    }
                }
            }
        }
        self.extensions.push(shared_runs);
        self.update_local(local).await;
    }

    /// Records the updates of jobs that run on every node, in memory.
    async fn update_local(&mut self, updates: Vec<PendingUpdate>) {
        if !updates.is_empty() {
            let sent = send_local(&self.node, &updates).await;
            debug_assert!(sent.is_ok_and(|failed| failed.error.is_none()));
        }
    }

    /// Cancels and drops runs whose time is over. Returns those to extend: if one is due, also those
    /// that are due soon.
    fn look(&mut self, now: Instant) -> Vec<RunId> {
        let node = self.node.clone();
        let (mut extend, mut is_due) = (Vec::new(), false);
        let mut events = Vec::new();
        let mut ends: Vec<(Run, bool)> = Vec::new();
        {
            let mut shared = node.shared();
            let SharedState { looks, early, active: runs, .. } = &mut *shared;
            for id in looks.take_due(now) {
                let Some(active) = runs.get_mut(id).filter(|active| active.result.is_none()) else {
                    continue;
                };
                let (mut cancel_at, mut drop_at) = (None, None);
                if let Some(stopping) = self.stopping {
                    (cancel_at, drop_at) = (Some(stopping.cancel_at), Some(stopping.drop_at));
                }
                if let Some(at) = active.cancelled_at {
                    let drop = later(at, last_word(node.config.grace));
                    cancel_at = Some(at);
                    drop_at = Some(drop_at.map_or(drop, |at| at.min(drop)));
                }
                let mut next: Option<Instant> = None;
                if !active.lost {
                    let timers = active.timers;
                    let continues = active.may_outlive_lease();
                    let is_over = now >= timers.cancel_at;
                    if is_over && !active.run.is_cancelled() && !active.unconfirmed {
                        let (name, fence) = (active.run.shared_name(), active.run.fence());
                        events.push(Event::LeaseRenewalFailed {
                            name,
                            kind: active.run.shared_kind(),
                            key: active.key.as_ref().map(|key| key.key.clone()),
                            fence,
                            continues,
                        });
                        active.unconfirmed = continues;
                    }
                    if !continues {
                        cancel_at =
                            Some(cancel_at.map_or(timers.cancel_at, |at| at.min(timers.cancel_at)));
                        drop_at = Some(drop_at.map_or(timers.drop_at, |at| at.min(timers.drop_at)));
                    } else if !is_over {
                        next = Some(timers.cancel_at);
                    }
                    if !active.extending && now < timers.extend_at {
                        next = Some(next.map_or(timers.extend_at, |at| at.min(timers.extend_at)));
                    }
                    is_due |= !active.extending && now >= timers.extend_at;
                }
                let end_at = match (cancel_at, drop_at) {
                    (_, Some(drop_at)) if now >= drop_at => {
                        if !active.run.control().is_dropped() {
                            // A lease that ends meanwhile ends a run for another reason.
                            let stopping = self.stopping;
                            let stopped = stopping.is_some_and(|stopping| now >= stopping.drop_at);
                            self.cancelled += usize::from(stopped);
                            if !stopped {
                                // Another run may have its place.
                                active.turn = Turn::Lost;
                            }
                            ends.push((active.run.clone(), true));
                        }
                        None
                    }
                    (Some(cancel_at), drop_at) if now >= cancel_at => {
                        if !active.run.is_cancelled() {
                            ends.push((active.run.clone(), false));
                        }
                        drop_at
                    }
                    (cancel_at, _) => cancel_at,
                };
                if let Some(at) = next.into_iter().chain(end_at).min() {
                    looks.set(id, at);
                }
            }
            if is_due {
                let is_kept = |id: &RunId| {
                    let active = runs.get(*id);
                    active.is_some_and(|one| one.result.is_none() && !one.lost && !one.extending)
                };
                extend.extend(early.take_due(now).into_iter().filter(is_kept));
            }
        }
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
        let shared = self.node.shared();
        let is_done = self.has_claimed.load(Ordering::Acquire) && shared.active.is_empty();
        let stopped = Stopped::of(&shared, self.cancelled);
        debug_assert!(!is_done || stopped.unresolved == 0, "a resolved claim is counted");
        debug_assert!(!is_done || shared.runs() == 0, "an ended run is counted");
        (is_done || now >= stopping.give_up_at).then_some(stopped)
    }

    /// Waits until a run has ended, a request has a reply, or something's time comes.
    async fn rest(&mut self) {
        let Self { node, extensions, ends, .. } = self;
        let look_at = node.shared().looks.first();
        let give_up_at = self.stopping.map(|stopping| stopping.give_up_at);
        let times = [look_at, give_up_at, extensions.retry_at(), ends.retry_at()];
        let timer = match times.into_iter().flatten().min() {
            Some(at) => Either::Left(node.runtime.sleep_until(at)),
            None => Either::Right(pending()),
        };
        let (extended, ended) = (pin!(extensions.reply(node)), pin!(ends.reply(node)));
        let notified = pin!(node.supervisor.notified());
        select(timer, select(notified, select(extended, ended))).await;
    }
}
