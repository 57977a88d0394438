//! Errors of schedules and of their texts: where, what, and what to write instead.

use std::{borrow::Cow, error, fmt};

/// A schedule's text that was rejected.
///
/// `Display` names the part, its column, the offending text (cut to 40 characters, with control
/// and bidirectional characters escaped), the reason and a remedy.
///
/// ```
/// use allora::schedule::Cron;
///
/// let error = Cron::parse("0 0 * * Mond").unwrap_err();
/// assert_eq!((error.field(), error.position()), (allora::schedule::Field::Weekday, 8));
/// assert_eq!(
///     error.to_string(),
///     "weekday, column 9: \"Mond\" is not the name of a weekday; write three letters, such as MON",
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    field: Field,
    position: usize,
    found: String,
    reason: Cow<'static, str>,
    remedy: Cow<'static, str>,
}

/// The part of a schedule's text that an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Field {
    /// The text as a whole.
    Text,
    /// The first of six fields.
    Second,
    /// The minute of the hour.
    Minute,
    /// The hour of the day.
    Hour,
    /// The day of the month.
    Day,
    /// The month.
    Month,
    /// The day of the week.
    Weekday,
    /// The year of a Quartz expression.
    Year,
    /// The time zone or offset.
    Zone,
    /// A period, such as `90m`.
    Period,
    /// An instant, such as `2026-01-01T00:00:00Z`.
    Instant,
    /// A setting of a stored schedule, such as `delay 30s`.
    Setting,
}

impl Field {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Text => "schedule",
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day of month",
            Self::Month => "month",
            Self::Weekday => "weekday",
            Self::Year => "year",
            Self::Zone => "time zone",
            Self::Period => "period",
            Self::Instant => "instant",
            Self::Setting => "setting",
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The longest offending text in an error, in characters.
const SHOWN: usize = 40;

impl ParseError {
    /// An error at byte `position` of a text, which has `found` there.
    pub fn new(
        field: Field,
        position: usize,
        found: &str,
        reason: impl Into<Cow<'static, str>>,
    ) -> Self {
        let found = shown(found);
        Self { field, position, found, reason: reason.into(), remedy: Cow::Borrowed("") }
    }

    /// The same error with what to write instead.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<Cow<'static, str>>) -> Self {
        self.remedy = remedy.into();
        self
    }

    /// The same error in a text of which this one is a part that begins at byte `by`.
    #[must_use]
    pub fn shifted(mut self, by: usize) -> Self {
        self.position += by;
        self
    }

    /// The same error in a text of several lines; lines count from 1.
    pub(crate) fn on_line(mut self, line: usize) -> Self {
        self.reason = format!("{} (line {line})", self.reason).into();
        self
    }

    /// The part of the text.
    pub fn field(&self) -> Field {
        self.field
    }

    /// The place where the error begins in the given text, in bytes from 0. The column that
    /// `Display` shows is one more: everything before the first error is ASCII.
    pub fn position(&self) -> usize {
        self.position
    }

    /// The offending text: at most 40 characters, escaped.
    pub fn found(&self) -> &str {
        &self.found
    }

    /// The reason for the rejection.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The text to write instead; may be empty.
    pub fn advice(&self) -> &str {
        &self.remedy
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, position, found, reason, remedy } = self;
        write!(f, "{field}, column {}: \"{found}\" {reason}", position + 1)?;
        if !remedy.is_empty() {
            write!(f, "; {remedy}")?;
        }
        Ok(())
    }
}

impl error::Error for ParseError {}

/// A schedule that cannot run: the error, and the remedy.
///
/// [`Schedule::check`](crate::Schedule::check) returns it for schedules that were made in code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleError {
    message: Cow<'static, str>,
}

impl ScheduleError {
    /// An error with this message.
    pub fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into() }
    }
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl error::Error for ScheduleError {}

impl From<ParseError> for ScheduleError {
    fn from(error: ParseError) -> Self {
        Self::new(error.to_string())
    }
}

/// At most 40 characters of a text, safe to print.
pub(crate) fn shown(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text.chars();
    for char in rest.by_ref().take(SHOWN) {
        if char.is_control() || changes_the_line(char) || char == '"' || char == '\\' {
            shown.extend(char.escape_default());
        } else {
            shown.push(char);
        }
    }
    if rest.next().is_some() {
        shown.push('…');
    }
    shown
}

/// Characters that hide or reorder what is printed after them.
fn changes_the_line(char: char) -> bool {
    matches!(char,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}
