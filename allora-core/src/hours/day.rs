//! One day of one job, as a record of the store has it: the hours, and which entries are counted.
//!
//! The text has a version, the mark and the open fences in its first line, the name of the job in the
//! second, since a long one is cut in the name of the record, and then a line for each hour in which
//! something happened. A text of another version is nobody's to change but that version's.

use super::{Hour, Spread};
use crate::{backend::HistoryEntry, time::Time};
use chrono::DateTime;
use std::collections::{BTreeMap, BTreeSet};

/// The version of the text.
const VERSION: &str = "1";

const HOUR: i64 = 3_600_000_000;
const DAY: i64 = 24 * HOUR;

/// The counts of one job's history on one day, in UTC. An entry belongs to the day and the
/// hour of its fence, which is drawn from microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Day {
    pub(crate) job: String,
    /// The entries with fences up to this one are counted, except the open ones.
    pub(crate) mark: i64,
    /// The fences up to the mark whose runs were active, and are not counted.
    pub(crate) open: BTreeSet<i64>,
    /// By their numbers since 1970.
    hours: BTreeMap<i64, Hour>,
}

impl Day {
    /// A day on which nothing is counted yet.
    pub(crate) fn new(job: &str) -> Self {
        Self { job: job.to_owned(), mark: 0, open: BTreeSet::new(), hours: BTreeMap::new() }
    }

    /// Counts an entry of this day.
    pub(crate) fn count(&mut self, entry: &HistoryEntry) {
        let number = entry.fence.div_euclid(HOUR);
        self.hours.entry(number).or_insert_with(|| Hour::new(from(number * HOUR))).count(entry);
    }

    /// The hours in which something happened, the earliest first.
    pub(crate) fn into_hours(self) -> impl Iterator<Item = Hour> {
        self.hours.into_values()
    }

    pub(crate) fn to_text(&self) -> String {
        let open: Vec<String> = self.open.iter().map(i64::to_string).collect();
        let mut text = format!("{VERSION} {} {}\n{}", self.mark, open.join(","), self.job);
        for (number, hour) in &self.hours {
            let mut hour = hour.clone();
            let numbers = hour.numbers().map(|number| number.to_string()).join(" ");
            let (lateness, duration) = (hour.lateness.to_text(), hour.duration.to_text());
            text.push_str(&format!("\n{number} {numbers} {lateness} {duration}"));
        }
        text
    }

    /// The day of a text; `None` if it is damaged or of another version.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let mut lines = std::str::from_utf8(text).ok()?.lines();
        let mut first = lines.next()?.split(' ');
        first.next().filter(|version| *version == VERSION)?;
        let mark = first.next()?.parse().ok()?;
        let open = first.next()?.split(',').filter(|fence| !fence.is_empty());
        let open = open.map(|fence| fence.parse().ok()).collect::<Option<_>>()?;
        let job = lines.next()?.to_owned();
        let hours = lines.map(hour).collect::<Option<_>>()?;
        Some(Self { job, mark, open, hours })
    }
}

/// An hour of its line, with its number.
fn hour(line: &str) -> Option<(i64, Hour)> {
    let mut words = line.split(' ');
    let number: i64 = words.next()?.parse().ok()?;
    let mut hour = Hour::new(DateTime::from_timestamp_micros(number.checked_mul(HOUR)?)?);
    for place in hour.numbers() {
        *place = words.next()?.parse().ok()?;
    }
    hour.lateness = Spread::parse(words.next()?)?;
    hour.duration = Spread::parse(words.next()?)?;
    words.next().is_none().then_some((number, hour))
}

/// The number of the day of a fence, since 1970.
pub(crate) fn day_of(fence: i64) -> i64 {
    fence.div_euclid(DAY)
}

/// The beginning of a day.
pub(crate) fn start_of_day(day: i64) -> Time {
    from(day.saturating_mul(DAY))
}

/// The last fence that is drawn in a day.
pub(crate) fn last_fence(day: i64) -> i64 {
    day.saturating_add(1).saturating_mul(DAY) - 1
}

/// The beginning of the hour of this time.
pub(crate) fn start_of_hour(at: Time) -> Time {
    from(at.timestamp_micros().div_euclid(HOUR) * HOUR)
}

pub(super) fn from(micros: i64) -> Time {
    DateTime::from_timestamp_micros(micros).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{backend::Outcome, hours::HourTotals, time::from_millis};

    fn entry(fence: i64, outcome: Outcome) -> HistoryEntry {
        let at = from_millis(fence / 1_000).unwrap();
        let entry = HistoryEntry::new("job", fence, at.into(), outcome);
        let ended_at = from_millis(fence / 1_000 + 250);
        HistoryEntry { due_at: Some(at), started_at: Some(at), ended_at, ..entry }
    }

    #[test]
    fn an_entry_belongs_to_the_hour_and_the_day_of_its_fence() {
        let mut day = Day::new("job");
        for fence in [0, HOUR - 1, HOUR, DAY - 1] {
            assert_eq!(day_of(fence), 0);
            day.count(&entry(fence, Outcome::Succeeded));
        }
        let hours = day.into_hours().map(|hour| (hour.from.timestamp() / 3_600, hour.succeeded));
        assert_eq!(hours.collect::<Vec<_>>(), [(0, 2), (1, 1), (23, 1)]);
        assert_eq!((day_of(DAY), last_fence(0), start_of_day(1)), (1, DAY - 1, from(DAY)));
        assert_eq!(start_of_hour(from(2 * HOUR + 1)), from(2 * HOUR));
    }

    #[test]
    fn a_day_comes_back_from_its_text() {
        let open = BTreeSet::from([7, 9]);
        let mut day = Day { mark: 9, open, ..Day::new("job") };
        assert_eq!(Day::parse(day.to_text().as_bytes()), Some(day.clone()));
        for second in 0..10_000 {
            let outcome = if second % 7 == 0 { Outcome::Missed } else { Outcome::Succeeded };
            day.count(&entry(20_000 * DAY + second * 1_000_000, outcome));
        }
        day.open.clear();
        assert_eq!(Day::parse(day.to_text().as_bytes()), Some(day));
    }

    /// A day of a job that runs each second, with lateness and duration over three orders of magnitude.
    #[test]
    fn the_text_of_a_busy_day_is_small() {
        let mut day = Day { mark: 20_001 * DAY, ..Day::new("job") };
        for second in 0..86_400 {
            let mut entry = entry(20_000 * DAY + second * 1_000_000, Outcome::Succeeded);
            let by = |ms| entry.due_at.and_then(|at| from_millis(at.timestamp_millis() + ms));
            (entry.started_at, entry.ended_at) =
                (by(second % 50), by(50 + second * second % 1_000));
            day.count(&entry);
        }
        let len = day.to_text().len();
        assert!(len < 16_000, "{len}");
    }

    #[test]
    fn damage_and_other_versions_are_noticed() {
        let mut day = Day::new("job");
        day.count(&entry(HOUR, Outcome::Succeeded));
        let text = day.to_text();
        assert!(Day::parse(text.as_bytes()).is_some(), "{text}");
        let damaged = [
            text.replacen('1', "2", 1),
            text[..text.len() - 2].to_owned(),
            format!("{text} 1"),
            text.replace("\n1 ", "\n9223372036854775807 "),
            text.replace(" 0 ", " -1 "),
            "1".into(),
            String::new(),
        ];
        for text in &damaged {
            assert_eq!(Day::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Day::parse(&[0xff]), None);
    }

    #[test]
    fn any_text_is_refused_or_read_and_counted_on() {
        let mut day = Day { open: BTreeSet::from([7, 9]), ..Day::new("job") };
        let entry = entry(HOUR, Outcome::Succeeded);
        day.count(&entry);
        let text = day.to_text();
        let mut read = 0;
        for text in allora_conformance::mutations(&[text.as_bytes()], 38, 2_000) {
            let Some(mut day) = Day::parse(&text) else { continue };
            read += 1;
            assert_eq!(Day::parse(day.to_text().as_bytes()), Some(day.clone()));
            day.count(&entry);
            let mut sums = HourTotals::new(from(0));
            sums.add_day(day.clone());
            sums.add_day(day);
            for hour in sums.hours() {
                let _ = hour.lateness.percentile(99);
            }
        }
        assert!((100..2_000).contains(&read), "{read}");
    }
}
