//! The due occurrences of a schedule that can compute nothing but the next one.
//!
//! After a long outage there may be a million of them. They are found in slices, so that one such
//! job does not delay the others. A walk inside `Schedule` could not pause, and would be repeated
//! for each decision. So the defaults of `latest_at` and `count` compute nothing, and what a slice
//! has found is kept here for the next one.

use crate::{
    job::{CheckedSchedule, InvalidNextAt},
    time::Time,
};
use chrono::TimeDelta;
use std::collections::VecDeque;

/// The largest number of calls of `next_at` in one slice, which all jobs share that have more.
const SLICE: usize = 1_000;

/// The largest number of calls in the first slice: many jobs may have one at the same time.
const FIRST_SLICE: usize = 100;

/// The smallest share of a slice.
const LEAST: usize = 10;

/// The largest number of occurrences that are counted.
const MOST: u64 = 1_000_000;

/// The due occurrences from the cursor on, as far as they were found.
#[derive(Debug)]
pub(crate) struct Backlog {
    /// The occurrence of the cursor, which is due.
    first: Time,
    /// The number of those found; `None` if there are too many.
    count: Option<u64>,
    /// The last ones found, the oldest first. Never empty.
    last: VecDeque<Time>,
    /// The largest number of `last`.
    keep: usize,
    /// It has been walked before.
    has_begun: bool,
}

impl Backlog {
    /// The occurrences from `first` on, of which the last `keep` are wanted singly.
    pub(crate) fn new(first: Time, keep: u32) -> Self {
        // One more, because it is the last that is not run.
        let keep = (keep as usize).min(MOST as usize) + 1;
        Self { first, count: Some(1), last: VecDeque::from([first]), keep, has_begun: false }
    }

    /// The same occurrences without those before `first`; `None` if `first` is not among the last
    /// ones.
    pub(crate) fn starting(mut self, first: Time) -> Option<Self> {
        if self.first != first {
            let place = self.last.binary_search(&first).ok()?;
            self.last.drain(..place);
            (self.first, self.count) = (first, Some(self.last.len() as u64));
        }
        Some(self)
    }

    /// Finds more of them, up to `until`, in one slice that so many jobs share. Returns `true` if
    /// there are no more.
    pub(crate) fn walk(
        &mut self,
        schedule: CheckedSchedule<'_>,
        until: Time,
        walking: usize,
    ) -> Result<bool, InvalidNextAt> {
        let slice = match std::mem::replace(&mut self.has_begun, true) {
            true => (SLICE / walking.max(1)).max(LEAST),
            false => FIRST_SLICE,
        };
        for _ in 0..slice {
            match schedule.instant_after(self.latest())? {
                Some(next) if next <= until && schedule.is_due_by(next, until)? => self.push(next),
                _ => return Ok(true),
            }
            if self.count.is_some_and(|count| count > MOST) {
                self.jump(schedule, until)?;
            }
        }
        Ok(false)
    }

    fn push(&mut self, next: Time) {
        self.last.push_back(next);
        if self.last.len() > self.keep {
            self.last.pop_front();
        }
        self.count = self.count.map(|count| count + 1);
    }

    /// There are too many to count: continues shortly before `until`, at growing distances.
    fn jump(&mut self, schedule: CheckedSchedule<'_>, until: Time) -> Result<(), InvalidNextAt> {
        self.count = None;
        for seconds in [1, 60, 3_600, 86_400, 31 * 86_400, 366 * 86_400] {
            let back = until - TimeDelta::seconds(seconds);
            if back <= self.latest() {
                break;
            }
            if let Some(at) = schedule.instant_after(back)?.filter(|at| *at <= until) {
                self.last = VecDeque::from([at]);
                break;
            }
        }
        Ok(())
    }

    /// The last one.
    pub(crate) fn latest(&self) -> Time {
        self.last.back().copied().unwrap_or(self.first)
    }

    /// The first of the last `limit` that `fits`; the last one if none does.
    pub(crate) fn first_of(&self, limit: u32, fits: impl Fn(Time) -> bool) -> Time {
        let limit = (limit as usize).clamp(1, self.keep - 1);
        let mut wanted = self.last.iter().skip(self.last.len().saturating_sub(limit));
        wanted.find(|at| fits(**at)).copied().unwrap_or(self.latest())
    }

    /// The number of those before `start`, and the last of them.
    pub(crate) fn before(&self, start: Time) -> (Option<u64>, Time) {
        let place = self.last.partition_point(|at| *at < start);
        let rest = (self.last.len() - place) as u64;
        let last = place.checked_sub(1).and_then(|place| self.last.get(place));
        (self.count.map(|count| count - rest), last.copied().unwrap_or(self.first))
    }

    /// The number of all.
    pub(crate) fn count(&self) -> Option<u64> {
        self.count
    }
}
