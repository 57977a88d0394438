//! Values on the command line: instants and durations, how instants and runs are shown, and random keys.

use allora_core::{
    Every, Time,
    runtime::{Runtime, Tokio},
    schedule::parse_instant,
    time::from_millis,
};
use chrono::SecondsFormat;
use std::time::Duration;

/// Reads an instant: RFC 3339, or seconds since 1970 began.
pub(crate) fn instant(text: &str) -> Result<Time, String> {
    if let Ok(seconds) = text.parse::<i64>() {
        return seconds
            .checked_mul(1_000)
            .and_then(from_millis)
            .ok_or_else(|| "outside the years 1970 to 9999".into());
    }
    parse_instant(text).map_err(|error| {
        format!("it {}; {}, or write seconds since 1970", error.reason(), error.advice())
    })
}

/// Reads a duration: `90s`, `1h30m`, or seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let seconds: u64 = text.parse().map_err(|_| "too many seconds to count".to_owned())?;
        return Ok(Duration::from_secs(seconds));
    }
    if text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
        return Err("negative; give 0 or more".into());
    }
    Every::parse(text).map(|every| every.period()).map_err(|error| {
        format!("not a duration: it {}; write it as 90s, 10m or 1h30m", error.reason())
    })
}

/// An instant as the command prints it: RFC 3339 in UTC, with as many digits as it has.
pub(crate) fn shown(at: Time) -> String {
    at.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

/// The id of a run, the same in all of its log lines.
pub(crate) fn run_id(job: &str, fence: i64) -> String {
    format!("{job}#{fence}")
}

/// 32 bytes of the operating system's random numbers.
pub(crate) fn random(runtime: &Tokio) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.chunks_mut(8).for_each(|part| part.copy_from_slice(&runtime.random().to_be_bytes()));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_read_in_two_notations() {
        for (text, is) in [
            ("2026-03-07T12:00:00Z", "2026-03-07T12:00:00Z"),
            ("2026-03-07T12:00:00.25+01:00", "2026-03-07T11:00:00.250Z"),
            ("1337378640", "2012-05-18T22:04:00Z"),
            ("0", "1970-01-01T00:00:00Z"),
        ] {
            assert_eq!(shown(instant(text).unwrap()), is);
        }
        for text in ["", "now", "2026-03-07", "-1", "1e9", "253402300800", "9223372036854775807"] {
            assert!(instant(text).is_err(), "{text}");
        }
        let wrong = instant("tomorrow").unwrap_err();
        assert!(wrong.contains("RFC 3339") && wrong.contains("seconds since 1970"), "{wrong}");
        assert!(instant("2026-03-07T12:00:00.1234567Z").unwrap_err().contains("millisecond"));
    }

    #[test]
    fn durations_are_read_with_units_or_as_seconds() {
        for (text, seconds) in [("0", 0), ("30", 30), ("90s", 90), ("1h30m", 5_400)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)));
        }
        for text in ["", "-1", "1.5", "abc", "1M", "99999999999999999999"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
