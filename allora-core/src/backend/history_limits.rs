//! The limits of a history, and the pure rule by which entries of one job are removed.
//!
//! With one limit for all jobs, a job that runs every second would remove the entries of the nightly
//! backup. So each job has limits of its own, and its newest entries and its failures stay longer.
//! The age of an entry is that of its fence, which is drawn from the store's clock, so no index by
//! time is needed.

use crate::time::Time;
use chrono::TimeDelta;
use std::time::Duration;

/// The number of newest entries of each job that neither its limit nor the age removes, and the total
/// only if there is nothing else.
pub const LAST_KEPT: u64 = 20;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The limits of a history: entries of each job, their age, and entries in total. Whichever comes
/// first removes an entry.
///
/// - Of each job, the newest [`per_job`](Self::per_job) entries are kept, as long as they are not older
///   than [`age`](Self::age). An entry is as old as its claim; a range that was not run, as the moment
///   at which that was recorded.
/// - Beyond both limits three things stay: the newest 20 entries of each job, the entries of active
///   runs, and [failures](super::Outcome::is_failure). Of the failures beyond the limits, each job
///   keeps the newest `per_job`, so that a job that always fails has at most twice as many entries.
/// - [`total`](Self::total) removes the oldest entries, also failures. It leaves the newest 20 of each
///   job, and removes these, too, if there is nothing else.
/// - Of a job that was deleted, everything older than `age` is removed.
///
/// The scheduler prunes in the background: a job a tenth beyond its limit for each node that runs it,
/// and the store a tenth beyond the total, are usual.
///
/// ```
/// use allora::backend::HistoryLimits;
/// use std::time::Duration;
///
/// let week = Duration::from_secs(7 * 24 * 60 * 60);
/// let limits = HistoryLimits::default().total(50_000).per_job(200).age(week);
/// assert_eq!(limits.per_job, 200);
/// // A number alone is the total.
/// assert_eq!(HistoryLimits::from(50_000), HistoryLimits::default().total(50_000));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HistoryLimits {
    /// The number of entries in the store; 0 keeps no history. `None`: the default of the store, which
    /// is 10 million for SQL, 1 million for Redis, 100 000 for etcd and in process memory.
    pub total: Option<u64>,
    /// The number of entries of each job. Default: 1 000. Range: 20 to 1 million.
    pub per_job: u64,
    /// The age of an entry. Default: 30 days. Range: 1 hour to 100 years.
    pub age: Duration,
}

impl Default for HistoryLimits {
    fn default() -> Self {
        Self { total: None, per_job: 1_000, age: 30 * DAY }
    }
}

impl From<u64> for HistoryLimits {
    /// So many entries in total; 0 keeps no history.
    fn from(total: u64) -> Self {
        Self::default().total(total)
    }
}

impl HistoryLimits {
    /// This number of entries in the store; 0 keeps no history.
    #[must_use]
    pub fn total(mut self, entries: u64) -> Self {
        self.total = Some(entries);
        self
    }

    /// This number of entries of each job.
    #[must_use]
    pub fn per_job(mut self, entries: u64) -> Self {
        self.per_job = entries;
        self
    }

    /// Entries of this age.
    #[must_use]
    pub fn age(mut self, age: Duration) -> Self {
        self.age = age;
        self
    }

    /// Checks the ranges, in a store that keeps at most `most` entries: for stores, when they connect.
    ///
    /// # Errors
    /// The setting that is out of range, and the range.
    pub fn check(&self, most: u64) -> Result<(), String> {
        if let Some(total) = self.total.filter(|total| *total > most) {
            return Err(format!("{total} history entries; give at most {most}"));
        }
        if !(LAST_KEPT..=1_000_000).contains(&self.per_job) {
            let asked = self.per_job;
            return Err(format!("{asked} history entries per job; give {LAST_KEPT} to 1000000"));
        }
        if !(Duration::from_secs(3_600)..=36_500 * DAY).contains(&self.age) {
            let asked = self.age;
            return Err(format!("history entries of {asked:?} at most; give 1 hour to 100 years"));
        }
        Ok(())
    }

    /// The lowest fence of an entry that is not too old: fences are drawn from microseconds.
    pub(crate) fn oldest_fence(&self, now: Time) -> i64 {
        let age = TimeDelta::from_std(self.age).unwrap_or(TimeDelta::MAX);
        now.checked_sub_signed(age).map_or(0, |oldest| oldest.timestamp_micros())
    }
}

/// A job, as far as its limits depend on it.
#[derive(Clone, Debug)]
pub(crate) struct JobView {
    /// `false` if it was deleted, or never existed.
    pub(crate) is_live: bool,
    /// The fences of its active runs, also of those that were recorded as lost and may still end.
    pub(crate) active: Vec<i64>,
    /// The fence of the last of its [`LAST_KEPT`] newest entries; `None` if it has fewer.
    pub(crate) last_kept: Option<i64>,
    /// The fence of the last of its newest `per_job` entries; `None` if it has fewer.
    pub(crate) limit: Option<i64>,
}

/// One entry, as far as it matters whether it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryMark {
    /// The fence.
    pub fence: i64,
    /// The outcome is a [failure](super::Outcome::is_failure).
    pub is_failure: bool,
}

/// The rule for one job, applied to its entries from the newest to the oldest.
#[derive(Debug)]
pub(crate) struct Removal {
    job: JobView,
    /// Entries below this fence are beyond the limits; `None`: none are.
    pub(crate) below: Option<i64>,
    /// The failures beyond the limits that may still be kept.
    failures: u64,
}

impl Removal {
    pub(crate) fn new(job: JobView, limits: &HistoryLimits, now: Time) -> Self {
        let oldest = limits.oldest_fence(now);
        let below = match (job.is_live, job.last_kept) {
            (true, None) => None,
            (true, Some(last_kept)) => Some(oldest.min(last_kept)),
            (false, _) => Some(oldest),
        };
        let below = below.map(|below| below.max(job.limit.unwrap_or(below)));
        let failures = if job.is_live { limits.per_job } else { 0 };
        Self { job, below, failures }
    }

    /// `true` if the next entry below the limits is removed.
    pub(crate) fn removes(&mut self, entry: HistoryMark) -> bool {
        if self.below.is_none_or(|below| entry.fence >= below)
            || self.job.active.contains(&entry.fence)
        {
            return false;
        }
        if entry.is_failure && self.failures > 0 {
            self.failures -= 1;
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::from_millis;

    /// An entry of a test: its age in hours, and its outcome.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Entry {
        Good(i64),
        Failed(i64),
        Active(i64),
    }
    use Entry::{Active, Failed, Good};

    const HOUR: i64 = 3_600_000_000;

    fn now() -> Time {
        from_millis(1_893_456_000_000).unwrap()
    }

    impl Entry {
        fn fence(self) -> i64 {
            let (Good(age) | Failed(age) | Active(age)) = self;
            now().timestamp_micros() - age * HOUR
        }
    }

    /// The entries that are left, of those from the newest to the oldest.
    fn left(is_live: bool, entries: &[Entry], limits: HistoryLimits) -> Vec<Entry> {
        let at = |rank: u64| entries.get(rank as usize - 1).map(|entry| entry.fence());
        let active = entries.iter().filter(|entry| matches!(entry, Active(_)));
        let job = JobView {
            is_live,
            active: active.map(|entry| entry.fence()).collect(),
            last_kept: at(LAST_KEPT),
            limit: at(limits.per_job),
        };
        let mut removal = Removal::new(job, &limits, now());
        let mut stays = |entry: &Entry| {
            let is_failure = matches!(entry, Failed(_));
            !removal.removes(HistoryMark { fence: entry.fence(), is_failure })
        };
        entries.iter().filter(|entry| stays(entry)).copied().collect()
    }

    /// The same, said entry by entry.
    fn expected(is_live: bool, entries: &[Entry], limits: HistoryLimits) -> Vec<Entry> {
        let age = (limits.age.as_secs() / 3_600) as i64;
        let mut failures = 0;
        let mut is_kept = |(rank, entry): &(u64, Entry)| {
            let (Good(old) | Failed(old) | Active(old)) = *entry;
            if matches!(entry, Active(_)) || (*rank < limits.per_job && old <= age) {
                return true;
            }
            if is_live && *rank < LAST_KEPT {
                return true;
            }
            let is_failure = is_live && matches!(entry, Failed(_));
            failures += u64::from(is_failure);
            is_failure && failures <= limits.per_job
        };
        let ranked = (0..).zip(entries.iter().copied());
        ranked.filter(|entry| is_kept(entry)).map(|(_, entry)| entry).collect()
    }

    fn limits() -> HistoryLimits {
        HistoryLimits::default().per_job(30)
    }

    fn good(ages: std::ops::Range<i64>) -> Vec<Entry> {
        ages.map(Good).collect()
    }

    const MONTH: i64 = 30 * 24;

    #[test]
    fn a_job_has_no_more_entries_than_its_limit() {
        assert_eq!(left(true, &good(0..100), limits()), good(0..30));
        assert_eq!(left(true, &good(0..30), limits()), good(0..30));
    }

    #[test]
    fn the_last_twenty_stay_however_old_they_are() {
        assert_eq!(left(true, &good(MONTH + 1..MONTH + 50), limits()), good(MONTH + 1..MONTH + 21));
        assert_eq!(left(true, &good(MONTH + 1..MONTH + 20), limits()).len(), 19);
        let some = [good(0..5), good(MONTH + 1..MONTH + 50)].concat();
        assert_eq!(left(true, &some, limits()), some[..20]);
    }

    #[test]
    fn what_is_older_than_the_age_goes() {
        let month = good(MONTH - 24..MONTH + 5);
        assert_eq!(left(true, &month, limits()), good(MONTH - 24..MONTH + 1));
    }

    #[test]
    fn failures_and_active_runs_stay_and_failures_have_a_limit_of_their_own() {
        let late = [Failed(MONTH * 2), Good(MONTH * 3), Active(MONTH * 4), Failed(MONTH * 5)];
        let all = [good(0..50), late.to_vec()].concat();
        let kept = [all[..30].to_vec(), vec![late[0], late[2], late[3]]].concat();
        assert_eq!(left(true, &all, limits()), kept);
        let always: Vec<Entry> = (0..100).map(Failed).collect();
        assert_eq!(left(true, &always, limits()), always[..60]);
    }

    #[test]
    fn a_deleted_job_keeps_what_is_young() {
        let all = [good(0..5), vec![Failed(MONTH + 1)], good(MONTH + 1..MONTH + 3)].concat();
        assert_eq!(left(false, &all, limits()), good(0..5));
        assert_eq!(left(false, &good(0..50), limits()), good(0..30));
    }

    #[test]
    fn the_rule_is_the_one_that_is_said_entry_by_entry() {
        // Knuth's generator for MMIX.
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..2_000 {
            let mut age = 0;
            let entries: Vec<Entry> = (0..random(90))
                .map(|_| {
                    age += 1 + random(40) as i64;
                    match random(10) {
                        0 => Active(age),
                        1..4 => Failed(age),
                        _ => Good(age),
                    }
                })
                .collect();
            let limits = HistoryLimits::default().per_job(20 + random(20)).age(DAY * 20);
            let is_live = random(4) > 0;
            assert_eq!(
                left(is_live, &entries, limits),
                expected(is_live, &entries, limits),
                "{is_live} {limits:?} {entries:?}"
            );
        }
    }

    #[test]
    fn settings_out_of_range_are_refused_and_named() {
        let fine = HistoryLimits::default();
        for limits in [fine, fine.total(0), fine.total(100), fine.per_job(20).age(DAY / 24)] {
            assert_eq!(limits.check(100), Ok(()));
        }
        for (limits, named) in [
            (fine.total(101), "at most 100"),
            (fine.per_job(19), "20 to"),
            (fine.per_job(1_000_001), "1000000"),
            (fine.age(Duration::from_secs(3_599)), "1 hour"),
            (fine.age(36_501 * DAY), "100 years"),
        ] {
            assert!(limits.check(100).unwrap_err().contains(named), "{limits:?}");
        }
    }
}
