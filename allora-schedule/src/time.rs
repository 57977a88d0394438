//! Instants as the library keeps them: UTC, whole milliseconds, years 1970 to 9999.

use chrono::{DateTime, TimeDelta, Timelike, Utc};
use std::time::Duration;

/// An instant: UTC, whole milliseconds wherever the library hands one out.
pub type Time = DateTime<Utc>;

/// The last instant the library schedules: the end of the year 9999, in milliseconds since 1970.
const END_MS: i64 = 253_402_300_799_999;

/// The last instant that can be scheduled: 9999-12-31T23:59:59.999Z.
pub fn end_of_time() -> Time {
    from_millis(END_MS).expect("a constant in range")
}

/// The instant this many milliseconds after 1970 began; `None` outside the years 1970 to 9999.
pub fn from_millis(ms: i64) -> Option<Time> {
    (0..=END_MS).contains(&ms).then(|| DateTime::from_timestamp_millis(ms)).flatten()
}

/// Cuts to whole milliseconds, towards the past.
pub fn whole_millis(at: Time) -> Time {
    let nanos = at.nanosecond();
    let cut = at.naive_utc().with_nanosecond(nanos - nanos % 1_000_000);
    cut.map_or(at, |cut| cut.and_utc())
}

/// `at + by`, or `None` past [`end_of_time`].
pub fn checked_add(at: Time, by: Duration) -> Option<Time> {
    let by = TimeDelta::from_std(by).ok()?;
    at.checked_add_signed(by).filter(|sum| sum.timestamp_millis() <= END_MS)
}

/// `at + by`, at most [`end_of_time`]: for limits such as lease ends, never for schedules.
pub fn saturating_add(at: Time, by: Duration) -> Time {
    checked_add(at, by).unwrap_or_else(end_of_time)
}

/// The time from `earlier` to `later`; zero if `later` is not later.
pub fn since(later: Time, earlier: Time) -> Duration {
    (later - earlier).to_std().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::{NaiveDate, SubsecRound};

    #[test]
    fn whole_milliseconds_are_cut_towards_the_past() {
        let leap = NaiveDate::from_ymd_opt(2016, 12, 31).unwrap();
        let leap = leap.and_hms_nano_opt(23, 59, 59, 1_234_567_890).unwrap().and_utc();
        let moments = [0, 1, 999_999, 1_000_000, 1_234_567_890, -1, -999_999, -1_000_001];
        let moments = moments.map(DateTime::from_timestamp_nanos);
        for at in moments.into_iter().chain([leap, end_of_time()]) {
            assert_eq!(whole_millis(at), at.trunc_subsecs(3), "{at}");
        }
    }
}
