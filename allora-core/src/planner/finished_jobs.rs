//! The jobs in code whose schedules have ended, and that want nothing: of most, the only run is over. They
//! have no place among the others. Their code is kept, because a trigger runs them again.

use super::{
    slot::{Phase, Slot},
    slot_id::SlotId,
};
use crate::job::JobSpec;
use std::{collections::HashMap, sync::Arc};

#[derive(Default)]
pub(super) struct FinishedJobs {
    pub(super) jobs: HashMap<Arc<str>, Finished>,
    /// The jobs whose schedules may have ended since the last tick.
    pub(super) ending: Vec<SlotId>,
}

/// A part of the job's [slot](Slot).
pub(super) struct Finished {
    pub(super) spec: JobSpec,
    pub(super) agreed: Option<i64>,
    pub(super) fence: Option<i64>,
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

impl Slot {
    /// `true` if the schedule of this job in code has ended, and nothing is under way.
    pub(super) fn is_finished(&self) -> bool {
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
