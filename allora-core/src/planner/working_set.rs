//! The planner's data about stored schedules. There may be many in the store; each has a slot only
//! while it is due soon.

use super::{broken::Broken, slot_id::SlotId};
use crate::{stored::Route, time::Time};

/// The planner's data about stored schedules.
#[derive(Default)]
pub(super) struct WorkingSet {
    /// The choice of their code; `None` if the node runs no stored schedules.
    pub(super) route: Option<Route>,
    /// Slots whose next time has changed and that may be evicted.
    pub(super) idle: Vec<SlotId>,
    /// The earliest due time of the evicted schedules.
    pub(super) read_at: Option<Time>,
    /// The due schedules that this node cannot run, for their searches and reports.
    pub(super) broken: Broken,
    /// The number of occupied slots.
    pub(super) placed: usize,
}

impl WorkingSet {
    /// Notes that a record that is not in memory is due at `at`.
    pub(super) fn read_by(&mut self, at: Time) {
        if self.route.is_some() {
            let look_at = self.read_at.get_or_insert(at);
            *look_at = at.min(*look_at);
        }
    }
}
