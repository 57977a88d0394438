//! The jobs in code of a node and its published state, for `Handle::health` and `Handle::jobs`.
//!
//! Each part of the scheduler writes here whatever changes, as it changes, and a reader asks no
//! part for anything. So a reader waits for no claimer and no store. No user code runs under the
//! locks of the board.

use super::active::Active;
use crate::{
    backend::{JobState, Outcome},
    condition::{Code, OVERDUE},
    health::{JobStatus, Place},
    job::Placement,
    planner::PlannedJob,
    registry::{Fleet, LEFT, name_hash},
    time::{Time, saturating_add},
};
use allora_schedule::stable_hash;
use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The number of parts of the jobs, each under a lock of its own.
const SHARDS: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct Board {
    jobs: [Mutex<HashMap<Arc<str>, View>>; SHARDS],
    seen: Mutex<Seen>,
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

/// The present state of the node, as far as it is about no single job.
#[derive(Debug, Default)]
pub(in crate::scheduler) struct Seen {
    pub(in crate::scheduler) active: Active,
    /// The node has subscribed to the store's notifications.
    pub(in crate::scheduler) is_subscribed: bool,
    pub(in crate::scheduler) clock_offset_ms: Option<i64>,
    pub(in crate::scheduler) unresolved: usize,
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
        removed.map(|(name, view)| (name, view.placement))
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

    /// The hashes of the names of the jobs whose stored definitions this build cannot run, some of them
    /// if they are many.
    pub(in crate::scheduler) fn left_jobs(&self) -> Vec<u32> {
        let seen = self.seen();
        let left = seen.active.of(Code::DefinitionConflict).filter_map(|one| one.condition.job());
        left.map(name_hash).take(LEFT).collect()
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
                let (node, progress) = (lease.node.clone(), None);
                let place = Place { node, is_here: false, scheduled_at, since, progress };
                (place, lease.until)
            });
            if state.last.is_some() {
                runs.last.clone_from(&state.last);
            }
        });
    }

    /// A run on this node has ended.
    pub(in crate::scheduler) fn ended(&self, name: &str, outcome: &Outcome, now: Time) {
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

    /// The number of jobs in code that are paused at `now`.
    pub(in crate::scheduler) fn paused(&self, now: Time) -> usize {
        let paused = |shard: &Mutex<HashMap<_, View>>| {
            let views = shard.lock().unwrap_or_else(PoisonError::into_inner);
            views.values().filter(|view| view.is_paused(now)).count()
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

    pub(in crate::scheduler) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl View {
    fn is_paused(&self, now: Time) -> bool {
        self.planned.paused.is_some_and(|end| end.is_after(now))
    }

    fn status(&self, name: &str, now: Time) -> JobStatus {
        let runs = self.runs.as_deref();
        let elsewhere = runs.and_then(|runs| runs.elsewhere.as_ref());
        let elsewhere = elsewhere.filter(|(_, until)| *until > now);
        JobStatus {
            name: name.to_owned(),
            kind: String::new(),
            next: self.planned.next,
            is_paused: self.is_paused(now),
            running: elsewhere.map(|(place, _)| place.clone()).into_iter().collect(),
            last: runs.and_then(|runs| runs.last.clone()),
            last_success: runs.and_then(|runs| runs.last_success),
        }
    }
}
