//! Errors of a crontab: every bad line, with the good entries beside them.

use super::Entry;
use std::{error, fmt};

/// A crontab with bad lines.
///
/// `Display` prints each on a line of its own.
///
/// ```
/// use allora::crontab;
///
/// let bad = crontab::parse("61 * * * * late\n0 * * * * on-time\nMAILTO=\"ops\n").unwrap_err();
/// let places: Vec<_> = bad.lines().iter().map(|bad| (bad.line(), bad.column())).collect();
/// assert_eq!(places, [(1, 1), (3, 8)]);
/// assert_eq!(bad.into_entries()[0].command, "on-time");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadCrontab {
    pub(super) lines: Vec<LineError>,
    pub(super) entries: Vec<Entry>,
}

impl BadCrontab {
    /// The bad lines, from the top; at least one.
    pub fn lines(&self) -> &[LineError] {
        &self.lines
    }

    /// The good entries, from the top, for those who prefer to run them and report the rest.
    pub fn into_entries(self) -> Vec<Entry> {
        self.entries
    }
}

impl fmt::Display for BadCrontab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, others) = self.lines.split_first().ok_or(fmt::Error)?;
        write!(f, "{first}")?;
        others.iter().try_for_each(|line| write!(f, "\n{line}"))
    }
}

impl error::Error for BadCrontab {}

/// A bad line of a crontab: where, why, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineError {
    line: usize,
    column: usize,
    reason: String,
    remedy: String,
}

impl LineError {
    /// The number of the line, from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// Where in the line, in characters from 1.
    pub fn column(&self) -> usize {
        self.column
    }

    /// The reason.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The remedy; may be empty.
    pub fn remedy(&self) -> &str {
        &self.remedy
    }
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, reason, remedy } = self;
        write!(f, "line {line}, column {column}: {reason}")?;
        if remedy.is_empty() { Ok(()) } else { write!(f, "; {remedy}") }
    }
}

impl error::Error for LineError {}

/// An error at a byte of a line. The caller adds the number of the line.
#[derive(Debug)]
pub(super) struct Fault {
    at: usize,
    reason: String,
    remedy: String,
}

impl Fault {
    pub(super) fn new(at: usize, reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { at, reason: reason.into(), remedy: remedy.into() }
    }

    pub(super) fn in_line(self, number: usize, text: &str) -> LineError {
        let before = text.char_indices().take_while(|(at, _)| *at < self.at).count();
        LineError { line: number, column: before + 1, reason: self.reason, remedy: self.remedy }
    }
}
