//! Times in a record that a store's clock has left there that was ahead.
//!
//! Fences are drawn from the store's clock. So a fence of the future is evidence that the clock was
//! ahead, which a late cursor alone is not: any schedule may have a long pause. A record is reported
//! only if its fence is ahead and its cursor is behind the next occurrence of its schedule.

use super::slot_id::SlotId;
use crate::{
    backend::{JobState, OnExpiry},
    event::Event,
    job::{CheckedSchedule, JobSpec},
    time::{Time, saturating_add},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The jobs in code that wait for such times. They are counted when all jobs have been read.
#[derive(Debug, Default)]
pub(super) struct AheadJobs {
    unread: BTreeSet<SlotId>,
    waiting: BTreeMap<SlotId, Time>,
    /// Another job waits since the last report, or the clock was set back.
    has_changed: bool,
}

impl AheadJobs {
    /// A job was added.
    pub(super) fn read_first(&mut self, id: SlotId) {
        self.unread.insert(id);
    }

    /// The clock was set back: these are all jobs.
    pub(super) fn read_again(&mut self, ids: impl Iterator<Item = SlotId>) {
        self.unread.extend(ids);
        self.has_changed = true;
    }

    pub(super) fn waits(&mut self, id: SlotId, until: Time) {
        self.waiting.insert(id, until);
        self.has_changed = true;
    }

    pub(super) fn resumes(&mut self, id: SlotId) {
        self.waiting.remove(&id);
    }

    pub(super) fn remove(&mut self, id: SlotId) {
        self.unread.remove(&id);
        self.waiting.remove(&id);
    }

    /// The store has answered about a job. Returns the report, if it was the last one to be read.
    pub(super) fn is_read(&mut self, id: SlotId) -> Option<Event> {
        self.unread.remove(&id);
        if !self.unread.is_empty() || !std::mem::take(&mut self.has_changed) {
            return None;
        }
        let (stored, waiting) = (false, self.waiting.len());
        let until = *self.waiting.values().max()?;
        Some(Event::ClockWasSetBack { stored, waiting, until })
    }
}

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
