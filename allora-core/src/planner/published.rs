//! The part of a job's state that the node publishes, for `Handle::health` and `Handle::jobs`.

use super::{Output, PlannedJob, Planner, SlotId, job::slot::Phase, key::SlotKey};
use crate::job::Overlap;
use std::sync::Arc;

impl Planner {
    /// Publishes the state of a job, if there is something new.
    pub(super) fn publish(&self, name: &str, output: &mut Output) {
        self.publish_place(self.jobs.named(name), output);
    }

    /// Publishes the state of the job of this place, if there is something new.
    pub(super) fn publish_place(&self, id: Option<SlotId>, output: &mut Output) {
        output.planned.extend(id.and_then(|id| self.planned(id)));
    }

    fn planned(&self, id: SlotId) -> Option<(Arc<str>, PlannedJob)> {
        let slot = self.jobs.get(id).filter(|slot| !slot.is_removed())?;
        let planned = match &slot.phase {
            Phase::Known(known) => {
                let is_held = known.leases() > 0 && slot.spec.settings.overlap != Overlap::Allow;
                let waits = self.keys.get(id).is_some_and(SlotKey::is_busy);
                let after_lease = known.after_lease().map(|(next, _)| next);
                PlannedJob {
                    next: known.open_cursor().or(after_lease),
                    claimable_at: known.due_at.filter(|_| !is_held && !waits),
                    paused: known.paused(),
                }
            }
            Phase::Off(_) => PlannedJob::default(),
            Phase::New(_) | Phase::Redefine(_) | Phase::Stale => return None,
        };
        Some((slot.name.clone(), planned))
    }
}
