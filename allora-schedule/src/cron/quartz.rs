//! The Quartz dialect, on the bit masks of cron expressions.
//!
//! The `cron` crate lacks `L`, `W`, `#` and zones, and brings eleven crates. With two tables of
//! fields and a set of years, both dialects share one evaluator.

use super::{Cron, parse};
use crate::{Note, ParseError, Schedule, Time, Warning};
use std::{fmt, str::FromStr};

/// A schedule in the Quartz dialect; made by [`Cron::quartz`].
///
/// Seconds come first, and a year from 1970 to 2199 may follow. 1 is Sunday. A day must match both
/// day fields. `L`, `L-3`, `LW`, `15W`, `6L` and `6#3` mean what they mean in Quartz, and `L` as
/// weekday is Saturday. A zone may be the last word; changes of its clock are treated as in
/// [`Cron`], where `0/5` counts as `*/5`.
///
/// ```
/// use allora::schedule::{Cron, Schedule};
///
/// let third_fridays = Cron::quartz("0 15 10 ? * 6#3 2026-2028 Europe/Rome")?;
/// let new_year = "2026-01-01T00:00:00Z".parse().unwrap();
/// assert_eq!(third_fridays.next_at(new_year).unwrap().to_string(), "2026-01-16 09:15:00 UTC");
/// # Ok::<(), allora::schedule::ParseError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Quartz {
    cron: Cron,
    /// The fields as they were written, with single blanks.
    fields: String,
}

impl Quartz {
    pub(super) fn parse(text: &str) -> Result<Self, ParseError> {
        let (parsed, fields) = parse::parse_quartz(text)?;
        Ok(Self { cron: Cron::from_parsed(parsed)?, fields })
    }

    /// The same times in another zone, as [`Cron::in_zone`].
    ///
    /// # Errors
    /// As [`Cron::in_zone`].
    pub fn in_zone(mut self, name: &str) -> Result<Self, ParseError> {
        self.cron = self.cron.in_zone(name)?;
        Ok(self)
    }

    /// The zone's name as the tz database writes it, or the offset.
    pub fn zone(&self) -> &str {
        self.cron.zone()
    }

    /// `true` if a zone was named, by the text or with [`in_zone`](Self::in_zone).
    pub fn names_zone(&self) -> bool {
        self.cron.names_zone()
    }
}

impl fmt::Display for Quartz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@quartz {}", self.fields)?;
        if self.names_zone() {
            write!(f, " {}", self.zone())?;
        }
        self.cron.fmt_dst(f)
    }
}

impl FromStr for Quartz {
    type Err = ParseError;

    /// Reads the expression, with or without the `@quartz` that [`Display`](fmt::Display) writes.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let trimmed = text.trim_ascii_start();
        let rest = match trimmed.get(..7) {
            Some(word) if word.eq_ignore_ascii_case("@quartz") => &trimmed[7..],
            _ => trimmed,
        };
        Self::parse(rest).map_err(|error| error.shifted(text.len() - rest.len()))
    }
}

/// Equal times in the same zone under the same policy, however they were written.
impl PartialEq for Quartz {
    fn eq(&self, other: &Self) -> bool {
        self.cron == other.cron
    }
}

impl Eq for Quartz {}

impl Schedule for Quartz {
    fn next_at(&self, after: Time) -> Option<Time> {
        self.cron.next_at(after)
    }

    fn latest_at(&self, from: Time, until: Time) -> Option<Time> {
        self.cron.latest_at(from, until)
    }

    fn count(&self, from: Time, until: Time) -> Option<u64> {
        self.cron.count(from, until)
    }

    fn definition(&self) -> Option<String> {
        Some(self.to_string())
    }

    fn is_built_in(&self, _: crate::schedule::Token) -> bool {
        true
    }

    fn describe(&self) -> Option<String> {
        self.cron.describe()
    }

    fn warnings(&self) -> &[Warning] {
        self.cron.warnings()
    }

    fn wall_clock(&self) -> Option<&str> {
        Some(self.zone())
    }

    fn notes(&self, after: Time, until: Time) -> Vec<Note> {
        self.cron.notes(after, until)
    }
}
