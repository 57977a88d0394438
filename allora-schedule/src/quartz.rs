//! The Quartz dialect, as the `cron` crate reads it.

use crate::{
    Field, ParseError, Schedule,
    error::shown,
    schedule::latest,
    time::{Time, end_of_time},
};
use chrono::{DateTime, Utc};
use std::{fmt, str::FromStr};

/// A schedule in the Quartz dialect, in UTC; made by [`Cron::quartz`](crate::Cron::quartz).
///
/// Seconds come first and a year may come last; Sunday is 1; both day fields must match. The
/// `cron` crate, which does the work, knows no instant after the year 2100.
///
/// ```
/// use allora_schedule::{Cron, Schedule};
///
/// let mondays = Cron::quartz("0 30 9 ? * 2")?;
/// let sunday = "2026-01-04T00:00:00Z".parse().unwrap();
/// assert_eq!(mondays.next_at(sunday).unwrap().to_string(), "2026-01-05 09:30:00 UTC");
/// # Ok::<(), allora_schedule::ParseError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Quartz {
    schedule: ::cron::Schedule,
}

impl Quartz {
    pub(crate) fn parse(text: &str) -> Result<Self, ParseError> {
        let refuse = |reason: String| {
            Err(ParseError::new(Field::Text, 0, text, reason)
                .remedy("write second, minute, hour, day, month, weekday and perhaps a year"))
        };
        if text.len() > 1024 {
            return refuse("is longer than 1024 bytes".into());
        }
        match text.trim_ascii().parse() {
            Ok(schedule) => Ok(Self { schedule }),
            Err(error) => {
                // Its message quotes the whole text first; the reason is on the last line.
                let message = error.to_string();
                let reason = shown(message.lines().last().unwrap_or_default());
                refuse(format!("is not in the Quartz dialect: {reason}"))
            }
        }
    }
}

impl fmt::Display for Quartz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("@quartz")?;
        self.schedule.source().split_ascii_whitespace().try_for_each(|word| write!(f, " {word}"))
    }
}

impl FromStr for Quartz {
    type Err = ParseError;

    /// Reads the expression, with or without the `@quartz` that [`Display`](fmt::Display) writes.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let trimmed = text.trim_ascii_start();
        Self::parse(trimmed.strip_prefix("@quartz ").unwrap_or(trimmed))
    }
}

impl PartialEq for Quartz {
    fn eq(&self, other: &Self) -> bool {
        self.schedule.timeunitspec_eq(&other.schedule)
    }
}

impl Eq for Quartz {}

impl Schedule for Quartz {
    fn next_at(&self, after: Time) -> Option<Time> {
        self.schedule.next_at(after)
    }

    fn latest_at(&self, from: Time, until: Time) -> Option<Time> {
        self.schedule.latest_at(from, until)
    }

    fn definition(&self) -> Option<String> {
        Some(self.to_string())
    }

    fn is_built_in(&self, _: crate::schedule::Token) -> bool {
        true
    }
}

/// In UTC.
impl Schedule for ::cron::Schedule {
    fn next_at(&self, after: Time) -> Option<Time> {
        // The crate adds a second before it looks, and panics at chrono's last instant.
        let after = (after < end_of_time()).then_some(after)?;
        self.after(&after).next().filter(|next| *next > after)
    }

    fn latest_at(&self, from: Time, until: Time) -> Option<Time> {
        latest(from, until, |second| {
            let after: DateTime<Utc> = DateTime::from_timestamp(second, 0)?;
            self.next_at(after).map(|next| next.timestamp())
        })
    }

    fn definition(&self) -> Option<String> {
        Some(Quartz { schedule: self.clone() }.to_string())
    }

    fn is_built_in(&self, _: crate::schedule::Token) -> bool {
        true
    }
}
