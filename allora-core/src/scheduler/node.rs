//! The state that the parts of a scheduler share: planner, active runs, clock, and wake-ups.

use super::{
    active_run::{ActiveRun, RunId, Turn},
    config::Config,
    local::LocalBackend,
    middleware::Middleware,
    mutex_groups::Groups,
    notify::Notify,
    store_health::StoreHealth,
};
use crate::{
    backend::Backend,
    event::Event,
    planner::Planner,
    run::{Heartbeat, Run},
    runtime::Runtime,
    store_clock::StoreClock,
    stored::Router,
    time::Time,
};
use slab::Slab;
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// One scheduler instance.
pub(crate) struct Node {
    pub(crate) id: Arc<str>,
    pub(crate) namespace: Arc<str>,
    pub(crate) backend: Arc<dyn Backend>,
    /// The records of jobs that run on every node.
    pub(crate) local: LocalBackend,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) config: Config,
    pub(crate) on_event: Option<OnEvent>,
    /// The code that runs stored schedules.
    pub(crate) router: Router,
    /// The middleware of every run, the outermost first.
    pub(crate) middleware: Arc<[Middleware]>,
    /// Wakes the claimer: something may be due, or there is capacity for it.
    pub(crate) claimer: Notify,
    /// Wakes the supervisor: a run has ended, or must be ended.
    pub(crate) supervisor: Notify,
    /// The mutex groups of this node's runs.
    pub(crate) groups: Groups,
    pub(super) store: StoreHealth,
    shared: Mutex<SharedState>,
}

pub(crate) type OnEvent = Arc<dyn Fn(&Event) + Send + Sync>;

/// The state behind the lock. Nothing awaits while it is locked.
pub(crate) struct SharedState {
    pub(crate) planner: Planner,
    pub(crate) active: Slab<ActiveRun>,
    /// Runs whose future has not ended.
    pub(crate) running: usize,
    /// Runs that wait for a group's lock or have not released it.
    pub(crate) in_turn: usize,
    /// An occurrence is due and waits for a run to end.
    pub(crate) full: bool,
    /// Runs that have ended since the supervisor last collected them.
    pub(crate) ended: Vec<RunId>,
    /// When the supervisor next scans the runs.
    pub(crate) scan_at: Option<Instant>,
    pub(crate) stop: Stop,
    pub(crate) clock: StoreClock,
}

/// The progress of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stop {
    No,
    /// No more claims; active runs have the grace period.
    Graceful,
    /// Runs are ended at once.
    Now,
}

impl SharedState {
    /// Makes the supervisor scan the runs at this time at the latest. Returns whether that is
    /// earlier than before.
    pub(crate) fn scan_soon(&mut self, at: Instant) -> bool {
        let sooner = self.scan_at.is_none_or(|scan_at| scan_at > at);
        if sooner {
            self.scan_at = Some(at);
        }
        sooner
    }
}

impl Node {
    pub(crate) fn new(
        id: Arc<str>,
        backend: Arc<dyn Backend>,
        runtime: Arc<dyn Runtime>,
        config: Config,
        planner: Planner,
        on_event: Option<OnEvent>,
        (router, middleware): (Router, Arc<[Middleware]>),
    ) -> Self {
        let namespace = Arc::from(backend.namespace());
        let shared = SharedState {
            planner,
            active: Slab::new(),
            running: 0,
            in_turn: 0,
            full: false,
            ended: Vec::new(),
            scan_at: None,
            stop: Stop::No,
            clock: StoreClock::new(runtime.wall(), runtime.now()),
        };
        Self {
            id,
            namespace,
            backend,
            local: LocalBackend::default(),
            runtime,
            config,
            on_event,
            router,
            middleware,
            claimer: Notify::default(),
            supervisor: Notify::default(),
            groups: Groups::default(),
            store: StoreHealth::default(),
            shared: Mutex::new(shared),
        }
    }

    /// Locks the state. User code runs under the lock only with a guard, so that the state is sound
    /// even if the lock is poisoned.
    pub(crate) fn shared(&self) -> MutexGuard<'_, SharedState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The estimate of the store's time.
    pub(crate) fn now(&self, shared: &SharedState) -> Time {
        shared.clock.now(self.runtime.now())
    }

    /// Stops the scheduler, or stops it faster.
    pub(crate) fn stop(&self, how: Stop) {
        let waiting: Vec<Run> = {
            let mut shared = self.shared();
            shared.stop = shared.stop.max(how);
            let waiting = shared.active.iter().filter(|(_, active)| active.turn == Turn::Waits);
            waiting.map(|(_, active)| active.run.clone()).collect()
        };
        // A run whose code has not begun is released at once.
        waiting.iter().for_each(|run| run.control().cancel());
        self.claimer.notify();
        self.supervisor.notify();
    }

    /// Drops the futures of all runs.
    pub(crate) fn drop_runs(&self) {
        let runs: Vec<Run> =
            self.shared().active.iter().map(|(_, active)| active.run.clone()).collect();
        for run in runs {
            run.control().drop_now();
        }
    }
}

impl Heartbeat for Node {
    fn heartbeat(&self, run: &Run) {
        let now = self.runtime.now();
        {
            let mut shared = self.shared();
            let of_run = |active: &&mut ActiveRun| active.run.is(run);
            if let Some(active) = shared.active.iter_mut().map(|(_, active)| active).find(of_run) {
                active.timers.extend_at = now;
            }
            shared.scan_soon(now);
        }
        self.supervisor.notify();
    }
}

/// `at + by`; a year after `at` if that is out of range.
pub(crate) fn later(at: Instant, by: Duration) -> Instant {
    at.checked_add(by).unwrap_or_else(|| at + Duration::from_secs(366 * 86_400))
}

/// 128 random bits.
pub(super) fn random(runtime: &dyn Runtime) -> u128 {
    u128::from(runtime.random()) << 64 | u128::from(runtime.random())
}
