//! One line of a crontab: nothing, a variable, or a job whose time fields are still text.

use super::{command, error::Fault};
use crate::recur::{is_iso, is_property};

/// The form of the lines: with or without a user before the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    User,
    System,
}

#[derive(Debug, PartialEq)]
pub(super) enum Line<'a> {
    Nothing,
    Variable(Variable<'a>),
    Job(Job<'a>),
}

/// A variable, and where its value begins, in bytes.
#[derive(Debug, PartialEq)]
pub(super) struct Variable<'a> {
    pub(super) name: &'a str,
    pub(super) value: &'a str,
    pub(super) value_at: usize,
}

#[derive(Debug, PartialEq)]
pub(super) struct Job<'a> {
    /// The five fields with the blanks between them, or the macro.
    pub(super) schedule: &'a str,
    /// Where they begin, in bytes.
    pub(super) schedule_at: usize,
    pub(super) user: Option<&'a str>,
    pub(super) command: String,
    pub(super) stdin: Option<String>,
}

pub(super) const BLANKS: [char; 2] = [' ', '\t'];

/// Looks like a blank, and separates nothing.
pub(super) const NO_BREAK_SPACE: char = '\u{a0}';

/// Reads a line without its end, with so many time fields.
pub(super) fn read(text: &str, form: Form, fields: usize) -> Result<Line<'_>, Fault> {
    let mut words = Words { text, at: 0 };
    words.skip_blanks();
    if words.rest().is_empty() || words.rest().starts_with('#') {
        return Ok(Line::Nothing);
    }
    if let Some((name, equals_at)) = assignment(text) {
        return variable(text, name, equals_at).map(Line::Variable);
    }
    refuse_export(&words)?;
    job(words, form, fields).map(Line::Job)
}

/// `export A=b` is a line of a shell's script.
fn refuse_export(words: &Words<'_>) -> Result<(), Fault> {
    let mut rest = words.rest().split(BLANKS).filter(|word| !word.is_empty());
    match (rest.next(), rest.next()) {
        (Some(word @ ("export" | "set" | "setenv" | "declare")), Some(next)) => Err(Fault::new(
            words.at,
            format!("`{word}` is a shell's; a crontab's variables have no word in front"),
            match next.split_once('=') {
                Some((name, _)) => format!("write `{}=` and the value", shown(name)),
                None => "write NAME=value".to_owned(),
            },
        )),
        _ => Ok(()),
    }
}

/// The name before the `=` and where that is, if the line sets a variable, well or badly.
pub(super) fn assignment(text: &str) -> Option<(&str, usize)> {
    let trimmed = text.trim_start_matches(BLANKS);
    let (name, after) = match trimmed.chars().next().filter(|first| is_quote(*first)) {
        Some(quote) => trimmed[1..].split_once(quote)?,
        None => trimmed.split_at(trimmed.find([' ', '\t', '='])?),
    };
    let after = after.trim_start_matches(BLANKS);
    after.starts_with('=').then(|| (name, text.len() - after.len()))
}

pub(super) fn is_quote(char: char) -> bool {
    matches!(char, '"' | '\'')
}

fn variable<'a>(text: &'a str, name: &'a str, equals_at: usize) -> Result<Variable<'a>, Fault> {
    let mut chars = name.chars();
    let good = chars.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && chars.all(|other| other.is_ascii_alphanumeric() || other == '_');
    if !good {
        let at = text.len() - text.trim_start_matches(BLANKS).len();
        return Err(Fault::new(
            at,
            format!("`{}` cannot be the name of a variable", shown(name)),
            "use letters, digits and `_`, without a digit in front",
        ));
    }
    let mut words = Words { text, at: equals_at + 1 };
    words.skip_blanks();
    let value_at = words.at;
    let value = words.rest().trim_end_matches(BLANKS);
    let Some(quote) = value.chars().next().filter(|first| is_quote(*first)) else {
        return Ok(Variable { name, value, value_at });
    };
    match value[1..].split_once(quote) {
        Some((inside, "")) => Ok(Variable { name, value: inside, value_at: value_at + 1 }),
        Some((inside, _)) => Err(Fault::new(
            value_at + 1 + inside.len() + 1,
            "the value goes on after its closing quote",
            "put quotes around the whole value, of the kind that is not inside it",
        )),
        None => Err(Fault::new(
            value_at,
            format!("the value begins with {quote} and does not end with it"),
            format!("end it with {quote}, or put it in the other kind of quotes"),
        )),
    }
}

fn job(mut words: Words<'_>, form: Form, fields: usize) -> Result<Job<'_>, Fault> {
    let (schedule_at, schedule) = schedule(&mut words, fields)?;
    let user = match form {
        Form::User => None,
        Form::System => Some(user(&mut words, fields)?),
    };
    words.skip_blanks();
    if let Some(at) = words.text[..words.at].find(NO_BREAK_SPACE) {
        return Err(Fault::new(
            at,
            "a no-break space (U+00A0), which looks like a blank, stands before the command",
            "replace it with a blank; editors and web pages put it there",
        ));
    }
    let (at, rest) = (words.at, words.rest());
    let first = rest.split(BLANKS).next().unwrap_or_default();
    let is_quartz = schedule.get(..7).is_some_and(|word| word.eq_ignore_ascii_case("@quartz"));
    let fields = if is_quartz { 6 } else { fields };
    if form == Form::User && looks_like_a_field(first) {
        return Err(one_field_more(at, first, fields));
    }
    if first.starts_with('-') {
        return Err(Fault::new(
            at,
            format!(
                "`{}` stands where the command begins, as the flags of BSD's cron do",
                shown(first)
            ),
            "remove it; what is done with the output is not said in the line",
        ));
    }
    let (command, stdin) = command::split(rest);
    if command.trim_matches(BLANKS).is_empty() {
        return Err(Fault::new(at, "there is no command", "write one at the end of the line"));
    }
    Ok(Job { schedule, schedule_at, user, command, stdin })
}

/// The time fields or the macro, and where they begin.
fn schedule<'a>(words: &mut Words<'a>, fields: usize) -> Result<(usize, &'a str), Fault> {
    words.skip_blanks();
    let start = words.at;
    if words.rest().starts_with('@') {
        pass_macro(words)?
    } else {
        pass_fields(words, fields)?
    }
    Ok((start, &words.text[start..words.at]))
}

fn pass_fields(words: &mut Words<'_>, fields: usize) -> Result<(), Fault> {
    if words.rest().starts_with('-') {
        return Err(Fault::new(
            words.at,
            "a leading `-` is cronie's for a job that is not logged",
            "remove it; what is logged is not said in the line",
        ));
    }
    for passed in 0..fields {
        let Some((at, field)) = words.take() else {
            let remedy = match fields {
                5 => "write five time fields (minute, hour, day, month, weekday) and the command",
                _ => {
                    "write six time fields (second, minute, hour, day, month, weekday) and the command"
                }
            };
            return Err(Fault::new(
                words.end(),
                format!("the line ends after word {passed}"),
                remedy,
            ));
        };
        refuse_random(at, field)?;
    }
    Ok(())
}

/// Passes one word; after `@every` the period and perhaps its grid, after `@after_end` the delay, after `@at`
/// the instant, after `@schedule` a text in quotes, after
/// `@quartz` six fields, after `@rrule` the lines of a recurrence. Refuses macros that only FreeBSD has.
fn pass_macro(words: &mut Words<'_>) -> Result<(), Fault> {
    let Some((at, text)) = words.take() else { return Ok(()) };
    let name = text[1..].to_ascii_lowercase();
    let period = match name.as_str() {
        "every" if words.take().is_none() => {
            return Err(Fault::new(
                words.end(),
                "`@every` has no period",
                "write one such as `@every 90m`, and the command after it",
            ));
        }
        "after_end" if words.take().is_none() => {
            return Err(Fault::new(
                words.end(),
                "`@after_end` has no delay",
                "write one such as `@after_end 10m`, and the command after it",
            ));
        }
        "at" if words.take().is_none() => {
            return Err(Fault::new(
                words.end(),
                "`@at` has no instant",
                "write one such as `@at 2027-01-01T09:00:00Z`, and the command after it",
            ));
        }
        "every" => return pass_grid(words),
        "quartz" => return pass_fields(words, 6),
        "rrule" => return pass_recurrence(words),
        "schedule" => return pass_quoted(words),
        "every_minute" => "1m".to_owned(),
        "every_second" => "1s".to_owned(),
        digits if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{digits}s")
        }
        _ => return Ok(()),
    };
    Err(Fault::new(
        at,
        format!("`{}` is FreeBSD's", shown(text)),
        format!("write `@every {}`", shown(&period)),
    ))
}

/// Passes the `from` and the instant, or the `phase` and the period, that may follow `@every 2w`.
fn pass_grid(words: &mut Words<'_>) -> Result<(), Fault> {
    let before = words.at;
    let (at, word) = match words.take() {
        Some((at, word @ ("from" | "phase"))) => (at, word),
        _ => {
            words.at = before;
            return Ok(());
        }
    };
    // What is wrong with an instant or a period is the schedule's to say.
    if words.take().is_some_and(|(_, text)| text.starts_with(|c: char| c.is_ascii_digit())) {
        return Ok(());
    }
    let (after, example) = match word {
        "from" => ("an instant", "from 2027-01-01T09:00:00Z"),
        _ => ("a period", "phase 10m"),
    };
    Err(Fault::new(
        at,
        format!("`{word}` after the period of `@every` is not followed by {after}"),
        format!("write one, as in `{example}`; for a command named `{word}`, write its path"),
    ))
}

/// Passes a schedule in quotes.
fn pass_quoted(words: &mut Words<'_>) -> Result<(), Fault> {
    words.skip_blanks();
    let (at, rest) = (words.at, words.rest());
    let remedy = "put the schedule in quotes, as in `@schedule \"every other friday at 9am from 2026-03-06\"`, \
                  and the command after them";
    let Some(quote) = rest.chars().next().filter(|first| is_quote(*first)) else {
        return Err(Fault::new(at.min(words.end()), "no quote follows `@schedule`", remedy));
    };
    let Some(length) = rest[1..].find(quote) else {
        return Err(Fault::new(
            at,
            format!("the schedule begins with {quote} and does not end with it"),
            remedy,
        ));
    };
    words.at += length + 2;
    if length == 0 || !words.rest().is_empty() && !words.rest().starts_with(BLANKS) {
        let reason = if length == 0 {
            "there is nothing in the quotes"
        } else {
            "no blank follows the quotes"
        };
        return Err(Fault::new(words.at - 1, reason, remedy));
    }
    Ok(())
}

/// Passes the lines of a recurrence, or a repeating interval.
fn pass_recurrence(words: &mut Words<'_>) -> Result<(), Fault> {
    let mut before = words.at;
    let mut passed = 0;
    while let Some((_, word)) =
        words.take().filter(|(_, word)| is_property(word) || passed == 0 && is_iso(word))
    {
        before = words.at;
        passed += 1;
        if is_iso(word) {
            break;
        }
    }
    words.at = before;
    match passed {
        0 => Err(Fault::new(
            words.end(),
            "`@rrule` has no rule",
            "write one such as `@rrule DTSTART;TZID=Europe/Rome:20260302T090000 RRULE:FREQ=WEEKLY`, and the \
             command after it",
        )),
        _ => Ok(()),
    }
}

fn refuse_random(at: usize, field: &str) -> Result<(), Fault> {
    match field.find('~') {
        None => Ok(()),
        Some(offset) => Err(Fault::new(
            at + offset,
            "`~` asks for a random time, on which two nodes would not agree",
            "write `H`, or `H(0-29)` for a part of the field: spread over the jobs, but always the same",
        )),
    }
}

fn user<'a>(words: &mut Words<'a>, fields: usize) -> Result<&'a str, Fault> {
    let Some((at, user)) = words.take() else {
        return Err(Fault::new(
            words.end(),
            "there is neither a user nor a command",
            "in a system crontab, write both at the end of the line",
        ));
    };
    if looks_like_a_field(user) {
        return Err(one_field_more(at, user, fields));
    }
    if let Some(offset) = user.find([':', '/']).filter(|offset| *offset > 0) {
        return Err(Fault::new(
            at + offset,
            "a group or login class after the user is BSD's",
            "name the user alone",
        ));
    }
    let good = |c: char| c.is_alphanumeric() || "_.-@+\\$".contains(c);
    if user.starts_with('-') || !user.chars().all(good) {
        return Err(Fault::new(
            at,
            format!("`{}` is not a user", shown(user)),
            "in a system crontab the word before the command is the user it runs as",
        ));
    }
    Ok(user)
}

/// `*`, `*/5`, `2026`, `1-5`: a time field, and hardly a user or a command.
fn looks_like_a_field(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit() || c == '*')
        && word.chars().all(|c| c.is_ascii_digit() || "*/,-".contains(c))
}

/// The error for a word after so many time fields that looks like another one.
fn one_field_more(at: usize, word: &str, fields: usize) -> Fault {
    let (next, has) = if fields == 5 { ("sixth", "five") } else { ("seventh", "six") };
    let reason =
        format!("`{}` looks like a {next} time field, and a crontab has {has}", shown(word));
    let remedy = match fields {
        5 => {
            "remove the seconds or the year, or write ALLORA_SECONDS=1 above lines that begin with \
             seconds; for a command of that name, write its path"
        }
        _ => "remove the year; for a command of that name, write its path",
    };
    Fault::new(at, reason, remedy)
}

/// At most 40 characters of the line, for a message.
fn shown(text: &str) -> String {
    match text.char_indices().nth(40) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

/// Takes words from the front of a line.
#[derive(Debug)]
struct Words<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Words<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Where the last word ends.
    fn end(&self) -> usize {
        self.text.trim_end_matches(BLANKS).len()
    }

    fn skip_blanks(&mut self) {
        self.at = self.text.len() - self.rest().trim_start_matches(BLANKS).len();
    }

    /// The next word and where it begins.
    fn take(&mut self) -> Option<(usize, &'a str)> {
        self.skip_blanks();
        let word = self.rest().split(BLANKS).next().filter(|word| !word.is_empty())?;
        let at = self.at;
        self.at += word.len();
        Some((at, word))
    }
}
