//! The hours of many jobs together: the counts of the store, and with them what is not counted yet.

use super::{Day, Hour, day::from, start_of_hour};
use crate::{
    backend::{HistoryEntry, Outcome},
    time::Time,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The hours of many jobs together, from [`Schedules::hour_totals`](crate::Schedules::hour_totals).
///
/// It has what nodes have counted. [`add`](Self::add) entries of the history, from the newest one on, to
/// have what they have not: each entry is counted once, whether it was counted before or not.
#[derive(Clone, Debug, Default)]
pub struct HourTotals {
    /// The first hour.
    from: Time,
    /// By their beginnings.
    hours: BTreeMap<Time, Hour>,
    jobs: HashMap<String, Counted>,
    /// The number of days of jobs that were read.
    pub(crate) records: usize,
    pub(crate) is_partial: bool,
}

/// The entries of one job that are counted.
#[derive(Clone, Debug, Default)]
struct Counted {
    /// Those up to this fence, except the open ones.
    mark: i64,
    open: BTreeSet<i64>,
}

impl HourTotals {
    /// Hours from that of this time on, of which none is counted: for a store that counts none, or too
    /// many to add up.
    pub fn new(from: Time) -> Self {
        Self { from: start_of_hour(from), ..Self::default() }
    }

    /// Counts an entry of the history, unless it belongs to an earlier hour, is of an active run, or is
    /// counted already. Each entry must be given once.
    pub fn add(&mut self, entry: &HistoryEntry) {
        let hour = start_of_hour(from(entry.fence));
        if hour < self.from || entry.outcome == Outcome::Running {
            return;
        }
        let is_counted = self.jobs.get_mut(&entry.name).is_some_and(|counted| {
            entry.fence <= counted.mark && !counted.open.remove(&entry.fence)
        });
        if !is_counted {
            self.hours.entry(hour).or_insert_with(|| Hour::new(hour)).count(entry);
        }
    }

    /// The hours in which something happened, the earliest first.
    pub fn hours(&self) -> impl Iterator<Item = &Hour> {
        self.hours.values()
    }

    /// `false` if there were more counts than one call adds up. Then these are not worth showing.
    pub fn is_whole(&self) -> bool {
        !self.is_partial
    }

    /// Adds what is counted of one day of one job.
    pub(crate) fn add_day(&mut self, mut day: Day) {
        let counted = self.jobs.entry(std::mem::take(&mut day.job)).or_default();
        counted.mark = counted.mark.max(day.mark);
        counted.open.append(&mut day.open);
        for hour in day.into_hours().filter(|hour| hour.from >= self.from) {
            match self.hours.get_mut(&hour.from) {
                Some(sum) => sum.merge(&hour),
                None => _ = self.hours.insert(hour.from, hour),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::from_millis;

    const HOUR: i64 = 3_600_000_000;

    fn run(name: &str, fence: i64) -> HistoryEntry {
        let at = from_millis(fence / 1_000).unwrap();
        let entry = HistoryEntry::new(name, fence, at.into(), Outcome::Succeeded);
        HistoryEntry { started_at: Some(at), ended_at: Some(at), ..entry }
    }

    #[test]
    fn an_entry_is_counted_once_whether_it_was_counted_before_or_not() {
        let mut day = Day::new("a");
        (1..5).for_each(|n| day.count(&run("a", n * HOUR)));
        (day.mark, day.open) = (6 * HOUR, [5 * HOUR].into());
        let mut totals = HourTotals::new(from(2 * HOUR));
        totals.add_day(day);
        let mut running = run("a", 5 * HOUR);
        running.outcome = Outcome::Running;
        totals.add(&running);
        for name in ["a", "b"] {
            (1..9).rev().for_each(|n| totals.add(&run(name, n * HOUR)));
        }
        let hours = totals.hours().map(|hour| (hour.from.timestamp() / 3_600, hour.succeeded));
        // Of a, the hour 6 has no entry below its mark that was not counted.
        assert_eq!(
            hours.collect::<Vec<_>>(),
            [(2, 2), (3, 2), (4, 2), (5, 2), (6, 1), (7, 2), (8, 2)]
        );
        assert!(totals.is_whole());
    }
}
