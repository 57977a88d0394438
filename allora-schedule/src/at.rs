//! Once, at an instant.

use crate::{
    Field, ParseError, Schedule, ScheduleError,
    time::{Time, from_millis, whole_millis},
};
use chrono::{DateTime, SecondsFormat, Timelike, Utc};
use std::{fmt, str::FromStr};

/// Runs once, at `instant` (cut to whole milliseconds).
///
/// ```
/// use allora::{Schedule, at};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let party = at("2026-12-31T23:59:59Z".parse()?);
/// assert_eq!(party.next_at("2026-01-01T00:00:00Z".parse()?), Some("2026-12-31T23:59:59Z".parse()?));
/// assert_eq!(party.next_at("2027-01-01T00:00:00Z".parse()?), None);
/// # Ok(())
/// # }
/// ```
pub fn at(instant: Time) -> At {
    At { instant: whole_millis(instant) }
}

/// A single instant; made by [`at`] or [`At::parse`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct At {
    instant: Time,
}

impl At {
    /// Reads an RFC 3339 instant, such as `2026-01-01T09:00:00+01:00`, of at most milliseconds.
    ///
    /// # Errors
    /// Other notations, an instant without an offset, leap seconds, instants finer than a
    /// millisecond or outside the years 1970 to 9999.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        parse_instant(text).map(at)
    }

    /// The instant.
    pub fn instant(&self) -> Time {
        self.instant
    }
}

/// Reads an RFC 3339 instant, such as `2026-01-01T09:00:00+01:00`, of at most milliseconds.
///
/// # Errors
/// As [`At::parse`].
pub fn parse_instant(text: &str) -> Result<Time, ParseError> {
    instant(text, 0)
}

/// Reads an instant that begins at byte `start` of a longer text.
pub(crate) fn instant(text: &str, start: usize) -> Result<Time, ParseError> {
    let wrong = |reason: &'static str, remedy: &'static str| {
        Err(ParseError::new(Field::Instant, start, text, reason).remedy(remedy))
    };
    // Chrono also takes a blank for the T; the standard lets applications do so, we do not.
    let parsed = text.is_ascii().then_some(text).filter(|text| !text.contains([' ', '_']));
    let Some(Ok(parsed)) = parsed.map(DateTime::parse_from_rfc3339) else {
        return wrong(
            "is not an RFC 3339 instant",
            "write 2026-01-01T09:00:00Z, or an offset for the Z",
        );
    };
    let utc = parsed.with_timezone(&Utc);
    if utc.nanosecond() >= 1_000_000_000 {
        return wrong(
            "is a leap second, which cannot be scheduled",
            "write the second before or after",
        );
    }
    if !utc.nanosecond().is_multiple_of(1_000_000) {
        return wrong("is finer than a millisecond", "write at most three digits of a second");
    }
    if from_millis(utc.timestamp_millis()).is_none() {
        return wrong("is outside the years 1970 to 9999", "write a year within");
    }
    Ok(utc)
}

impl Schedule for At {
    fn next_at(&self, after: Time) -> Option<Time> {
        (self.check().is_ok() && self.instant > after).then_some(self.instant)
    }

    fn latest_at(&self, from: Time, until: Time) -> Option<Time> {
        Some(self.next_at(from).filter(|next| *next <= until).unwrap_or(from))
    }

    fn check(&self) -> Result<(), ScheduleError> {
        match from_millis(self.instant.timestamp_millis()) {
            Some(_) => Ok(()),
            None => Err(ScheduleError::new(format!(
                "at({}): the instant is outside the years 1970 to 9999",
                self.instant
            ))),
        }
    }

    fn definition(&self) -> Option<String> {
        Some(self.to_string())
    }

    fn is_built_in(&self, _: crate::schedule::Token) -> bool {
        true
    }

    fn describe(&self) -> Option<String> {
        Some(format!("once, at {}", shown(self.instant)))
    }
}

/// An instant for people: without the milliseconds if there are none.
pub(crate) fn shown(instant: Time) -> String {
    instant.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

/// `@at 2026-01-01T00:00:00.000Z`.
impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@at {}", self.instant.to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}

impl FromStr for At {
    type Err = ParseError;

    /// Reads what [`Display`](fmt::Display) writes; the `@at` may be left away.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut words = crate::schedule::words(text).peekable();
        words.next_if(|(_, word)| word.eq_ignore_ascii_case("@at"));
        let (at, word) = words.next().unwrap_or((0, ""));
        if let Some((at, word)) = words.next() {
            return Err(ParseError::new(Field::Instant, at, word, "is one word too many")
                .remedy("leave it away"));
        }
        instant(word, at).map(crate::at::at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_read_exactly_or_refused() {
        let read = At::parse("2026-01-01T09:00:00.123+01:00").unwrap();
        assert_eq!(read.to_string(), "@at 2026-01-01T08:00:00.123Z");
        assert_eq!(read.to_string().parse(), Ok(read));
        for text in [
            "",
            "2026-01-01",
            "2026-01-01T09:00:00",
            "2026-01-01 09:00:00Z",
            "tomorrow",
            "2026-01-01T09:00:00.1234567Z",
            "2016-12-31T23:59:60Z",
            "1969-12-31T23:59:59Z",
            "2026-02-30T00:00:00Z",
            "2026-01-01T09:00:00Z ",
            "10000-01-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "9999-12-31T23:59:59-01:00",
        ] {
            assert!(At::parse(text).is_err(), "{text}");
        }
    }
}
