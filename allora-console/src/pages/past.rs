//! The past that *Now* shows: the runs of the last day, and the hours of all jobs together.

use super::timeline::begin;
use crate::{failure::Failure, params::Params, reader::Reader};
use allora_core::{
    ErrorKind, HistoryEntry, HistoryQuery, Result, Time,
    backend::{Count, HistoryCursor},
    stored::{Hour, HourTotals},
};
use chrono::{DurationRound, TimeDelta};

/// Said where runs that succeeded are missing, so that nobody takes their absence for a job that did not run.
pub(super) const NO_SUCCESSES: &str = "This store keeps no runs that succeeded.";

/// The time that the plots show: so many days by the hour, up to now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) days: i32,
    /// The beginning of the first hour.
    pub(crate) from: Time,
    /// The hours of one bar.
    pub(crate) step: i32,
    pub(crate) bars: usize,
}

/// The past, as far as it is read.
#[derive(Debug)]
pub(crate) struct Past {
    pub(crate) range: Range,
    /// The runs of the last day, the newest first.
    pub(crate) entries: Vec<HistoryEntry>,
    /// They reach back to the beginning of the day.
    pub(crate) is_whole: bool,
    /// The store keeps no history.
    pub(crate) is_unknown: bool,
    /// The history has no successes.
    pub(crate) lacks_successes: bool,
    /// The hours of the range.
    pub(crate) hours: Vec<Hour>,
    /// Before this time, runs that no node has counted are missing in the hours.
    pub(crate) missing_before: Option<Time>,
    /// There are too many jobs to add up what nodes have counted.
    pub(crate) is_too_much: bool,
}

/// The most days, and the most bars.
const MOST_DAYS: i32 = 30;
const MOST_BARS: i32 = 60;

/// The most entries that are read, and how many at once.
const ENTRIES: usize = 3_000;
const PAGE: usize = 500;

impl Range {
    /// The days of the range in the address: `days`, a number from 1 to 30. Default: 1.
    ///
    /// # Errors
    /// It is not such a number.
    pub(crate) fn days(params: &Params) -> Result<i32, Failure> {
        let text = params.some("days").unwrap_or("1");
        match text.parse() {
            Ok(days @ 1..=MOST_DAYS) => Ok(days),
            _ => Err(Failure::bad_address(format!(
                "The plots cannot show {text:?} days; write a number from 1 to {MOST_DAYS}."
            ))),
        }
    }

    pub(crate) fn new(days: i32, now: Time) -> Self {
        let hours = days * 24;
        let step = (hours + MOST_BARS - 1) / MOST_BARS;
        let bars = (hours + step - 1) / step;
        // The hour that has begun is the last one.
        let hour = TimeDelta::hours(1);
        let from = now.duration_trunc(hour).unwrap_or(now) - hour * (bars * step - 1);
        Self { days, from, step, bars: usize::try_from(bars).unwrap_or_default() }
    }

    /// The beginning of a bar.
    pub(crate) fn at(self, bar: usize) -> Time {
        self.from + TimeDelta::hours(i64::from(self.step)) * i32::try_from(bar).unwrap_or_default()
    }

    /// The bar of a time, if there is one.
    pub(crate) fn bar(self, at: Time) -> Option<usize> {
        let bar = (at - self.from).num_seconds().div_euclid(3_600 * i64::from(self.step));
        usize::try_from(bar).ok().filter(|bar| *bar < self.bars)
    }
}

impl Past {
    /// No runs.
    pub(crate) fn new(range: Range) -> Self {
        let (entries, hours) = (Vec::new(), Vec::new());
        Self {
            range,
            entries,
            is_whole: false,
            is_unknown: false,
            lacks_successes: false,
            hours,
            missing_before: None,
            is_too_much: false,
        }
    }

    /// Reads the counts of the reader's jobs, of which there are so many, and then the newest entries.
    pub(crate) async fn read(
        reader: &Reader,
        range: Range,
        jobs: Count,
        now: Time,
    ) -> Result<Self> {
        let mut past = Self { lacks_successes: reader.lacks_successes(), ..Self::new(range) };
        let counted = reader.hour_totals(range.from, now, jobs).await?;
        past.is_too_much = counted.is_none();
        let mut totals = counted.unwrap_or_else(|| HourTotals::new(range.from));
        let from = range.from.min(begin(now));
        let (mut before, mut read): (Option<HistoryCursor>, _) = (None, 0);
        while read < ENTRIES {
            let mut query = HistoryQuery::new(PAGE);
            query.before = before.as_ref();
            let page = match reader.history(query).await {
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    return Ok(Self { is_unknown: true, ..past });
                }
                page => page?,
            };
            read += page.read;
            // Fences are drawn from the time of the claim, so the entries come by their starts.
            let at = |entry: &HistoryEntry| entry.ended_at.or(entry.started_at);
            let is_after = |entry: &HistoryEntry, begin| at(entry).is_none_or(|at| at >= begin);
            let is_last = page.next.is_none();
            past.is_whole |= is_last || !page.entries.iter().all(|run| is_after(run, begin(now)));
            let is_over = is_last || !page.entries.iter().all(|run| is_after(run, from));
            before = page.next;
            page.entries.iter().for_each(|entry| totals.add(entry));
            past.missing_before = page.entries.last().and_then(at).or(past.missing_before);
            past.entries.extend(page.entries.into_iter().filter(|run| is_after(run, begin(now))));
            if is_over {
                past.missing_before = None;
                break;
            }
        }
        past.hours = totals.hours().cloned().collect();
        Ok(past)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::times::at;

    #[test]
    fn the_last_bar_has_the_hour_that_has_begun() {
        let now = at("2026-10-26T02:12:07Z");
        for (days, step, bars) in [(1, 1, 24), (2, 1, 48), (7, 3, 56), (30, 12, 60), (29, 12, 58)] {
            let range = Range::new(days, now);
            assert_eq!((range.step, range.bars), (step, bars), "{days}");
            assert_eq!(range.at(bars), at("2026-10-26T03:00:00Z"));
            assert_eq!((range.bar(now), range.bar(range.from)), (Some(bars - 1), Some(0)));
            assert_eq!(range.bar(range.from - TimeDelta::seconds(1)), None);
            assert_eq!(range.bar(range.at(bars)), None);
        }
    }

    #[test]
    fn a_range_that_is_not_kept_is_refused_in_words() {
        let read = |query| Range::days(&Params::read(query).unwrap());
        assert_eq!(read("").unwrap(), 1);
        assert_eq!(read("days=30").unwrap(), 30);
        for query in ["days=0", "days=31", "days=-1", "days=many", "days=1e9"] {
            assert!(read(query).is_err(), "{query}");
        }
    }
}
