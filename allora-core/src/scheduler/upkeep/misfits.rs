//! The stored schedules whose data did not fit this node's handler.

use crate::{
    backend::JobState,
    run::Run,
    time::{Time, saturating_add},
};
use allora_schedule::stable_hash;
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// The time after which a schedule that did not come again is forgotten.
const KEPT: Duration = Duration::from_secs(3_600);

/// The largest number of schedules. Beyond it, a run fails at once.
const MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(in crate::scheduler) struct Misfits(Mutex<HashMap<Arc<str>, Misfit>>);

#[derive(Debug)]
struct Misfit {
    kind: Arc<str>,
    /// The hash of the data.
    data: u64,
    /// The occurrence that was released last.
    released: Time,
    /// The last time at which the data did not fit, by the store's clock, and by the monotonic one.
    at: Time,
    seen: Instant,
}

impl Misfits {
    /// The data of this run does not fit. Returns whether the occurrence is released: other nodes have
    /// not had it yet.
    pub(in crate::scheduler) fn add(&self, run: &Run, at: Time, seen: Instant) -> bool {
        let mut misfits = self.lock();
        let (name, kind) = (run.shared_name(), run.shared_kind());
        let (data, released) = (hash(run.data()), run.scheduled_at());
        let before = misfits.get(&name);
        let had_it = before.is_some_and(|one| (one.data, one.released) == (data, released));
        let is_full = misfits.len() >= MAX && before.is_none();
        if !is_full {
            misfits.insert(name, Misfit { kind, data, released, at, seen });
        }
        !had_it && !is_full
    }

    /// The data of this run fits. Returns its kind if nothing of the kind is left.
    pub(in crate::scheduler) fn remove(&self, run: &Run) -> Option<Arc<str>> {
        let mut misfits = self.lock();
        let kind = misfits.remove(run.name())?.kind;
        misfits.values().all(|misfit| misfit.kind != kind).then_some(kind)
    }

    /// Forgets those that did not come again for an hour: they were changed or deleted, or run on other
    /// nodes. Returns the kinds of which nothing is left.
    pub(in crate::scheduler) fn forget(&self, now: Instant) -> BTreeSet<Arc<str>> {
        let mut misfits = self.lock();
        let is_old = |misfit: &Misfit| now.saturating_duration_since(misfit.seen) >= KEPT;
        let old = misfits.extract_if(|_, misfit| is_old(misfit));
        let mut kinds: BTreeSet<Arc<str>> = old.map(|(_, misfit)| misfit.kind).collect();
        kinds.retain(|kind| misfits.values().all(|misfit| misfit.kind != *kind));
        kinds
    }

    /// `true` if other nodes have the schedule first at `now`: for the time `head_start`.
    pub(in crate::scheduler) fn is_left(
        &self,
        state: &JobState,
        now: Time,
        head_start: Duration,
    ) -> bool {
        let misfits = self.lock();
        let misfit = misfits.get(state.name.as_str());
        misfit.filter(|misfit| misfit.data == hash(&state.data)).is_some_and(|misfit| {
            let from = state.due_at.map_or(misfit.at, |due_at| due_at.max(misfit.at));
            now < saturating_add(from, head_start)
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Misfit>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn hash(data: &[u8]) -> u64 {
    stable_hash(&[data])
}
