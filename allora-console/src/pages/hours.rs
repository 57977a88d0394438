//! The hours of jobs as pages show them: how long a job usually takes, and its last day as a small strip.

use super::counted;
use crate::times::about;
use allora_core::{
    Time,
    stored::{Hour, Spread},
};
use chrono::TimeDelta;
use std::{collections::HashMap, fmt::Write, time::Duration};

/// The durations of jobs in their last days, by name.
pub(crate) type Usual = HashMap<String, Spread>;

/// The days whose runs say how long a job usually takes: on the page of one job, and on those of many.
pub(crate) const MONTH: TimeDelta = TimeDelta::days(30);
pub(crate) const WEEK: TimeDelta = TimeDelta::days(7);

/// The hours of the strip of a job.
const HOURS: usize = 24;
const STEP: usize = 4;
const HIGH: u64 = 18;

/// The last 24 hours of a job, ready to be drawn: the bars of each outcome are one path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Day {
    pub(crate) paths: Vec<(&'static str, String)>,
    /// The strip in words.
    pub(crate) label: String,
}

/// The hours as one: their sums.
pub(crate) fn sum<'a>(hours: impl IntoIterator<Item = &'a Hour>) -> Hour {
    let mut sum = Hour::new(Time::UNIX_EPOCH);
    hours.into_iter().for_each(|hour| sum.merge(hour));
    sum
}

/// The median of how long the runs took.
pub(crate) fn median(took: &Spread) -> Option<Duration> {
    took.percentile(50)
}

/// The durations of runs in words: `9 min; 99 of 100 at most 12 min`. `None` without any.
pub(crate) fn usually(took: &Spread) -> Option<String> {
    let half = about(median(took)?);
    // Of fewer runs, that is the longest one.
    let (of, most) = match took.count() {
        100.. => ("99 of 100", took.percentile(99)?),
        _ => ("all", took.percentile(100)?),
    };
    let most = about(most);
    Some(if most == half { half } else { format!("{half}; {of} at most {most}") })
}

/// The sentence of a job about its hours; empty if it has none.
pub(crate) fn in_a_month(hours: &[Hour]) -> String {
    let sum = sum(hours);
    let took = usually(&sum.duration).map(|took| format!("Usually takes {took}. "));
    match told(&sum) {
        told if told.is_empty() => String::new(),
        told => format!("{}In 30 days {told}.", took.unwrap_or_default()),
    }
}

/// The runs that failed for good, were lost or expired.
pub(crate) fn failures(hour: &Hour) -> u64 {
    hour.failed.saturating_add(hour.lost).saturating_add(hour.expired)
}

/// The numbers of an hour by their looks, the good ones first.
pub(crate) fn parts(hour: &Hour) -> [(u64, &'static str); 5] {
    [
        (hour.succeeded, "f-ok"),
        (hour.retried, "f-run"),
        (hour.cancelled, "f-next"),
        (failures(hour), "f-bad"),
        (hour.missed, "f-warn"),
    ]
}

/// The number of all that happened in an hour, whatever came of it.
pub(crate) fn all(hour: &Hour) -> u64 {
    parts(hour).iter().fold(0, |all, (number, _)| all.saturating_add(*number))
}

/// The numbers of an hour in words; empty if nothing happened.
pub(crate) fn told(hour: &Hour) -> String {
    let runs = usize::try_from(hour.started).unwrap_or(usize::MAX);
    let others = [
        (hour.failed, "failed"),
        (hour.retried, "retried"),
        (hour.lost, "lost"),
        (hour.expired, "expired"),
        (hour.cancelled, "cancelled"),
        (hour.missed, "missed"),
        (hour.skipped, "skipped"),
    ];
    let mut told = if runs == 0 { String::new() } else { counted(runs, "run") };
    for (number, word) in others.into_iter().filter(|(number, _)| *number > 0) {
        let comma = if told.is_empty() { "" } else { ", " };
        _ = write!(told, "{comma}{number} {word}");
    }
    told
}

/// The strip of a job: a bar for each hour from `from` on. `None` if nothing happened.
pub(crate) fn day(hours: &[Hour], from: Time) -> Option<Day> {
    let mut bars = vec![Hour::new(from); HOURS];
    for hour in hours {
        let place = usize::try_from((hour.from - from).num_hours());
        if let Some(bar) = place.ok().and_then(|place| bars.get_mut(place)) {
            bar.merge(hour);
        }
    }
    let label = Some(told(&sum(&bars))).filter(|label| !label.is_empty())?;
    let most = bars.iter().map(all).max().unwrap_or(0);
    let mut paths: Vec<(&'static str, String)> =
        parts(&bars[0]).iter().map(|(_, fill)| (*fill, String::new())).collect();
    for (x, bar) in (0..).step_by(STEP).zip(&bars) {
        let mut y = HIGH;
        for ((number, _), (_, path)) in parts(bar).into_iter().zip(&mut paths) {
            let height = height(number, most, HIGH);
            y = y.saturating_sub(height);
            if height > 0 {
                _ = write!(path, "M{x} {y}h{}v{height}h-{}z", STEP - 1, STEP - 1);
            }
        }
    }
    paths.retain(|(_, path)| !path.is_empty());
    Some(Day { paths, label })
}

/// The height of a bar: at least 2 of something, 0 of nothing.
pub(crate) fn height(number: u64, most: u64, high: u64) -> u64 {
    match number {
        0 => 0,
        number => (number.saturating_mul(high) / most.max(1)).max(2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::times::at;

    fn hour(hours: i64, succeeded: u64, failed: u64) -> Hour {
        let mut hour = Hour::new(at("2026-10-26T00:00:00Z") + TimeDelta::hours(hours));
        (hour.started, hour.succeeded, hour.failed) = (succeeded + failed, succeeded, failed);
        hour
    }

    #[test]
    fn the_strip_has_a_bar_for_each_hour_with_failures_on_top() {
        let from = at("2026-10-26T00:00:00Z");
        // What is not of the day is left out.
        let hours = [hour(-1, 9, 9), hour(0, 6, 0), hour(23, 3, 3), hour(24, 9, 9)];
        let day = day(&hours, from).unwrap();
        assert_eq!(day.label, "12 runs, 3 failed");
        assert_eq!(
            day.paths,
            [
                ("f-ok", "M0 0h3v18h-3zM92 9h3v9h-3z".to_owned()),
                ("f-bad", "M92 0h3v9h-3z".to_owned())
            ]
        );
        assert_eq!(super::day(&[], from), None);
    }

    #[test]
    fn the_usual_duration_is_round_and_few_runs_have_a_longest_one() {
        let spread = |all: &[u64]| {
            let mut spread = Spread::default();
            all.iter().for_each(|seconds| spread.add(Duration::from_secs(*seconds)));
            spread
        };
        assert_eq!(usually(&spread(&[])), None);
        assert_eq!(usually(&spread(&[545, 545])).unwrap(), "9 min");
        assert_eq!(usually(&spread(&[545, 545, 760])).unwrap(), "9 min; all at most 13 min");
        let many: Vec<u64> = [545; 98].into_iter().chain([760, 760]).collect();
        assert_eq!(usually(&spread(&many)).unwrap(), "9 min; 99 of 100 at most 13 min");
    }

    #[test]
    fn a_month_is_told_in_one_line() {
        let mut second = hour(3, 0, 0);
        (second.missed, second.skipped) = (4, 1);
        assert_eq!(in_a_month(&[hour(0, 1, 0), second]), "In 30 days 1 run, 4 missed, 1 skipped.");
        assert_eq!(in_a_month(&[]), "");
    }
}
