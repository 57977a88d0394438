//! Crontabs as the daemon runs them: where they are, what their lines mean here, what is wrong.

mod line;
mod settings;
mod source;

pub(crate) use line::{Line, Nodes, Shell};
pub(crate) use settings::{Defaults, LEASE, catch_up, is_commands_own, overlap};
pub(crate) use source::{Form, Source, find};

use allora_core::crontab::{self, Entry};
use std::{fmt, path::PathBuf};

/// What is wrong with a crontab: a file, a line and a column where they are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Complaint {
    pub(crate) path: PathBuf,
    pub(crate) line: Option<usize>,
    pub(crate) column: Option<usize>,
    pub(crate) what: String,
}

impl fmt::Display for Complaint {
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

/// What was read from one crontab.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub(crate) lines: Vec<Line>,
    /// What is wrong, from the top; the good lines are in `lines` all the same.
    pub(crate) complaints: Vec<Complaint>,
    /// What is legal but worth a word.
    pub(crate) notices: Vec<Complaint>,
}

/// Reads a crontab's text.
pub(crate) fn read(source: &Source, text: &[u8], defaults: &Defaults) -> Reading {
    let parsed = match source.form {
        Form::System => crontab::parse_system(text),
        Form::User => crontab::parse(text),
    };
    let mut reading = Reading::default();
    let entries = parsed.unwrap_or_else(|bad| {
        reading.complaints.extend(bad.lines().iter().map(|line| {
            let remedy = if line.remedy().is_empty() { "" } else { "; " };
            Complaint {
                path: source.path.clone(),
                line: Some(line.line()),
                column: Some(line.column()),
                what: format!("{}{remedy}{}", line.reason(), line.remedy()),
            }
        }));
        bad.into_entries()
    });
    let text = String::from_utf8_lossy(text);
    reading.notices.extend(mail(source, &text, &entries));
    for entry in entries {
        let at = entry.line;
        reading.notices.extend(notices(source, &entry));
        match line::line(source, entry, defaults) {
            Ok(line) => reading.lines.push(line),
            Err(wrong) => {
                let set_in = wrong.variable.and_then(|name| setting_line(&text, at, &name));
                let complaint = source.complaint(Some(set_in.unwrap_or(at)), wrong.what);
                // A bad variable is bad once, however many lines it holds for.
                if !reading.complaints.contains(&complaint) {
                    reading.complaints.push(complaint);
                }
            }
        }
    }
    reading.complaints.sort_by_key(|complaint| (complaint.line, complaint.column));
    reading
}

fn notices(source: &Source, entry: &Entry) -> Vec<Complaint> {
    match &entry.when {
        crontab::When::Cron(cron) => {
            let warnings = cron.warnings().iter();
            warnings
                .map(|warning| source.complaint(Some(entry.line), warning.message.clone()))
                .collect()
        }
        _ => Vec::new(),
    }
}

/// A word, once, where somebody waits for mail.
fn mail(source: &Source, text: &str, entries: &[Entry]) -> Option<Complaint> {
    let asks = |entry: &&Entry| entry.variable("MAILTO").is_some_and(|to| !to.is_empty());
    let entry = entries.iter().find(asks)?;
    let line = setting_line(text, entry.line, "MAILTO");
    let what = "MAILTO: no mail is sent; what commands print goes to the log, and of failed runs \
                into the history";
    Some(source.complaint(line, what))
}

/// The line above `before` that sets this variable last.
fn setting_line(text: &str, before: usize, name: &str) -> Option<usize> {
    let sets = |line: &str| {
        let line = line.trim_start().trim_start_matches(['"', '\'']);
        line.strip_prefix(name)
            .is_some_and(|rest| rest.trim_start_matches(['"', '\'']).trim_start().starts_with('='))
    };
    let above: Vec<&str> = text.lines().take(before.saturating_sub(1)).collect();
    above.iter().rposition(|line| sets(line)).map(|index| index + 1)
}
