//! Schedules, calendars and crontabs.

use crate::text::{is_one_line, read_back, text, value};
use allora_core::{
    Time,
    chrono::TimeDelta,
    crontab::{self, Columns, Entry, When},
    schedule::{AnySchedule, Calendar, Cron, Every, ParseError, Quartz, Recurrence, Schedule},
};
use allora_schedule::explain;
use std::{collections::HashMap, fmt, str::FromStr, sync::Arc};

/// A cron expression, also as one of Quartz.
pub(crate) fn cron(data: &[u8]) {
    let Some(text) = text(data) else { return };
    schedule::<Cron>(text);
    schedule::<Quartz>(text);
}

/// Any schedule: a phrase, with rules of a calendar behind it.
pub(crate) fn phrase(data: &[u8]) {
    let Some(text) = text(data) else { return };
    schedule::<AnySchedule>(text);
    schedule::<Every>(text);
}

/// A recurrence rule.
pub(crate) fn recurrence(data: &[u8]) {
    let Some(text) = text(data) else { return };
    schedule::<Recurrence>(text);
}

/// A calendar, also as the one of a schedule.
pub(crate) fn calendar(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let calendar: Calendar = match read_back(text) {
        Ok(calendar) => calendar,
        Err(error) => {
            // Its place is in the line that its reason names.
            assert!(!error.advice().is_empty(), "{text:?} is refused without a remedy: {error}");
            return is_one_line(&error.to_string(), text);
        }
    };
    assert!(calendar.dates() + calendar.rules() > 0, "{text:?}");
    let calendar = Arc::new(calendar);
    let hourly = allora_schedule::parse("0 * * * *; except calendar:c").expect("it is good");
    moves_on(&hourly.with_calendars(|_| Some(calendar.clone())), text);
}

/// A crontab, of a user or of the system, with or without seconds.
pub(crate) fn crontab(data: &[u8]) {
    for columns in [(false, false), (true, false), (false, true), (true, true)] {
        let (user, seconds) = columns;
        let read = crontab::parse_with(data, Columns { user, seconds });
        let entries = read.unwrap_or_else(|bad| {
            for line in bad.lines() {
                let own = data.split(|byte| *byte == b'\n').nth(line.line() - 1);
                let own = own.unwrap_or_else(|| panic!("there is no line {}: {line}", line.line()));
                assert!((1..=own.len() + 1).contains(&line.column()), "{own:?}: {line}");
                assert!(!line.reason().is_empty() && !line.remedy().is_empty(), "{line}");
                is_one_line(&line.to_string(), "a line");
            }
            assert!(!bad.lines().is_empty(), "it is bad, and no line is");
            bad.into_entries()
        });
        let mut names = HashMap::new();
        for entry in &entries {
            is_usable(entry);
            let twin = names.insert(&entry.name, entry.line);
            assert_eq!(twin, None, "the name {} of line {} is another's", entry.name, entry.line);
        }
    }
}

fn is_usable(entry: &Entry) {
    assert!(allora_core::check_name(&entry.name).is_ok(), "{}", entry.name);
    assert!(!entry.command.is_empty() && !entry.command.contains('\n'), "{entry:?}");
    assert_eq!(entry.environment.len(), entry.environment_lines.len());
    for (name, value) in entry.environment.iter() {
        assert!(!name.is_empty() && !format!("{name}{value}").contains('\0'), "{name}");
        assert!(entry.variable_line(name).is_some_and(|line| line < entry.line), "{name}");
    }
    entry.warnings();
    match &entry.when {
        When::Cron(cron) => moves_on(cron, &entry.command),
        When::Quartz(quartz) => moves_on(quartz, &entry.command),
        When::Recurrence(rule) => moves_on(&**rule, &entry.command),
        When::Every(every) => moves_on(every, &entry.command),
        _ => {}
    }
}

fn schedule<S>(text: &str)
where
    S: Schedule + FromStr<Err = ParseError> + fmt::Display + PartialEq + fmt::Debug,
{
    if let Some(schedule) = value::<S>(text) {
        moves_on(&schedule, text);
    }
}

/// The schedule goes forwards from each of these instants: an ordinary one, one before each change of the
/// clocks of Europe, and both ends of time.
pub(crate) fn moves_on<S: Schedule>(schedule: &S, text: &str) {
    const FROM: [&str; 5] = [
        "2026-11-05T12:34:56.789Z",
        "2026-03-28T23:30:00Z",
        "2026-10-24T23:30:00Z",
        "0001-01-01T00:00:00Z",
        "9999-12-31T00:00:00Z",
    ];
    if schedule.check().is_err() {
        return;
    }
    for from in FROM {
        let from: Time = from.parse().expect("it is good");
        let Some(first) = schedule.next_at(from) else { continue };
        assert!(first > from, "{text:?}: {first} follows {from}");
        let second = schedule.next_at(first);
        let last = second.unwrap_or(first);
        assert!(second.is_none_or(|second| second > first), "{text:?}: {second:?} follows {first}");
        if let Some(latest) = schedule.latest_at(first, last) {
            assert_eq!(latest, last, "{text:?}: the latest after {first}");
        }
        if let Some(count) = schedule.count(first, last) {
            assert_eq!(count, u64::from(second.is_some()), "{text:?}: the number after {first}");
        }
        // What a rule excludes may be long ago or far ahead: the scheduler asks from one to the next.
        schedule.excluded(first, last);
        schedule.moved(first);
        assert!(!schedule.is_excluded(first), "{text:?}: {first} is excluded");
        let until = first.checked_add_signed(TimeDelta::days(1)).unwrap_or(first).min(last);
        schedule.notes(first, until);
        explain(schedule, first, until).take(3).for_each(drop);
    }
    if let Some(words) = schedule.describe() {
        is_one_line(&words, text);
    }
}
