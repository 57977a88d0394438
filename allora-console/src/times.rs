//! Times and durations as people read them: an absolute time with its zone, then how far away it is.

use allora_core::{
    Time,
    schedule::zone_name,
    time::{from_millis, since},
};
use jiff::{
    Timestamp, Zoned, civil,
    tz::{AmbiguousOffset, Offset, TimeZone},
};
use std::time::Duration;

/// A zone of which times are shown.
#[derive(Clone, Debug)]
pub(crate) struct Zone {
    name: String,
    rules: TimeZone,
}

/// A time, ready for a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// For programs: RFC 3339 in UTC.
    pub(crate) machine: String,
    /// For people, with the zone: `Tue 27 Oct 02:00 CET`.
    pub(crate) text: String,
    /// The distance from now: `in 22 h 48 min`.
    pub(crate) distance: String,
}

/// A time for programs: RFC 3339 in UTC.
pub(crate) fn machine(at: Time) -> String {
    at.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true)
}

impl Zone {
    pub(crate) fn utc() -> Self {
        Self { name: "UTC".into(), rules: TimeZone::UTC }
    }

    /// The zone of this name, or the fixed offset.
    ///
    /// # Errors
    /// A sentence that says what to write instead.
    pub(crate) fn named(name: &str) -> Result<Self, String> {
        let name = zone_name(name).map_err(|error| error.to_string())?;
        let rules = match offset(&name) {
            Some(offset) => TimeZone::fixed(offset),
            None => TimeZone::get(&name).map_err(|error| error.to_string())?,
        };
        Ok(Self { name, rules })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A time as this zone's clocks show it. Seconds are left out where they are 0, the year where it is
    /// that of `now`.
    pub(crate) fn moment(&self, at: Time, now: Time) -> Moment {
        let local = self.local(at);
        let year = if local.year() == self.local(now).year() { "" } else { " %Y" };
        let seconds = if local.second() == 0 { "" } else { ":%S" };
        Moment {
            machine: machine(at),
            text: local.strftime(&format!("%a %-d %b{year} %H:%M{seconds} %Z")).to_string(),
            distance: distance(at, now),
        }
    }

    /// The time of day: `03:12:07`.
    pub(crate) fn clock(&self, at: Time) -> String {
        self.local(at).strftime("%H:%M:%S").to_string()
    }

    /// The hour and minute: `03:00`.
    pub(crate) fn minute(&self, at: Time) -> String {
        self.local(at).strftime("%H:%M").to_string()
    }

    /// The seconds by which this zone's clocks are ahead of UTC.
    pub(crate) fn lead(&self, at: Time) -> i32 {
        self.local(at).offset().seconds()
    }

    /// Reads a time that a person has typed: `2026-10-25 02:00` by this zone's clocks, or an instant in
    /// the form of RFC 3339. The note says what a change of the clocks makes of it.
    ///
    /// # Errors
    /// A sentence that says what to write instead.
    pub(crate) fn read(&self, text: &str) -> Result<(Time, Option<&'static str>), String> {
        let wrong = || {
            format!("{text:?} is no time; write it as 2026-10-25 02:00, or as 2026-10-25T01:00:00Z")
        };
        let (instant, note) = match text.parse::<Timestamp>() {
            Ok(instant) => (instant, None),
            Err(_) => {
                let local: civil::DateTime = text.parse().map_err(|_| wrong())?;
                let ambiguous = self.rules.to_ambiguous_zoned(local);
                let note = match ambiguous.offset() {
                    AmbiguousOffset::Unambiguous { .. } => None,
                    AmbiguousOffset::Gap { .. } => Some(
                        "the clocks skipped this time; the answer is about the one they showed instead",
                    ),
                    AmbiguousOffset::Fold { .. } => {
                        Some("the clocks showed this time twice; the answer is about the first")
                    }
                };
                (ambiguous.compatible().map_err(|_| wrong())?.timestamp(), note)
            }
        };
        let at = from_millis(instant.as_millisecond()).ok_or_else(wrong)?;
        Ok((at, note))
    }

    /// A time in the form that [`read`](Self::read) takes, for the field of a form. Of a time that the
    /// clocks show twice, the text would mean the first: the second is written as an instant.
    pub(crate) fn written(&self, at: Time) -> String {
        let local = self.local(at);
        match self.rules.to_ambiguous_zoned(local.datetime()).compatible() {
            Ok(again) if again.timestamp() == local.timestamp() => {
                local.strftime("%Y-%m-%d %H:%M:%S%.f").to_string()
            }
            _ => at.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true),
        }
    }

    fn local(&self, at: Time) -> Zoned {
        let instant = Timestamp::from_millisecond(at.timestamp_millis());
        instant.unwrap_or(Timestamp::UNIX_EPOCH).to_zoned(self.rules.clone())
    }
}

/// The offset that a zone without rules is named after: `+02:00`.
fn offset(name: &str) -> Option<Offset> {
    let (hours, minutes) = name.strip_prefix(['+', '-'])?.split_once(':')?;
    let seconds = hours.parse::<i32>().ok()? * 3_600 + minutes.parse::<i32>().ok()? * 60;
    let sign = if name.starts_with('-') { -1 } else { 1 };
    Offset::from_seconds(sign * seconds).ok()
}

/// The distance of a time from now: `in 48 s`, `42 min ago`.
pub(crate) fn distance(at: Time, now: Time) -> String {
    match at > now {
        true => format!("in {}", span(since(at, now))),
        false => format!("{} ago", span(since(now, at))),
    }
}

/// A duration in at most two units: `48 s`, `12 min 7 s`, `22 h 48 min`, `3 d 4 h`.
pub(crate) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    let (larger, smaller) = match seconds {
        0..60 => return format!("{seconds} s"),
        60..3_600 => ((seconds / 60, "min"), (seconds % 60, "s")),
        3_600..86_400 => ((seconds / 3_600, "h"), (seconds / 60 % 60, "min")),
        _ => ((seconds / 86_400, "d"), (seconds / 3_600 % 24, "h")),
    };
    match smaller.0 {
        0 => format!("{} {}", larger.0, larger.1),
        rest => format!("{} {} {rest} {}", larger.0, larger.1, smaller.1),
    }
}

/// The duration of a run: exact where it is short.
pub(crate) fn took(took: Duration) -> String {
    match took.as_millis() {
        ms @ 0..1_000 => format!("{ms} ms"),
        ms @ 1_000..60_000 => format!("{}.{} s", ms / 1_000, ms / 100 % 10),
        _ => span(took),
    }
}

/// A duration in one unit, as rounded as people say it: `9 min`, `90 min`, `3 h`.
pub(crate) fn about(span: Duration) -> String {
    let seconds = span.as_secs_f64();
    match span.as_secs() {
        0..10 => took(span),
        10..120 => format!("{seconds:.0} s"),
        120..7_200 => format!("{:.0} min", seconds / 60.0),
        7_200..172_800 => format!("{:.0} h", seconds / 3_600.0),
        _ => format!("{:.0} d", seconds / 86_400.0),
    }
}

#[cfg(test)]
pub(crate) fn at(text: &str) -> Time {
    text.parse().expect("an instant of a test")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rome() -> Zone {
        Zone::named("europe/rome").unwrap()
    }

    #[test]
    fn a_time_has_its_zone_and_its_distance() {
        let now = at("2026-10-26T02:12:07Z");
        let shown = rome().moment(at("2026-10-27T01:00:00Z"), now);
        assert_eq!(shown.machine, "2026-10-27T01:00:00Z");
        assert_eq!((&*shown.text, &*shown.distance), ("Tue 27 Oct 02:00 CET", "in 22 h 47 min"));
        let summer = rome().moment(at("2025-07-01T10:00:05Z"), now);
        assert_eq!(summer.text, "Tue 1 Jul 2025 12:00:05 CEST");
    }

    #[test]
    fn zones_are_names_and_offsets() {
        assert_eq!(rome().name(), "Europe/Rome");
        let offset = Zone::named("-03:30").unwrap();
        assert_eq!(offset.minute(at("2026-01-01T12:00:00Z")), "08:30");
        assert!(Zone::named("Europe/Rom").unwrap_err().contains("Europe/Rome"));
    }

    #[test]
    fn a_typed_time_is_read_by_the_clocks_of_the_zone() {
        let read = |text: &str| rome().read(text).unwrap();
        assert_eq!(read("2026-10-26 02:00"), (at("2026-10-26T01:00:00Z"), None));
        assert_eq!(read("2026-10-26T02:00:30"), (at("2026-10-26T01:00:30Z"), None));
        assert_eq!(read("2026-10-26T02:00:00Z").0, at("2026-10-26T02:00:00Z"));
        let (twice, note) = read("2026-10-25 02:30");
        assert_eq!(twice, at("2026-10-25T00:30:00Z"));
        assert!(note.unwrap().contains("twice"));
        let (skipped, note) = read("2026-03-29 02:30");
        assert_eq!(skipped, at("2026-03-29T01:30:00Z"));
        assert!(note.unwrap().contains("skipped"));
        assert!(rome().read("half past two").unwrap_err().contains("write it as"));
    }

    #[test]
    fn a_written_time_is_read_as_the_same_one() {
        let both = ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"];
        for text in ["2026-10-26T01:00:30Z", "2026-10-26T01:00:30.250Z"].iter().chain(&both) {
            let written = rome().written(at(text));
            assert_eq!(rome().read(&written).unwrap().0, at(text), "{written}");
        }
    }

    #[test]
    fn durations_have_two_units() {
        for (seconds, is) in [
            (0, "0 s"),
            (48, "48 s"),
            (727, "12 min 7 s"),
            (720, "12 min"),
            (82_080, "22 h 48 min"),
            (273_600, "3 d 4 h"),
        ] {
            assert_eq!(span(Duration::from_secs(seconds)), is);
        }
        assert_eq!(took(Duration::from_millis(250)), "250 ms");
        assert_eq!(took(Duration::from_millis(4_120)), "4.1 s");
        assert_eq!(took(Duration::from_secs(125)), "2 min 5 s");
        for (ms, is) in [
            (250, "250 ms"),
            (4_120, "4.1 s"),
            (86_400, "86 s"),
            (557_056, "9 min"),
            (5_400_000, "90 min"),
            (12_000_000, "3 h"),
            (300_000_000, "3 d"),
        ] {
            assert_eq!(about(Duration::from_millis(ms)), is);
        }
    }
}
