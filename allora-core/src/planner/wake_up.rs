//! The times at which jobs are looked at.

use super::slot_id::SlotId;
use crate::time::{Time, saturating_add, since};
use std::time::Duration;

/// A job's wake-up time, its rank among those at the same time, and its slot.
pub(super) type WakeUp = (Time, u32, SlotId);

/// The wake-up time of what is asked with the next request: registrations and reads.
pub(super) const NOW: Time = Time::MIN_UTC;

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
