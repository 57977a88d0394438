//! Phrases that count by the calendar from the date of their first run.
//!
//! ```text
//! phrase   = "every" interval ["on"] [days] {"at" times | zone | "from" start}     each of these once
//! interval = [number | "other"] ("day" | "week" | "month" | "year")["s"] | ["other"] (names | "weekday")
//! days     = names | ["the"] ordinal {("," | "and") ordinal} | ["the"] ordinal name
//! start    = 2026-03-02 | 2026-03-02T09:00 | 2026-03-02T09:00:00Z
//! ```
//!
//! The date after `from` is that of the first run, so that every reading counts alike: `every 2 weeks on
//! monday and friday` begins on a Monday.

use super::{Ordinal, Words, more, names, ordinal, times, weekday};
use crate::{
    Field, ParseError, Recurrence,
    cron::{
        civil::{DAY, civil, days_from_civil},
        notes::shown,
    },
    recur::{Freq, Spec, lacking, local, ordered, split_zone},
    zone::Zone,
};
use std::sync::Arc;

/// `true` if the words count from a date, or have to.
pub(super) fn is_one(words: &Words<'_>) -> bool {
    let mut rest = words.words.iter().skip(words.next + 1).map(|(_, word)| *word);
    let counts = words.peek(1).starts_with(|first: char| first.is_ascii_digit())
        && freq(words.peek(2)).is_some();
    let other = words.peek(1).eq_ignore_ascii_case("other");
    words.is_next("every")
        && (counts || other || rest.any(|word| word.eq_ignore_ascii_case("from")))
}

/// The frequency of a unit.
fn freq(unit: &str) -> Option<Freq> {
    let unit = unit.to_ascii_lowercase();
    match unit.strip_suffix('s').unwrap_or(&unit) {
        "day" => Some(Freq::Daily),
        "week" => Some(Freq::Weekly),
        "month" => Some(Freq::Monthly),
        "year" => Some(Freq::Yearly),
        _ => None,
    }
}

/// The parts of a phrase, as far as they are read.
#[derive(Default)]
struct Parts<'a> {
    times: Option<(u32, Vec<u32>)>,
    zone: Option<Arc<Zone>>,
    start: Option<(usize, &'a str)>,
}

pub(super) fn read(words: &mut Words<'_>, text: &str) -> Result<Recurrence, ParseError> {
    words.take("every");
    let mut spec = interval(words)?;
    let Parts { times, mut zone, start } = parts(words)?;
    let Some((at, start)) = start else { return Err(lacks_start(words, text, &spec)) };
    let wrong = |reason: &'static str| ParseError::new(Field::Instant, at, start, reason);
    let (clock, own_zone) = split_zone(start);
    let Some((mut wall, has_time)) = local(clock).filter(|(_, has)| *has || own_zone.is_none())
    else {
        return Err(wrong("is not the date of a first run")
            .remedy("write 2026-03-02, or with a time 2026-03-02T09:00"));
    };
    if has_time && times.is_some() {
        return Err(wrong("has a time, next to the one after `at`").remedy("leave one away"));
    }
    if let Some(name) = own_zone {
        if zone.is_some() {
            return Err(wrong("has an offset, next to a zone").remedy("leave one away"));
        }
        zone = Some(Zone::named(name, at + clock.len())?);
    }
    let day = wall.div_euclid(DAY);
    let (_, month, of_month) = civil(day);
    if let Some(reason) = lacking(spec.freq, month, of_month).filter(|_| spec.is_plain()) {
        return Err(
            wrong(reason).remedy("begin on another day, or name the days, as in `on the last day`")
        );
    }
    let first = Recurrence::first_day(&spec, day);
    if let Some(first) = first.filter(|first| *first != day) {
        return Err(wrong("is not the date of a first run, from which all readings count alike")
            .remedy(format!("write from {}", &shown(first * DAY)[..10])));
    }
    if let Some((minute, hours)) = times {
        let hours = ordered(hours);
        wall += i64::from(hours[0] * 3600 + minute * 60);
        if hours.len() > 1 {
            spec.hours = hours.iter().map(|hour| *hour as i32).collect();
        }
    }
    Recurrence::new(spec, wall, zone, Default::default())
}

/// The interval and the days.
fn interval(words: &mut Words<'_>) -> Result<Spec, ParseError> {
    let number = words.peek(0);
    let mut interval = 1;
    if words.take("other") {
        interval = 2;
    } else if number.starts_with(|first: char| first.is_ascii_digit()) {
        let plain = number.len() <= 4 && number.bytes().all(|byte| byte.is_ascii_digit());
        let read = plain.then(|| number.parse().ok()).flatten().filter(|number| *number > 0);
        interval = read.ok_or_else(|| words.error("is not a number of periods from 1 to 9999"))?;
        words.next += 1;
    }
    let Some(freq) = freq(words.peek(0)) else {
        let mut spec = Spec::new(Freq::Weekly, interval);
        spec.weekdays = weekdays(words)?;
        return Ok(spec);
    };
    words.next += 1;
    let mut spec = Spec::new(freq, interval);
    let has_days = words.take("on") | words.take("the");
    match freq {
        Freq::Weekly if has_days || weekday(words.peek(0)).is_some() => {
            spec.weekdays = weekdays(words)?;
        }
        Freq::Monthly if has_days => days_of_month(words, &mut spec)?,
        _ if has_days => {
            words.next -= 1;
            return Err(words.error("can follow weeks and months alone"));
        }
        _ => {}
    }
    Ok(spec)
}

fn weekdays(words: &mut Words<'_>) -> Result<Vec<(i32, u32)>, ParseError> {
    let days = if words.take("weekday") { (1..=5).collect() } else { names(words)? };
    Ok(ordered(days.into_iter().map(|day| (0, day)).collect()))
}

/// `1st and 15th`, `last day`, `first monday`, perhaps after `the`.
fn days_of_month(words: &mut Words<'_>, spec: &mut Spec) -> Result<(), ParseError> {
    words.take("the");
    loop {
        let at = words.next;
        let which = ordinal(words)?;
        let nth = match which {
            Ordinal::Nth(nth) => nth as i32,
            Ordinal::Last => -1,
        };
        if let Some(day) = weekday(words.peek(0)) {
            if nth > 4 {
                words.next = at;
                return Err(words.error("is not in every month"));
            }
            words.next += 1;
            spec.weekdays = vec![(nth, day)];
            return Ok(());
        }
        if !words.take("day") && matches!(which, Ordinal::Last) {
            return Err(words.error("is not a day"));
        }
        if nth > 28 {
            words.next = at;
            return Err(words.error("is not in every month"));
        }
        spec.month_days.push(nth);
        if !more(words) {
            spec.month_days = ordered(std::mem::take(&mut spec.month_days));
            return Ok(());
        }
    }
}

/// The parts after the days.
fn parts<'a>(words: &mut Words<'a>) -> Result<Parts<'a>, ParseError> {
    let mut parts = Parts::default();
    while !words.peek(0).is_empty() {
        let at = words.at();
        if parts.times.is_none() && words.take("at") {
            parts.times = Some(times(words)?);
        } else if parts.start.is_none() && words.take("from") {
            let start = words.at();
            let Some(word) = words.take_any() else {
                return Err(words
                    .error("")
                    .remedy("write the date of the first run after `from`, as 2026-03-02"));
            };
            parts.start = Some((start, word));
        } else if let Some(zone) = super::zone(words)?.filter(|_| parts.zone.is_none()) {
            parts.zone = Some(Zone::named(zone, at)?);
        } else {
            return Err(words.error("is one word too many"));
        }
    }
    Ok(parts)
}

/// The error without a date to count from, with a phrase that has one.
fn lacks_start(words: &Words<'_>, text: &str, spec: &Spec) -> ParseError {
    // A date of a first run, as an example.
    let day = Recurrence::first_day(spec, days_from_civil(2026, 1, 1)).unwrap_or_default();
    let text = text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    let mut remedy =
        format!("write `{text} from {}`, with the date of the first run", &shown(day * DAY)[..10]);
    let hours = match spec.freq {
        Freq::Daily => Some(24),
        Freq::Weekly => Some(168),
        _ => None,
    };
    let is_bare = words.words.len() == 3 && spec.is_plain();
    if let Some(hours) = hours.filter(|_| is_bare) {
        remedy = format!("{remedy}, or `every {} hours` in elapsed time", hours * spec.interval);
    }
    let error = ParseError::new(Field::Text, words.end, "", "has no date to count from");
    // `every 1 day` may be a slip for `every day`.
    if is_bare && spec.interval == 1 { error } else { error.remedy(remedy) }
}
