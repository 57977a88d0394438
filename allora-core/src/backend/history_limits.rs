//! The limits of a history, and the rule by which entries of one job are removed.
//!
//! With one limit for all jobs, a job that runs every second would remove the entries of the nightly
//! backup, and with one for all outcomes, it would remove its own failures. So each job has limits of
//! its own, and its failures have others than the rest. The age of an entry is that of its fence, which
//! is drawn from the store's clock, so no index by time is needed.

use crate::time::Time;
use chrono::TimeDelta;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The default number of entries of each job, unless a store has a smaller one.
const ENTRIES: u64 = 1_000;

/// The default number of changes by clients, unless a store has a smaller one.
const CHANGES: u64 = 100_000;

/// The age of a change by a client.
const CHANGE_AGE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The limits of a history, for each job: a number of entries and an age for
/// [failures](super::Outcome::is_failure), and others for the rest. Whichever comes first removes an
/// entry.
///
/// An entry is as old as its claim; a range that was not run, as the moment at which that was recorded.
/// Entries of a deleted job are kept for the same time.
///
/// The scheduler prunes in the background: a job that is a tenth beyond its limit for each node that
/// runs it is usual.
///
/// ```
/// use allora::backend::HistoryLimits;
/// use std::time::Duration;
///
/// let week = Duration::from_secs(7 * 24 * 60 * 60);
/// let limits = HistoryLimits::default().per_job(200).age(week).failures_per_job(500);
/// assert_eq!(limits.per_job, Some(200));
/// // A number alone is that of both.
/// let limits = HistoryLimits::from(500);
/// assert_eq!(limits, HistoryLimits::default().per_job(500).failures_per_job(500));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HistoryLimits {
    /// The number of entries of each job that are no failures; 0 keeps no history at all. `None`: the
    /// default of the store, which is 1 000, and 100 where space is small: in etcd and in process
    /// memory. Range: 0 to 1 million.
    pub per_job: Option<u64>,
    /// The age of an entry that is no failure. Default: 90 days. Range: 1 hour to 100 years.
    pub age: Duration,
    /// The number of failures of each job. `None`: as of [`per_job`](Self::per_job). Range: 0 to
    /// 1 million.
    pub failures_per_job: Option<u64>,
    /// The age of a failure. Default: 1 year. Range: 1 hour to 100 years.
    pub failure_age: Duration,
    /// The number of [changes by clients](crate::Schedules::changes), of all jobs together, which are
    /// kept for a year, whether there is a history or not. `None`: the default of the store, which is
    /// 100 000, and 10 000 in etcd and in process memory. Range: 0 to 1 million.
    pub changes: Option<u64>,
    /// `true`: attempts that succeeded have entries. `false`: only what failed, was tried again, released
    /// or cancelled, what was not run, and runs that were triggered, since somebody may wait for them; then
    /// other successes cost no more than without a history. Each connection decides about the ends of runs
    /// that it writes. Default: `true`.
    pub successes: bool,
}

impl Default for HistoryLimits {
    fn default() -> Self {
        Self {
            per_job: None,
            age: 90 * DAY,
            failures_per_job: None,
            failure_age: 365 * DAY,
            changes: None,
            successes: true,
        }
    }
}

impl From<u64> for HistoryLimits {
    /// So many failures of each job, and so many other entries; 0 keeps no history.
    fn from(entries: u64) -> Self {
        Self::default().per_job(entries).failures_per_job(entries)
    }
}

impl HistoryLimits {
    /// This number of entries of each job that are no failures; 0 keeps no history.
    #[must_use]
    pub fn per_job(mut self, entries: u64) -> Self {
        self.per_job = Some(entries);
        self
    }

    /// Entries of this age, unless they are failures.
    #[must_use]
    pub fn age(mut self, age: Duration) -> Self {
        self.age = age;
        self
    }

    /// This number of failures of each job.
    #[must_use]
    pub fn failures_per_job(mut self, entries: u64) -> Self {
        self.failures_per_job = Some(entries);
        self
    }

    /// Failures of this age.
    #[must_use]
    pub fn failure_age(mut self, age: Duration) -> Self {
        self.failure_age = age;
        self
    }

    /// This number of changes by clients, of all jobs together.
    #[must_use]
    pub fn changes(mut self, changes: u64) -> Self {
        self.changes = Some(changes);
        self
    }

    /// Without attempts that succeeded. Plots and statistics then lack them, and so does the answer to the
    /// question whether a run of the past succeeded.
    #[must_use]
    pub fn without_successes(mut self) -> Self {
        self.successes = false;
        self
    }

    /// Checks the ranges: for stores, when they connect.
    ///
    /// # Errors
    /// The setting that is out of range, and the range.
    pub fn check(&self) -> Result<(), String> {
        let numbers = [self.per_job, self.failures_per_job].into_iter().flatten();
        if let Some(asked) = numbers.max().filter(|most| *most > 1_000_000) {
            return Err(format!("{asked} history entries of each job; give at most 1000000"));
        }
        if let Some(asked) = self.changes.filter(|asked| *asked > 1_000_000) {
            return Err(format!("{asked} changes by clients; give at most 1000000"));
        }
        let range = Duration::from_secs(3_600)..=36_500 * DAY;
        match [self.age, self.failure_age].into_iter().find(|age| !range.contains(age)) {
            None => Ok(()),
            Some(asked) => {
                Err(format!("history entries of {asked:?} at most; give 1 hour to 100 years"))
            }
        }
    }

    /// These limits at this time.
    pub fn at(&self, now: Time) -> HistoryTrim {
        let newest = |entries: Option<u64>, age| Newest {
            entries: entries.or(self.per_job).unwrap_or(ENTRIES),
            from: oldest_fence(now, age),
        };
        HistoryTrim {
            rest: newest(self.per_job, self.age),
            failures: newest(self.failures_per_job, self.failure_age),
        }
    }

    /// The changes by clients that are kept at this time.
    pub fn changes_at(&self, now: Time) -> Newest {
        let entries = self.changes.unwrap_or(CHANGES);
        Newest { entries, from: oldest_fence(now, CHANGE_AGE) }
    }
}

/// The lowest fence of an entry that is not older than this: fences are drawn from microseconds.
fn oldest_fence(now: Time, age: Duration) -> i64 {
    let age = TimeDelta::from_std(age).unwrap_or(TimeDelta::MAX);
    now.checked_sub_signed(age).map_or(0, |oldest| oldest.timestamp_micros())
}

/// The entries of each job that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryTrim {
    /// Of the entries that are no failures.
    pub rest: Newest,
    /// Of the [failures](super::Outcome::is_failure).
    pub failures: Newest,
}

/// The entries with the highest fences, as far as they are not too old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Newest {
    /// At most so many.
    pub entries: u64,
    /// None with a lower fence.
    pub from: i64,
}

impl HistoryTrim {
    /// The entries that both keep.
    pub(crate) fn and(self, other: Self) -> Self {
        let both = |one: Newest, other: Newest| Newest {
            entries: one.entries.min(other.entries),
            from: one.from.max(other.from),
        };
        Self { rest: both(self.rest, other.rest), failures: both(self.failures, other.failures) }
    }

    /// That of the failures, or of the rest.
    pub fn of(&self, is_failure: bool) -> Newest {
        if is_failure { self.failures } else { self.rest }
    }

    /// `true` if the next entry of a job goes, from its newest one to its oldest: for stores that read
    /// the entries to decide. The value is for one job.
    pub fn removes(&mut self, fence: i64, is_failure: bool) -> bool {
        if is_failure { self.failures.removes(fence) } else { self.rest.removes(fence) }
    }
}

impl Newest {
    /// `true` if the next one goes, from the newest to the oldest.
    pub fn removes(&mut self, fence: i64) -> bool {
        if self.entries == 0 || fence < self.from {
            return true;
        }
        self.entries -= 1;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::from_millis;

    #[test]
    fn failures_and_the_rest_are_counted_apart_and_grow_old_apart() {
        let hours = |n: u64| Duration::from_secs(n * 3_600);
        let now = from_millis(100 * 3_600_000).unwrap();
        let limits = HistoryLimits::default().per_job(3).age(hours(10));
        let mut trim = limits.failures_per_job(2).failure_age(hours(50)).at(now);
        let mut removed = Vec::new();
        for (age, is_failure) in [
            (1, false),
            (2, true),
            (3, false),
            (10, false),
            (11, false),
            (12, true),
            (13, true),
            (51, true),
        ] {
            if trim.removes((100 - age) * 3_600_000_000, is_failure) {
                removed.push(age);
            }
        }
        assert_eq!(removed, [11, 13, 51]);
    }

    #[test]
    fn limits_out_of_range_are_refused() {
        let limits = HistoryLimits::default();
        for wrong in [
            limits.per_job(1_000_001),
            limits.failures_per_job(1_000_001),
            limits.age(Duration::from_secs(3_599)),
            limits.failure_age(36_501 * DAY),
            limits.changes(1_000_001),
        ] {
            let text = wrong.check().unwrap_err();
            assert!(text.contains("give "), "{text}");
        }
        for right in [limits, 0.into(), limits.age(36_500 * DAY), limits.failures_per_job(0)] {
            assert_eq!(right.check(), Ok(()));
        }
    }
}
