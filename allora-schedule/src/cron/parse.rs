//! The text of an expression: words, macros, the zone as last word. The fields are in `field`.

use super::{
    Dst, Warning,
    field::{self, NameHash, Word},
    fields::{Days, Fields},
    warnings, years,
};
use crate::{Field, ParseError, nearest::nearest, zone::Zone};
use std::sync::Arc;

/// Longer text is refused before it is looked at, in bytes.
const LIMIT: usize = 1024;

/// The macros that stand for five fields.
const MACROS: [(&str, &str); 8] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@noon", "0 12 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) fields: Fields,
    pub(super) zone: Option<Arc<Zone>>,
    pub(super) dst: Dst,
    pub(super) warnings: Vec<Warning>,
}

pub(super) fn parse(text: &str, job: Option<&str>) -> Result<Parsed, ParseError> {
    let mut words = Words::of(text)?;
    let dst = words.take_dst()?;
    let zone = words.take_zone(5)?;
    let mut warnings = Vec::new();
    let fields = match words.macro_fields()? {
        Some(text) => {
            let words = Words::of(text)?;
            read(words.fields()?, job, &mut warnings)?
        }
        None => read(words.fields()?, job, &mut warnings)?,
    };
    Ok(Parsed { fields, zone, dst, warnings })
}

/// The Quartz dialect, and the text of its fields.
pub(super) fn parse_quartz(text: &str) -> Result<(Parsed, String), ParseError> {
    let mut words = Words::of(text)?;
    let dst = words.take_dst()?;
    let zone = words.take_zone(6)?;
    let mut warnings = Vec::new();
    let fields = match words.macro_fields()? {
        Some(text) => read(Words::of(text)?.fields()?, None, &mut warnings)?,
        None => read_quartz(words.quartz_fields()?, &mut warnings)?,
    };
    let texts: Vec<&str> = words.seen().iter().map(|word| word.text).collect();
    Ok((Parsed { fields, zone, dst, warnings }, texts.join(" ")))
}

/// The blank-separated words, with their place in the text.
struct Words<'a> {
    words: [Word<'a>; 10],
    /// May be more than there is room for: such a text is refused anyway.
    count: usize,
}

impl<'a> Words<'a> {
    fn of(text: &'a str) -> Result<Self, ParseError> {
        let whole =
            |reason, remedy| Err(ParseError::new(Field::Text, 0, text, reason).remedy(remedy));
        if text.len() > LIMIT {
            return whole("is longer than 1024 bytes", "name the times with ranges and steps");
        }
        let mut words = Self { words: [Word { text: "", at: 0 }; 10], count: 0 };
        let bytes = text.as_bytes();
        let end = text.trim_ascii_end().len();
        let mut at = text.len() - text.trim_ascii_start().len();
        while at < end {
            let start = at;
            while at < end && bytes[at].is_ascii_graphic() {
                at += 1;
            }
            if at == start {
                if !matches!(bytes[at], b' ' | b'\t') {
                    return Err(strange_character(text, at));
                }
                at += 1;
                continue;
            }
            if let Some(word) = words.words.get_mut(words.count) {
                *word = Word { text: &text[start..at], at: start };
            }
            words.count += 1;
        }
        if words.count == 0 {
            return whole("is empty", "write five fields, such as 0 9 * * MON-FRI");
        }
        if let Some(comment) = words.seen().iter().find(|word| word.text.starts_with('#')) {
            return Err(comment.error(Field::Text, "begins a comment").remedy("leave it away"));
        }
        let first = words.words[0];
        if first.text.contains('=') {
            return Err(first
                .error(Field::Text, "sets a variable of a crontab")
                .remedy("write the time zone as last word"));
        }
        Ok(words)
    }

    fn seen(&self) -> &[Word<'a>] {
        &self.words[..self.count.min(self.words.len())]
    }

    fn last(&self) -> Option<Word<'a>> {
        (2..=self.words.len()).contains(&self.count).then(|| self.words[self.count - 1])
    }

    fn take_dst(&mut self) -> Result<Dst, ParseError> {
        let Some(word) = self.last().filter(|word| word.text.starts_with("dst=")) else {
            return Ok(Dst::default());
        };
        self.count -= 1;
        match &word.text[4..] {
            "debian" => Ok(Dst::Debian),
            "literal" => Ok(Dst::Literal),
            _ => Err(word
                .error(Field::Text, "is not a policy for changes of the clock")
                .remedy("write dst=debian or dst=literal")),
        }
    }

    /// Takes the last word if it is a zone; more than so many words are not all fields.
    fn take_zone(&mut self, fields: usize) -> Result<Option<Arc<Zone>>, ParseError> {
        let is_macro = self.words[0].text.starts_with('@');
        let zone = self.last().filter(|word| {
            if is_macro {
                self.count == 2
            } else {
                self.count > fields && looks_like_a_zone(word.text)
            }
        });
        let Some(word) = zone else { return Ok(None) };
        let is_known =
            |first: &str| MACROS.iter().any(|(name, _)| name.eq_ignore_ascii_case(first));
        if is_macro && !is_known(self.words[0].text) {
            return Ok(None);
        }
        self.count -= 1;
        Zone::named(word.text, word.at).map(Some)
    }

    fn macro_fields(&self) -> Result<Option<&'static str>, ParseError> {
        let word = self.words[0];
        if !word.text.starts_with('@') {
            return Ok(None);
        }
        let known = MACROS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word.text));
        match known {
            Some((_, fields)) if self.count == 1 => Ok(Some(fields)),
            Some(_) => Err(self.words[1]
                .error(Field::Text, "stands after a macro and its zone")
                .remedy("write the macro, and at most a zone")),
            None if word.text.eq_ignore_ascii_case("@every") => {
                Err(word.error(Field::Text, "is not a cron expression").remedy(
                    "it is a schedule of its own: use it where no cron expression is asked for",
                ))
            }
            None if word.text.eq_ignore_ascii_case("@reboot") => Err(word
                .error(Field::Text, "is not a time: on many machines there is no one reboot")
                .remedy("only a crontab file may say it; run the work when the program starts")),
            None => {
                let all =
                    "@hourly, @daily, @midnight, @noon, @weekly, @monthly, @yearly, @annually";
                let others = ["@every", "@at", "@quartz"];
                let near = nearest(word.text, MACROS.iter().map(|(name, _)| *name).chain(others));
                let remedy = match near {
                    Some(near) => format!("write {near}, or one of {all}"),
                    None => format!("write {all}, or @every and a period"),
                };
                Err(word.error(Field::Text, "is not a macro").remedy(remedy))
            }
        }
    }

    fn quartz_fields(&self) -> Result<&[Word<'a>], ParseError> {
        if matches!(self.count, 6 | 7) {
            return Ok(&self.words[..self.count]);
        }
        let reason = format!("has {} fields, and not the six or seven of Quartz", self.count);
        Err(self.words[0]
            .error(Field::Text, reason)
            .remedy("write second, minute, hour, day, month, weekday and perhaps a year"))
    }

    fn fields(&self) -> Result<&[Word<'a>], ParseError> {
        let fewer = "write five: minute, hour, day of month, month, weekday; or six, seconds first";
        match self.count {
            5 | 6 => Ok(&self.words[..self.count]),
            _ if self.words[0].text.eq_ignore_ascii_case("every") => Err(self.words[0]
                .error(Field::Text, "begins a phrase, and not a cron expression")
                .remedy("write five fields: minute, hour, day of month, month, weekday")),
            count @ ..5 => {
                let reason = format!("has {count} of at least five fields");
                Err(self.words[0].error(Field::Text, reason).remedy(fewer))
            }
            7 => {
                let reason = "is too much: a cron expression has no seventh field, for years";
                Err(self.words[6].error(Field::Text, reason).remedy(
                    "remove the year, or write @quartz before it: in a Quartz expression Sunday is 1",
                ))
            }
            count => {
                let reason = format!("is too much: there are {count} fields");
                Err(self.words[6].error(Field::Text, reason).remedy(fewer))
            }
        }
    }
}

fn strange_character(text: &str, at: usize) -> ParseError {
    let char = text[at..].chars().next().unwrap_or_default();
    let found = &text[at..at + char.len_utf8()];
    let reason = match char {
        '\n' | '\r' => "is a line break inside the expression".into(),
        char if char.is_ascii() => "is a control character".into(),
        char => format!("(U+{:04X}) is not an ASCII character", u32::from(char)),
    };
    ParseError::new(Field::Text, at, found, reason)
        .remedy("write digits, ASCII names, * , - / and blanks")
}

/// `true` if a sixth or seventh word is a zone rather than a weekday field.
fn looks_like_a_zone(word: &str) -> bool {
    let bytes = word.as_bytes();
    match bytes[0] {
        b'+' => true,
        b'-' => word.contains(':'),
        b'H' | b'h' | b'L' | b'l' if bytes.len() == 1 => false,
        b'H' | b'h' if matches!(bytes[1], b'/' | b'(' | b',') => false,
        first if first.is_ascii_alphabetic() => {
            let names_a_weekday = word.get(..3).is_some_and(field::is_weekday);
            let rest = bytes.get(3).is_none_or(|next| !next.is_ascii_alphabetic())
                || bytes.len() == 4 && bytes[3].eq_ignore_ascii_case(&b'L');
            !(names_a_weekday && rest)
        }
        _ => false,
    }
}

fn read(
    words: &[Word<'_>],
    job: Option<&str>,
    warnings: &mut Vec<Warning>,
) -> Result<Fields, ParseError> {
    let (second, words) = match words {
        [second, rest @ ..] if rest.len() == 5 => (Some(*second), rest),
        all => (None, all),
    };
    let [minute, hour, day, month, weekday] = *words else {
        unreachable!("the words were counted");
    };
    let hash = job.map(NameHash::new);
    let mut reader = field::Reader { hash, days: Days::default(), warnings };
    let seconds = match second {
        Some(word) => reader.read(&field::SECOND, word)?,
        None => 1,
    };
    let minutes = reader.read(&field::MINUTE, minute)?;
    let hours = reader.read(&field::HOUR, hour)? as u32;
    let of_month = reader.read(&field::DAY, day)? as u32;
    let months = reader.read(&field::MONTH, month)? as u32;
    let of_week = reader.read(&field::WEEKDAY, weekday)? as u32;
    let days = Days {
        of_month,
        of_week,
        of_month_star: day.is_starred(),
        of_week_star: weekday.is_starred(),
        ..reader.days
    };
    warnings.extend(warnings::of(second, [minute, hour, day, month, weekday]));
    let fields = Fields {
        seconds,
        minutes,
        hours,
        months,
        days,
        years: None,
        minute_star: minute.is_starred(),
        hour_star: hour.is_starred(),
    };
    possible(fields, day, month, weekday)
}

/// The fields if they ever match.
fn possible(
    fields: Fields,
    day: Word<'_>,
    month: Word<'_>,
    weekday: Word<'_>,
) -> Result<Fields, ParseError> {
    if fields.can_match() {
        return Ok(fields);
    }
    let years = if fields.years.is_some() { " in these years" } else { "" };
    let reason =
        format!("never comes with month {} and weekday {}{years}", month.text, weekday.text);
    Err(day.error(Field::Day, reason).remedy("name a date that exists; L is a month's last day"))
}

fn read_quartz(words: &[Word<'_>], warnings: &mut Vec<Warning>) -> Result<Fields, ParseError> {
    let [second, minute, hour, day, month, weekday, ref years @ ..] = *words else {
        unreachable!("the words were counted");
    };
    let mut reader = field::Reader { hash: None, days: Days::default(), warnings };
    let [seconds, minutes, hours, days, months, weekdays] = &field::QUARTZ;
    let seconds = reader.read(seconds, second)?;
    let minutes = reader.read(minutes, minute)?;
    let hours = reader.read(hours, hour)? as u32;
    let of_month = reader.read(days, day)? as u32;
    let months = reader.read(months, month)? as u32;
    // Sunday is bit 1 in Quartz, and bit 0 here.
    let of_week = (reader.read(weekdays, weekday)? >> 1) as u32;
    // Both day fields must match.
    let days = Days { of_month, of_week, of_month_star: true, ..reader.days };
    let years = match years.first() {
        Some(word) if !word.is_any() => Some(years::read(*word)?),
        _ => None,
    };
    warnings.extend(warnings::of_times(Some(second), minute, hour));
    // `0/5` is Quartz's usual way to write `*/5`.
    let starred = |word: Word<'_>| {
        word.is_starred() || word.text.starts_with('/') || word.text.starts_with("0/")
    };
    let fields = Fields {
        seconds,
        minutes,
        hours,
        months,
        days,
        years,
        minute_star: starred(minute),
        hour_star: starred(hour),
    };
    possible(fields, day, month, weekday)
}
