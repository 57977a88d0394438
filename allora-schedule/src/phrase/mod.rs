//! Phrases: schedules in English that have exactly one reading. This file is their grammar.
//!
//! | phrase | the same as |
//! |---|---|
//! | `every 5 minutes` (`seconds`, `hours`; `1 minute`) | `@every 5m` |
//! | `10 minutes after the end` | `@after_end 10m` |
//! | `every day at 9:00` | `0 9 * * *` |
//! | `every weekday at 9:00` | `0 9 * * MON-FRI` |
//! | `every monday at 9am Europe/Rome` | `0 9 * * MON Europe/Rome` |
//! | `every tuesday, thursday and saturday at 9:30 and 17:30` | `30 9,17 * * TUE,THU,SAT` |
//! | `every monday to thursday at noon` | `0 12 * * MON-THU` |
//! | `first monday of every month` (to `fourth`, `last`) | `0 0 * * MON#1` |
//! | `15th day of every month at midnight` (`first` to `28th`, `last`) | `0 0 15 * *` |
//! | `first weekday of every month`, `last weekday of every month` | `0 0 1W * *`, `0 0 LW * *` |
//! | `every 2 weeks from 2026-03-02T09:00 Europe/Rome` (`days`, `months`, `years`) | a rule that begins then |
//! | `every other friday at 9am from 2026-03-06`, `every 3 months on the 1st from 2026-01-01` | as above |
//! | `third business day of every month` (`first` to `23rd`, `last`) | `0 0 1 * *; except SAT SUN; move next 3 in-month` |
//!
//! ```text
//! phrase = "every" number ("second" | "minute" | "hour")["s"]
//!        | number ("second" | "minute" | "hour")["s"] "after the end" ["of" ("the last" | "each") "run"]
//!        | days ["at" times] [zone]
//! days   = "every" ("day" | "weekday" | names)
//!        | ordinal ("day" | "weekday" | "business" "day" | name) "of" "every" "month"
//! names  = name ["to" name] {("," | "and") name ["to" name]}
//! times  = time {("," | "and") time}             all at the same minute of the hour
//! time   = 9:00 | 21:30 | 9am | 9:30pm | "noon" | "midnight"
//! zone   = Europe/Rome | UTC | +02:00
//! ```
//!
//! Letters are small or capital. Names of weekdays are whole or of three letters. Days without a
//! time begin at 0:00. What has a second reading is no phrase: `every hour` (full hours, or an hour
//! from now), `every 2 days`, `12am`, the 31st day of every month. Phrases that count from a date are in
//! `anchored.rs`.

mod anchored;
mod repair;

use crate::{AfterEnd, Cron, Every, Field, Move, ParseError, Recurrence, after_end, every};
use std::time::Duration;

/// `true` if a text is meant as a phrase: it begins with a word, or with an ordinal.
pub(crate) fn is_phrase(text: &str) -> bool {
    let first = text.split_ascii_whitespace().next().unwrap_or_default();
    let letters = first.trim_start_matches(|char: char| char.is_ascii_digit());
    let is_word = letters.len() >= 2 && letters.bytes().all(|byte| byte.is_ascii_alphabetic());
    let is_ordinal = ["st", "nd", "rd", "th"].contains(&&*letters.to_ascii_lowercase());
    // No field of cron is `after`.
    let is_delay = first.starts_with(|first: char| first.is_ascii_digit())
        && text
            .split_ascii_whitespace()
            .nth(2)
            .is_some_and(|word| word.eq_ignore_ascii_case("after"));
    is_delay || is_word && (letters == first || is_ordinal) && !text.contains(['*', '?'])
}

/// A phrase means a period, times of days, or a recurrence.
pub(crate) enum Phrase {
    Every(Every),
    AfterEnd(AfterEnd),
    Cron(Cron),
    Recurrence(Box<Recurrence>),
    /// The first or the last day of each month, and the move to a business day.
    BusinessDay(Cron, Move),
}

/// Reads a phrase. The error has the accepted one that means the same, or else one of each form.
pub(crate) fn parse(text: &str) -> Result<Phrase, ParseError> {
    read(text).map_err(|error| match (error.advice(), repair::same_meaning(text)) {
        ("", Some(Ok(phrase))) => error.remedy(format!("write `{phrase}`")),
        ("", Some(Err(corrected))) => error.remedy(corrected.advice().to_owned()),
        ("", None) => error.remedy(FORMS),
        _ => error,
    })
}

/// The remedy where nothing accepted means the same.
const FORMS: &str = "phrases are of these forms: `every 5 minutes`, `every day at 9:00`, `every monday \
                     at 9am Europe/Rome`, `15th day of every month`, `first monday of every month`, \
                     `every 2 weeks on friday from 2026-03-06`; for anything else, write a cron \
                     expression or a recurrence rule";

/// The longest phrase, in words and commas.
const LONGEST: usize = 64;

fn read(text: &str) -> Result<Phrase, ParseError> {
    if !text.is_ascii() || text.len() > 1024 {
        return Err(ParseError::new(Field::Text, 0, text, "is no phrase in ASCII letters"));
    }
    let mut words = Words { words: words(text), next: 0, end: text.trim_ascii_end().len() };
    if words.words.len() > LONGEST {
        return Err(ParseError::new(Field::Text, 0, text, "has too many words"));
    }
    if anchored::is_one(&words) {
        return anchored::read(&mut words, text).map(|read| Phrase::Recurrence(Box::new(read)));
    }
    if words.is_next("every") && words.peek(1).starts_with(|first: char| first.is_ascii_digit()) {
        words.take("every");
        let period = period(&mut words)?;
        words.ends()?;
        return Ok(Phrase::Every(every(period)));
    }
    if is_after_end(&words) {
        let delay = period(&mut words)?;
        for word in ["after", "the", "end"] {
            if !words.take(word) {
                let error = words.error("stands where `after the end` is expected");
                return Err(error.remedy("write `10 minutes after the end`"));
            }
        }
        if words.take("of") {
            words.take("each");
            words.take("the");
            words.take("last");
            words.take("run");
        }
        words.ends()?;
        return Ok(Phrase::AfterEnd(after_end(delay)));
    }
    let moving = business_day(&mut words)?;
    let days = match moving {
        None => days(&mut words)?,
        Some(moving) if moving == Move::previous().in_month() => "L * *".into(),
        Some(_) => "1 * *".into(),
    };
    let (minute, hours) = if words.take("at") { times(&mut words)? } else { (0, vec![0]) };
    let cron = Cron::parse(&format!("{minute} {} {days}", joined(&hours)))?;
    let phrase = |cron| match moving {
        Some(moving) => Phrase::BusinessDay(cron, moving),
        None => Phrase::Cron(cron),
    };
    let zone_at = words.at();
    let Some(zone) = zone(&mut words)? else { return Ok(phrase(cron)) };
    words.ends()?;
    cron.in_zone(zone).map(phrase).map_err(|error| error.shifted(zone_at))
}

/// The zone that is the next word, if there is one.
fn zone<'a>(words: &mut Words<'a>) -> Result<Option<&'a str>, ParseError> {
    let zone_at = words.at();
    let Some(zone) = words.take_any() else { return Ok(None) };
    let is_zone = zone.contains('/') || zone.starts_with(['+', '-']);
    if !is_zone && crate::zone_name(zone).is_err() {
        return Err(ParseError::new(Field::Text, zone_at, zone, "has no place in a phrase"));
    }
    Ok(Some(zone))
}

/// The words of a text; commas are words of their own.
fn words(text: &str) -> Vec<(usize, &str)> {
    let mut words = Vec::new();
    for (at, word) in crate::schedule::words(text) {
        let mut start = 0;
        for (comma, _) in word.match_indices(',') {
            if comma > start {
                words.push((at + start, &word[start..comma]));
            }
            words.push((at + comma, ","));
            start = comma + 1;
        }
        if start < word.len() {
            words.push((at + start, &word[start..]));
        }
    }
    words
}

/// The words that are still to be read.
struct Words<'a> {
    words: Vec<(usize, &'a str)>,
    next: usize,
    /// Where the text ends.
    end: usize,
}

impl<'a> Words<'a> {
    fn peek(&self, ahead: usize) -> &'a str {
        self.words.get(self.next + ahead).map_or("", |(_, word)| word)
    }

    fn at(&self) -> usize {
        self.words.get(self.next).map_or(self.end, |(at, _)| *at)
    }

    fn is_next(&self, word: &str) -> bool {
        self.peek(0).eq_ignore_ascii_case(word)
    }

    /// Takes this word if it is next.
    fn take(&mut self, word: &str) -> bool {
        let is_next = self.is_next(word);
        self.next += usize::from(is_next);
        is_next
    }

    fn take_any(&mut self) -> Option<&'a str> {
        let word = self.words.get(self.next).map(|(_, word)| *word);
        self.next += 1;
        word
    }

    fn error(&self, reason: &'static str) -> ParseError {
        match self.peek(0) {
            "" => ParseError::new(Field::Text, self.end, "", "ends too early for a phrase"),
            word => ParseError::new(Field::Text, self.at(), word, reason),
        }
    }

    fn ends(&self) -> Result<(), ParseError> {
        match self.peek(0) {
            "" => Ok(()),
            _ => Err(self.error("is one word too many")),
        }
    }
}

/// `true` if a number and a unit stand before `after`.
fn is_after_end(words: &Words<'_>) -> bool {
    words.peek(2).eq_ignore_ascii_case("after")
        && words.peek(0).starts_with(|first: char| first.is_ascii_digit())
}

/// `5 minutes`.
fn period(words: &mut Words<'_>) -> Result<Duration, ParseError> {
    let number = words.peek(0);
    let plain = number.len() <= 9 && number.bytes().all(|byte| byte.is_ascii_digit());
    let Some(count) = plain.then(|| number.parse::<u64>().ok()).flatten().filter(|n| *n > 0) else {
        return Err(words.error("is not a number of seconds, minutes or hours"));
    };
    words.next += 1;
    let unit = words.peek(0).to_ascii_lowercase();
    let seconds = match unit.strip_suffix('s').unwrap_or(&unit) {
        "second" => 1,
        "minute" => 60,
        "hour" => 3_600,
        _ => return Err(words.error("is not seconds, minutes or hours")),
    };
    words.next += 1;
    Ok(Duration::from_secs(count * seconds))
}

/// The last three fields of a cron expression.
fn days(words: &mut Words<'_>) -> Result<String, ParseError> {
    if words.take("every") {
        if words.take("day") {
            return Ok("* * *".into());
        }
        if words.take("weekday") {
            return Ok("* * 1-5".into());
        }
        let is_second_day = words.is_next("second") && weekday(words.peek(1)).is_some();
        if !is_second_day && ["second", "minute", "hour"].iter().any(|unit| words.is_next(unit)) {
            return Err(words.error("is by the clock to some, and from now on to others"));
        }
        if words.is_next("quarter") {
            let remedy = "write `0 0 1 */3 *`, or `every 3 months from 2026-01-01` with the date of the \
                          first run";
            return Err(words
                .error("is of the calendar to some, and from now on to others")
                .remedy(remedy));
        }
        if is_second_day {
            let day = words.peek(1).to_ascii_lowercase();
            let remedy = format!(
                "write `every other {day}` with `from` and the date of the first run, or `second {day} of \
                 every month`"
            );
            return Err(words.error("has two readings").remedy(remedy));
        }
        return names(words).map(|days| format!("* * {}", joined(&days)));
    }
    let ordinal = ordinal(words)?;
    let days = if words.take("day") {
        match ordinal {
            Ordinal::Last => "L * *".into(),
            Ordinal::Nth(day @ 1..=28) => format!("{day} * *"),
            Ordinal::Nth(day) => {
                words.next -= 2;
                let remedy = format!(
                    "write `0 0 {day} * *` for the months that have it, or `last day of every month`"
                );
                return Err(words.error("is not in every month").remedy(remedy));
            }
        }
    } else if words.take("weekday") {
        match ordinal {
            Ordinal::Last => "LW * *".into(),
            Ordinal::Nth(1) => "1W * *".into(),
            Ordinal::Nth(_) => {
                words.next -= 2;
                return Err(words.error("is neither the first nor the last weekday of the month"));
            }
        }
    } else {
        let Some(day) = weekday(words.peek(0)) else {
            return Err(words.error("is not a day"));
        };
        words.next += 1;
        match ordinal {
            Ordinal::Last => format!("* * {day}L"),
            Ordinal::Nth(nth @ 1..=4) => format!("* * {day}#{nth}"),
            Ordinal::Nth(_) => {
                words.next -= 2;
                let name = crate::english::WEEKDAYS[day as usize];
                let remedy = format!(
                    "write `0 0 * * {day}#5` for the months that have it, or `last {} of every month`",
                    name.to_ascii_lowercase()
                );
                return Err(words.error("is not in every month").remedy(remedy));
            }
        }
    };
    for word in ["of", "every", "month"] {
        if !words.take(word) {
            return Err(words.error("stands where `of every month` is expected"));
        }
    }
    Ok(days)
}

/// `third business day of every month`, if the phrase begins so.
fn business_day(words: &mut Words<'_>) -> Result<Option<Move>, ParseError> {
    if !words.peek(1).eq_ignore_ascii_case("business") {
        return Ok(None);
    }
    let moving = match ordinal(words)? {
        Ordinal::Last => Move::previous(),
        Ordinal::Nth(nth @ 1..=23) => Move::next().nth(nth),
        Ordinal::Nth(_) => {
            words.next -= 1;
            return Err(words.error("is more than the business days of any month"));
        }
    };
    for word in ["business", "day", "of", "every", "month"] {
        if !words.take(word) {
            return Err(words.error("stands where `business day of every month` is expected"));
        }
    }
    Ok(Some(moving.in_month()))
}

enum Ordinal {
    Nth(u32),
    Last,
}

/// `first` to `fifth`, `1st` to `31st`, `last`.
fn ordinal(words: &mut Words<'_>) -> Result<Ordinal, ParseError> {
    let word = words.peek(0).to_ascii_lowercase();
    let named = ["first", "second", "third", "fourth", "fifth"];
    let ordinal = if word == "last" {
        Some(Ordinal::Last)
    } else if let Some(index) = named.iter().position(|name| *name == word) {
        Some(Ordinal::Nth(index as u32 + 1))
    } else {
        let number = (1..=31).find(|number| word == crate::english::ordinal(*number));
        number.map(Ordinal::Nth)
    };
    let Some(ordinal) = ordinal else {
        return Err(words.error("begins no phrase"));
    };
    words.next += 1;
    Ok(ordinal)
}

/// The number of a weekday; 0 is Sunday.
fn weekday(word: &str) -> Option<u32> {
    let is = |name: &&str| name.eq_ignore_ascii_case(word) || name[..3].eq_ignore_ascii_case(word);
    crate::english::WEEKDAYS.iter().position(is).map(|index| index as u32)
}

/// `monday`, `monday and friday`, `monday to wednesday, friday`.
fn names(words: &mut Words<'_>) -> Result<Vec<u32>, ParseError> {
    let mut days = Vec::new();
    loop {
        let Some(first) = weekday(words.peek(0)) else {
            return Err(words.error("is not a day"));
        };
        words.next += 1;
        let mut last = first;
        if words.take("to") {
            last = weekday(words.peek(0)).ok_or_else(|| words.error("is not a day"))?;
            words.next += 1;
        }
        days.extend((0..=(last + 7 - first) % 7).map(|later| (first + later) % 7));
        if !more(words) {
            return Ok(days);
        }
    }
}

/// Takes `,`, `and` or both, if another item of a list follows.
fn more(words: &mut Words<'_>) -> bool {
    let comma = words.take(",");
    words.take("and") || comma
}

/// The minute, and the hours.
fn times(words: &mut Words<'_>) -> Result<(u32, Vec<u32>), ParseError> {
    let (mut minutes, mut hours) = (None, Vec::new());
    loop {
        let (hour, minute) = time(words)?;
        if *minutes.get_or_insert(minute) != minute {
            let remedy = "write two schedules, one with each of the times";
            let error = words.error("has another minute: that is a schedule of its own");
            return Err(error.remedy(remedy));
        }
        words.next += 1;
        hours.push(hour);
        if !more(words) {
            return Ok((minutes.unwrap_or_default(), hours));
        }
    }
}

/// The hour and the minute of the next word.
fn time(words: &Words<'_>) -> Result<(u32, u32), ParseError> {
    let word = words.peek(0).to_ascii_lowercase();
    match word.as_str() {
        "noon" => return Ok((12, 0)),
        "midnight" => return Ok((0, 0)),
        _ => {}
    }
    let halves = [("am", 0), ("pm", 12)];
    let half = halves.iter().find_map(|(half, add)| Some((word.strip_suffix(half)?, *add)));
    let (clock, add) = half.unwrap_or((&word, 0));
    let (hour, minute) = match clock.split_once(':') {
        Some((hour, minute)) if minute.len() == 2 => (number(hour), number(minute)),
        Some(_) => (None, None),
        None if half.is_some() => (number(clock), Some(0)),
        None if number(clock).is_some() => {
            return Err(words.error("is in the morning to some, and in the evening to others"));
        }
        None => (None, None),
    };
    let (Some(hour), Some(minute @ 0..60)) = (hour, minute) else {
        return Err(words.error("is not a time of day"));
    };
    match (half, hour) {
        (Some(_), 12) => Err(words.error("is noon to some, and midnight to others")),
        (Some(_), 1..12) => Ok((hour + add, minute)),
        (None, 0..24) => Ok((hour, minute)),
        _ => Err(words.error("is not a time of day")),
    }
}

/// One or two digits.
fn number(text: &str) -> Option<u32> {
    let plain = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

fn joined(values: &[u32]) -> String {
    let texts: Vec<String> = values.iter().map(u32::to_string).collect();
    texts.join(",")
}
