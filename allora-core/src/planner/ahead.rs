//! Times in a record that a store's clock has left there that was ahead.

use crate::{
    backend::{JobState, OnExpiry},
    job::{CheckedSchedule, JobSpec},
    time::{Time, saturating_add},
};
use std::time::Duration;

/// The shortest distance from the present that is reported.
const FAR: Duration = Duration::from_secs(60);

/// The time until which a job waits because a store's clock was ahead; `None` if its record is
/// explained by its schedule.
///
/// A fence is drawn from the store's clock. So a fence of the future shows that the clock was ahead
/// when the record was written. After a reset, the fence is still ahead, and the cursor is not.
pub(crate) fn waits_until(name: &str, spec: &JobSpec, state: &JobState, now: Time) -> Option<Time> {
    let far = saturating_add(now, FAR);
    Time::from_timestamp_micros(state.fence).filter(|drawn| *drawn > far)?;
    let cursor = state.cursor.filter(|cursor| cursor.due_at > far).filter(|cursor| {
        // A faulty schedule has a report of its own.
        CheckedSchedule::of(name, spec)
            .following(now, 0)
            .is_ok_and(|next| next.is_none_or(|next| next.scheduled_at < cursor.scheduled_at))
    });
    let leases = state
        .leases
        .iter()
        .filter(|lease| lease.on_expiry == OnExpiry::Retry && lease.started_at > far);
    leases.map(|lease| lease.until).chain(cursor.map(|cursor| cursor.due_at)).max()
}
