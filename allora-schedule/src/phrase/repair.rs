//! The accepted phrase that means the same as a text, if correcting its words makes one.

use super::{read, words};
use crate::{ParseError, nearest::nearest};

/// Other words for those of the grammar; a word that says nothing has an empty one.
const SYNONYMS: [(&str, &str); 48] = [
    ("each", "every"),
    ("daily", "every day"),
    ("nightly", "every day"),
    ("hourly", "every 1 hour"),
    ("minutely", "every 1 minute"),
    ("weekly", "every sunday"),
    ("monthly", "first day of every month"),
    ("fortnightly", "every 2 weeks"),
    ("fortnight", "2 weeks"),
    ("alternate", "other"),
    ("days", "day"),
    ("weekdays", "weekday"),
    ("workday", "weekday"),
    ("workdays", "weekday"),
    ("weekend", "saturday and sunday"),
    ("weekends", "saturday and sunday"),
    ("mondays", "monday"),
    ("tuesdays", "tuesday"),
    ("wednesdays", "wednesday"),
    ("thursdays", "thursday"),
    ("fridays", "friday"),
    ("saturdays", "saturday"),
    ("sundays", "sunday"),
    ("tues", "tuesday"),
    ("thur", "thursday"),
    ("thurs", "thursday"),
    ("starting", "from"),
    ("since", "from"),
    ("min", "minutes"),
    ("mins", "minutes"),
    ("m", "minutes"),
    ("sec", "seconds"),
    ("secs", "seconds"),
    ("s", "seconds"),
    ("hr", "hours"),
    ("hrs", "hours"),
    ("h", "hours"),
    ("through", "to"),
    ("until", "to"),
    ("till", "to"),
    ("&", "and"),
    ("@", "at"),
    ("midday", "noon"),
    ("12am", "midnight"),
    ("12pm", "noon"),
    ("in", ""),
    ("o'clock", ""),
    ("please", ""),
];

/// The words of the grammar.
const VOCABULARY: [&str; 36] = [
    "every",
    "day",
    "weekday",
    "business",
    "at",
    "and",
    "to",
    "of",
    "month",
    "months",
    "week",
    "weeks",
    "year",
    "years",
    "other",
    "from",
    "first",
    "second",
    "third",
    "fourth",
    "last",
    "minute",
    "minutes",
    "hour",
    "hours",
    "seconds",
    "noon",
    "midnight",
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
    "UTC",
];

/// The text with its words corrected, if that is a phrase, or else the error that says how to go on.
/// Nothing that has a meaning is left away.
pub(super) fn same_meaning(text: &str) -> Option<Result<String, ParseError>> {
    let text: String = text.chars().take(200).collect();
    let mut corrected = corrected(&text);
    // A zone after a period of elapsed time changes nothing.
    let units = ["second", "minute", "hour"];
    let is_period =
        corrected.get(2).is_some_and(|unit| units.contains(&unit.trim_end_matches('s')));
    if is_period && corrected.last().is_some_and(|last| crate::zone_name(last).is_ok()) {
        corrected.pop();
    }
    let phrase = ordered(corrected).join(" ").replace(" ,", ",");
    match read(&phrase) {
        Ok(_) => Some(Ok(phrase)),
        Err(error) => (!error.advice().is_empty()).then_some(Err(error)),
    }
}

fn corrected(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (_, word) in words(text) {
        let small = word.to_ascii_lowercase();
        let synonym = SYNONYMS.iter().find(|(other, _)| *other == small);
        match synonym {
            Some((_, meant)) => {
                found.extend(meant.split(' ').filter(|word| !word.is_empty()).map(str::to_owned))
            }
            None => found.push(word_or_nearest(word, &small)),
        }
    }
    // Only what counts from a date has these words.
    let is_number = |word: &String| word.bytes().all(|byte| byte.is_ascii_digit());
    let counts = found.iter().any(|word| ["from", "other"].contains(&word.as_str()))
        || found.get(1).is_some_and(is_number);
    if !counts {
        found.retain(|word| word != "on" && word != "the");
    }
    calendar(clock(found))
}

/// The word itself if it can be part of a phrase, or the nearest that can.
fn word_or_nearest(word: &str, small: &str) -> String {
    if VOCABULARY.contains(&small)
        || ["on", "the"].contains(&small)
        || crate::english::WEEKDAYS.iter().any(|name| name[..3].eq_ignore_ascii_case(small))
    {
        return small.to_owned();
    }
    if word.contains('/')
        || word.starts_with(['+', '-'])
        || word.bytes().any(|byte| byte.is_ascii_digit())
    {
        return word.to_owned();
    }
    nearest(small, VOCABULARY).map_or_else(|| word.to_owned(), str::to_owned)
}

/// Times of day: `9 am`, `9.30`, and `9` after `at`.
fn clock(words: Vec<String>) -> Vec<String> {
    let mut clocks: Vec<String> = Vec::new();
    for word in words {
        let after = clocks.last().is_some_and(|last| matches!(last.as_str(), "at"));
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let small = word.to_ascii_lowercase().replace('.', "");
        match clocks.last_mut() {
            Some(last)
                if matches!(&*small, "am" | "pm")
                    && last.starts_with(|c: char| c.is_ascii_digit()) =>
            {
                let clock = last.strip_suffix(":00").unwrap_or(last).to_owned();
                *last = match (&*clock, &*small) {
                    ("12", "am") => "midnight".to_owned(),
                    ("12", _) => "noon".to_owned(),
                    _ => format!("{clock}{small}"),
                };
            }
            _ if after && is_number(&word) => clocks.push(format!("{word}:00")),
            _ if after && word.starts_with(|first: char| first.is_ascii_digit()) => {
                clocks.push(word.replace(['.', 'h'], ":"))
            }
            _ => clocks.push(word),
        }
    }
    clocks
}

/// Numbers and units: `every 5min`, `every hour`, `every 2 days`, `every month`, `31st day`.
fn calendar(words: Vec<String>) -> Vec<String> {
    let counts = words.iter().any(|word| word == "from");
    let mut found: Vec<String> = Vec::new();
    for word in words {
        let last = found.last().map_or("", String::as_str);
        let digits = word.bytes().take_while(u8::is_ascii_digit).count();
        let count = last.parse::<u32>().ok().filter(|count| *count < 10_000);
        let text = word.as_str();
        match (last, text) {
            ("every", "hour" | "minute" | "second") => found.extend(["1".into(), word]),
            // As @weekly.
            ("every", "week") if !counts => found.push("sunday".into()),
            ("every", "month") if found.len() == 1 && !counts => {
                found = ["first", "day", "of", "every", "month"].map(str::to_owned).into();
            }
            ("of", "month") => found.extend(["every".into(), word]),
            (_, "day" | "week" | "weeks") if count == Some(1) && !counts => {
                found.pop();
                found.push(if text == "day" { "day" } else { "sunday" }.into());
            }
            ("every", _) if digits > 0 && digits < text.len() && !text.contains(':') => {
                let (number, unit) = text.split_at(digits);
                let meant = SYNONYMS.iter().find(|(other, _)| *other == unit);
                let unit = meant.map_or(unit, |(_, unit)| unit);
                found.extend([number.to_owned(), unit.to_owned()]);
            }
            _ => found.push(word),
        }
    }
    found
}

/// A time in front (`at 9:00 every day`) goes behind the days, and days alone get an `every`.
fn ordered(mut words: Vec<String>) -> Vec<String> {
    let days = words.iter().position(|word| word == "every");
    if let Some(days) = days.filter(|_| words.first().is_some_and(|first| first == "at")) {
        words.rotate_left(days);
    }
    if words.first().is_some_and(|first| {
        first == "day" || first == "weekday" || super::weekday(first).is_some()
    }) {
        words.insert(0, "every".into());
    }
    words
}
