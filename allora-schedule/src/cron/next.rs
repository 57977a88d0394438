//! The evaluator: the first matching second of a wall clock that knows no zone.

use super::{
    civil::{DAY, civil, days_from_civil, is_leap, month_length, weekday},
    fields::Fields,
    times::Times,
};

/// A local wall clock may show this year when UTC still has 9999.
const LAST_YEAR: i64 = 10_000;

impl Fields {
    /// The first matching wall second not before `wall` (seconds since 1970-01-01T00:00:00 of the
    /// wall clock), if there is one up to the year 10000.
    ///
    /// Looks at each month at most once. Since parsing has proved that some kind of year matches,
    /// it looks at 40 years at most: 29 February on a given weekday, across 2100.
    pub(super) fn next(&self, wall: i64) -> Option<i64> {
        let today = wall.div_euclid(DAY);
        let (mut year, mut month, day) = civil(today);
        let mut first = today - i64::from(day - 1);
        let mut days = self.days_of(year, month, first);
        if days >> day & 1 != 0
            && let Some(time) = self.times().from(wall.rem_euclid(DAY) as u32)
        {
            return Some(today * DAY + i64::from(time));
        }
        // Two shifts, because `day + 1` may be 32.
        days = days >> day >> 1 << day << 1;
        while days == 0 {
            let later = self.months >> month >> 1;
            month = if later != 0 && self.has_year(year) {
                month + 1 + later.trailing_zeros()
            } else {
                year = self.year_from(year + 1)?;
                self.months.trailing_zeros()
            };
            if year > LAST_YEAR {
                return None;
            }
            first = days_from_civil(year, month, 1);
            days = self.days_of(year, month, first);
        }
        let day = first + i64::from(days.trailing_zeros()) - 1;
        Some(day * DAY + i64::from(self.times().first()))
    }

    /// The matching days of a month whose first day is `first` (days since 1970).
    pub(super) fn days_of(&self, year: i64, month: u32, first: i64) -> u32 {
        #[cfg(test)]
        tests::STEPS.with(|steps| steps.set(steps.get() + 1));
        if self.months >> month & 1 == 0 || !self.has_year(year) {
            return 0;
        }
        self.days.in_month(weekday(first), month_length(is_leap(year), month))
    }

    fn times(&self) -> Times {
        Times { hours: self.hours, minutes: self.minutes, seconds: self.seconds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cron, Schedule};
    use chrono::{Datelike, NaiveDate};
    use std::cell::Cell;

    thread_local! {
        /// The number of months that were visited.
        pub(super) static STEPS: Cell<usize> = const { Cell::new(0) };
    }

    fn months_looked_at(text: &str, after: &str) -> usize {
        let schedule = Cron::parse(text).unwrap();
        STEPS.set(0);
        _ = schedule.next_at(after.parse().unwrap());
        STEPS.get()
    }

    #[test]
    fn the_search_is_bounded() {
        assert_eq!(months_looked_at("* * * * *", "2026-01-01T00:00:00Z"), 1);
        // One February a year, over the longest gap there is.
        let rarest = months_looked_at("0 0 29 2 */7", "2088-03-01T00:00:00Z");
        assert!((30..=42).contains(&rarest), "{rarest}");
        let zoned = months_looked_at("0 0 29 2 */7 Europe/Rome", "2088-03-01T00:00:00Z");
        assert!((30..=43).contains(&zoned), "{zoned}");
        // A local time that a gap always swallows: each year of a cycle, then `None`.
        let never = "30 2 * 3 SUN#2 America/New_York dst=literal";
        let swallowed = months_looked_at(never, "2100-01-01T00:00:00Z");
        assert!((400..=10_000).contains(&swallowed), "{swallowed}");
    }

    #[test]
    fn dates_agree_with_chrono_over_two_cycles_and_before_the_year_one() {
        for days in (-800_000..=2_940_000).step_by(13) {
            let date = NaiveDate::from_epoch_days(days).unwrap();
            let (year, month, day) = civil(i64::from(days));
            assert_eq!((year, month, day), (i64::from(date.year()), date.month(), date.day()));
            assert_eq!(days_from_civil(year, month, day), i64::from(days));
            assert_eq!(weekday(i64::from(days)), date.weekday().num_days_from_sunday());
            assert_eq!(is_leap(year), date.leap_year());
        }
    }
}
