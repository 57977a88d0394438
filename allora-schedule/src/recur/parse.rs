//! The text of a recurrence: lines of iCalendar.

use super::{
    Recurrence,
    spec::{Freq, Spec, Stamp, WEEKDAYS},
};
use crate::{Field, ParseError, schedule::words, zone::Zone};
use chrono::NaiveDateTime;
use std::sync::Arc;

/// The lines that are read.
const PROPERTIES: [&str; 4] = ["DTSTART", "RRULE", "EXDATE", "RDATE"];

/// The most bytes of a text, and the most dates of each kind.
const LONGEST: usize = 8 * 1024;
const MOST_DATES: usize = 64;

/// The largest numbers of occurrences and of skipped periods.
const MOST_COUNT: i64 = 100_000;
const MOST_INTERVAL: i64 = 1_000_000;

/// `true` if a text begins with a line of iCalendar, perhaps after `@rrule`.
pub(crate) fn is_recurrence(text: &str) -> bool {
    let first = words(text).next().map_or("", |(_, word)| word);
    first.eq_ignore_ascii_case("@rrule") || is_property(first)
}

/// `true` if a text begins with the name of a line and what follows a name.
pub(crate) fn is_property(text: &str) -> bool {
    PROPERTIES.iter().any(|name| {
        begins_with(text, name) && matches!(text.as_bytes().get(name.len()), Some(b':' | b';'))
    })
}

fn begins_with(text: &str, name: &str) -> bool {
    text.get(..name.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(name))
}

/// A line, with the place where its value begins.
struct Line<'a> {
    at: usize,
    word: &'a str,
    value_at: usize,
    value: &'a str,
    /// The zone, or UTC by the dates' own `Z`.
    zone: Option<(usize, &'a str)>,
}

pub(super) fn parse(text: &str) -> Result<Recurrence, ParseError> {
    if text.len() > LONGEST {
        return Err(wrong(0, text, "is longer than 8 KiB").remedy("leave dates away"));
    }
    let (mut start, mut rule) = (None, None);
    let mut dates: [Vec<Line<'_>>; 2] = [Vec::new(), Vec::new()];
    for (at, word) in words(text) {
        let (name, line) = line(at, word)?;
        let one = match name {
            "DTSTART" => &mut start,
            "RRULE" => &mut rule,
            _ => {
                dates[usize::from(name == "EXDATE")].push(line);
                continue;
            }
        };
        if one.replace(line).is_some() {
            return Err(wrong(at, word, "is given twice").remedy("leave one away"));
        }
    }
    let end = text.trim_ascii_end().len();
    let Some(start) = start else {
        return Err(wrong(end, "", "has no start to count from").remedy(
            "write DTSTART in front, as in DTSTART;TZID=Europe/Rome:20260302T090000 RRULE:…",
        ));
    };
    let Some(rule) = rule else {
        return Err(wrong(end, "", "has no rule").remedy("write RRULE:FREQ=DAILY, for example"));
    };
    let stamp = stamp(start.value_at, start.value)?;
    let zone = match (start.zone, stamp) {
        (Some((at, _)), Stamp::Utc(_)) => {
            return Err(wrong(at, start.word, "has a zone and a Z").remedy("leave one away"));
        }
        (Some((at, name)), Stamp::Wall(_)) => Some(Zone::named(name, at)?),
        (None, Stamp::Utc(_)) => Some(Zone::utc()),
        (None, Stamp::Wall(_)) => None,
    };
    let spec = spec(&rule, zone.is_none())?;
    let [more, except] = dates;
    let dates = [list(&more, zone.as_ref())?, list(&except, zone.as_ref())?];
    Recurrence::new(spec, stamp.shown(), zone, dates).map_err(|error| error.shifted(rule.at))
}

fn line<'a>(at: usize, word: &'a str) -> Result<(&'static str, Line<'a>), ParseError> {
    let name = PROPERTIES.into_iter().find(|name| is_property(word) && begins_with(word, name));
    let Some((name, (before, value))) = name.zip(word.rsplit_once(':')) else {
        let remedy = "write DTSTART, RRULE, EXDATE and RDATE with a colon, and a blank between two of them; \
                      rules and settings follow a semicolon and a blank";
        return Err(wrong(at, word, "is no line of a recurrence").remedy(remedy));
    };
    let mut zone = None;
    let mut parameter_at = at + name.len();
    for parameter in before[name.len()..].split(';').skip(1) {
        parameter_at += 1;
        match parameter.split_once('=') {
            Some((key, value)) if key.eq_ignore_ascii_case("TZID") && name != "RRULE" => {
                zone = Some((parameter_at + 5, value.trim_matches('"')));
            }
            Some((key, value))
                if key.eq_ignore_ascii_case("VALUE") && value.eq_ignore_ascii_case("DATE-TIME") => {
            }
            Some((key, _)) if key.eq_ignore_ascii_case("VALUE") => {
                return Err(wrong(
                    parameter_at,
                    parameter,
                    "is a date or a period, without a time",
                )
                .remedy("write a time of day, as in 20260302T090000"));
            }
            _ => {
                return Err(wrong(parameter_at, parameter, "is not TZID")
                    .remedy("leave it away, or write TZID=Europe/Rome"));
            }
        }
        parameter_at += parameter.len();
    }
    let value_at = at + before.len() + 1;
    Ok((name, Line { at, word, value_at, value, zone }))
}

/// The dates of lines of one kind, sorted.
fn list(lines: &[Line<'_>], zone: Option<&Arc<Zone>>) -> Result<Vec<Stamp>, ParseError> {
    let mut dates = Vec::new();
    for line in lines {
        let other = line.zone.map(|(at, name)| Zone::named(name, at)).transpose()?;
        let other = other.filter(|other| zone.is_none_or(|zone| zone.name() != other.name()));
        let mut at = line.value_at;
        for text in line.value.split(',') {
            let date = match (stamp(at, text)?, &other) {
                (Stamp::Wall(wall), Some(other)) => Stamp::Utc(super::first_shown(other, wall)),
                (date, _) => date,
            };
            dates.push(date);
            at += text.len() + 1;
        }
        if dates.len() > MOST_DATES {
            let remedy = "put dates into a calendar, and write `; except calendar:NAME`";
            return Err(wrong(line.at, line.word, "has more than 64 dates").remedy(remedy));
        }
    }
    Ok(ordered(dates))
}

/// Sorted and without repetitions.
pub(crate) fn ordered<T: Ord>(mut values: Vec<T>) -> Vec<T> {
    values.sort_unstable();
    values.dedup();
    values
}

/// `20260302T090000`, perhaps with a `Z`.
fn stamp(at: usize, text: &str) -> Result<Stamp, ParseError> {
    let (local, is_utc) = match text.strip_suffix(['Z', 'z']) {
        Some(local) => (local, true),
        None => (text, false),
    };
    let digits = local.bytes().enumerate().all(|(index, byte)| match index {
        8 => byte == b'T',
        _ => byte.is_ascii_digit(),
    });
    let read = (digits && local.len() == 15)
        .then(|| NaiveDateTime::parse_from_str(local, "%Y%m%dT%H%M%S").ok())
        .flatten();
    let Some(second) = read.map(|read| read.and_utc().timestamp()).filter(in_time) else {
        return Err(ParseError::new(
            Field::Instant,
            at,
            text,
            "is not a date and time from 1970 to 9999",
        )
        .remedy("write it as 20260302T090000, or with a Z at its end in UTC"));
    };
    Ok(if is_utc { Stamp::Utc(second) } else { Stamp::Wall(second) })
}

/// `2026-03-02`, `2026-03-02T09:00` or `2026-03-02T09:00:30`, as a wall second; and whether it has a time.
pub(crate) fn local(text: &str) -> Option<(i64, bool)> {
    let form = |(index, byte): (usize, u8)| match index {
        4 | 7 => byte == b'-',
        10 => byte == b'T',
        13 | 16 => byte == b':',
        _ => byte.is_ascii_digit(),
    };
    if !text.bytes().enumerate().all(form) {
        return None;
    }
    let rest = match text.len() {
        10 => "T00:00:00",
        16 => ":00",
        19 => "",
        _ => return None,
    };
    let read = NaiveDateTime::parse_from_str(&format!("{text}{rest}"), "%Y-%m-%dT%H:%M:%S").ok()?;
    Some((read.and_utc().timestamp(), text.len() > 10)).filter(|(second, _)| in_time(second))
}

fn in_time(second: &i64) -> bool {
    (0..=crate::cron::END).contains(second)
}

/// The numbers that a part may have; `false`: not negative ones.
const NUMBERS: [(&str, i32, i32, bool); 8] = [
    ("BYMONTH", 1, 12, false),
    ("BYWEEKNO", 1, 53, true),
    ("BYYEARDAY", 1, 366, true),
    ("BYMONTHDAY", 1, 31, true),
    ("BYHOUR", 0, 23, false),
    ("BYMINUTE", 0, 59, false),
    ("BYSECOND", 0, 59, false),
    ("BYSETPOS", 1, 366, true),
];

fn spec(line: &Line<'_>, is_floating: bool) -> Result<Spec, ParseError> {
    let mut spec = Spec::new(Freq::Daily, 1);
    let mut seen: Vec<String> = Vec::new();
    let mut at = line.value_at;
    for part in line.value.split(';') {
        let Some((name, value)) = part.split_once('=') else {
            return Err(wrong(at, part, "is no part of a rule with a value")
                .remedy("write a name, = and a value, such as FREQ=WEEKLY"));
        };
        let name = name.to_ascii_uppercase();
        let value_at = at + name.len() + 1;
        if seen.contains(&name) {
            return Err(wrong(at, part, "is given twice").remedy("leave one away"));
        }
        one(&mut spec, &name, (value_at, value), part, is_floating)?;
        seen.push(name);
        at += part.len() + 1;
    }
    if !seen.iter().any(|name| name == "FREQ") {
        let remedy = "write FREQ=WEEKLY, or another frequency, in front";
        return Err(wrong(line.value_at, line.value, "has no frequency").remedy(remedy));
    }
    fits(&spec).map_err(|(reason, remedy)| wrong(line.at, line.word, reason).remedy(remedy))?;
    Ok(spec)
}

/// Reads one part of a rule.
fn one(
    spec: &mut Spec,
    name: &str,
    (at, value): (usize, &str),
    part: &str,
    is_floating: bool,
) -> Result<(), ParseError> {
    let part_at = at - name.len() - 1;
    let whole = |most: i64| {
        let number = value.bytes().all(|byte| byte.is_ascii_digit()).then(|| value.parse().ok());
        number.flatten().filter(|number| (1..=most).contains(number)).ok_or_else(|| {
            wrong(at, value, "is not a number that fits").remedy(format!("write 1 to {most}"))
        })
    };
    match name {
        "FREQ" => {
            let known = Freq::ALL.iter().find(|(_, name, _)| name.eq_ignore_ascii_case(value));
            let Some((freq, ..)) = known else {
                return Err(wrong(at, value, "is not a frequency")
                    .remedy("write YEARLY, MONTHLY, WEEKLY, DAILY, HOURLY, MINUTELY or SECONDLY"));
            };
            spec.freq = *freq;
        }
        "INTERVAL" => spec.interval = whole(MOST_INTERVAL)?,
        "COUNT" => spec.count = Some(whole(MOST_COUNT)? as u32),
        "UNTIL" => {
            let until = stamp(at, value)?;
            if matches!(until, Stamp::Wall(_)) && !is_floating {
                let reason = "is local, where RFC 5545 has UTC, and programs read it differently";
                return Err(wrong(at, value, reason).remedy("write the instant in UTC, with a Z"));
            }
            spec.until = Some(until);
        }
        "WKST" => spec.week_start = weekday(at, value)?,
        "BYDAY" => {
            let mut days = Vec::new();
            let mut at = at;
            for text in value.split(',') {
                let split = text.len().saturating_sub(2);
                let (nth, day) = text.split_at_checked(split).unwrap_or((text, ""));
                let nth = if nth.is_empty() { Some(0) } else { number(nth, 1, 53, true) };
                let Some(nth) = nth else {
                    let remedy = "write MO, 1MO for the first, or -1MO for the last one";
                    return Err(wrong(at, text, "is not a weekday").remedy(remedy));
                };
                days.push((nth, weekday(at + split, day)?));
                at += text.len() + 1;
            }
            spec.weekdays = ordered(days);
        }
        _ => {
            let known = NUMBERS.into_iter().find(|(known, ..)| *known == name);
            let Some((_, least, most, signed)) = known else {
                let remedy = "a rule has FREQ, INTERVAL, COUNT, UNTIL, WKST, BYSETPOS, BYMONTH, BYWEEKNO, \
                              BYYEARDAY, BYMONTHDAY, BYDAY, BYHOUR, BYMINUTE and BYSECOND; settings follow \
                              a semicolon and a blank";
                return Err(wrong(part_at, part, "is no part of a rule").remedy(remedy));
            };
            let mut values = Vec::new();
            let mut at = at;
            for text in value.split(',') {
                let Some(number) = number(text, least, most, signed) else {
                    let negative =
                        if signed { format!(", or -{most} to -{least}") } else { String::new() };
                    let remedy = format!("write {least} to {most}{negative}");
                    return Err(wrong(at, text, "is not a number of this part").remedy(remedy));
                };
                values.push(number);
                at += text.len() + 1;
            }
            let values = ordered(values);
            match name {
                "BYMONTH" => spec.months = values,
                "BYWEEKNO" => spec.weeks = values,
                "BYYEARDAY" => spec.year_days = values,
                "BYMONTHDAY" => spec.month_days = values,
                "BYHOUR" => spec.hours = values,
                "BYMINUTE" => spec.minutes = values,
                "BYSECOND" => spec.seconds = values,
                _ => spec.positions = values,
            }
        }
    }
    Ok(())
}

fn number(text: &str, least: i32, most: i32, signed: bool) -> Option<i32> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let plain = (1..=3).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: i32 = plain.then(|| digits.parse().ok()).flatten()?;
    let negative = text.starts_with('-');
    let fits = (least..=most).contains(&number) && (signed || digits.len() == text.len());
    fits.then_some(if negative { -number } else { number })
}

fn weekday(at: usize, text: &str) -> Result<u32, ParseError> {
    let day = WEEKDAYS.iter().position(|day| day.eq_ignore_ascii_case(text));
    day.map(|day| day as u32).ok_or_else(|| {
        wrong(at, text, "is not a weekday").remedy("write MO, TU, WE, TH, FR, SA or SU")
    })
}

/// The parts fit together, by the tables of RFC 5545.
fn fits(spec: &Spec) -> Result<(), (&'static str, &'static str)> {
    let Spec { freq, weekdays, .. } = spec;
    let has_nth = weekdays.iter().any(|(nth, _)| *nth != 0);
    let nothing = spec.is_plain();
    let positions = !spec.positions.is_empty();
    let rest = Spec { positions: Vec::new(), ..spec.clone() };
    let wrong = [
        (
            spec.count.is_some() && spec.until.is_some(),
            ("has both COUNT and UNTIL", "leave one away"),
        ),
        (
            !spec.weeks.is_empty() && *freq != Freq::Yearly,
            ("has BYWEEKNO, which only FREQ=YEARLY can have", "leave it away"),
        ),
        (
            !spec.weeks.is_empty() && (weekdays.is_empty() || has_nth),
            (
                "has BYWEEKNO without plain weekdays: all seven to some programs, and that of DTSTART to others",
                "write BYDAY=MO, or the other weekdays",
            ),
        ),
        (
            !spec.year_days.is_empty()
                && matches!(freq, Freq::Monthly | Freq::Weekly | Freq::Daily),
            (
                "has BYYEARDAY, which FREQ=MONTHLY, WEEKLY and DAILY cannot have",
                "write FREQ=YEARLY",
            ),
        ),
        (
            !spec.month_days.is_empty() && *freq == Freq::Weekly,
            ("has BYMONTHDAY, which FREQ=WEEKLY cannot have", "write FREQ=MONTHLY or DAILY"),
        ),
        (
            has_nth && *freq > Freq::Monthly,
            (
                "has an n-th weekday, which only FREQ=MONTHLY and YEARLY can have",
                "write MO for every Monday, or another frequency",
            ),
        ),
        (
            positions && (nothing || rest.is_plain()),
            ("has BYSETPOS without another BY part to select from", "leave it away"),
        ),
    ];
    match wrong.into_iter().find(|(is_wrong, _)| *is_wrong) {
        Some((_, wrong)) => Err(wrong),
        None => Ok(()),
    }
}

fn wrong(at: usize, found: &str, reason: &'static str) -> ParseError {
    ParseError::new(Field::Text, at, found, reason)
}
