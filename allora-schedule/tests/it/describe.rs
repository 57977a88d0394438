//! Descriptions: English that says what the times are.

use allora_schedule::{Schedule, Time, between, every, next_n, parse};
use chrono::{Datelike, NaiveDate, TimeDelta, Timelike};
use std::{collections::BTreeSet, time::Duration};

fn described(text: &str) -> String {
    let schedule = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    schedule.describe().unwrap()
}

#[test]
fn every_kind_of_schedule_has_a_description() {
    for (text, description) in [
        ("@every 90m", "every 90 minutes"),
        ("@every 1h", "every 1 hour"),
        ("@every 14d", "every 336 hours"),
        ("@every 1500ms", "every 1500 milliseconds"),
        ("@every 1h phase 0s", "every 1 hour, counted from 1970-01-01T00:00:00Z"),
        ("@every 1h phase 5m", "every 1 hour, counted from 5 minutes after 1970-01-01T00:00:00Z"),
        ("@every 2w from 2026-01-05T09:00:00Z", "every 336 hours from 2026-01-05T09:00:00Z on"),
        ("@at 2026-01-01T09:00:00+01:00", "once, at 2026-01-01T08:00:00Z"),
        ("@at 2026-01-01T09:00:00.5Z", "once, at 2026-01-01T09:00:00.500Z"),
        ("* * * * *", "every minute, UTC"),
        ("* * * * * *", "every second, UTC"),
        ("30 * * * * *", "at second 30 of every minute, UTC"),
        ("* 2 * * *", "every minute of hour 2, every day, UTC"),
        ("@hourly", "at minute 0 of every hour, UTC"),
        ("*/5 * * * *", "every 5th minute from 0 to 55 of every hour, UTC"),
        ("0 */12 * * *", "at minute 0 of hours 0 and 12, every day, UTC"),
        ("* 9 LW * *", "every minute of hour 9 on the last weekday of every month, UTC"),
        ("0 9-17 * * *", "at minute 0 of hours 9 to 17, every day, UTC"),
        ("@daily", "every day at 0:00 UTC"),
        ("0 9,17 * * * Europe/Rome", "every day at 9:00 and 17:00 Europe/Rome"),
        ("5 9 * * MON-FRI", "every weekday at 9:05 UTC"),
        ("0 9 * * SAT,SUN", "every Saturday and Sunday at 9:00 UTC"),
        ("0 9 * * FRI-MON", "every Monday and Friday to Sunday at 9:00 UTC"),
        ("0 9 * * 1#1 +02:00", "first Monday of every month at 9:00 +02:00"),
        ("0 9 * * FRIL", "last Friday of every month at 9:00 UTC"),
        ("0 9 21 * *", "21st day of every month at 9:00 UTC"),
        ("0 9 LW * *", "last weekday of every month at 9:00 UTC"),
        ("0 9 31 * *", "at 9:00 on day 31 of the month, UTC"),
        (
            "0 9 1-5,15,L-2,15W * *",
            "at 9:00 on days 1 to 5 and 15 and the 2nd day before the last and the weekday nearest to day 15 of the month, UTC",
        ),
        ("0 9 13 * FRI", "at 9:00 on day 13 of the month or on Friday, UTC"),
        ("0 9 */13 * FRI", "at 9:00 on days 1, 14 and 27 of the month, but only on Friday, UTC"),
        ("0 9 * * MON#5,TUE", "at 9:00 on Tuesday and the 5th Monday of the month, UTC"),
        ("0 9 * 1,6-8 MON", "every Monday at 9:00 in January and June to August, UTC"),
        ("0 9 1 1 *", "at 9:00 on day 1 of the month in January, UTC"),
        ("0 9 1-31 * MON", "every day at 9:00 UTC"),
        ("0 9 * * * dst=literal", "every day at 9:00 by the wall clock, UTC"),
        (
            "@quartz 0 15 10 ? * 6L 2026-2028,2030",
            "last Friday of every month at 10:15 in 2026 to 2028 and 2030, UTC",
        ),
        ("@quartz 0 0 9 13 * FRI", "at 9:00 on day 13 of the month, but only on Friday, UTC"),
    ] {
        assert_eq!(described(text), description, "{text}");
    }
    let boxed: Box<dyn Schedule> = Box::new(every(Duration::from_secs(60)));
    assert_eq!(boxed.describe().as_deref(), Some("every 1 minute"));
    assert_eq!((|after: Time| Some(after)).describe(), None);
}

#[test]
fn the_description_of_a_phrase_is_that_phrase_again() {
    for days in [
        "every day",
        "every weekday",
        "every monday",
        "every monday, wednesday and friday",
        "every tuesday to thursday and sunday",
        "first tuesday of every month",
        "fourth sunday of every month",
        "last friday of every month",
        "first day of every month",
        "12th day of every month",
        "28th day of every month",
        "last day of every month",
        "first weekday of every month",
        "last weekday of every month",
    ] {
        for times in ["", " at 9:00", " at 9:30 and 17:30", " at 0:05, 1:05, 2:05 and 23:05"] {
            for zone in ["", " UTC", " Europe/Rome", " +05:45"] {
                let phrase = format!("{days}{times}{zone}");
                let schedule = parse(&phrase).unwrap_or_else(|error| panic!("{phrase}: {error}"));
                let description = schedule.describe().unwrap();
                assert_eq!(parse(&description), Ok(schedule), "{phrase}: {description}");
            }
        }
    }
    for count in [1, 2, 5, 60, 90, 3_600, 5_400, 86_400] {
        for unit in ["second", "minutes", "hours"] {
            let schedule = parse(&format!("every {count} {unit}")).unwrap();
            assert_eq!(parse(&schedule.describe().unwrap()), Ok(schedule), "{count} {unit}");
        }
    }
}

const MINUTES: [&str; 7] = ["*", "0", "30", "*/15", "*/5", "5,10-20", "1-59/7"];
const HOURS: [&str; 7] = ["*", "0", "9", "9-17", "0,12", "*/2", "1-3,8,20-23"];
const DAYS: [&str; 9] = ["*", "1", "31", "1,15", "L", "2-5,L-3", "LW", "1W,15W", "*/2"];
const MONTHS: [&str; 4] = ["*", "2", "1,6-8", "*/3"];
const WEEKDAYS: [&str; 8] = ["*", "MON", "MON-FRI", "FRI-MON", "TUE#1", "0L,3", "SUN#5", "*/2"];

#[test]
fn the_facts_of_a_description_are_those_of_the_times() {
    // Each combination of days, then each of times, read by a reader of its own.
    for day in DAYS {
        for month in MONTHS {
            for weekday in WEEKDAYS {
                days_agree(&format!("0 9 {day} {month} {weekday}"));
            }
        }
    }
    for minute in MINUTES {
        for hour in HOURS {
            times_agree(&format!("{minute} {hour} * * *"));
            times_agree(&format!("{minute} {hour} * * MON#1"));
        }
    }
}

#[test]
fn a_description_that_is_a_phrase_has_the_same_times() {
    let from: Time = "2026-01-01T00:00:00Z".parse().unwrap();
    let mut phrases = 0;
    for minute in ["*", "30", "*/5"] {
        for hour in ["*", "9", "9-17", "0,12"] {
            for day in DAYS {
                for weekday in WEEKDAYS {
                    let schedule = parse(&format!("{minute} {hour} {day} * {weekday}")).unwrap();
                    let description = schedule.describe().unwrap();
                    let Ok(phrase) = parse(&description) else { continue };
                    phrases += 1;
                    assert_eq!(
                        next_n(&phrase, from, 5),
                        next_n(&schedule, from, 5),
                        "{description}"
                    );
                }
            }
        }
    }
    assert!(phrases > 15, "{phrases}");
}

/// The days of 2026 and 2027 on which the schedule runs are those that its description names.
fn days_agree(text: &str) {
    // Some dates never come.
    let Ok(schedule) = parse(text) else { return };
    let description = schedule.describe().unwrap();
    let says = |date: NaiveDate| names_day(&description, date);
    let from: Time = "2025-12-31T23:59:59Z".parse().unwrap();
    let until: Time = "2028-01-01T00:00:00Z".parse().unwrap();
    let runs: BTreeSet<NaiveDate> =
        between(&schedule, from, until).map(|at| at.date_naive()).collect();
    let mut date = NaiveDate::from_ymd_opt(2026, 1, 1).unwrap();
    while date < until.date_naive() {
        assert_eq!(says(date), runs.contains(&date), "{text} on {date}: {description}");
        date += TimeDelta::days(1);
    }
}

/// The times of a matching day are those that the description names.
fn times_agree(text: &str) {
    let schedule = parse(text).unwrap();
    let description = schedule.describe().unwrap();
    // 5 January 2026 is the first Monday of its month.
    let from: Time = "2026-01-04T23:59:59Z".parse().unwrap();
    let until: Time = "2026-01-05T23:59:59Z".parse().unwrap();
    let runs: BTreeSet<(u32, u32)> =
        between(&schedule, from, until).map(|at| (at.hour(), at.minute())).collect();
    for hour in 0..24 {
        for minute in 0..60 {
            let says = names_time(&description, hour, minute);
            let runs = runs.contains(&(hour, minute));
            assert_eq!(says, runs, "{text} at {hour}:{minute:02}: {description}");
        }
    }
}

/// `a, b to c and d` names this value.
fn names(list: &str, value: u32, read: &dyn Fn(&str) -> u32) -> bool {
    list.split(", ").flat_map(|items| items.split(" and ")).any(|item| {
        match item.split_once(" to ") {
            Some((first, last)) => {
                let (first, last) = (read(first), read(last));
                (first..=last).contains(&value)
            }
            None => read(item) == value,
        }
    })
}

fn number(text: &str) -> u32 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
}

/// From Monday, 0.
fn weekday(name: &str) -> u32 {
    let names = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
    names.iter().position(|known| *known == name).unwrap_or_else(|| panic!("{name:?}")) as u32
}

fn month(name: &str) -> u32 {
    let months = "January February March April May June July August September October November \
                  December";
    months.split(' ').position(|known| known == name).unwrap_or_else(|| panic!("{name:?}")) as u32
        + 1
}

fn names_time(description: &str, hour: u32, minute: u32) -> bool {
    if let Some((_, times)) = description.split_once(" at ") {
        let times = times.rsplit_once(' ').unwrap().0;
        let read = |time: &str| {
            let (hour, minute) = time.split_once(':').unwrap();
            number(hour) * 60 + number(minute)
        };
        return names(times, hour * 60 + minute, &read);
    }
    let end = [", every ", " on ", ", UTC"].iter().filter_map(|end| description.find(end)).min();
    let clock = description[..end.unwrap()].trim_start_matches("at ");
    let (minutes, hours) = clock.split_once(" of ").unwrap_or((clock, "every hour"));
    let unit = |text: &str, name: &str, value: u32| {
        let text = text.trim_start_matches(name);
        if text == format!("every {name}") {
            return true;
        }
        if let Some(text) = text.strip_prefix("every ") {
            let (step, range) = text.split_once(&format!(" {name} from ")).unwrap();
            let step = number(step.trim_end_matches(|char: char| char.is_alphabetic()));
            let (first, last) = range.split_once(" to ").unwrap();
            let first = number(first);
            return (first..=number(last)).contains(&value) && (value - first).is_multiple_of(step);
        }
        names(text.trim_start_matches('s').trim_start(), value, &number)
    };
    unit(minutes, "minute", minute) && unit(hours, "hour", hour)
}

fn names_day(description: &str, date: NaiveDate) -> bool {
    let text = description.trim_end_matches(" UTC").trim_end_matches(',');
    let (text, months) = text.split_once(" in ").unwrap_or((text, ""));
    if !months.is_empty() && !names(months, date.month(), &month) {
        return false;
    }
    if let Some(on) = text.strip_prefix("at 9:00 on ") {
        if let Some((by_month, by_week)) = on.split_once(", but only on ") {
            return names_part(by_month, date) && names_part(by_week, date);
        }
        return on.split(" or on ").any(|part| names_part(part, date));
    }
    let days = text.strip_suffix(" at 9:00").unwrap();
    match days.strip_suffix(" of every month") {
        Some("first day") => date.day() == 1,
        Some("last day") => date.day() == length(date),
        Some("last weekday") => date.day() == last_workday(date),
        Some("first Tuesday") => nth(date) == 1 && date.weekday().num_days_from_monday() == 1,
        Some(other) => panic!("{other:?} is not of the grid"),
        None => match days.strip_prefix("every ").unwrap() {
            "day" => true,
            "weekday" => date.weekday().num_days_from_monday() < 5,
            days => names(days, date.weekday().num_days_from_monday(), &weekday),
        },
    }
}

/// One side of two day fields: `days 2 to 5 and the last day of the month`, `Monday and the 5th
/// Sunday of the month`.
fn names_part(part: &str, date: NaiveDate) -> bool {
    let (from_monday, day) = (date.weekday().num_days_from_monday(), date.day());
    let mut rest = part.replace(" of the month", "");
    let mut found = false;
    while let Some((before, special)) = rest.clone().rsplit_once("the ") {
        found |= match special.trim_end() {
            "last day" => day == length(date),
            "last weekday" => day == last_workday(date),
            "last Sunday" => from_monday == 6 && day + 7 > length(date),
            "1st Tuesday" => from_monday == 1 && nth(date) == 1,
            "5th Sunday" => from_monday == 6 && nth(date) == 5,
            "3rd day before " | "3rd day before" => unreachable!("`the last` follows"),
            "last" => {
                // `the 3rd day before the last`
                rest = before.rsplit_once("the ").unwrap().0.trim_end_matches(" and ").to_owned();
                found |= day + 3 == length(date);
                continue;
            }
            nearest => {
                let wanted = number(nearest.strip_prefix("weekday nearest to day ").unwrap());
                day == nearest_workday(date, wanted)
            }
        };
        rest = before.trim_end_matches(" and ").to_owned();
    }
    if let Some(days) = rest.strip_prefix("days ").or_else(|| rest.strip_prefix("day ")) {
        return found || names(days, day, &number);
    }
    found || !rest.is_empty() && names(&rest, from_monday, &weekday)
}

fn nth(date: NaiveDate) -> u32 {
    (date.day() - 1) / 7 + 1
}

fn length(date: NaiveDate) -> u32 {
    let first = date.with_day(1).unwrap();
    let next = first.checked_add_months(chrono::Months::new(1)).unwrap();
    (next - first).num_days() as u32
}

fn last_workday(date: NaiveDate) -> u32 {
    let days = (1..=length(date)).rev();
    let mut workdays = days.filter(|day| is_workday(date, *day));
    workdays.next().unwrap()
}

fn is_workday(date: NaiveDate, day: u32) -> bool {
    date.with_day(day).unwrap().weekday().num_days_from_monday() < 5
}

/// The nearest workday of the month; a Saturday goes back before a Sunday goes on.
fn nearest_workday(date: NaiveDate, wanted: u32) -> u32 {
    let days = (1..=length(date)).filter(|day| is_workday(date, *day));
    days.min_by_key(|day| (day.abs_diff(wanted), *day)).unwrap()
}
