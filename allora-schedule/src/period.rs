//! Periods as text: `1h30m`.

use crate::{Field, ParseError};
use std::{fmt, time::Duration};

/// Unit and milliseconds, from the longest.
const UNITS: [(&str, u64); 6] = [
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Reads a period: `90m`, `1h30m`, `500ms`, `2d`, `1w`. A day is 24 hours.
///
/// Range: 1 ms to [`u64::MAX`] ms; [`Every::parse`](crate::Every::parse) refuses what is longer
/// than 100 years.
///
/// ```
/// use allora_schedule::parse_period;
///
/// assert_eq!(parse_period("1h30m")?.as_secs(), 5_400);
/// assert!(parse_period("1h30").is_err());
/// # Ok::<(), allora_schedule::ParseError>(())
/// ```
///
/// # Errors
/// A number without a unit (`1h30`), units that have two readings (`1M`), other notations
/// (`PT1H`), blanks, signs, fractions and zero.
pub fn parse_period(text: &str) -> Result<Duration, ParseError> {
    parse(text, 0)
}

/// Reads a period that begins at byte `start` of a longer text.
pub(crate) fn parse(text: &str, start: usize) -> Result<Duration, ParseError> {
    let wrong = |at: usize, reason: &'static str| {
        let found = text.get(at..).filter(|rest| !rest.is_empty()).unwrap_or(text);
        Err(ParseError::new(Field::Period, start + at, found, reason)
            .remedy("write numbers with units, such as 90m, 1h30m or 500ms"))
    };
    if text.is_empty() {
        return wrong(0, "is empty");
    }
    if let Some(at) = text.find(char::is_whitespace) {
        return wrong(at, "holds a blank");
    }
    if text.starts_with(['P', 'p']) {
        return wrong(0, "is an ISO 8601 period, whose months and years have no fixed length");
    }
    let mut total = 0_u64;
    let mut at = 0;
    let mut units = UNITS.iter();
    while at < text.len() {
        let rest = &text[at..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return match rest.as_bytes()[0] {
                b'-' | b'+' => wrong(at, "has a sign"),
                _ => wrong(at, "has a character where a number is expected"),
            };
        }
        let Ok(number) = rest[..digits].parse::<u64>() else {
            return wrong(at, "is too large a number");
        };
        let letters = rest[digits..].bytes().take_while(u8::is_ascii_alphabetic).count();
        let unit = &rest[digits..digits + letters];
        let Some((_, millis)) = units.find(|(name, _)| *name == unit) else {
            return match (unit, rest.as_bytes().get(digits)) {
                ("", None) => wrong(at, "is a number without a unit"),
                ("", Some(b'.' | b',')) => wrong(at, "is a fraction: use a smaller unit"),
                ("", _) => wrong(at, "has an unexpected character behind the number"),
                ("M", _) => wrong(at, "has the unit M, a month to some and a minute to others"),
                _ if UNITS.iter().any(|(name, _)| *name == unit) => {
                    wrong(at, "repeats a unit, or has a longer one behind a shorter")
                }
                _ => wrong(at, "has a unit other than w, d, h, m, s and ms"),
            };
        };
        let Some(sum) = number.checked_mul(*millis).and_then(|part| total.checked_add(part)) else {
            return wrong(at, "is too long to count in milliseconds");
        };
        total = sum;
        at += digits + letters;
    }
    if total == 0 {
        return wrong(0, "is zero");
    }
    Ok(Duration::from_millis(total))
}

/// Writes a period so that [`parse`] reads it back: `1h30m`, never weeks. What is finer than a
/// millisecond is written in nanoseconds, which `parse` refuses.
pub(crate) struct Shown(pub(crate) Duration);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(mut rest) = u64::try_from(self.0.as_millis()) else {
            return write!(f, "{:?}", self.0);
        };
        for (unit, millis) in &UNITS[1..] {
            if rest >= *millis {
                write!(f, "{}{unit}", rest / millis)?;
                rest %= millis;
            }
        }
        match self.0.subsec_nanos() % 1_000_000 {
            0 if self.0.is_zero() => f.write_str("0s"),
            0 => Ok(()),
            nanos => write!(f, "{nanos}ns"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_read_and_written_back() {
        for (text, millis) in [
            ("90m", 5_400_000),
            ("1h30m", 5_400_000),
            ("500ms", 500),
            ("2d", 172_800_000),
            ("1w", 604_800_000),
            ("1w2d3h4m5s6ms", 788_645_006),
            ("0h5m", 300_000),
        ] {
            let period = parse(text, 0).unwrap();
            assert_eq!(period, Duration::from_millis(millis), "{text}");
            assert_eq!(parse(&Shown(period).to_string(), 0).unwrap(), period);
        }
        assert_eq!(Shown(Duration::from_millis(5_400_500)).to_string(), "1h30m500ms");
    }

    #[test]
    fn what_has_two_readings_or_none_is_refused_where_it_stands() {
        for (text, at) in [
            ("", 0),
            ("1h30", 2),
            ("1M", 0),
            ("P1M", 0),
            ("-P1D", 0),
            ("PT1H", 0),
            ("1 h", 1),
            (" 1h", 0),
            ("1h ", 2),
            ("-5m", 0),
            ("+5m", 0),
            ("0s", 0),
            ("0h0m", 0),
            ("1.5h", 0),
            ("1,5h", 0),
            ("1e3s", 0),
            ("5", 0),
            ("h", 0),
            ("1m1h", 2),
            ("1m1m", 2),
            ("1y", 0),
            ("1ns", 0),
            ("1H", 0),
            ("99999999999999999999s", 0),
            ("18446744073709551615s", 0),
            ("18446744073709551615ms1w", 22),
            ("NaN", 0),
            ("inf", 0),
            ("1309d1é", 5),
            ("é", 0),
            ("1minute", 0),
            ("١m", 0),
        ] {
            let error = parse(text, 0).unwrap_err();
            assert_eq!(error.position(), at, "{text}: {error}");
        }
    }
}
