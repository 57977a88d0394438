//! The planner's data about stored schedules. There may be many in the store; each has a slot only
//! while it is due soon.

use super::slot_id::SlotId;
use crate::{event::Event, stored::Route, time::Time};
use std::{collections::HashMap, sync::Arc};

/// The planner's data about stored schedules.
#[derive(Default)]
pub(super) struct WorkingSet {
    /// The choice of their code; `None` if the node runs no stored schedules.
    pub(super) route: Option<Route>,
    /// Slots whose next time has changed and that may be evicted.
    pub(super) idle: Vec<SlotId>,
    /// The earliest due time of the evicted schedules.
    pub(super) read_at: Option<Time>,
    /// The schedules that no node can run, by the generation that was reported.
    pub(super) broken: HashMap<Arc<str>, i64>,
    /// The number of occupied slots.
    pub(super) placed: usize,
}

/// The largest number of reported broken schedules that are remembered. Others are reported again.
const BROKEN: usize = 10_000;

impl WorkingSet {
    /// Notes that no node can run this generation of a schedule. Returns whether that is new.
    pub(super) fn is_newly_broken(
        &mut self,
        name: Arc<str>,
        generation: i64,
        events: &mut Vec<Event>,
    ) -> bool {
        if self.broken.len() >= BROKEN {
            let ended = self.broken.drain();
            events.extend(ended.map(|(name, _)| Event::JobResumed { name }));
        }
        self.broken.insert(name, generation) != Some(generation)
    }

    /// Notes that a record that is not in memory is due at `at`.
    pub(super) fn read_by(&mut self, at: Time) {
        if self.route.is_some() {
            let look_at = self.read_at.get_or_insert(at);
            *look_at = at.min(*look_at);
        }
    }
}
