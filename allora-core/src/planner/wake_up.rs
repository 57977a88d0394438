//! The time at which a job is looked at next.

use super::slot_id::SlotId;
use crate::time::{Time, saturating_add, since};
use std::time::Duration;

/// The time at which something is looked at next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum When {
    /// With the next request, whatever the capacity of the node.
    Next,
    At(Time),
}

impl When {
    pub(crate) fn is_due(self, now: Time) -> bool {
        self <= When::At(now)
    }

    /// The time, if the next request is sent at `now`.
    pub(crate) fn time(self, now: Time) -> Time {
        match self {
            When::Next => now,
            When::At(at) => at,
        }
    }
}

/// A job's wake-up time, its rank among those at the same time, and its slot.
pub(super) type WakeUp = (When, u32, SlotId);

/// The longest interval at which a belief is checked again that keeps a due job from running.
pub(super) const MINUTE: Duration = Duration::from_secs(60);

/// The time at which a belief that keeps a job from running is checked again, when its occurrence
/// is due since `due`: at once when it becomes due, then at intervals that grow from the poll
/// interval to a minute.
pub(super) fn recheck(due: Time, now: Time, poll: Duration) -> Time {
    if due > now {
        return due;
    }
    saturating_add(now, since(now, due).clamp(poll.min(MINUTE), MINUTE))
}
