//! The part of a job's state that the node publishes.

use super::{Planner, key::SlotKey, slot::Phase};
use crate::{backend::NextRun, job::Overlap, time::Time};

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
    /// The state of a job to publish; `None` if there is nothing new.
    pub(crate) fn planned(&self, name: &str) -> Option<PlannedJob> {
        let slot = self.slots.get(*self.by_name.get(name)?)?;
        match &slot.phase {
            Phase::Known(known) => {
                let is_held = known.leases() > 0 && slot.spec.settings.overlap != Overlap::Allow;
                let waits = slot.key().is_some_and(SlotKey::is_busy);
                let after_lease = known.after_lease().map(|(next, _)| next);
                Some(PlannedJob {
                    next: known.open_cursor().or(after_lease),
                    claimable_at: known.due_at.filter(|_| !is_held && !waits),
                    is_paused: known.paused,
                })
            }
            Phase::Off(_) => Some(PlannedJob::default()),
            Phase::New(_) | Phase::Redefine(_) | Phase::Stale => None,
        }
    }
}
