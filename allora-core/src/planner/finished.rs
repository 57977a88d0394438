//! The jobs in code whose schedules have ended, and that want nothing: of most, the only run is over. They
//! have no place among the others. Their code is kept, because a trigger runs them again.

use super::{
    Planner,
    slot::{Origin, Phase, Slot},
    slot_id::SlotId,
    slots::SPARE,
    wake_up::NOW,
};
use crate::job::JobSpec;
use std::{collections::HashMap, sync::Arc};

#[derive(Default)]
pub(super) struct FinishedJobs {
    jobs: HashMap<Arc<str>, Finished>,
    /// The jobs whose schedules may have ended since the last tick.
    ending: Vec<SlotId>,
}

/// A part of the job's [slot](Slot).
struct Finished {
    spec: JobSpec,
    agreed: Option<i64>,
    fence: Option<i64>,
}

impl FinishedJobs {
    pub(super) fn contains(&self, name: &str) -> bool {
        self.jobs.contains_key(name)
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<JobSpec> {
        self.jobs.remove(name).map(|job| job.spec)
    }

    /// The names, and the generations of the definitions that the node and the store agree on.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, Option<i64>)> {
        self.jobs.iter().map(|(name, job)| (name, job.agreed))
    }
}

impl Planner {
    /// Notes the job if its schedule has ended. Its place is freed when the present work is done.
    pub(super) fn note_finished(&mut self, id: SlotId) {
        if self.slots.get(id).is_some_and(Slot::is_finished) {
            self.finished.ending.push(id);
        }
    }

    /// Frees the places of the jobs whose schedules have ended.
    pub(super) fn free_finished(&mut self) {
        for id in std::mem::take(&mut self.finished.ending) {
            let is_finished = self.slots.get(id).is_some_and(Slot::is_finished)
                && !self.failing.contains(id)
                && !self.ahead.waits_for(id);
            if !is_finished {
                continue;
            }
            self.forget_key(id);
            self.failing.answered(id);
            self.replacing.remove(&id);
            self.was_covered(id);
            if let Some(Slot { name, spec, agreed, fence, .. }) = self.slots.remove(id) {
                self.by_name.remove(&name);
                self.finished.jobs.insert(name, Finished { spec, agreed, fence });
            }
        }
        if self.by_name.capacity() > 4 * self.by_name.len() + SPARE {
            self.by_name.shrink_to(2 * self.by_name.len());
        }
    }

    /// Gives a job whose schedule has ended a place again, to be read now. Returns `false` if there is none
    /// of this name.
    pub(super) fn resume_finished(&mut self, name: &str) -> bool {
        let Some((name, job)) = self.finished.jobs.remove_entry(name) else { return false };
        let Finished { spec, agreed, fence } = job;
        let slot = Slot::new(name.clone(), spec, Origin::Code, self.seed);
        let slot = Slot { phase: Phase::Stale, agreed, fence, ..slot };
        let Some(id) = self.slots.insert(slot) else { return false };
        self.by_name.insert(name, id);
        self.wake(id, Some(NOW));
        true
    }
}

impl Slot {
    /// `true` if the schedule of this job in code has ended, and nothing is under way.
    fn is_finished(&self) -> bool {
        let Phase::Known(known) = &self.phase else { return false };
        let is_plain = self.rare.as_ref().is_none_or(|rare| {
            rare.own.is_none()
                && rare.key.is_none()
                && rare.aside.is_none()
                && rare.reported.is_none()
        });
        let has_ended = known.cursor.is_none() && known.wants_attention().is_none();
        has_ended && is_plain && !known.is_ahead && !self.is_stored() && self.exchange.is_idle()
    }
}
