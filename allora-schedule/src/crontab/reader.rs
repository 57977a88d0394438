//! Reads a whole crontab: which variables and which zone hold for which job, and what is wrong.

use super::{
    BadCrontab, Entry, LineError, MAX_LINE, MAX_VARIABLES, When,
    error::Fault,
    line::{self, Form, Job, Line, Variable},
    name::{self, Names},
};
use crate::{AnySchedule, Cron, Field, ParseError, Quartz, Recurrence, error::shown, zone_name};
use std::{collections::BTreeMap, sync::Arc};

pub(super) fn read(text: &[u8], form: Form, seconds: bool) -> Result<Vec<Entry>, BadCrontab> {
    let mut reading = Reading::new(form, seconds);
    for (index, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        reading.line(index + 1, line);
    }
    let Reading { errors, entries, .. } = reading;
    if errors.is_empty() { Ok(entries) } else { Err(BadCrontab { lines: errors, entries }) }
}

/// The variable that gives the lines below a sixth field in front, for seconds.
const SECONDS: &str = "ALLORA_SECONDS";

/// The variable that names the job of the next line.
const NAME: &str = "ALLORA_NAME";

/// The environment of entries and the lines that set it.
type Shared = (Arc<[(String, String)]>, Arc<[usize]>);

/// The state of the reader.
#[derive(Debug)]
struct Reading {
    form: Form,
    /// The lines have seconds unless the file says otherwise.
    seconds: bool,
    environment: Vec<(String, String)>,
    /// The number of the line that sets each of them.
    lines: Vec<usize>,
    /// The same two for the entries; made when one needs them.
    shared: Option<Shared>,
    zone: Option<String>,
    /// The names of variables whose last line was bad, and its number.
    broken: BTreeMap<String, usize>,
    names: Names,
    /// The name that the file has chosen for the job of the next line.
    chosen: Option<String>,
    entries: Vec<Entry>,
    errors: Vec<LineError>,
}

impl Reading {
    fn new(form: Form, seconds: bool) -> Self {
        Self {
            form,
            seconds,
            environment: Vec::new(),
            lines: Vec::new(),
            shared: None,
            zone: None,
            broken: BTreeMap::new(),
            names: Names::default(),
            chosen: None,
            entries: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// Reads one line with its end.
    fn line(&mut self, number: usize, bytes: &[u8]) {
        let text = String::from_utf8_lossy(without_end(bytes));
        if let Err(faults) = self.take(number, bytes, &text) {
            match line::assignment(&text) {
                Some((name, _)) => drop(self.broken.insert(name.to_owned(), number)),
                // The name was this line's, and must not pass to the one below.
                None => self.chosen = None,
            }
            self.errors.extend(faults.into_iter().map(|fault| fault.in_line(number, &text)));
        }
    }

    /// Takes a line, or says all that is wrong with it.
    fn take(&mut self, number: usize, bytes: &[u8], text: &str) -> Result<(), Vec<Fault>> {
        let one = |fault| vec![fault];
        match line::read(text, self.form, self.fields()) {
            // A comment may hold anything; but what was cut short may have been more.
            Ok(Line::Nothing) => whole(bytes).map_err(one),
            read => {
                clean(bytes, text).map_err(one)?;
                match read.map_err(one)? {
                    Line::Nothing => Ok(()),
                    Line::Variable(variable) => self.variable(number, &variable).map_err(one),
                    Line::Job(job) => self.job(number, job),
                }
            }
        }
    }

    /// The number of time fields of the lines below.
    fn fields(&self) -> usize {
        let seconds = self.environment.iter().find(|(name, _)| name == SECONDS);
        // An empty value takes a setting back.
        let set = seconds.filter(|(_, value)| !value.is_empty()).map(|(_, value)| value == "1");
        if set.unwrap_or(self.seconds) { 6 } else { 5 }
    }

    fn variable(&mut self, number: usize, variable: &Variable<'_>) -> Result<(), Fault> {
        let Variable { name, value, value_at } = *variable;
        if name == "CRON_TZ" {
            zone_name(value).map_err(|error| at(value_at, &error))?;
            self.zone = Some(value.to_owned());
        }
        if name == NAME {
            if !value.is_empty() && !name::is_good(value) {
                return Err(Fault::new(
                    value_at,
                    "this cannot be the name of a job",
                    format!(
                        "use letters, digits, `.`, `_` and `-`, at most {} bytes",
                        name::LONGEST
                    ),
                ));
            }
            self.chosen = Some(value.to_owned()).filter(|name| !name.is_empty());
            self.broken.remove(name);
            return Ok(());
        }
        let environment = &mut self.environment;
        match environment.iter().position(|(known, _)| known == name) {
            Some(index) => {
                value.clone_into(&mut environment[index].1);
                self.lines[index] = number;
            }
            None if environment.len() == MAX_VARIABLES => {
                return Err(Fault::new(
                    0,
                    format!("this is more than {MAX_VARIABLES} variables"),
                    "put them in a file that the command reads",
                ));
            }
            None => {
                environment.push((name.to_owned(), value.to_owned()));
                self.lines.push(number);
            }
        }
        self.shared = None;
        self.broken.remove(name);
        Ok(())
    }

    fn job(&mut self, number: usize, job: Job<'_>) -> Result<(), Vec<Fault>> {
        let mut faults = Vec::new();
        let Job { schedule, schedule_at, user, command, stdin } = job;
        let fields: Vec<&str> = schedule.split_ascii_whitespace().collect();
        let words =
            [&*fields.join(" "), user.unwrap_or(""), &command, stdin.as_deref().unwrap_or("")];
        // A bad line counts too: its correction must not rename the equal ones below it.
        let name = match self.chosen.take() {
            None => self.names.give(words),
            Some(name) => {
                if !self.names.give_chosen(&name) {
                    faults.push(Fault::new(
                        schedule_at,
                        format!("another line above is named `{name}`, too"),
                        "give this line another ALLORA_NAME",
                    ));
                }
                name
            }
        };
        let when = match when(schedule, &name, self.zone.as_deref()) {
            Ok(when) => Some(when),
            Err(error) => {
                let others = others(schedule, &name, &error);
                faults.extend([error].iter().chain(&others).map(|error| at(schedule_at, error)));
                None
            }
        };
        if let Some((broken, line)) = self.broken.first_key_value() {
            faults.push(Fault::new(
                schedule_at,
                format!("the variable `{}`, set in line {line}, is not known", shown(broken)),
                format!("correct line {line} first"),
            ));
        }
        let Some(when) = when.filter(|_| faults.is_empty()) else { return Err(faults) };
        let shared =
            self.shared.get_or_insert_with(|| ((&*self.environment).into(), (&*self.lines).into()));
        let (environment, environment_lines) = shared.clone();
        self.entries.push(Entry {
            line: number,
            when,
            user: user.map(str::to_owned),
            command,
            stdin,
            environment,
            environment_lines,
            name,
        });
        Ok(())
    }
}

fn when(schedule: &str, name: &str, zone: Option<&str>) -> Result<When, ParseError> {
    if schedule.eq_ignore_ascii_case("@reboot") {
        return Ok(When::Reboot);
    }
    let first = schedule.split(line::BLANKS).next().unwrap_or_default();
    if first.eq_ignore_ascii_case("@every") {
        return schedule.parse().map(When::Every);
    }
    if first.eq_ignore_ascii_case("@at") {
        return schedule.parse().map(When::At);
    }
    if first.eq_ignore_ascii_case("@never") {
        return schedule.parse().map(When::Never);
    }
    if first.eq_ignore_ascii_case("@after_end") {
        return schedule.parse().map(AnySchedule::AfterEnd).map(Box::new).map(When::Schedule);
    }
    if first.eq_ignore_ascii_case("@schedule") {
        let begin = schedule.find(line::is_quote).map_or(first.len(), |quote| quote + 1);
        let text = schedule.get(begin..schedule.len() - 1).unwrap_or_default();
        return quoted(text, name, zone).map_err(|error| error.shifted(begin));
    }
    if first.eq_ignore_ascii_case("@quartz") {
        let quartz: Quartz = schedule.parse()?;
        return Ok(When::Quartz(match zone {
            Some(zone) => quartz.in_zone(zone)?,
            None => quartz,
        }));
    }
    if first.eq_ignore_ascii_case("@rrule") {
        let rule = Recurrence::parse(schedule)?;
        return Ok(When::Recurrence(Box::new(match zone {
            Some(zone) if !rule.names_zone() => rule.in_zone(zone)?,
            _ => rule,
        })));
    }
    let cron = Cron::for_job(name, schedule)?;
    Ok(When::Cron(match zone {
        Some(zone) => cron.in_zone(zone)?,
        None => cron,
    }))
}

/// The schedule in the quotes after `@schedule`.
fn quoted(text: &str, name: &str, zone: Option<&str>) -> Result<When, ParseError> {
    let schedule = AnySchedule::for_job(name, text)?;
    if let Some((at, rule)) =
        AnySchedule::parts(text).find(|(_, part)| AnySchedule::is_named_calendar(part))
    {
        let unknown =
            ParseError::new(Field::Text, at, rule.trim(), "names a calendar, which is in a store");
        return Err(
            unknown.remedy("write its dates, as in `except 2026-12-25`, or add a stored schedule")
        );
    }
    let schedule = match zone {
        Some(zone) if schedule.lacks_zone() => schedule.in_zone(zone)?,
        _ => schedule,
    };
    Ok(When::Schedule(Box::new(schedule)))
}

/// The errors in the fields of a schedule other than that of the first one: it is read again with a `*`
/// in place of each bad field.
fn others(schedule: &str, name: &str, first: &ParseError) -> Vec<ParseError> {
    let (mut errors, mut text, mut bad) = (Vec::new(), schedule.to_owned(), first.position());
    if text.starts_with('@') {
        return errors;
    }
    loop {
        let Some((before, after)) = text.split_at_checked(bad) else { return errors };
        let start = before.rfind(line::BLANKS).map_or(0, |at| at + 1);
        let end = after.find(line::BLANKS).map_or(text.len(), |at| bad + at);
        // The places of the fields behind it stay.
        let star = format!("{:<1$}", "*", end - start);
        if end == start || text[start..end] == *star.trim_end() {
            return errors;
        }
        text.replace_range(start..end, &star);
        let Err(error) = Cron::for_job(name, &text) else { return errors };
        // The field was not to blame alone.
        if std::mem::replace(&mut bad, error.position()) == error.position() {
            return errors;
        }
        errors.push(error);
    }
}

fn at(start: usize, error: &ParseError) -> Fault {
    let reason = format!("{}: \"{}\" {}", error.field(), error.found(), error.reason());
    Fault::new(start + error.position(), reason, error.advice())
}

/// The line without its line feed, or carriage return and line feed.
fn without_end(bytes: &[u8]) -> &[u8] {
    let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Refuses a last line that may have been cut short.
fn whole(bytes: &[u8]) -> Result<(), Fault> {
    if bytes.ends_with(b"\n") {
        return Ok(());
    }
    Err(Fault::new(
        bytes.len(),
        "the file ends in the middle of the line: it may have been cut short",
        "end the last line with a line feed",
    ))
}

/// Refuses what a line of text does not hold.
fn clean(bytes: &[u8], text: &str) -> Result<(), Fault> {
    let line = without_end(bytes);
    if line.len() > MAX_LINE {
        return Err(Fault::new(
            MAX_LINE,
            format!("the line is {} bytes long, at most {MAX_LINE}", line.len()),
            "put the command in a script",
        ));
    }
    if let Err(error) = str::from_utf8(line) {
        return Err(Fault::new(
            error.valid_up_to(),
            "this is not UTF-8",
            "convert the file, for instance with iconv",
        ));
    }
    if let Some(at) = text.find(|char: char| char.is_control() && char != '\t') {
        let char = text[at..].chars().next().unwrap_or_default();
        return Err(Fault::new(
            at,
            format!("the control character {} does not belong in a crontab", char.escape_default()),
            "remove it; a command can make one with printf",
        ));
    }
    whole(bytes)
}
