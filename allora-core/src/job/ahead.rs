//! Times in a record that a store's clock has left there that was ahead.

use super::{CheckedSchedule, JobSpec};
use crate::{
    backend::{JobState, NextRun, OnExpiry},
    time::{Time, saturating_add},
};
use std::time::Duration;

/// The shortest distance from the present that is reported.
const FAR: Duration = Duration::from_secs(60);

/// The time until which a job waits because a store's clock was ahead; `None` if its record is
/// explained by its schedule.
pub(crate) fn ahead_until(name: &str, spec: &JobSpec, state: &JobState, now: Time) -> Option<Time> {
    ahead_unless(state, now, |cursor, _| {
        // A faulty schedule has a report of its own.
        CheckedSchedule::of(name, spec)
            .following(now, 0)
            .is_ok_and(|next| next.is_none_or(|next| next.scheduled_at < cursor.scheduled_at))
    })
}

/// As [`ahead_until`], where `is_unexplained` says of the cursor and the time of the record's last
/// fence that the schedule does not explain the cursor.
///
/// A fence is drawn from the store's clock. So a fence of the future shows that the clock was ahead
/// when the record was written. After a reset, the fence is still ahead, and the cursor is not.
pub(crate) fn ahead_unless(
    state: &JobState,
    now: Time,
    is_unexplained: impl Fn(NextRun, Time) -> bool,
) -> Option<Time> {
    let far = saturating_add(now, FAR);
    let drawn = Time::from_timestamp_micros(state.fence).filter(|drawn| *drawn > far)?;
    let cursor = state.next.filter(|cursor| cursor.due_at > far && is_unexplained(*cursor, drawn));
    let leases = state
        .leases
        .iter()
        .filter(|lease| lease.on_expiry == OnExpiry::Retry && lease.started_at > far);
    leases.map(|lease| lease.until).chain(cursor.map(|cursor| cursor.due_at)).max()
}
