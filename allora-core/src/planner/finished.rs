//! Jobs in code whose schedules have ended leave their places, and get them again when there is news.

use super::{
    Planner,
    finished_jobs::Finished,
    slot::{Origin, Phase, Slot},
    slot_id::SlotId,
    slots::SPARE,
    wake_up::NOW,
};

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
