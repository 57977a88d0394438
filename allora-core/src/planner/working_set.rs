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
    /// The schedules that no node can run, by the generation that was reported; those that wait for the
    /// first read of a calendar, by [`WAITING`].
    pub(super) broken: HashMap<Arc<str>, i64>,
    /// The number of occupied slots.
    pub(super) placed: usize,
}

/// The largest number of reported broken schedules that are remembered. Others are reported again.
const BROKEN: usize = 10_000;

/// In place of a generation: not reported.
pub(super) const WAITING: i64 = i64::MIN;

/// The end of the report of a broken schedule.
pub(super) fn resumed((name, generation): (Arc<str>, i64)) -> Option<Event> {
    (generation != WAITING).then_some(Event::JobResumed { name })
}

impl WorkingSet {
    /// Notes that no node can run this generation of a schedule. Returns whether that is new.
    pub(super) fn is_newly_broken(
        &mut self,
        name: Arc<str>,
        generation: i64,
        events: &mut Vec<Event>,
    ) -> bool {
        self.make_room(events);
        self.broken.insert(name, generation) != Some(generation)
    }

    /// Notes that a schedule waits for the first read of a calendar. What was reported stays so.
    pub(super) fn waits_for_calendar(&mut self, name: Arc<str>, events: &mut Vec<Event>) {
        self.make_room(events);
        self.broken.entry(name).or_insert(WAITING);
    }

    fn make_room(&mut self, events: &mut Vec<Event>) {
        if self.broken.len() >= BROKEN {
            events.extend(self.broken.drain().filter_map(resumed));
        }
    }

    /// Notes that a record that is not in memory is due at `at`.
    pub(super) fn read_by(&mut self, at: Time) {
        if self.route.is_some() {
            let look_at = self.read_at.get_or_insert(at);
            *look_at = at.min(*look_at);
        }
    }
}
