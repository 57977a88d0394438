//! The text of a calendar's rules.

use super::{
    Filtered,
    moved::{self, Move},
    rule::{Clock, Dates, Named, PREFIX, Rule, Weekdays, hours_of},
    wrong::wrong,
};
use crate::{AnySchedule, ParseError, any, english::WEEKDAYS, schedule::words, zone::Zone};
use chrono::NaiveDate;
use std::collections::BTreeSet;

/// The most dates of one rule of a schedule. A calendar has more.
const MOST_DATES: usize = 64;

/// The words with which the rules of a calendar begin.
pub(crate) const RULES: [&str; 4] = ["except", "only-within", "blackout", "move"];

/// The rules that the parts of a text make, in their order.
#[derive(Default)]
pub(crate) struct Rules {
    rules: Vec<Rule>,
    moving: Option<Move>,
}

impl Rules {
    /// Adds `except …`, `only-within …`, `blackout …` or `move …`.
    pub(crate) fn add(&mut self, part: &str, job: Option<&str>) -> Result<(), ParseError> {
        let mut all = words(part);
        let first = all.next();
        if let (Some((at, word)), Some(_)) = (first, self.moving) {
            let remedy = "write the rules first, and `move` once, behind them";
            return Err(wrong(at, word, "stands behind `move`, which is about all rules", remedy));
        }
        match first {
            Some((at, "move")) => self.moving = Some(moved::parse(at, &all.collect::<Vec<_>>())?),
            _ => self.rules.extend(parse(part, job)?),
        }
        Ok(())
    }

    /// The schedule with these rules.
    pub(crate) fn filter(self, schedule: AnySchedule) -> AnySchedule {
        if self.rules.is_empty() && self.moving.is_none() {
            return schedule;
        }
        let filtered = match schedule {
            // The rules of a phrase, and more of them.
            AnySchedule::Filtered(phrase) => phrase.with(self.rules, self.moving),
            schedule => Filtered::new(schedule, self.rules).with(Vec::new(), self.moving),
        };
        AnySchedule::Filtered(Box::new(filtered))
    }
}

/// Reads `except …`, `only-within …` or `blackout …`.
fn parse(part: &str, job: Option<&str>) -> Result<Vec<Rule>, ParseError> {
    let all: Vec<(usize, &str)> = words(part).collect();
    let Some(((at, name), values)) = all.split_first() else {
        return Err(wrong(0, "", "is nothing after a semicolon", "remove the semicolon"));
    };
    if !RULES.contains(name) {
        let remedy = "write except, only-within, blackout or move";
        return Err(wrong(*at, name, "is not a rule of a calendar", remedy));
    }
    let Some((first_at, first)) = values.first().copied() else {
        return Err(wrong(*at, name, "has no value", "write dates, hours or instants after it"));
    };
    match *name {
        "except" if looks_like_a_date(first) => {
            dates(values, MOST_DATES).map(|dates| vec![Rule::Dates(dates)])
        }
        "except" if weekdays_of(first).is_some() => {
            weekdays(values).map(|weekdays| vec![Rule::Weekdays(weekdays)])
        }
        "except" if first.starts_with(PREFIX) => named(values).map(|rule| vec![rule]),
        "except" => {
            let excluded = any::read_one(&part[first_at..], job);
            let excluded = excluded.map_err(|error| error.shifted(first_at))?;
            Ok(vec![Rule::Times(Box::new(excluded))])
        }
        "only-within" => {
            let mut hours = hours_of(first_at, first)?;
            hours.zone = zone(&values[1..])?;
            Ok(vec![Rule::Hours(hours)])
        }
        _ => values.iter().map(|(at, word)| blackout(*at, word)).collect(),
    }
}

impl Dates {
    /// Reads dates with blanks between them, and perhaps their zone at the end.
    ///
    /// ```
    /// use allora::schedule::Dates;
    ///
    /// let holidays = Dates::parse("2026-12-25 2026-12-26 Europe/Rome")?;
    /// assert!(Dates::parse("2026-02-30").is_err());
    /// # drop(holidays);
    /// # Ok::<(), allora::schedule::ParseError>(())
    /// ```
    ///
    /// # Errors
    /// No date, more than 64, other notations, days that do not exist, and unknown zones.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let all: Vec<(usize, &str)> = words(text).collect();
        dates(&all, MOST_DATES)
    }
}

impl Weekdays {
    /// Reads names of days with blanks between them, whole or of three letters, or `weekends`, and
    /// perhaps a zone at the end: `FRI SAT Asia/Dubai`.
    ///
    /// # Errors
    /// No day, all seven, other names, and unknown zones.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        weekdays(&words(text).collect::<Vec<_>>())
    }
}

fn weekdays(values: &[(usize, &str)]) -> Result<Weekdays, ParseError> {
    let count = values.iter().take_while(|(_, word)| weekdays_of(word).is_some()).count();
    let (days, rest) = values.split_at(count);
    let days = days.iter().filter_map(|(_, word)| weekdays_of(word)).fold(0, |all, day| all | day);
    let (at, word) = values.first().copied().unwrap_or((0, ""));
    match days {
        0 => Err(wrong(at, word, "is not a day of the week", "write days such as SAT SUN")),
        0x7f => Err(wrong(at, word, "leaves no day of the week", "name fewer days")),
        days => Ok(Weekdays { days, zone: zone(rest)? }),
    }
}

/// One bit for each day.
fn weekdays_of(word: &str) -> Option<u8> {
    if ["weekends", "weekend"].iter().any(|name| word.eq_ignore_ascii_case(name)) {
        return Some(Weekdays::weekend().days);
    }
    let is = |name: &&str| name.eq_ignore_ascii_case(word) || name[..3].eq_ignore_ascii_case(word);
    WEEKDAYS.iter().position(is).map(|day| 1 << day)
}

/// Reads a line of a calendar: dates, or a rule. An empty line has none.
pub(super) fn line(line: &str) -> Result<Vec<Rule>, ParseError> {
    let all: Vec<(usize, &str)> = words(line).collect();
    match all.first() {
        None => Ok(Vec::new()),
        Some((_, word)) if looks_like_a_date(word) => {
            dates(&all, usize::MAX).map(|dates| vec![Rule::Dates(dates)])
        }
        Some((at, "move")) => {
            let remedy = "write it behind `except calendar:NAME` in the text of the schedule";
            Err(wrong(*at, "move", "is about one schedule, and no rule of a calendar", remedy))
        }
        Some((at, word)) if !RULES.contains(word) => {
            let remedy = "write dates such as 2026-12-25, except, only-within or blackout";
            Err(wrong(*at, word, "is neither a date nor a rule of a calendar", remedy))
        }
        _ => {
            let rules = parse(line, None)?;
            let has_name = rules.iter().any(|rule| matches!(rule, Rule::Named(_)));
            match all.get(1).filter(|_| has_name) {
                Some((at, word)) => {
                    let reason = "is another calendar, which a calendar cannot have";
                    Err(wrong(*at, word, reason, "write its lines, or give the schedule both"))
                }
                None => Ok(rules),
            }
        }
    }
}

/// Reads `calendar:NAME`, and perhaps a zone.
fn named(values: &[(usize, &str)]) -> Result<Rule, ParseError> {
    let (at, word) = values.first().copied().unwrap_or((0, ""));
    let name = word.strip_prefix(PREFIX).unwrap_or_default();
    if name.is_empty() {
        let remedy = "write its name after the colon, as in calendar:holidays";
        return Err(wrong(at, word, "names no calendar", remedy));
    }
    let zone = zone(&values[1..])?;
    Ok(Rule::Named(Named { name: name.into(), zone, calendar: None }))
}

fn dates(values: &[(usize, &str)], most: usize) -> Result<Dates, ParseError> {
    let count = values.iter().take_while(|(_, word)| looks_like_a_date(word)).count();
    let (dates, rest) = values.split_at(count);
    if dates.is_empty() {
        let (at, word) = values.first().copied().unwrap_or((0, ""));
        return Err(wrong(at, word, "is not a date", "write dates such as 2026-12-25"));
    }
    if let Some((at, word)) = dates.get(most) {
        let reason = "is one date more than the 64 of a rule";
        let remedy = "put them into a calendar of the store, with `allora calendar put`, and write \
                      except calendar:NAME";
        return Err(wrong(*at, word, reason, remedy));
    }
    let date = |(at, word): &(usize, &str)| {
        let date = NaiveDate::parse_from_str(word, "%Y-%m-%d").ok();
        date.ok_or_else(|| wrong(*at, word, "is not a day of the calendar", "write 2026-12-25"))
    };
    let dates = dates.iter().map(date).collect::<Result<BTreeSet<_>, _>>()?;
    Ok(Dates { dates, zone: zone(rest)? })
}

/// `2026-12-25`, also with digits that no date has.
fn looks_like_a_date(word: &str) -> bool {
    let form = |(index, byte): (usize, u8)| match index {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    word.len() == 10 && word.bytes().enumerate().all(form)
}

/// The zone at the end of a rule.
fn zone(rest: &[(usize, &str)]) -> Result<Option<Clock>, ParseError> {
    match rest {
        [] => Ok(None),
        [(at, word)] => Zone::named(word, *at).map(|zone| Some(Clock(zone))),
        [_, (at, word), ..] => Err(wrong(*at, word, "is one word too many", "remove it")),
    }
}

/// `2026-12-20T00:00:00Z/2027-01-07T00:00:00Z`.
fn blackout(at: usize, word: &str) -> Result<Rule, ParseError> {
    let Some((since, until)) = word.split_once('/') else {
        let remedy = "write two instants, such as 2026-12-20T00:00:00Z/2027-01-07T00:00:00Z";
        return Err(wrong(at, word, "is not a period of time", remedy));
    };
    let from = crate::at::instant(since, at)?;
    let to = crate::at::instant(until, at + since.len() + 1)?;
    if from >= to {
        return Err(wrong(at, word, "ends before it begins", "write the earlier instant first"));
    }
    Ok(Rule::Blackout(from, to))
}
