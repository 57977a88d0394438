//! The state that the parts of a scheduler share: inputs of the planners, active runs, clock, and
//! wake-ups.

use super::{
    config::Config,
    inbox::{ByPlacement, Inbox},
    monotonic::later,
    runs::{
        active_run::{ActiveRun, RunId, Turn},
        local::LocalBackend,
        middleware::Middleware,
        timer_queue::TimerQueue,
    },
    status::{board::Board, metrics::Metrics},
    trigger_waits::TriggerWaits,
    upkeep::{calendar_cache::CalendarCache, chains::Chains, misfits::Misfits},
};
use crate::{
    backend::{Backend, JobState},
    error::{Error, ErrorKind, Result},
    event::Event,
    job::{JobSpec, Placement, warnings as job_warnings},
    notify::Notify,
    planner::{Input, KindRoom},
    registry::{NAMES, ProgramReport},
    run::{Heartbeat, Run},
    runtime::Runtime,
    schedule::Warning,
    store_clock::StoreClock,
    stored::{Routed, Router, Schedules},
    time::Time,
};
use allora_schedule::stable_hash;
use chrono::TimeDelta;
use slab::Slab;
use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// The difference between the store's clock and this node's that is reported.
pub(super) const CLOCK_SKEW: TimeDelta = TimeDelta::seconds(1);

/// The jump back of the store's clock after which every job is read again: its times may be of a
/// clock that was ahead.
const CLOCK_SET_BACK: TimeDelta = TimeDelta::minutes(1);

/// The jump of the store's clock, against this node's monotonic clock, that shortens leases.
const CLOCK_JUMP: Duration = Duration::from_millis(50);

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
    /// The code that runs stored schedules. It is locked before the state below.
    pub(super) router: RwLock<Arc<Router>>,
    /// The middleware of every run, the outermost first.
    pub(crate) middleware: Arc<[Middleware]>,
    /// Wake the claimers: something may be due, or there is capacity for it.
    pub(crate) claimers: ByPlacement<Notify>,
    /// Wakes the supervisor: a run has ended, or must be ended.
    pub(crate) supervisor: Notify,
    /// The store's clock was set back, and the watcher has not seen it yet.
    pub(super) was_set_back: AtomicBool,
    /// Wakes the watcher when the store's clock was set back.
    pub(super) set_back: Notify,
    /// Wakes the watcher: the scheduler stops.
    pub(super) watcher: Notify,
    /// Wakes the registry: the scheduler stops, or its other parts have ended.
    pub(super) registry: Notify,
    /// The named calendars of stored schedules.
    pub(super) calendars: CalendarCache,
    pub(super) chains: Chains,
    pub(super) board: Board,
    pub(super) metrics: Metrics,
    pub(super) trigger_waits: TriggerWaits,
    /// The stored schedules whose data does not fit a handler.
    pub(super) misfits: Misfits,
    /// The client of this node's runs and handles.
    pub(super) schedules: Schedules,
    /// Something was written to the store since the last request to prune it.
    pub(super) has_written: AtomicBool,
    shared: Mutex<SharedState>,
}

pub(crate) type OnEvent = Arc<dyn Fn(&Event) + Send + Sync>;

/// The state behind the lock. Nothing awaits while it is locked, and no user code runs: it may call
/// the scheduler.
pub(crate) struct SharedState {
    /// The number of jobs in code. The board has them; they change under this lock, too.
    jobs: usize,
    /// The number of those that run on one of the nodes, and the sum of the hashes of their names.
    shared_jobs: (usize, u64),
    /// The labels that the program needs on some node.
    pub(super) needed_labels: Vec<String>,
    /// The program's report about itself.
    pub(super) report: ProgramReport,
    pub(crate) inboxes: ByPlacement<Inbox>,
    pub(crate) active: Slab<ActiveRun>,
    /// Runs whose future has not ended.
    pub(crate) running: usize,
    /// Of these, those of each handler with a limit of its own, and the limits.
    pub(crate) running_kinds: Vec<usize>,
    pub(super) kind_limits: Vec<usize>,
    /// Claims on their way to the store, or without a reply, and keys that are held for claims.
    pub(crate) claiming: ByPlacement<usize>,
    /// Claims whose outcome is not known, or whose occurrence is not released, when the scheduler
    /// stops.
    pub(crate) unresolved: usize,
    /// Runs that have ended since the supervisor last collected them.
    pub(crate) ended: Vec<RunId>,
    /// When the supervisor looks at each run.
    pub(crate) looks: TimerQueue,
    /// The times from which the lease of each run may be extended together with others.
    pub(crate) early: TimerQueue,
    pub(crate) stop: Stop,
    pub(crate) clock: StoreClock,
    /// The store has replied.
    pub(crate) clock_is_known: bool,
    /// The time of the last reply that changed something, or brought the store's time.
    pub(crate) contacted_at: Option<Instant>,
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
    /// The number of jobs in code.
    pub(super) fn jobs(&self) -> usize {
        self.jobs
    }

    /// The number of jobs in code that run on one of the nodes, and a hash of their names, which
    /// does not depend on their order.
    pub(super) fn shared_jobs(&self) -> (usize, u64) {
        self.shared_jobs
    }

    /// The capacity of each handler with a limit of its own.
    pub(super) fn kind_room(&self) -> Vec<KindRoom> {
        let limits = self.kind_limits.iter().zip(&self.running_kinds);
        limits.map(|(limit, running)| KindRoom::new(*limit, *running)).collect()
    }

    /// The number of runs whose future has not ended, with those of the limited handlers again.
    pub(super) fn runs(&self) -> usize {
        self.running + self.running_kinds.iter().sum::<usize>()
    }

    fn count_added(&mut self, name: &str, placement: Placement) {
        self.jobs += 1;
        if placement == Placement::OneNode {
            let (count, hash) = &mut self.shared_jobs;
            (*count, *hash) = (*count + 1, hash.wrapping_add(stable_hash(&[name.as_bytes()])));
        }
    }

    fn count_removed(&mut self, name: &str, placement: Placement) {
        self.jobs -= 1;
        if placement == Placement::OneNode {
            let (count, hash) = &mut self.shared_jobs;
            (*count, *hash) = (*count - 1, hash.wrapping_sub(stable_hash(&[name.as_bytes()])));
        }
    }

    /// Applies the times of a run's lease. Returns `true` if the supervisor is to look at it before
    /// all others.
    pub(crate) fn set_timers(&mut self, id: RunId) -> bool {
        let Some(timers) = self.active.get(id).map(|active| active.timers) else { return false };
        self.early.set(id, timers.early_at());
        // A stopping scheduler may have an earlier time for it.
        self.looks.set_by(id, timers.extend_at)
    }

    /// Makes the supervisor look at all runs.
    pub(crate) fn look_at_all(&mut self, now: Instant) {
        for (id, active) in &self.active {
            self.early.set(id, active.timers.early_at());
            self.looks.set(id, now);
        }
    }
}

impl Node {
    pub(crate) fn new(
        id: Arc<str>,
        backend: Arc<dyn Backend>,
        runtime: Arc<dyn Runtime>,
        config: Config,
        on_event: Option<OnEvent>,
        (router, middleware): (Router, Arc<[Middleware]>),
    ) -> Self {
        let namespace = Arc::from(backend.namespace());
        let schedules = Schedules::from_parts(backend.clone(), runtime.clone())
            .store_timeout(config.store_timeout)
            .trigger_retention(config.trigger_retention);
        let shared = SharedState {
            jobs: 0,
            shared_jobs: (0, 0),
            needed_labels: Vec::new(),
            report: ProgramReport::default(),
            inboxes: ByPlacement::default(),
            active: Slab::new(),
            running: 0,
            running_kinds: vec![0; router.limits().count()],
            kind_limits: router.limits().collect(),
            claiming: ByPlacement::default(),
            unresolved: 0,
            ended: Vec::new(),
            looks: TimerQueue::default(),
            early: TimerQueue::default(),
            stop: Stop::No,
            clock: StoreClock::new(runtime.wall(), runtime.now()),
            clock_is_known: false,
            contacted_at: None,
        };
        Self {
            id,
            namespace,
            backend,
            local: LocalBackend::default(),
            runtime,
            config,
            on_event,
            router: RwLock::new(Arc::new(router)),
            middleware,
            claimers: ByPlacement::default(),
            supervisor: Notify::default(),
            was_set_back: AtomicBool::new(false),
            set_back: Notify::default(),
            watcher: Notify::default(),
            registry: Notify::default(),
            calendars: CalendarCache::default(),
            chains: Chains::default(),
            board: Board::default(),
            metrics: Metrics::new(),
            trigger_waits: TriggerWaits::default(),
            misfits: Misfits::default(),
            schedules,
            has_written: AtomicBool::new(false),
            shared: Mutex::new(shared),
        }
    }

    /// Locks the state. No user code runs under the lock, so that the state is sound even if the
    /// lock is poisoned.
    pub(crate) fn shared(&self) -> MutexGuard<'_, SharedState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The choice of code for a stored schedule.
    pub(super) fn route(&self, state: &JobState) -> Routed {
        if self.leaves_misfit(state) {
            return Routed::Elsewhere;
        }
        self.router().route(state, |definition| self.calendars.resolve(definition))
    }

    /// The estimate of the store's time.
    pub(crate) fn now(&self, shared: &SharedState) -> Time {
        shared.clock.now(self.runtime.now())
    }

    /// The number of runs for which there is capacity. Each claimer knows its own claims; those of
    /// the other one are counted.
    pub(super) fn room(&self, shared: &SharedState, placement: Placement) -> usize {
        let claiming = match placement {
            Placement::OneNode => shared.claiming[Placement::EveryNode],
            Placement::EveryNode => shared.claiming[Placement::OneNode],
        };
        self.config.concurrency.saturating_sub(shared.running + claiming)
    }

    /// The jobs with runs on this node that will be past their leases after this time, and that the
    /// store may keep.
    pub(super) fn overdue_runs(&self, after: Duration) -> HashSet<Arc<str>> {
        let now = later(self.runtime.now(), after);
        let is_overdue = |active: &&ActiveRun| {
            active.placement() == Placement::OneNode && !active.lost && now >= active.timers.drop_at
        };
        let shared = self.shared();
        let active = shared.active.iter().map(|(_, active)| active);
        active.filter(is_overdue).map(|active| active.run.shared_name()).collect()
    }

    /// The hashes of the names of the jobs that run on one of the nodes; `None` if they are too many
    /// for a node's record.
    pub(super) fn shared_job_names(&self, shared: &SharedState) -> Option<Vec<u32>> {
        (shared.shared_jobs.0 <= NAMES).then(|| self.board.shared_job_names())
    }

    /// The number of jobs in code.
    pub(crate) fn jobs(&self) -> usize {
        self.shared().jobs()
    }

    /// `true` if the node has a job in code of this name.
    pub(super) fn has_job(&self, name: &str) -> bool {
        self.board.has(name)
    }

    /// `true` if the scheduler has ended: nothing runs on this node any more.
    pub(super) fn has_ended(&self) -> bool {
        self.shared().inboxes[Placement::OneNode].is_closed()
    }

    /// Adds a job.
    ///
    /// # Errors
    /// `AlreadyExists` if the node has a job of this name; `Other` if the scheduler stops or has ended.
    pub(crate) fn add(&self, name: Arc<str>, spec: JobSpec) -> Result {
        let placement = spec.settings.placement;
        let warned = |warning: &Warning| Event::ScheduleWarning {
            name: name.clone(),
            warning: warning.clone(),
        };
        let now = self.runtime.wall();
        let warnings: Vec<Event> = job_warnings(&name, &spec, now).iter().map(warned).collect();
        let rejected = {
            let mut shared = self.shared();
            if shared.stop != Stop::No {
                drop(shared);
                let over = format!(
                    "the job {name:?} would never run: this scheduler was stopped; add it to one that runs"
                );
                return Err(Error::new(ErrorKind::Other, over));
            }
            if !self.board.add(name.clone(), placement) {
                drop(shared);
                let twice = format!("the job {name:?} is added twice; names are unique");
                return Err(Error::new(ErrorKind::AlreadyExists, twice));
            }
            shared.count_added(&name, placement);
            self.metrics.add_job(&name);
            if let Some(after) = &spec.settings.after {
                self.chains.add(name.clone(), after.clone());
            }
            shared.inboxes[placement].push(Input::Add(name, spec))
        };
        drop(rejected);
        self.emit(warnings);
        self.claimers[placement].notify();
        Ok(())
    }

    /// Removes a job. Returns whether the node had it.
    pub(crate) fn remove(&self, name: &str) -> bool {
        let (placement, rejected) = {
            let mut shared = self.shared();
            let Some((name, placement)) = self.board.remove(name) else { return false };
            shared.count_removed(&name, placement);
            self.chains.remove(&name);
            (placement, shared.inboxes[placement].push(Input::Remove(name)))
        };
        drop(rejected);
        self.claimers[placement].notify();
        true
    }

    /// Tells the planners that a place of the key with this record, or of any key, may be free.
    pub(super) fn key_is_free(&self, record: Option<&Arc<str>>) {
        for placement in [Placement::OneNode, Placement::EveryNode] {
            // It has no destructor of the user.
            let _ = self.shared().inboxes[placement].push(Input::KeyFree(record.cloned()));
            self.claimers[placement].notify();
        }
    }

    /// Tells the planner that a record has changed.
    pub(crate) fn changed(&self, name: &str) {
        let input = Input::Changed(name.into());
        let rejected = self.shared().inboxes[Placement::OneNode].push(input);
        drop(rejected);
        self.claimers[Placement::OneNode].notify();
    }

    /// Extends the leases of a job's active runs now: the replies say which of them are to be
    /// cancelled. Those that this node has cancelled already are not asked about again.
    pub(crate) fn extend_now(&self, name: &str) {
        let now = self.runtime.now();
        let is_due = {
            let mut shared = self.shared();
            let is_of_job = |(_, active): &(RunId, &mut ActiveRun)| {
                active.run.name() == name
                    && active.placement() == Placement::OneNode
                    && active.cancelled_at.is_none()
            };
            let runs = shared.active.iter_mut().filter(is_of_job);
            let due = runs.map(|(id, active)| {
                active.timers.extend_at = now;
                id
            });
            let due: Vec<RunId> = due.collect();
            for id in &due {
                shared.set_timers(*id);
            }
            !due.is_empty()
        };
        if is_due {
            self.supervisor.notify();
        }
    }

    /// Applies the time `now` of a reply to a request that was sent at `sent`. A jump against the
    /// monotonic clock means that the machine has slept: leases end earlier than this node thought.
    pub(crate) fn on_contact(&self, sent: Instant, now: Time) {
        let got = self.runtime.now();
        let (is_first, is_set_back, jump) = {
            let mut shared = self.shared();
            let jump = now - shared.clock.now(got);
            shared.clock.observe(sent, got, now);
            shared.contacted_at = Some(got);
            let is_first = !std::mem::replace(&mut shared.clock_is_known, true);
            let is_set_back = !is_first && jump < -CLOCK_SET_BACK;
            let jump = match is_first {
                true if jump < -CLOCK_SKEW => {
                    // It has no destructor of the user.
                    let _ = shared.inboxes[Placement::EveryNode].push(Input::ClockSetBack);
                    None
                }
                true => None,
                false => jump.to_std().ok().filter(|jump| *jump > CLOCK_JUMP),
            };
            if is_set_back {
                for placement in [Placement::OneNode, Placement::EveryNode] {
                    // It has no destructor of the user.
                    let _ = shared.inboxes[placement].push(Input::ClockSetBack);
                }
            }
            if let Some(jump) = jump {
                for (_, active) in &mut shared.active {
                    let request = match active.may_outlive_lease() {
                        true => Duration::ZERO,
                        false => self.config.store_timeout,
                    };
                    active.timers.shorten(jump, got, request);
                }
                shared.look_at_all(got);
            }
            (is_first, is_set_back, jump)
        };
        if is_first || is_set_back {
            self.claimers[Placement::EveryNode].notify();
        }
        if is_set_back {
            self.was_set_back.store(true, Ordering::Release);
            self.set_back.notify();
            self.claimers[Placement::OneNode].notify();
        }
        if jump.is_some() {
            self.supervisor.notify();
        }
    }

    /// Waits until the scheduler is stopped. `wake` wakes the part that waits; what else it wakes the part
    /// for is found afterwards.
    pub(super) async fn stopped(&self, wake: &Notify) {
        while self.shared().stop == Stop::No {
            wake.notified().await;
        }
    }

    /// Notes that something was written to the store, which may have old history to prune.
    pub(super) fn wrote(&self) {
        self.has_written.store(true, Ordering::Relaxed);
    }

    /// Stops the scheduler, or stops it faster.
    pub(crate) fn stop(&self, how: Stop) {
        let (waiting, begun): (Vec<_>, Vec<_>) = {
            let mut shared = self.shared();
            shared.stop = shared.stop.max(how);
            let runs = shared.active.iter().map(|(_, active)| (active.turn, active.run.clone()));
            runs.partition(|(turn, _)| *turn == Turn::Waits)
        };
        // A run whose code has not begun is released at once.
        waiting.iter().for_each(|(_, run)| run.control().cancel());
        begun.iter().for_each(|(_, run)| run.control().stop());
        self.claimers[Placement::OneNode].notify();
        self.claimers[Placement::EveryNode].notify();
        self.supervisor.notify();
        self.watcher.notify();
        self.registry.notify();
        self.calendars.notify();
    }

    /// Rejects further jobs, and frees those that no claimer has.
    pub(crate) fn close(&self) {
        for placement in [Placement::OneNode, Placement::EveryNode] {
            let inputs = self.shared().inboxes[placement].close();
            drop(inputs);
        }
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
    fn data_does_not_fit(&self, run: &Run, error: String) -> bool {
        self.give_back(run, error)
    }

    fn heartbeat(&self, run: &Run) {
        let now = self.runtime.now();
        {
            let mut shared = self.shared();
            let of_run = |(_, active): &(RunId, &mut ActiveRun)| active.run.is(run);
            let found = shared.active.iter_mut().find(of_run);
            if let Some((id, active)) = found {
                active.timers.extend_at = now;
                shared.set_timers(id);
            }
        }
        self.supervisor.notify();
    }
}

/// 128 random bits.
pub(super) fn random(runtime: &dyn Runtime) -> u128 {
    u128::from(runtime.random()) << 64 | u128::from(runtime.random())
}
