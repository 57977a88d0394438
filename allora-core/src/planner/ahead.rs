//! The jobs in code that wait because the store's clock was once ahead and left a time of the
//! future in their records.
//!
//! A late cursor alone proves nothing, because any schedule may have a long pause. But fences are
//! drawn from the store's clock, so a fence of the future shows that the clock was ahead. A record
//! is therefore reported only if its fence is in the future, and so is either the start of a lease,
//! or a cursor that is later than the schedule's next occurrence.

use super::slot_id::SlotId;
use crate::{event::Event, time::Time};
use std::collections::{BTreeMap, BTreeSet};

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

    /// `true` if the job is to be read, or waits.
    pub(super) fn waits_for(&self, id: SlotId) -> bool {
        self.unread.contains(&id) || self.waiting.contains_key(&id)
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
