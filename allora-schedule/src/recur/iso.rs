//! Repeating intervals of ISO 8601: `R5/2026-03-02T09:00:00Z/PT1H`.

use super::{
    Recurrence,
    parse::local,
    spec::{Freq, Spec},
};
use crate::{
    Field, ParseError,
    cron::civil::{DAY, civil},
    period,
    schedule::words,
    zone::Zone,
};

/// The most occurrences.
const MOST: u32 = 100_000;

/// `true` if a text begins as a repeating interval.
pub(crate) fn is_iso(text: &str) -> bool {
    let rest = text.trim_ascii_start().strip_prefix(['R', 'r']);
    rest.is_some_and(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with('/'))
}

pub(super) fn parse(text: &str) -> Result<Recurrence, ParseError> {
    let mut all = words(text);
    let (at, word) = all.next().unwrap_or((0, text));
    let mut zone = match all.next() {
        Some((at, name)) => Some(Zone::named(name, at)?),
        None => None,
    };
    if let Some((at, word)) = all.next() {
        return Err(wrong(at, word, "is one word too many", "leave it away"));
    }
    let parts: Vec<&str> = word.split('/').collect();
    let [count, start, duration] = parts[..] else {
        let reason = "is not a number of repetitions, a start and a duration";
        return Err(wrong(
            at,
            word,
            reason,
            "write R5/2026-03-02T09:00:00Z/PT1H, or R/ without an end",
        ));
    };
    let count = match &count[1..] {
        "" => None,
        digits => Some(digits.parse().ok().filter(|count| (1..=MOST).contains(count)).ok_or_else(
            || wrong(at, count, "has no number that fits", "write R and 1 to 100000, or R alone"),
        )?),
    };
    let start_at = at + parts[0].len() + 1;
    let duration_at = start_at + start.len() + 1;
    let (clock, own_zone) = split_zone(start);
    let Some((wall, true)) = local(clock) else {
        let remedy =
            "write its first occurrence as 2026-03-02T09:00:00Z, or with an offset for the Z";
        return Err(
            ParseError::new(Field::Instant, start_at, start, "is not a start").remedy(remedy)
        );
    };
    if let Some(name) = own_zone {
        if zone.is_some() {
            let reason = "has an offset, next to the zone at the end";
            return Err(wrong(start_at, start, reason, "leave one away"));
        }
        zone = Some(Zone::named(name, start_at + clock.len())?);
    }
    let unreadable = || {
        let reason = "is not a duration that can be counted";
        let remedy = "write PT90M in elapsed time, in whole seconds, or P2W, P1M or P1Y by the calendar; \
                      days and months cannot be mixed";
        wrong(duration_at, duration, reason, remedy)
    };
    if let Some((freq, interval)) = by_calendar(duration) {
        let spec = Spec { count, ..Spec::new(freq, interval) };
        let (_, month, day) = civil(wall.div_euclid(DAY));
        if let Some(error) = lacking(freq, month, day) {
            return Err(ParseError::new(Field::Instant, start_at, start, error)
                .remedy("begin on another day, or write a recurrence rule with BYMONTHDAY"));
        }
        return Recurrence::new(spec, wall, zone, Default::default());
    }
    let elapsed = period::parse(duration, duration_at).map_err(|_| unreadable())?;
    if zone.as_ref().is_none_or(|zone| zone.segments().len() > 1) {
        let remedy = "write it with a Z or an offset, because hours and minutes are elapsed time";
        return Err(wrong(start_at, start, "is a local time", remedy));
    }
    if elapsed.subsec_nanos() != 0 {
        return Err(unreadable());
    }
    let seconds = elapsed.as_secs() as i64;
    let units = [(Freq::Hourly, 3_600), (Freq::Minutely, 60), (Freq::Secondly, 1)];
    let unit = units.into_iter().find(|(_, unit)| seconds % unit == 0);
    let (freq, unit) =
        unit.filter(|(_, unit)| seconds / unit <= 1_000_000).ok_or_else(unreadable)?;
    Recurrence::new(
        Spec { count, ..Spec::new(freq, seconds / unit) },
        wall,
        zone,
        Default::default(),
    )
}

/// The clock of an instant, and its `Z` or offset as a zone.
pub(crate) fn split_zone(text: &str) -> (&str, Option<&str>) {
    if let Some(clock) = text.strip_suffix(['Z', 'z']) {
        return (clock, Some("UTC"));
    }
    let after_date = text.get(10..).unwrap_or_default();
    match after_date.find(['+', '-']) {
        Some(at) => (&text[..10 + at], Some(&text[10 + at..])),
        None => (text, None),
    }
}

/// The reason why not every period has the day.
pub(crate) fn lacking(freq: Freq, month: u32, day: u32) -> Option<&'static str> {
    match (freq, month, day) {
        (Freq::Monthly, _, 29..) => Some("is on a day that not every month has"),
        (Freq::Yearly, 2, 29) => Some("is on a day that not every year has"),
        _ => None,
    }
}

/// `P2W`, `P1M`, `P1Y6M`: a number of periods of the calendar.
fn by_calendar(duration: &str) -> Option<(Freq, i64)> {
    let mut rest = duration.strip_prefix(['P', 'p']).filter(|rest| !rest.is_empty())?;
    let (mut months, mut days) = (0, 0);
    while !rest.is_empty() {
        let end =
            rest.find(|char: char| !char.is_ascii_digit()).filter(|end| (1..=5).contains(end))?;
        let number: i64 = rest[..end].parse().ok()?;
        match rest.as_bytes()[end].to_ascii_uppercase() {
            b'Y' => months += 12 * number,
            b'M' => months += number,
            b'W' => days += 7 * number,
            b'D' => days += number,
            _ => return None,
        }
        rest = &rest[end + 1..];
    }
    match (months, days) {
        (1.., 0) if months % 12 == 0 => Some((Freq::Yearly, months / 12)),
        (1.., 0) => Some((Freq::Monthly, months)),
        (0, 1..) if days % 7 == 0 => Some((Freq::Weekly, days / 7)),
        (0, 1..) => Some((Freq::Daily, days)),
        _ => None,
    }
}

fn wrong(at: usize, found: &str, reason: &'static str, remedy: &'static str) -> ParseError {
    ParseError::new(Field::Text, at, found, reason).remedy(remedy)
}
