//! Periods as text: `1h30m`, or `PT1H30M` as in ISO 8601.

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

/// Reads a period: `90m`, `1h30m`, `500ms`, `2d`, `1w`, or as in ISO 8601 `PT1H30M`, `P2D`, `P1W`. A
/// day is 24 hours.
///
/// Range: 1 ms to [`u64::MAX`] ms; [`Every::parse`](crate::Every::parse) refuses what is longer
/// than 100 years.
///
/// ```
/// use allora::schedule::parse_period;
///
/// assert_eq!(parse_period("1h30m")?.as_secs(), 5_400);
/// assert_eq!(parse_period("PT1H30M")?.as_secs(), 5_400);
/// assert!(parse_period("1h30").is_err());
/// # Ok::<(), allora::schedule::ParseError>(())
/// ```
///
/// # Errors
/// A number without a unit (`1h30`), units that have two readings (`1M`), months and years (`P1M`),
/// blanks, signs, fractions other than of seconds (`PT0.5S`), and zero.
pub fn parse_period(text: &str) -> Result<Duration, ParseError> {
    parse(text, 0)
}

/// The period as [`parse_period`] reads it: days to milliseconds, as in `1h30m` or `30s`. What is finer
/// than a millisecond is cut.
///
/// ```
/// use allora::schedule::period_text;
/// use std::time::Duration;
///
/// assert_eq!(period_text(Duration::from_secs(5_400)), "1h30m");
/// assert_eq!(period_text(Duration::from_millis(30_000)), "30s");
/// ```
pub fn period_text(period: Duration) -> String {
    let finer = Duration::from_nanos(u64::from(period.subsec_nanos() % 1_000_000));
    Shown(period - finer).to_string()
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
    if let Some(iso) = text.strip_prefix(['P', 'p']) {
        return iso_8601(iso).ok_or_else(|| iso_error(text, start));
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

/// The designators of ISO 8601, before and after the `T`, each with its milliseconds.
const ISO_DAYS: [(char, u64); 2] = [('W', 7 * 86_400_000), ('D', 86_400_000)];
const ISO_TIMES: [(char, u64); 3] = [('H', 3_600_000), ('M', 60_000), ('S', 1_000)];

/// Reads what follows the `P`: weeks and days, then after a `T` hours, minutes and seconds.
fn iso_8601(text: &str) -> Option<Duration> {
    let (days, times) = match text.split_once('T') {
        Some((days, times)) => (days, Some(times).filter(|times| !times.is_empty())?),
        None => (text, ""),
    };
    let days = iso_parts(days, &ISO_DAYS)?;
    let total = days.checked_add(iso_parts(times, &ISO_TIMES)?)?;
    (total > 0).then(|| Duration::from_millis(total))
}

/// The milliseconds of numbers with these designators, in this order.
fn iso_parts(mut text: &str, designators: &[(char, u64)]) -> Option<u64> {
    let mut total = 0_u64;
    let mut designators = designators.iter();
    while !text.is_empty() {
        let end = text.find(|char: char| char.is_ascii_alphabetic())?;
        let (number, rest) = text.split_at(end);
        let letter = rest.chars().next()?;
        let (_, millis) = designators.find(|(known, _)| *known == letter)?;
        let (whole, fraction) = match number.split_once(['.', ',']) {
            Some((whole, fraction)) if letter == 'S' => (whole, fraction_millis(fraction)?),
            Some(_) => return None,
            None => (number, 0),
        };
        let plain = !whole.is_empty() && whole.bytes().all(|byte| byte.is_ascii_digit());
        let whole: u64 = plain.then(|| whole.parse().ok()).flatten()?;
        total = total.checked_add(whole.checked_mul(*millis)?)?.checked_add(fraction)?;
        text = &rest[1..];
    }
    Some(total)
}

/// One to three decimals of a second.
fn fraction_millis(digits: &str) -> Option<u64> {
    let plain = (1..=3).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = plain.then(|| digits.parse().ok()).flatten()?;
    Some(number * 10_u64.pow(3 - digits.len() as u32))
}

/// The reason why a text that begins with `P` is no period.
fn iso_error(text: &str, start: usize) -> ParseError {
    let error = |reason: &'static str| ParseError::new(Field::Period, start, text, reason);
    let days = text.split('T').next().unwrap_or_default();
    if text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        return error("is an ISO 8601 duration with small letters")
            .remedy("write capital letters, such as PT1H30M, or 1h30m");
    }
    if days.ends_with(['Y', 'M']) || days[1..].contains(['Y', 'M']) {
        return error("has years or months, which have no fixed length")
            .remedy("write days, such as P30D, or a cron expression, such as @monthly");
    }
    error("is not an ISO 8601 duration of whole weeks, days, hours, minutes and seconds")
        .remedy("write numbers with these units, in this order, such as P1DT12H or PT1H30M")
}

/// A period in the largest unit, up to hours, that divides it: `90 minutes`, `36 hours`.
pub(crate) fn in_words(period: Duration) -> String {
    let Ok(millis) = u64::try_from(period.as_millis()) else { return format!("{period:?}") };
    if millis == 0 || !period.subsec_nanos().is_multiple_of(1_000_000) {
        return format!("{period:?}");
    }
    let units = [("hour", 3_600_000), ("minute", 60_000), ("second", 1_000), ("millisecond", 1)];
    let whole = units.into_iter().find(|(_, unit)| millis.is_multiple_of(*unit));
    let (name, unit) = whole.unwrap_or(("millisecond", 1));
    let count = millis / unit;
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
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
            ("PT1H30M", 5_400_000),
            ("P1W2DT3H4M5S", 788_645_000),
            ("P2D", 172_800_000),
            ("PT90M", 5_400_000),
            ("PT0.5S", 500),
            ("PT1,025S", 1_025),
            ("P0DT5M", 300_000),
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
            ("P", 0),
            ("PT", 0),
            ("P1DT", 0),
            ("P1Y", 0),
            ("P1Y2M3D", 0),
            ("P1M", 0),
            ("PT1D", 0),
            ("P1H", 0),
            ("PT1M1H", 0),
            ("PT1.5H", 0),
            ("PT0.0001S", 0),
            ("PT.5S", 0),
            ("PT0S", 0),
            ("PT1", 0),
            ("PT-1H", 0),
            ("pt1h", 0),
            ("PT99999999999999999999H", 0),
            ("P1é", 0),
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
    #[test]
    fn an_iso_8601_duration_has_no_months_and_years() {
        for (text, says) in [
            (
                "P1M",
                "\"P1M\" has years or months, which have no fixed length; write days, such as P30D",
            ),
            ("P1YT1H", "has years or months"),
            ("pt1h", "write capital letters, such as PT1H30M"),
            ("P1H", "such as P1DT12H or PT1H30M"),
        ] {
            let error = parse(text, 0).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
