//! The jobs whose operations fail while the store answers others: one shard of it fails, or one
//! record. Each of these jobs waits by itself, so that it delays no other.

use super::slot_id::SlotId;
use crate::{
    backoff::after,
    time::{Time, from_millis},
};
use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Failing {
    /// The number of failures in a row, and the time of the next operation.
    waits: HashMap<SlotId, (u32, Time)>,
    /// Jobs that were answered again, and whose runs on this node are recorded first, at most until
    /// this time.
    held: HashMap<SlotId, Time>,
}

impl Failing {
    pub(super) fn iter(&self) -> impl Iterator<Item = SlotId> {
        self.waits.keys().copied()
    }

    pub(super) fn contains(&self, id: SlotId) -> bool {
        self.waits.contains_key(&id)
    }

    /// Notes that an operation on this job has failed: the next one is sent after a while, twice as
    /// long each time. The times are on a grid, so that jobs that fail together share requests.
    pub(super) fn failed(&mut self, id: SlotId, now: Time) {
        let (failures, until) = self.waits.entry(id).or_insert((0, now));
        *failures = failures.saturating_add(1);
        let wait = i64::try_from(after(*failures).as_millis()).unwrap_or(i64::MAX);
        let half_later = now.timestamp_millis().saturating_add(wait / 2);
        let on_grid = half_later.div_euclid(wait).saturating_add(1).saturating_mul(wait);
        *until = from_millis(on_grid).unwrap_or(now);
    }

    /// Notes that an operation on this job was answered.
    pub(super) fn answered(&mut self, id: SlotId) {
        self.waits.remove(&id);
        self.held.remove(&id);
    }

    /// Sends nothing about this job before this time.
    pub(super) fn hold(&mut self, id: SlotId, until: Time) {
        self.held.insert(id, until);
    }

    /// Ends [`hold`](Self::hold). Returns whether the job was held.
    pub(super) fn release(&mut self, id: SlotId) -> bool {
        self.held.remove(&id).is_some()
    }

    /// The earliest time of an operation on this job that is due at `at`.
    pub(super) fn delay(&self, id: SlotId, at: Time) -> Time {
        let wait = self.waits.get(&id).map(|(_, until)| *until);
        let held = self.held.get(&id).copied();
        wait.into_iter().chain(held).fold(at, Time::max)
    }

    /// Ends all waits: their times are of a clock that was ahead.
    pub(super) fn clock_was_set_back(&mut self) {
        self.waits.values_mut().for_each(|(_, until)| *until = Time::MIN_UTC);
        self.held.clear();
    }
}
