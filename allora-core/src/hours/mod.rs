//! The history of one job, counted by the hour: what is left of it when its entries have been removed.

mod day;
mod spread;
mod totals;

pub(crate) use day::{Day, day_of, last_fence, start_of_day, start_of_hour};
pub use spread::Spread;
pub use totals::HourTotals;

use crate::{
    backend::{HistoryEntry, NotRunReason, Outcome},
    time::{Time, since},
};
use chrono::TimeDelta;

/// The time for which the hours of a job are kept.
pub(crate) const KEPT: TimeDelta = TimeDelta::days(30);

/// One hour of one job, from [`Schedules::hours`](crate::Schedules::hours).
///
/// In JSON, it is an object of its fields. Those that are a [`Spread`] are objects with its `count`, `p50_ms`
/// and `p99_ms`.
///
/// A run belongs to the hour of its claim, whenever it ended, and occurrences that were not run to the
/// hour in which that was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hour {
    /// The time at which it begins: a whole hour in UTC.
    pub from: Time,
    /// Attempts that were started and have ended: of the schedule and by triggers.
    pub started: u64,
    /// Runs that succeeded.
    pub succeeded: u64,
    /// Runs that failed and were not tried again.
    pub failed: u64,
    /// Runs that failed or were dropped, and that another attempt followed.
    pub retried: u64,
    /// Runs and waiting occurrences that were cancelled.
    pub cancelled: u64,
    /// Occurrences that were skipped, without those that the calendar of the schedule excludes.
    pub skipped: u64,
    /// Occurrences that were missed; of a range that was not counted, one.
    pub missed: u64,
    /// At-most-once runs whose leases ended. A run that goes on and ends later stays one of them, if it
    /// was counted before.
    pub lost: u64,
    /// At-least-once runs whose leases ended.
    pub expired: u64,
    /// The time from the moment at which an attempt could be claimed to its start.
    pub lateness: Spread,
    /// The duration of the runs that ended by themselves: that succeeded or failed, with every attempt.
    pub duration: Spread,
}

impl Hour {
    /// An hour in which nothing happened.
    pub fn new(from: Time) -> Self {
        let (lateness, duration) = (Spread::default(), Spread::default());
        let (started, succeeded, failed, retried, cancelled) = (0, 0, 0, 0, 0);
        let (skipped, missed, lost, expired) = (0, 0, 0, 0);
        Self {
            from,
            started,
            succeeded,
            failed,
            retried,
            cancelled,
            skipped,
            missed,
            lost,
            expired,
            lateness,
            duration,
        }
    }

    /// Adds what happened in another hour: for the figures of a day, or of several jobs. It begins at
    /// the same time as before.
    pub fn merge(&mut self, other: &Self) {
        for (sum, more) in self.numbers().into_iter().zip(other.clone().numbers()) {
            *sum = sum.saturating_add(*more);
        }
        self.lateness.merge(&other.lateness);
        self.duration.merge(&other.duration);
    }

    /// Counts an entry.
    fn count(&mut self, entry: &HistoryEntry) {
        let number = match &entry.outcome {
            // An operator has recorded that its work is done: no run.
            Outcome::Succeeded if entry.attempt == 0 => return,
            Outcome::Succeeded => &mut self.succeeded,
            Outcome::Failed(_) | Outcome::Dead(_) => &mut self.failed,
            Outcome::Retried(_) | Outcome::Interrupted => &mut self.retried,
            Outcome::Cancelled => &mut self.cancelled,
            Outcome::Skipped if entry.reason != Some(NotRunReason::Calendar) => &mut self.skipped,
            Outcome::Missed => &mut self.missed,
            Outcome::Lost => &mut self.lost,
            Outcome::Expired => &mut self.expired,
            // Nothing was to run, or it was given back before it ran.
            Outcome::Skipped | Outcome::Released | Outcome::Running => return,
        };
        *number = number.saturating_add(entry.count.unwrap_or(1).max(1));
        let Some(started_at) = entry.started_at else { return };
        self.started = self.started.saturating_add(1);
        if let Some(due_at) = entry.due_at {
            self.lateness.add(since(started_at, due_at));
        }
        let has_ended_by_itself = matches!(
            entry.outcome,
            Outcome::Succeeded | Outcome::Failed(_) | Outcome::Dead(_) | Outcome::Retried(_)
        );
        if let Some(took) = entry.duration().filter(|_| has_ended_by_itself) {
            self.duration.add(took);
        }
    }

    /// The numbers, in the order in which a [`Day`] writes them.
    fn numbers(&mut self) -> [&mut u64; 9] {
        let Self { started, succeeded, failed, retried, cancelled, .. } = self;
        let Self { skipped, missed, lost, expired, .. } = self;
        [started, succeeded, failed, retried, cancelled, skipped, missed, lost, expired]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::from_millis;
    use std::time::Duration;

    fn at(seconds: i64) -> Time {
        from_millis(seconds * 1_000).unwrap()
    }

    /// A run that is due at second 10, starts at 12 and ends at 42.
    fn run(outcome: Outcome) -> HistoryEntry {
        let (due_at, started_at, ended_at) = (Some(at(10)), Some(at(12)), Some(at(42)));
        let entry = HistoryEntry::new("job", 12_000_000, at(10).into(), outcome);
        HistoryEntry { due_at, started_at, ended_at, ..entry }
    }

    fn range(outcome: Outcome, count: Option<u64>, reason: NotRunReason) -> HistoryEntry {
        let entry = HistoryEntry::new("job", 12_000_000, at(10).into(), outcome);
        HistoryEntry { count, reason: Some(reason), attempt: 0, ..entry }
    }

    fn counted(entries: &[HistoryEntry]) -> Hour {
        let mut hour = Hour::new(at(0));
        entries.iter().for_each(|entry| hour.count(entry));
        hour
    }

    #[test]
    fn each_outcome_is_counted_once() {
        let text = || "no".to_owned();
        let mut hour = counted(&[
            run(Outcome::Succeeded),
            run(Outcome::Failed(text())),
            run(Outcome::Dead(text())),
            run(Outcome::Retried(text())),
            run(Outcome::Interrupted),
            run(Outcome::Cancelled),
            run(Outcome::Released),
            run(Outcome::Lost),
            run(Outcome::Expired),
            range(Outcome::Missed, Some(40), NotRunReason::CatchUp),
            range(Outcome::Missed, None, NotRunReason::Window),
            range(Outcome::Skipped, Some(3), NotRunReason::Overlap),
            range(Outcome::Skipped, Some(70), NotRunReason::Calendar),
        ]);
        assert_eq!(hour.numbers().map(|number| *number), [8, 1, 2, 2, 1, 3, 41, 1, 1]);
        assert_eq!((hour.lateness.count(), hour.duration.count()), (8, 4));
    }

    #[test]
    fn lateness_is_from_due_to_started_and_duration_from_started_to_ended() {
        let hour = counted(&[run(Outcome::Succeeded)]);
        let near = |spread: &Spread, seconds: u64| {
            let found = spread.percentile(50).unwrap();
            let exact = Duration::from_secs(seconds);
            assert!(found.abs_diff(exact) <= exact / 16, "{found:?}");
        };
        near(&hour.lateness, 2);
        near(&hour.duration, 30);
    }

    #[test]
    fn hours_add_up() {
        let (mut one, other) =
            (counted(&[run(Outcome::Succeeded)]), counted(&[run(Outcome::Lost)]));
        one.merge(&other);
        assert_eq!(one, counted(&[run(Outcome::Lost), run(Outcome::Succeeded)]));
    }
}
