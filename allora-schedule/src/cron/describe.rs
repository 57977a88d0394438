//! Cron expressions in English, made of their bits.
//!
//! The forms are those of the phrases where there is one, so that reading the description gives the
//! same times. Every other form is one that no phrase has.

use super::{
    Cron, Dst,
    fields::{ALL_DAYS, Days, Fields, Years},
    render::bits,
};
use crate::english::{MONTHS, WEEKDAYS, list, ordinal, runs};

/// More single times than these are hours of a range.
const MOST_TIMES: u32 = 6;

pub(super) fn describe(cron: &Cron) -> String {
    let fields = &cron.fields;
    let months = months(fields);
    let years = fields.years.map(years);
    let days = plain_days(&fields.days).filter(|(_, by)| *by == By::Week || months.is_none());
    let times = times(fields);
    let has_form = times.is_some() && days.is_some();
    let is_phrase = has_form && months.is_none() && years.is_none() && cron.dst == Dst::Debian;
    let mut text = match (times, days) {
        (Some(times), Some((days, _))) => format!("{days} at {times}"),
        (times, days) => {
            let clock = times.map_or_else(|| clock(fields), |times| format!("at {times}"));
            let days = match days {
                Some((days, _)) if days == "every day" && fields.hours == ALL_HOURS => {
                    String::new()
                }
                Some((days, By::Month)) => format!(" on the {days}"),
                Some((days, By::Week)) => format!(", {days}"),
                None => format!(" on {}", days_in_words(&fields.days)),
            };
            clock + &days
        }
    };
    for part in [months, years].into_iter().flatten() {
        text = format!("{text} in {part}");
    }
    if cron.dst == Dst::Literal {
        text.push_str(" by the wall clock");
    }
    let comma = if is_phrase { "" } else { "," };
    format!("{text}{comma} {}", cron.zone())
}

const ALL_HOURS: u32 = (1 << 24) - 1;
const ALL_WEEKDAYS: u32 = 0x7f;
const ALL_MONTHS: u32 = 0b1_1111_1111_1110;

/// `9:00 and 17:00`, where there are few times that follow no elapsed time.
fn times(fields: &Fields) -> Option<String> {
    let is_few = fields.hours.count_ones() <= MOST_TIMES && !fields.is_wildcard();
    if fields.seconds != 1 || fields.minutes.count_ones() != 1 || !is_few {
        return None;
    }
    let minute = fields.minutes.trailing_zeros();
    let times: Vec<String> =
        bits(fields.hours.into()).map(|hour| format!("{hour}:{minute:02}")).collect();
    Some(list(&times))
}

/// `every minute`, `at minutes 0, 15, 30 and 45 of hours 9 to 17`.
fn clock(fields: &Fields) -> String {
    let mut parts = vec![
        unit(fields.seconds, 60, "second"),
        unit(fields.minutes, 60, "minute"),
        unit(fields.hours.into(), 24, "hour"),
    ];
    let is_all = [("second", 0), ("minute", 1), ("hour", 2)]
        .map(|(name, part): (&str, usize)| parts[part] == format!("every {name}"));
    // `every minute` is of every hour.
    if is_all[1] && is_all[2] {
        parts.truncate(2);
        if is_all[0] {
            parts.truncate(1);
        }
    }
    if fields.seconds == 1 {
        parts.remove(0);
    }
    let text = parts.join(" of ");
    if text.starts_with("every") { text } else { format!("at {text}") }
}

/// The values from 0 below `size` as `every minute`, `minute 5`, `minutes 5 to 10`, or `every 5th
/// minute from 0 to 55`.
fn unit(values: u64, size: u32, name: &str) -> String {
    let values: Vec<u32> = bits(values).collect();
    let steps: Vec<u32> = values.windows(2).map(|pair| pair[1] - pair[0]).collect();
    match (&*values, &*steps) {
        ([one], _) => format!("{name} {one}"),
        (all, _) if all.len() == size as usize => format!("every {name}"),
        ([first, .., last], [step, others @ ..])
            if values.len() > 4 && *step > 1 && others.iter().all(|other| other == step) =>
        {
            format!("every {} {name} from {first} to {last}", ordinal(*step))
        }
        _ => format!("{name}s {}", list(&runs(&values, |value| value.to_string()))),
    }
}

#[derive(PartialEq)]
enum By {
    Week,
    Month,
}

/// The days of the phrases: `every weekday`, `first Monday of every month`.
fn plain_days(days: &Days) -> Option<(String, By)> {
    let (by_month, by_week) = restricted(days);
    let of_month = |what: String| Some((format!("{what} of every month"), By::Month));
    match (by_month, by_week) {
        (false, false) => Some(("every day".into(), By::Week)),
        (false, true) if days.nth == [0; 7] && days.last_of_week == 0 => {
            let names = if days.of_week == 0b11_1110 {
                "weekday".to_owned()
            } else {
                list(&weekdays(days.of_week))
            };
            Some((format!("every {names}"), By::Week))
        }
        (false, true) => of_month(one_weekday(days)?),
        (true, false) => of_month(one_day(days)?),
        (true, true) => None,
    }
}

/// Which of the two day fields say something.
fn restricted(days: &Days) -> (bool, bool) {
    let by_month = days.of_month != ALL_DAYS;
    let by_week = days.of_week != ALL_WEEKDAYS;
    // Where either is enough, one that is always met is enough.
    let both = days.of_month_star || days.of_week_star;
    if both || (by_month && by_week) { (by_month, by_week) } else { (false, false) }
}

/// `first Monday`, if that is all.
fn one_weekday(days: &Days) -> Option<String> {
    let nth: Vec<(usize, u32)> = nth(days).collect();
    let last: Vec<u32> = bits(days.last_of_week.into()).collect();
    match (days.of_week, &*nth, &*last) {
        (0, [], [weekday]) => Some(format!("last {}", WEEKDAYS[*weekday as usize])),
        (0, [(weekday, nth @ 1..=4)], []) => {
            let ordinals = ["first", "second", "third", "fourth"];
            Some(format!("{} {}", ordinals[*nth as usize - 1], WEEKDAYS[*weekday]))
        }
        _ => None,
    }
}

/// `15th day`, `last day`, `first weekday`, if that is all.
fn one_day(days: &Days) -> Option<String> {
    let single = (days.of_month, days.before_last, days.last_workday, days.workdays);
    match single {
        (0, 1, false, 0) => Some("last day".into()),
        (0, 0, true, 0) => Some("last weekday".into()),
        (0b10, 0, false, 0) => Some("first day".into()),
        (0, 0, false, 0b10) => Some("first weekday".into()),
        (day, 0, false, 0) if day.count_ones() == 1 && day.trailing_zeros() <= 28 => {
            Some(format!("{} day", ordinal(day.trailing_zeros())))
        }
        _ => None,
    }
}

/// `day 1 of the month or on Friday`.
fn days_in_words(days: &Days) -> String {
    let (by_month, by_week) = restricted(days);
    let (month, week) = (days_of_month(days), days_of_week(days));
    match (by_month, by_week) {
        (true, true) if days.of_month_star || days.of_week_star => {
            format!("{month}, but only on {week}")
        }
        (true, true) => format!("{month} or on {week}"),
        (true, false) => month,
        (false, true) => week,
        (false, false) => "every day".into(),
    }
}

fn days_of_month(days: &Days) -> String {
    let numbers: Vec<u32> = bits(days.of_month.into()).collect();
    let mut parts = Vec::new();
    match &*numbers {
        [] => {}
        [one] => parts.push(format!("day {one}")),
        many => parts.push(format!("days {}", list(&runs(many, |day| day.to_string())))),
    }
    parts.extend(bits(days.before_last.into()).map(|back| match back {
        0 => "the last day".to_owned(),
        1 => "the day before the last".to_owned(),
        back => format!("the {} day before the last", ordinal(back)),
    }));
    if days.last_workday {
        parts.push("the last weekday".into());
    }
    parts.extend(bits(days.workdays.into()).map(|day| format!("the weekday nearest to day {day}")));
    format!("{} of the month", parts.join(" and "))
}

fn days_of_week(days: &Days) -> String {
    let mut parts = Vec::new();
    if days.of_week != 0 {
        parts.push(list(&weekdays(days.of_week)));
    }
    let nth = nth(days);
    parts.extend(
        nth.map(|(day, nth)| format!("the {} {} of the month", ordinal(nth), WEEKDAYS[day])),
    );
    let last = bits(days.last_of_week.into());
    parts.extend(last.map(|day| format!("the last {} of the month", WEEKDAYS[day as usize])));
    parts.join(" and ")
}

/// Weekday and number of each `MON#2`.
fn nth(days: &Days) -> impl Iterator<Item = (usize, u32)> {
    let days = days.nth.iter().enumerate();
    days.flat_map(|(weekday, nth)| bits(u64::from(*nth)).map(move |nth| (weekday, nth)))
}

/// The names of weekdays, from Monday on.
fn weekdays(of_week: u32) -> Vec<String> {
    let from_monday: Vec<u32> = bits((of_week >> 1 | (of_week & 1) << 6).into()).collect();
    runs(&from_monday, |day| WEEKDAYS[(day as usize + 1) % 7].to_owned())
}

fn months(fields: &Fields) -> Option<String> {
    let months: Vec<u32> = bits(fields.months.into()).collect();
    let names = runs(&months, |month| MONTHS[month as usize - 1].to_owned());
    (fields.months != ALL_MONTHS).then(|| list(&names))
}

fn years(years: Years) -> String {
    let all: Vec<u32> = (Years::FIRST..=Years::LAST)
        .filter(|year| years.has(*year))
        .map(|year| year as u32)
        .collect();
    list(&runs(&all, |year| year.to_string()))
}
