//! The part of a job's state that the node publishes.

use super::{Output, Planner, SlotId, key::SlotKey, slot::Phase};
use crate::{backend::NextRun, job::Overlap, time::Time};
use std::sync::Arc;

/// The published state of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlannedJob {
    /// The next occurrence; `None` while it is not known.
    pub(crate) next: Option<NextRun>,
    /// The time since which, or from which, an occurrence can be claimed; `None` if a lease or a
    /// problem of the job holds it back.
    pub(crate) claimable_at: Option<Time>,
    /// The schedule is paused.
    pub(crate) is_paused: bool,
}

impl Planner {
    /// Publishes the state of a job, if there is something new.
    pub(super) fn publish(&self, name: &str, output: &mut Output) {
        if let Some(slot) = self.jobs.named(name)
            && let Some((name, planned)) = self.planned(slot)
        {
            output.planned.push((name, planned));
        }
    }

    fn planned(&self, id: SlotId) -> Option<(Arc<str>, PlannedJob)> {
        let slot = self.jobs.get(id)?;
        let planned = match &slot.phase {
            Phase::Known(known) => {
                let is_held = known.leases() > 0 && slot.spec.settings.overlap != Overlap::Allow;
                let waits = self.keys.get(id).is_some_and(SlotKey::is_busy);
                let after_lease = known.after_lease().map(|(next, _)| next);
                PlannedJob {
                    next: known.open_cursor().or(after_lease),
                    claimable_at: known.due_at.filter(|_| !is_held && !waits),
                    is_paused: known.paused,
                }
            }
            Phase::Off(_) => PlannedJob::default(),
            Phase::New(_) | Phase::Redefine(_) | Phase::Stale => return None,
        };
        Some((slot.name.clone(), planned))
    }
}
