//! Crontabs as the daemon runs them: where they are, what their lines mean here, what is wrong.

mod env_file;
mod line;
mod notices;
mod secrets;
mod settings;
mod source;
mod zone;

pub(crate) use env_file::{EnvFile, is_commands_own};
pub(crate) use line::{Line, Shell};
pub(crate) use notices::Notices;
pub(crate) use settings::{Defaults, LEASE};
pub(crate) use source::{Form, Source, find, ignored, prefix};
pub(crate) use zone::zone;

use crate::{clock::now, failure::without_passwords};
use allora_core::{
    AnySchedule, Time,
    crontab::{self, Columns, Entry},
};
use std::{fmt, path::PathBuf};

/// An error or warning about a crontab, with its file, and its line and column if known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Diagnostic {
    pub(crate) path: PathBuf,
    pub(crate) line: Option<usize>,
    pub(crate) column: Option<usize>,
    pub(crate) what: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        if let Some(column) = self.column {
            write!(f, "{column}:")?;
        }
        write!(f, " {}", self.what)
    }
}

/// The contents of one crontab.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub(crate) lines: Vec<Line>,
    /// The errors, from the top; the good lines are in `lines` all the same.
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// Warnings about legal lines.
    pub(crate) notices: Vec<Diagnostic>,
}

/// The bytes in front of a text that some editors write.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads a crontab's text.
pub(crate) fn read(source: &Source, text: &[u8], defaults: &Defaults) -> Reading {
    let (text, mark) = match text.strip_prefix(BYTE_ORDER_MARK) {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let columns = Columns { user: source.form == Form::System, seconds: defaults.seconds };
    let parsed = crontab::parse_with(text, columns);
    let mut reading = Reading::default();
    if mark {
        let what = "the file begins with a byte order mark, which other crons take for a part of \
                    the first line; save it as UTF-8 without one";
        reading.notices.push(source.diagnostic(Some(1), what));
    }
    if let Some(line) = text.split(|byte| *byte == b'\n').position(|line| line.ends_with(b"\r")) {
        let what = "the line ends with a carriage return, as on Windows; other crons give it to the \
                    command: convert the file, for instance with dos2unix";
        reading.notices.push(source.diagnostic(Some(line + 1), what));
    }
    let entries = parsed.unwrap_or_else(|bad| {
        reading.diagnostics.extend(bad.lines().iter().map(|line| {
            let remedy = if line.remedy().is_empty() { "" } else { "; " };
            Diagnostic {
                path: source.path.clone(),
                line: Some(line.line()),
                column: Some(line.column()),
                what: format!("{}{remedy}{}", line.reason(), line.remedy()),
            }
        }));
        bad.into_entries()
    });
    if !defaults.has_sendmail {
        reading.notices.extend(mail(source, &entries));
    }
    for mut entry in entries {
        reading.notices.extend(notices(source, &entry));
        let mut is_good = true;
        loop {
            let wrong = match line::line(source, &entry, defaults) {
                Ok(line) => {
                    if is_good {
                        reading.notices.extend(past(source, &entry, &line, now()));
                        reading.lines.push(line);
                    }
                    break;
                }
                Err(wrong) => wrong,
            };
            is_good = false;
            let set_in = wrong.variable.as_ref().and_then(|name| entry.variable_line(name));
            let diagnostic = source.diagnostic(Some(set_in.unwrap_or(entry.line)), wrong.what);
            // A bad variable is bad once, however many lines it holds for.
            if !reading.diagnostics.contains(&diagnostic) {
                reading.diagnostics.push(diagnostic);
            }
            // The next error is found without this variable.
            if !wrong.variable.is_some_and(|name| take_back(&mut entry, &name)) {
                break;
            }
        }
    }
    reading.diagnostics.sort_by_key(|diagnostic| (diagnostic.line, diagnostic.column));
    // A value that is repeated may be that of another variable, which lost its name.
    for diagnostic in &mut reading.diagnostics {
        diagnostic.what = without_passwords(&diagnostic.what);
    }
    reading
}

/// Sets a variable of an entry to nothing; `false` if it has no value.
fn take_back(entry: &mut Entry, name: &str) -> bool {
    let mut environment = entry.environment.to_vec();
    let set = environment.iter_mut().find(|(known, value)| known == name && !value.is_empty());
    let Some((_, value)) = set else { return false };
    value.clear();
    entry.environment = environment.into();
    true
}

/// Warnings about a legal line.
fn notices(source: &Source, entry: &Entry) -> Vec<Diagnostic> {
    let warnings = entry.warnings().into_iter().map(|warning| warning.message);
    let secret = secrets::seems_secret(&entry.command).map(|what| {
        format!(
            "the command has what looks like a password ({what}): all users of the machine see it in \
             the list of processes; put it in a file that only the command's user may read, or in a \
             variable above the line"
        )
    });
    warnings.chain(secret).map(|what| source.diagnostic(Some(entry.line), what)).collect()
}

/// A warning about a line that never runs any more.
fn past(source: &Source, entry: &Entry, line: &Line, now: Time) -> Option<Diagnostic> {
    if let Some(AnySchedule::At(at)) = &line.schedule
        && at.instant() < now
    {
        let what = "the instant of @at is past, so the line does not run any more; remove it, or \
                    write an instant to come";
        return Some(source.diagnostic(Some(entry.line), what));
    }
    let end = line.settings.end.filter(|end| *end < now)?.format("%Y-%m-%dT%H:%M:%SZ");
    let what = format!("ALLORA_END was at {end}, so the line does not run any more; remove it");
    let set_in = entry.variable_line("ALLORA_END");
    Some(source.diagnostic(Some(set_in.unwrap_or(entry.line)), what))
}

/// A warning, once, where mail is expected and there is no program that sends it.
fn mail(source: &Source, entries: &[Entry]) -> Option<Diagnostic> {
    let asks = |entry: &&Entry| entry.variable("MAILTO").is_some_and(|to| !to.is_empty());
    let entry = entries.iter().find(asks)?;
    let what = "MAILTO: no mail is sent; what commands print goes to the log, and of failed runs \
                into the history; install a sendmail, or name one with --sendmail";
    Some(source.diagnostic(entry.variable_line("MAILTO"), what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_crontab_is_read_or_refused_line_by_line() {
        let seeds = [
            "ALLORA_DELIVERY=at-least-once\nALLORA_LEASE=90s\nALLORA_CATCH_UP=all 5\nALLORA_LABEL=gpu=yes\n@daily a\n",
            "CRON_TZ=Europe/Rome\nALLORA_WINDOW=1h\nALLORA_END=2099-01-01\nALLORA_BREAKER=2 9s\n*/5 * * * * b%c\n",
            "MAILTO=ann\nALLORA_PING=https://u:hunter2@h\nALLORA_ON_FAILURE=mail\n@reboot curl https://u:hunter2@h\n",
        ];
        let source = Source { path: "tab".into(), form: Form::User, owner: None };
        crate::foreign::read_each(&seeds, |text| {
            let reading = read(&source, text.as_bytes(), &Defaults::default());
            let said: Vec<String> = reading
                .diagnostics
                .iter()
                .chain(&reading.notices)
                .map(ToString::to_string)
                .collect();
            if said.is_empty() { Ok(()) } else { Err(said.join("\n")) }
        });
    }
}
