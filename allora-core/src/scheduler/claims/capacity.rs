//! The report that the node's capacity is used up while something due waits for it.

use crate::{condition::Condition, event::Event, scheduler::monotonic::later};
use std::time::{Duration, Instant};

/// The time for which occurrences wait for capacity before that is reported. Shorter waits are
/// frequent and harmless.
const PATIENCE: Duration = Duration::from_secs(1);

/// The time since which something waits for capacity.
#[derive(Debug, Default)]
pub(in crate::scheduler) struct Capacity {
    full_since: Option<Instant>,
    is_reported: bool,
}

impl Capacity {
    /// Notes whether something due waits for capacity. Returns an event when the condition has
    /// lasted long enough, and when it ends.
    pub(in crate::scheduler) fn observe(
        &mut self,
        is_full: bool,
        concurrency: usize,
        now: Instant,
    ) -> Option<Event> {
        if !is_full {
            self.full_since = None;
            let was_reported = std::mem::take(&mut self.is_reported);
            return was_reported.then_some(Event::Ended(Condition::CapacityFull { concurrency }));
        }
        let since = *self.full_since.get_or_insert(now);
        let is_long = !self.is_reported && now >= later(since, PATIENCE);
        self.is_reported |= is_long;
        is_long.then_some(Event::Began(Condition::CapacityFull { concurrency }))
    }

    /// The time at which the condition is reported.
    pub(in crate::scheduler) fn report_at(&self) -> Option<Instant> {
        self.full_since.filter(|_| !self.is_reported).map(|since| later(since, PATIENCE))
    }
}
