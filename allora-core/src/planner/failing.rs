//! The jobs whose last operation failed, or was in a request that was lost: one shard of the store fails
//! or hangs, or one record. Each of these jobs waits by itself, and is asked about in requests that
//! contain no other jobs, so that it delays none.
//!
//! A lost request does not show which of its operations hangs. So its jobs are divided among several
//! requests, down to one job each.

use super::slot_id::SlotId;
use crate::{
    backoff::after,
    time::{Time, from_millis, saturating_add},
};
use std::{collections::HashMap, time::Duration};

/// The number of parts into which the jobs of a lost request are divided.
const PARTS: usize = 16;

/// The time after which a failure shows nothing about the store any more, if nothing is asked about its
/// job: the node is full, or nothing of the job is due. A multiple of the longest wait.
const RECENT: Duration = Duration::from_secs(10);

/// The wait of one job.
struct Wait {
    /// The number of failures in a row, and the time of the last one.
    failures: u32,
    failed_at: Time,
    /// The time of the next operation.
    until: Time,
    /// The largest number of operations in its next request.
    most: usize,
    /// A request about it alone was lost.
    was_alone: bool,
}

#[derive(Default)]
pub(super) struct Failing {
    waits: HashMap<SlotId, Wait>,
    /// Jobs that were answered again, and whose runs on this node are recorded first, at most until
    /// this time.
    held: HashMap<SlotId, Time>,
}

impl Failing {
    /// The jobs whose last operation failed: `true` if that was less than [`RECENT`] before `now`.
    pub(super) fn iter(&self, now: Time) -> impl Iterator<Item = (SlotId, bool)> {
        let is_recent = move |wait: &Wait| now < saturating_add(wait.failed_at, RECENT);
        self.waits.iter().map(move |(id, wait)| (*id, is_recent(wait)))
    }

    pub(super) fn contains(&self, id: SlotId) -> bool {
        self.waits.contains_key(&id)
    }

    /// Notes that an operation on this job has failed: the next one is sent after a while, twice as
    /// long each time. The times are on a grid, so that jobs that fail together share requests.
    pub(super) fn failed(&mut self, id: SlotId, now: Time) {
        let new =
            Wait { failures: 0, failed_at: now, until: now, most: usize::MAX, was_alone: false };
        let Wait { failures, failed_at, until, .. } = self.waits.entry(id).or_insert(new);
        (*failures, *failed_at) = (failures.saturating_add(1), now);
        let wait = i64::try_from(after(*failures).as_millis()).unwrap_or(i64::MAX);
        let half_later = now.timestamp_millis().saturating_add(wait / 2);
        let on_grid = half_later.div_euclid(wait).saturating_add(1).saturating_mul(wait);
        *until = from_millis(on_grid).unwrap_or(now);
    }

    /// Notes that the last operation on this job was in a lost request with this number of operations.
    pub(super) fn lost(&mut self, id: SlotId, now: Time, operations: usize) {
        self.failed(id, now);
        if let Some(wait) = self.waits.get_mut(&id) {
            wait.most = operations.div_ceil(PARTS).max(1);
            wait.was_alone |= operations == 1;
        }
    }

    /// The place of this job among those that fail: first those that may only have shared a request
    /// with one that hangs.
    pub(super) fn suspicion(&self, id: SlotId) -> (bool, u32) {
        self.waits.get(&id).map_or((false, 0), |wait| (wait.was_alone, wait.failures))
    }

    /// The largest number of operations in a request about this job.
    pub(super) fn most(&self, id: SlotId) -> usize {
        self.waits.get(&id).map_or(usize::MAX, |wait| wait.most)
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
        let wait = self.waits.get(&id).map(|wait| wait.until);
        let held = self.held.get(&id).copied();
        wait.into_iter().chain(held).fold(at, Time::max)
    }

    /// Ends all waits: their times are of a clock that was ahead.
    pub(super) fn clock_was_set_back(&mut self) {
        self.waits.values_mut().for_each(|wait| wait.until = Time::MIN_UTC);
        self.held.clear();
    }
}
