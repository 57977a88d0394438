//! Recurrences in English. What a phrase can say is in the words of that phrase.

use super::{
    Recurrence, Stamp,
    spec::{Freq, Spec},
};
use crate::{
    cron::{civil::DAY, notes::shown},
    english::{MONTHS, WEEKDAYS, list, ordinal, runs},
};

pub(super) fn describe(recurrence: &Recurrence) -> String {
    let Recurrence { spec, start, .. } = recurrence;
    let zone = recurrence.zone();
    let unit = spec.freq.unit();
    let mut text = match spec.interval {
        1 => format!("every {unit}"),
        interval => format!("every {interval} {unit}s"),
    };
    let days = days(spec);
    if let Some(days) = &days {
        text.push_str(&format!(" on {days}"));
    }
    let date = shown(*start)[..10].to_owned();
    let time = times(spec, *start);
    let is_phrase = spec.freq <= Freq::Daily
        && (days.is_some() || spec.is_plain() || spec.weekdays.is_empty())
        && spec.months.is_empty();
    let is_phrase = is_phrase && (days.is_some() || spec.month_days.is_empty());
    if !is_phrase {
        text.push_str(&others(spec, days.is_none()));
    }
    match &time {
        Some(times) => text.push_str(&format!(" at {times} {zone} from {date}")),
        None => {
            let time = shown(*start)[11..].to_owned();
            text.push_str(&format!(" from {date}T{time} {zone}"));
        }
    }
    if time.is_none() && spec.freq <= Freq::Daily {
        text.push_str(&clock(spec));
    }
    text.push_str(&rest(spec));
    text.push_str(&bounds(recurrence));
    text
}

/// `9:00 and 17:00`, if they are few, at the same minute.
fn times(spec: &Spec, start: i64) -> Option<String> {
    let second = start.rem_euclid(DAY);
    let is_plain = spec.minutes.is_empty() && spec.seconds.is_empty() && second % 60 == 0;
    if !is_plain || spec.freq > Freq::Daily {
        return None;
    }
    let (hour, minute) = (second / 3600, second / 60 % 60);
    let hours = if spec.hours.is_empty() { vec![hour as i32] } else { spec.hours.clone() };
    let times: Vec<String> = hours.iter().map(|hour| format!("{hour}:{minute:02}")).collect();
    Some(list(&times))
}

/// The days that a phrase can name: weekdays of a week, days of a month.
fn days(spec: &Spec) -> Option<String> {
    let of_week = || -> Option<Vec<String>> {
        let plain = spec.weekdays.iter().all(|(nth, _)| *nth == 0) && !spec.weekdays.is_empty();
        let names = spec.weekdays.iter().map(|(_, day)| WEEKDAYS[*day as usize].to_owned());
        plain.then(|| names.collect())
    };
    let of_month = || -> Option<Vec<String>> {
        if let (true, [(nth, day)]) = (spec.month_days.is_empty(), &*spec.weekdays) {
            let day = WEEKDAYS[*day as usize];
            return match nth {
                1..=4 => Some(vec![format!("the {} {day}", nth_in_words(*nth))]),
                -1 => Some(vec![format!("the last {day}")]),
                _ => None,
            };
        }
        let day = |day: &i32| match day {
            1..=28 => Some(ordinal(*day as u32)),
            -1 => Some("last day".to_owned()),
            _ => None,
        };
        let (back, ahead): (Vec<i32>, Vec<i32>) = spec.month_days.iter().partition(|day| **day < 0);
        let days = ahead.iter().chain(&back).map(day).collect::<Option<Vec<_>>>();
        let days = days.filter(|days| !days.is_empty() && spec.weekdays.is_empty())?;
        Some(vec![format!("the {}", list(&days))])
    };
    match spec.freq {
        Freq::Weekly => of_week(),
        Freq::Monthly => of_month(),
        _ => None,
    }
    .map(|days| list(&days))
}

fn nth_in_words(nth: i32) -> &'static str {
    ["first", "second", "third", "fourth"][(nth - 1) as usize]
}

/// The parts that no phrase has, of which days are one.
fn others(spec: &Spec, with_days: bool) -> String {
    let mut parts = Vec::new();
    if with_days && !spec.month_days.is_empty() {
        parts.push(format!("on {} of the month", numbered("day", &spec.month_days)));
    }
    if with_days && !spec.weekdays.is_empty() {
        let of = if spec.freq == Freq::Yearly && spec.months.is_empty() { "year" } else { "month" };
        let day = |(nth, day): &(i32, u32)| {
            let day = WEEKDAYS[*day as usize];
            match nth {
                0 => format!("every {day}"),
                1.. => format!("the {} {day} of the {of}", ordinal(*nth as u32)),
                -1 => format!("the last {day} of the {of}"),
                _ => format!("the {} {day} before the end of the {of}", ordinal(-nth as u32)),
            }
        };
        let days: Vec<String> = spec.weekdays.iter().map(day).collect();
        parts.push(format!("on {}", list(&days)));
    }
    if !spec.year_days.is_empty() {
        parts.push(format!("on {} of the year", numbered("day", &spec.year_days)));
    }
    if !spec.weeks.is_empty() {
        parts.push(format!("in {} of the year", numbered("week", &spec.weeks)));
    }
    if !spec.months.is_empty() {
        let months: Vec<u32> = spec.months.iter().map(|month| *month as u32).collect();
        let months = runs(&months, |month| MONTHS[month as usize - 1].to_owned());
        parts.push(format!("in {}", list(&months)));
    }
    if spec.freq > Freq::Daily {
        parts.extend(
            Some(clock(spec)[..].trim_start_matches(", ").to_owned()).filter(|t| !t.is_empty()),
        );
    }
    parts.iter().map(|part| format!(", {part}")).collect()
}

/// The hours, minutes and seconds.
fn clock(spec: &Spec) -> String {
    let parts = [("second", &spec.seconds), ("minute", &spec.minutes), ("hour", &spec.hours)];
    let parts = parts.into_iter().filter(|(_, values)| !values.is_empty());
    let parts: Vec<String> = parts.map(|(name, values)| numbered(name, values)).collect();
    if parts.is_empty() { String::new() } else { format!(", at {}", parts.join(" of ")) }
}

/// `day 5`, `days 1 to 3 and 5`, `days 1 and 2 from the end`.
fn numbered(name: &str, values: &[i32]) -> String {
    let (back, ahead): (Vec<i32>, Vec<i32>) = values.iter().partition(|value| **value < 0);
    let text = |values: Vec<u32>| {
        let s = if values.len() > 1 { "s" } else { "" };
        format!("{name}{s} {}", list(&runs(&values, |value| value.to_string())))
    };
    let mut parts = Vec::new();
    if !ahead.is_empty() {
        parts.push(text(ahead.iter().map(|value| *value as u32).collect()));
    }
    if !back.is_empty() {
        let back = back.iter().rev().map(|value| value.unsigned_abs()).collect();
        parts.push(format!("{} from the end", text(back)));
    }
    list(&parts)
}

/// The positions, and the beginning of weeks.
fn rest(spec: &Spec) -> String {
    let mut text = String::new();
    if !spec.positions.is_empty() {
        text = format!(
            ", of these only {} of each {}",
            numbered("number", &spec.positions),
            spec.freq.unit()
        );
    }
    if spec.week_start != 1 && spec.freq <= Freq::Weekly {
        text.push_str(&format!(", in weeks from {} on", WEEKDAYS[spec.week_start as usize]));
    }
    text
}

/// The end, and single dates.
fn bounds(recurrence: &Recurrence) -> String {
    let spec = &recurrence.spec;
    let mut text = String::new();
    match (spec.count, spec.until) {
        (Some(1), _) => text.push_str(", once"),
        (Some(count), _) => text.push_str(&format!(", {count} times")),
        (None, Some(until)) => {
            let zone = if matches!(until, Stamp::Utc(_)) { " UTC" } else { "" };
            text.push_str(&format!(", until {}{zone}", shown(until.shown())));
        }
        (None, None) => {}
    }
    let times = |dates: &[Stamp]| match dates.len() {
        1 => "1 time".to_owned(),
        count => format!("{count} times"),
    };
    if !recurrence.more.written.is_empty() {
        text.push_str(&format!(", and {} more", times(&recurrence.more.written)));
    }
    if !recurrence.except.written.is_empty() {
        text.push_str(&format!(", except {}", times(&recurrence.except.written)));
    }
    text
}
