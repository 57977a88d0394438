//! The jobs in code of a node, and its published state, for `Handle::health` and `Handle::jobs`.
//!
//! The parts of the scheduler write what changes, as it changes; readers ask no part for anything.
//! So a reader waits for no claimer and no store. No user code runs under its locks.

use crate::{
    backend::{JobState, Outcome},
    event::Event,
    health::{
        DataMismatch, InvalidSchedules, JobProblem, JobStatus, KeyWait, Notifications, Place,
        ProblemReason, UnhandledKind,
    },
    job::Placement,
    planner::PlannedJob,
    registry::{Fleet, LEFT, name_hash},
    scheduler::inbox::ByPlacement,
    time::{Time, saturating_add},
};
use allora_schedule::stable_hash;
use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The time for which an occurrence is due without a lease before it is a problem.
pub(in crate::scheduler) const OVERDUE: Duration = Duration::from_secs(60);

/// The number of parts of the jobs, each under a lock of its own.
const SHARDS: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct Board {
    jobs: [Mutex<HashMap<Arc<str>, View>>; SHARDS],
    conditions: Mutex<Conditions>,
}

/// A job in code, and its last known state.
#[derive(Debug, Default)]
struct View {
    placement: Placement,
    planned: PlannedJob,
    /// Boxed: most jobs are idle, and a node may have many.
    runs: Option<Box<LastRuns>>,
}

/// The last known runs of a job.
#[derive(Debug, Default)]
struct LastRuns {
    /// The last lease of another node that was seen, and its end.
    elsewhere: Option<(Place, Time)>,
    last: Option<Outcome>,
    last_success: Option<Time>,
}

/// The conditions of the node that began and have not ended.
#[derive(Clone, Debug, Default)]
pub(in crate::scheduler) struct Conditions {
    pub(in crate::scheduler) durability_warning: Option<Arc<str>>,
    pub(in crate::scheduler) notifications: Notifications,
    pub(in crate::scheduler) clock_offset_ms: Option<i64>,
    pub(in crate::scheduler) full_since: Option<Time>,
    pub(in crate::scheduler) unresolved: usize,
    pub(in crate::scheduler) key_waits: ByPlacement<Vec<Arc<KeyWait>>>,
    pub(in crate::scheduler) problems: BTreeMap<Arc<str>, Arc<JobProblem>>,
    pub(in crate::scheduler) kinds: BTreeMap<String, UnhandledKind>,
    pub(in crate::scheduler) mismatches: BTreeMap<Arc<str>, DataMismatch>,
    pub(in crate::scheduler) invalid_schedules: Option<InvalidSchedules>,
    /// The overdue occurrences at the watcher's last look, ordered by name.
    pub(in crate::scheduler) overdue: Vec<(Arc<str>, Time)>,
    /// The nodes of the store at the registry's last look.
    pub(in crate::scheduler) fleet: Option<Arc<Fleet>>,
}

impl Board {
    /// Adds a job in code. Returns `false` if there is one of this name.
    pub(in crate::scheduler) fn add(&self, name: Arc<str>, placement: Placement) -> bool {
        match self.shard(&name).entry(name) {
            Entry::Occupied(_) => return false,
            Entry::Vacant(place) => place.insert(View { placement, ..View::default() }),
        };
        true
    }

    /// Removes a job in code. Returns it if there was one of this name.
    pub(in crate::scheduler) fn remove(&self, name: &str) -> Option<(Arc<str>, Placement)> {
        let removed = self.shard(name).remove_entry(name);
        let (name, view) = removed?;
        self.conditions().problems.remove(&name);
        Some((name, view.placement))
    }

    /// `true` if the node has a job in code of this name.
    pub(in crate::scheduler) fn has(&self, name: &str) -> bool {
        self.shard(name).contains_key(name)
    }

    /// `true` if the node has a job in code of this name that runs on every node.
    pub(in crate::scheduler) fn is_on_every_node(&self, name: &str) -> bool {
        self.shard(name).get(name).is_some_and(|view| view.placement == Placement::EveryNode)
    }

    /// The hashes of the names of the jobs that run on one of the nodes, in order.
    pub(in crate::scheduler) fn shared_job_names(&self) -> Vec<u32> {
        let mut hashes = Vec::new();
        for shard in &self.jobs {
            let views = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let shared = views.iter().filter(|(_, view)| view.placement == Placement::OneNode);
            hashes.extend(shared.map(|(name, _)| name_hash(name)));
        }
        // The same text for the same jobs.
        hashes.sort_unstable();
        hashes
    }

    /// The hashes of the names of the jobs whose stored definitions this build cannot run, some of them if
    /// they are many.
    pub(in crate::scheduler) fn left_jobs(&self) -> Vec<u32> {
        let conditions = self.conditions();
        let left = conditions.problems.iter();
        let left = left.filter(|(_, problem)| problem.reason == ProblemReason::DefinitionConflict);
        left.map(|(name, _)| name_hash(name)).take(LEFT).collect()
    }

    /// Publishes the planner's state of a job.
    pub(in crate::scheduler) fn planned(&self, name: &str, planned: PlannedJob) {
        self.change(name, |view| view.planned = planned);
    }

    /// Publishes what a record shows about the runs of a job.
    pub(in crate::scheduler) fn read(&self, node: &str, state: &JobState) {
        let lease = state.leases.iter().find(|lease| lease.node != node);
        self.change(&state.name, |view| {
            if lease.is_none() && state.last.is_none() && view.runs.is_none() {
                return;
            }
            let runs = view.runs.get_or_insert_default();
            runs.elsewhere = lease.map(|lease| {
                let (scheduled_at, since) = (lease.occurrence.scheduled_at, Some(lease.started_at));
                let place = Place { node: lease.node.clone(), is_here: false, scheduled_at, since };
                (place, lease.until)
            });
            if state.last.is_some() {
                runs.last.clone_from(&state.last);
            }
        });
    }

    /// Publishes the effect of an event at `now`.
    pub(in crate::scheduler) fn observe(&self, event: &Event, now: impl FnOnce() -> Time) {
        let held;
        let (name, reason, detail, until) = match event {
            Event::Ended { name, outcome, .. } => return self.ended(name, outcome, now()),
            Event::Deleted { name } => (name, ProblemReason::Deleted, "", None),
            Event::DefinitionConflict { name, reason } => {
                (name, ProblemReason::DefinitionConflict, *reason, None)
            }
            Event::JobInvalid { name, reason } => (name, ProblemReason::Invalid, &**reason, None),
            Event::JobUnreadable { name, reason } => {
                (name, ProblemReason::Unreadable, &**reason, None)
            }
            Event::ClockWasAhead { name, until, key } => {
                held = key.as_ref().map(|key| format!("it holds the concurrency key {key:?}"));
                let detail = held.as_deref().unwrap_or_default();
                (name, ProblemReason::ClockWasAhead, detail, Some(*until))
            }
            Event::JobResumed { name } => {
                let removed = self.conditions().problems.remove(name);
                return drop(removed);
            }
            event => return self.observe_node(event, now),
        };
        let (name_text, detail) = (name.to_string(), detail.to_owned());
        let problem = JobProblem { name: name_text, reason, detail, since: now(), until };
        self.conditions().problems.insert(name.clone(), Arc::new(problem));
    }

    /// Publishes the present number of the schedules that this node cannot run.
    pub(in crate::scheduler) fn count_invalid(&self, count: usize) {
        if let Some(invalid) = &mut self.conditions().invalid_schedules {
            invalid.count = count;
        }
    }

    fn observe_node(&self, event: &Event, now: impl FnOnce() -> Time) {
        match event {
            Event::DurabilityWarning { what } => {
                self.conditions().durability_warning = Some(what.as_str().into());
            }
            Event::NotificationsDown { error } => {
                let (since, error) = (now(), error.chain());
                self.conditions().notifications = Notifications::Off { since, error };
            }
            Event::NotificationsUp => self.conditions().notifications = Notifications::On,
            Event::CapacityFull { .. } => {
                let now = now();
                self.conditions().full_since = Some(now);
            }
            Event::CapacityFree => self.conditions().full_since = None,
            Event::KindUnhandled { kind, example, due_at, waiting } => {
                let (kind, example) = (kind.to_string(), example.to_string());
                let (since, waiting) = (*due_at, *waiting);
                let unhandled = UnhandledKind { kind: kind.clone(), example, since, waiting };
                self.conditions().kinds.insert(kind, unhandled);
            }
            Event::DataMismatch { kind, example, error, builds } => {
                let [kind_text, example, error, builds] =
                    [&**kind, &**example, error, builds].map(str::to_owned);
                let since = now();
                let mismatch = DataMismatch { kind: kind_text, example, error, builds, since };
                self.conditions().mismatches.insert(kind.clone(), mismatch);
            }
            Event::DataMatches { kind } => {
                self.conditions().mismatches.remove(kind);
            }
            Event::KindHandled { kind } => {
                self.conditions().kinds.remove(&**kind);
            }
            Event::SchedulesInvalid { count, example } => {
                let (count, example, since) = (*count, example.to_string(), now());
                let invalid = InvalidSchedules { count, example, since };
                self.conditions().invalid_schedules = Some(invalid);
            }
            Event::SchedulesResumed => self.conditions().invalid_schedules = None,
            _ => {}
        }
    }

    /// A run on this node has ended.
    fn ended(&self, name: &str, outcome: &Outcome, now: Time) {
        self.change(name, |view| {
            let runs = view.runs.get_or_insert_default();
            runs.last = Some(outcome.clone());
            if *outcome == Outcome::Succeeded {
                runs.last_success = Some(now);
            }
        });
    }

    /// The occurrences of jobs in code that have been due for [`OVERDUE`] at `now` without a lease, as
    /// this node last saw their records. Each part of the jobs is locked by itself.
    pub(in crate::scheduler) fn overdue(&self, now: Time) -> Vec<(Arc<str>, Time, Placement)> {
        let mut overdue = Vec::new();
        for shard in &self.jobs {
            let views = shard.lock().unwrap_or_else(PoisonError::into_inner);
            for (name, view) in &*views {
                let due_at = view.planned.claimable_at;
                let due_at = due_at.filter(|due_at| saturating_add(*due_at, OVERDUE) <= now);
                overdue.extend(due_at.map(|due_at| (name.clone(), due_at, view.placement)));
            }
        }
        overdue.sort_by(|one, other| one.0.cmp(&other.0));
        overdue
    }

    /// The number of paused jobs in code.
    pub(in crate::scheduler) fn paused(&self) -> usize {
        let paused = |shard: &Mutex<HashMap<_, View>>| {
            let views = shard.lock().unwrap_or_else(PoisonError::into_inner);
            views.values().filter(|view| view.planned.is_paused).count()
        };
        self.jobs.iter().map(paused).sum()
    }

    /// The status of each job in code at `now`, ordered by name, without the runs of this node.
    pub(in crate::scheduler) fn statuses(&self, now: Time) -> Vec<JobStatus> {
        let mut statuses = Vec::new();
        for shard in &self.jobs {
            let views = shard.lock().unwrap_or_else(PoisonError::into_inner);
            statuses.extend(views.iter().map(|(name, view)| view.status(name, now)));
        }
        statuses.sort_by(|one, other| one.name.cmp(&other.name));
        statuses
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut View)) {
        if let Some(view) = self.shard(name).get_mut(name) {
            change(view);
        }
    }

    fn shard(&self, name: &str) -> MutexGuard<'_, HashMap<Arc<str>, View>> {
        let shard = stable_hash(&[name.as_bytes()]) as usize % SHARDS;
        self.jobs[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::scheduler) fn conditions(&self) -> MutexGuard<'_, Conditions> {
        self.conditions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl View {
    fn status(&self, name: &str, now: Time) -> JobStatus {
        let runs = self.runs.as_deref();
        let elsewhere = runs.and_then(|runs| runs.elsewhere.as_ref());
        let elsewhere = elsewhere.filter(|(_, until)| *until > now);
        JobStatus {
            name: name.to_owned(),
            kind: String::new(),
            next: self.planned.next,
            is_paused: self.planned.is_paused,
            running: elsewhere.map(|(place, _)| place.clone()).into_iter().collect(),
            last: runs.and_then(|runs| runs.last.clone()),
            last_success: runs.and_then(|runs| runs.last_success),
        }
    }
}
