//! A fixed period, without drift.

use crate::{
    Field, ParseError, Schedule, ScheduleError, period,
    time::{Time, from_millis, whole_millis},
};
use chrono::SecondsFormat;
use std::{fmt, str::FromStr, time::Duration};

/// Runs each `period`: from 1 millisecond to 100 years, in whole milliseconds.
///
/// The first run is one period after the job is first registered, and each later one a period
/// after the scheduled time of the one before it, however late that ran: there is no drift.
/// [`Every::phase`] and [`Every::starting`] put the runs on a grid of their own instead.
///
/// A period out of range is reported when the job is added, by [`Schedule::check`].
///
/// ```
/// use allora::{Schedule, every};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let quarterly = every(Duration::from_secs(900));
/// let registered = "2026-01-01T09:07:00Z".parse()?;
/// assert_eq!(quarterly.next_at(registered), Some("2026-01-01T09:22:00Z".parse()?));
///
/// let on_the_quarter = quarterly.phase(Duration::ZERO);
/// assert_eq!(on_the_quarter.next_at(registered), Some("2026-01-01T09:15:00Z".parse()?));
/// # Ok(())
/// # }
/// ```
pub fn every(period: Duration) -> Every {
    Every { period, grid: Grid::None }
}

/// A fixed period; made by [`every`] or [`Every::parse`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Every {
    period: Duration,
    grid: Grid,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Grid {
    /// The chain itself is the grid.
    None,
    /// Multiples of the period since 1970, and this.
    Phase(Duration),
    /// The first run, and multiples of the period after it.
    Starting(Time),
}

/// A hundred years: longer is a slip of the unit.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 86_400);

impl Every {
    /// Reads a period: `90m`, `1h30m`, `500ms`, `2d`, `1w`, or as in ISO 8601 `PT1H30M`. A day is 24
    /// hours.
    ///
    /// # Errors
    /// As [`parse_period`](crate::parse_period), and more than 100 years.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let period = period::parse(text, 0)?;
        if period > LONGEST {
            return Err(ParseError::new(Field::Period, 0, text, "is longer than 100 years")
                .remedy("write a shorter period"));
        }
        Ok(every(period))
    }

    /// Runs at the multiples of the period since 1970-01-01T00:00:00Z, each `offset` later.
    #[must_use]
    pub fn phase(mut self, offset: Duration) -> Self {
        self.grid = Grid::Phase(offset);
        self
    }

    /// Runs first at `first` (cut to milliseconds), then each period after it.
    #[must_use]
    pub fn starting(mut self, first: Time) -> Self {
        self.grid = Grid::Starting(whole_millis(first));
        self
    }

    /// The period.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// The period and, on a grid, one of its instants, in milliseconds; `None` if the period or
    /// the grid is refused by `check`.
    fn millis(&self) -> Option<(i64, Option<i64>)> {
        self.check().ok()?;
        let whole = |duration: Duration| i64::try_from(duration.as_millis()).ok();
        let anchor = match self.grid {
            Grid::None => None,
            Grid::Phase(offset) => Some(whole(offset)?),
            Grid::Starting(first) => Some(first.timestamp_millis()),
        };
        Some((whole(self.period)?, anchor))
    }

    /// The reason why it cannot run, and the remedy.
    fn fault(&self) -> Option<(&'static str, &'static str)> {
        if self.period.is_zero() {
            return Some(("is zero", "write 1 ms or more"));
        }
        if finer_than_millis(self.period) {
            return Some(("is not in whole milliseconds", "round it"));
        }
        if self.period > LONGEST {
            return Some(("is longer than 100 years", "check its unit"));
        }
        match self.grid {
            Grid::Phase(offset) if finer_than_millis(offset) => {
                Some(("has a phase that is not in whole milliseconds", "round it"))
            }
            Grid::Phase(offset) if offset >= self.period => {
                Some(("is not longer than its phase", "write the remainder"))
            }
            Grid::Starting(first) if from_millis(first.timestamp_millis()).is_none() => {
                Some(("starts outside the years 1970 to 9999", "write an instant of those years"))
            }
            _ => None,
        }
    }

    /// The first run, if it was set with [`starting`](Self::starting).
    pub fn start(&self) -> Option<Time> {
        match self.grid {
            Grid::Starting(first) => Some(first),
            Grid::None | Grid::Phase(_) => None,
        }
    }
}

impl Schedule for Every {
    fn next_at(&self, after: Time) -> Option<Time> {
        if let Some(first) = self.start().filter(|first| *first > after) {
            return self.check().is_ok().then_some(first);
        }
        let (period, anchor) = self.millis()?;
        let after = after.timestamp_millis();
        let past = anchor.map_or(0, |anchor| (after - anchor).rem_euclid(period));
        from_millis(after.checked_add(period)? - past)
    }

    fn latest_at(&self, from: Time, until: Time) -> Option<Time> {
        let Some(next) = self.next_at(from).filter(|next| *next <= until) else {
            return Some(from);
        };
        let (period, _) = self.millis()?;
        let until = until.min(crate::time::end_of_time()).timestamp_millis();
        let next = next.timestamp_millis();
        from_millis(next + (until - next) / period * period)
    }

    fn count(&self, from: Time, until: Time) -> Option<u64> {
        let Some(next) = self.next_at(from).filter(|next| *next <= until) else { return Some(0) };
        let (period, _) = self.millis()?;
        let until = until.min(crate::time::end_of_time()).timestamp_millis();
        u64::try_from((until - next.timestamp_millis()) / period + 1).ok()
    }

    fn check(&self) -> Result<(), ScheduleError> {
        self.fault().map_or(Ok(()), |(what, remedy)| {
            let period = self.period;
            Err(ScheduleError::new(format!("every({period:?}): the period {what}: {remedy}")))
        })
    }

    fn definition(&self) -> Option<String> {
        Some(self.to_string())
    }

    fn is_built_in(&self, _: crate::schedule::Token) -> bool {
        true
    }

    fn describe(&self) -> Option<String> {
        let period = period::in_words(self.period);
        Some(match self.grid {
            Grid::None => format!("every {period}"),
            Grid::Phase(offset) if offset.is_zero() => {
                format!("every {period}, counted from 1970-01-01T00:00:00Z")
            }
            Grid::Phase(offset) => {
                let offset = period::in_words(offset);
                format!("every {period}, counted from {offset} after 1970-01-01T00:00:00Z")
            }
            Grid::Starting(first) => format!("every {period} from {} on", crate::at::shown(first)),
        })
    }
}

fn finer_than_millis(duration: Duration) -> bool {
    !duration.subsec_nanos().is_multiple_of(1_000_000)
}

/// `@every 1h30m`, `@every 1h phase 5m`, `@every 1h from 2026-01-01T00:00:00.000Z`.
impl fmt::Display for Every {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@every {}", period::Shown(self.period))?;
        match self.grid {
            Grid::None => Ok(()),
            Grid::Phase(offset) => write!(f, " phase {}", period::Shown(offset)),
            Grid::Starting(first) => {
                write!(f, " from {}", first.to_rfc3339_opts(SecondsFormat::Millis, true))
            }
        }
    }
}

impl FromStr for Every {
    type Err = ParseError;

    /// Reads what [`Display`](fmt::Display) writes; the `@every` may be left away.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let text_or = |at: usize| text.get(at..).unwrap_or_default();
        let mut words = crate::schedule::words(text).peekable();
        words.next_if(|(_, word)| word.eq_ignore_ascii_case("@every"));
        let Some((at, word)) = words.next() else {
            return Err(
                ParseError::new(Field::Period, 0, text, "has no period").remedy("write @every 90m")
            );
        };
        let plain = Self::parse(word).map_err(|error| error.shifted(at))?;
        let Some((keyword_at, keyword)) = words.next() else { return Ok(plain) };
        let Some((value_at, value)) = words.next().filter(|_| matches!(keyword, "phase" | "from"))
        else {
            let found = text_or(keyword_at);
            return Err(ParseError::new(Field::Period, keyword_at, found, "follows the period")
                .remedy("write the period as one word, such as 1h30m; then phase 5m, or from and an instant"));
        };
        if let Some((at, word)) = words.next() {
            return Err(ParseError::new(Field::Period, at, word, "is one word too many")
                .remedy("leave it away"));
        }
        let every = if keyword == "phase" {
            // The period itself is not zero, but a phase may be.
            let offset = match value {
                "0ms" | "0s" | "0m" | "0h" => Duration::ZERO,
                value => period::parse(value, value_at)?,
            };
            plain.phase(offset)
        } else {
            plain.starting(crate::at::instant(value, value_at)?)
        };
        every.fault().map_or(Ok(every), |(what, remedy)| {
            let reason = format!("does not fit the period {word}, which {what}");
            let found = text_or(keyword_at);
            Err(ParseError::new(Field::Period, keyword_at, found, reason).remedy(remedy))
        })
    }
}

/// The instants `from + n * period` that are not after `until` and not past the end of time.
#[cfg(test)]
fn chain(period: Duration, from: Time, until: Time) -> Option<Time> {
    let mut at = from;
    while let Some(next) = crate::time::checked_add(at, period).filter(|next| *next <= until) {
        at = next;
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Time {
        text.parse().unwrap()
    }

    #[test]
    fn a_phase_as_long_as_the_period_has_a_remedy() {
        let error = "@every 10m phase 10m".parse::<Every>().unwrap_err();
        assert_eq!((error.position(), error.advice()), (11, "write the remainder"));
        assert!(error.to_string().contains("the period 10m, which is not longer"), "{error}");
    }

    #[test]
    fn the_latest_of_a_chain_is_what_a_walk_finds() {
        let from = time("2026-01-01T00:00:00.123Z");
        for period in [1_u64, 7, 999, 60_000, 86_400_000] {
            let every = every(Duration::from_millis(period));
            for later in [0_i64, 1, 6, 7, 8, 5_000, 59_999] {
                let until = from + chrono::TimeDelta::milliseconds(later);
                assert_eq!(every.latest_at(from, until), chain(every.period, from, until));
                assert_eq!(every.count(from, until), Some(later as u64 / period));
            }
        }
    }

    #[test]
    fn a_grid_begins_where_it_is_told_and_keeps_its_pace_before_and_after() {
        let start = time("2026-01-01T00:00:10Z");
        let every = every(Duration::from_secs(60)).starting(start);
        assert_eq!(every.next_at(time("2020-01-01T00:00:00Z")), Some(start));
        assert_eq!(every.next_at(start), Some(time("2026-01-01T00:01:10Z")));
        assert_eq!(
            every.next_at(time("2026-01-01T00:01:09.999999Z")),
            Some(time("2026-01-01T00:01:10Z"))
        );
        assert_eq!(
            every.latest_at(time("2020-01-01T00:00:00Z"), time("2026-01-01T02:00:00Z")),
            Some(time("2026-01-01T01:59:10Z")),
        );
    }

    #[test]
    fn what_cannot_run_is_refused_by_check_and_never_runs() {
        let bad = [
            every(Duration::ZERO),
            every(Duration::from_nanos(1)),
            every(Duration::from_micros(1500)),
            every(Duration::MAX),
            every(Duration::from_secs(60)).phase(Duration::from_secs(60)),
            every(Duration::from_secs(60)).phase(Duration::from_nanos(1)),
        ];
        for every in bad {
            assert!(every.check().is_err(), "{every:?}");
            assert_eq!(every.next_at(Time::UNIX_EPOCH), None, "{every:?}");
        }
        assert!(every(Duration::from_millis(1)).check().is_ok());
    }

    #[test]
    fn the_end_of_time_ends_the_chain() {
        let end = crate::time::end_of_time();
        let every = every(Duration::from_secs(1));
        assert_eq!(every.next_at(end), None);
        assert_eq!(every.latest_at(end, end), Some(end));
        assert_eq!(every.next_at(Time::MAX_UTC), None);
        assert_eq!(every.next_at(Time::MIN_UTC), None);
    }
}
