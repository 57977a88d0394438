//! Cron expressions: Debian's dialect and rules, and the notations of other crons that have only
//! one meaning.

pub(crate) mod civil;
mod count;
mod describe;
pub(crate) mod dst;
mod field;
mod fields;
mod next;
pub(crate) mod notes;
mod parse;
mod quartz;
mod render;
pub(crate) mod times;
mod warning;
mod warnings;
mod years;

pub use dst::Dst;
pub use quartz::Quartz;
pub use warning::Warning;

use crate::{Note, ParseError, Schedule, Time, schedule::latest, zone::Zone};
use chrono::DateTime;
use fields::Fields;
use std::{fmt, str::FromStr, sync::Arc};

/// Reads a cron expression: short for [`Cron::parse`].
///
/// ```
/// use allora::{Schedule, cron};
///
/// let weekdays_at_nine = cron("0 9 * * MON-FRI Europe/Rome")?;
/// let friday = "2026-03-27T12:00:00Z".parse().unwrap();
/// // The clocks in Rome are set forward on the Sunday in between.
/// assert_eq!(weekdays_at_nine.next_at(friday).unwrap().to_string(), "2026-03-30 07:00:00 UTC");
/// # Ok::<(), allora::schedule::ParseError>(())
/// ```
///
/// # Errors
/// As [`Cron::parse`].
pub fn cron(text: &str) -> Result<Cron, ParseError> {
    Cron::parse(text)
}

/// A schedule by the calendar and the wall clock of a zone.
///
/// Five fields (minute, hour, day of month, month, weekday), or six with seconds first. A zone or
/// an offset such as `+02:00` may follow. Default: UTC.
///
/// | write | where | meaning |
/// |---|---|---|
/// | `*` `5` `1,15` `9-17` | anywhere | every value, one, a list, a range |
/// | `*/15` `10-50/20` `5/15` | anywhere | every 15th value; every 20th of a range; every 15th from 5 on |
/// | `22-6` `FRI-MON` `NOV-FEB` | hour, weekday, month | a range past the end continues at the beginning |
/// | `JAN` `MON` | month, weekday | names, in any case; 0 and 7 are Sunday |
/// | `L` `L-3` `LW` `15W` | day of month | last day, third before it, last workday, workday nearest to the 15th |
/// | `5L` `MONL` `MON#2` | weekday | last Friday, last Monday, second Monday |
/// | `?` | day fields | `*` |
/// | `H` `H/15` `H(0-29)` | anywhere, with [`Cron::for_job`] | a value that follows from the job's name |
/// | `@hourly` … `@yearly` | instead of the fields | `@daily` and `@midnight` are `0 0 * * *`, `@noon` is `0 12 * * *` |
///
/// # Two day fields
/// As in Debian's cron a day matches if *either* day field does: `0 0 13 * FRI` is each 13th and
/// each Friday. Only if one of them starts with `*` (or is `?`) must both match.
///
/// # Changes of the clock
/// See [`Dst`]. `next_at` always terminates: `parse` rejects a date that never comes.
///
/// ```
/// use allora::schedule::{Cron, Schedule};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let leap_days_that_are_sundays = Cron::parse("0 0 29 2 */7")?;
/// let after = "2090-01-01T00:00:00Z".parse()?;
/// let next = leap_days_that_are_sundays.next_at(after).ok_or("never")?;
/// assert_eq!(next.to_rfc3339(), "2128-02-29T00:00:00+00:00");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Cron {
    fields: Fields,
    zone: Arc<Zone>,
    names_zone: bool,
    dst: Dst,
    warnings: Vec<Warning>,
}

impl Cron {
    /// Reads an expression; its zone is UTC unless the last word names one.
    ///
    /// The cost is bounded: at most 1024 bytes are read, and that a matching date exists is proved
    /// by the fourteen kinds of year, not by searching for one.
    ///
    /// # Errors
    /// Whatever has no single meaning, at its place; also dates that never come (30 February).
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Self::from_parsed(parse::parse(text, None)?)
    }

    /// Reads an expression that may hold `H`: a value that follows from the job's name, so that
    /// many jobs spread over the hour or the day, and each always has its own time.
    ///
    /// `H` is any value of the field (days 1 to 28), `H(0-29)` one of a range, `H/15` every 15
    /// from such a start. The value never changes between versions of this library.
    ///
    /// ```
    /// # use allora::schedule::Cron;
    /// let nightly = Cron::for_job("invoices", "H H(1-4) * * *")?;
    /// assert_eq!(nightly, Cron::for_job("invoices", "H H(1-4) * * *")?);
    /// # Ok::<(), allora::schedule::ParseError>(())
    /// ```
    ///
    /// # Errors
    /// As [`Cron::parse`].
    pub fn for_job(name: &str, text: &str) -> Result<Self, ParseError> {
        Self::from_parsed(parse::parse(text, Some(name))?)
    }

    /// Reads an expression of the Quartz dialect: seconds first, an optional year, weekdays from
    /// 1 = Sunday, both day fields must match. A zone may be the last word; without it: UTC.
    ///
    /// # Errors
    /// As [`Cron::parse`]; also years outside 1970 to 2199.
    pub fn quartz(text: &str) -> Result<Quartz, ParseError> {
        Quartz::parse(text)
    }

    fn from_parsed(parsed: parse::Parsed) -> Result<Self, ParseError> {
        let parse::Parsed { fields, zone, dst, warnings } = parsed;
        let names_zone = zone.is_some();
        let zone = zone.unwrap_or_else(Zone::utc);
        Ok(Self { fields, zone, names_zone, dst, warnings })
    }

    /// The same times in another zone: an IANA name (any case), `UTC`, or an offset `+02:00`.
    /// Replaces the zone that the text named.
    ///
    /// # Errors
    /// Names that the tz database does not have, or that differ from host to host.
    pub fn in_zone(mut self, name: &str) -> Result<Self, ParseError> {
        self.zone = Zone::named(name, 0)?;
        self.names_zone = true;
        Ok(self)
    }

    /// Sets the policy for local times that are skipped or repeated.
    #[must_use]
    pub fn dst(mut self, policy: Dst) -> Self {
        self.dst = policy;
        self
    }

    /// The zone's name as the tz database writes it, or the offset.
    pub fn zone(&self) -> &str {
        self.zone.name()
    }

    /// `true` if a zone was named, by the text or with [`in_zone`](Cron::in_zone). Otherwise a
    /// program may apply its user's default.
    pub fn names_zone(&self) -> bool {
        self.names_zone
    }

    /// Warnings about legal text that is seldom intended, such as sixty runs for `* 2 * * *`. The
    /// scheduler logs them when a job is added.
    ///
    /// ```
    /// use allora::cron;
    ///
    /// let warned = cron("* 2 * * *")?;
    /// assert_eq!(warned.warnings()[0].code, "every-minute");
    /// # Ok::<(), allora::schedule::ParseError>(())
    /// ```
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// `true` if a local time runs when the clock first shows it or a later one: Debian's rule for
    /// fixed times.
    fn once(&self) -> bool {
        self.dst == Dst::Debian && !self.fields.is_wildcard()
    }

    /// Writes the policy for changes of the clock, unless it is the default.
    fn fmt_dst(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.dst {
            Dst::Debian => Ok(()),
            Dst::Literal => f.write_str(" dst=literal"),
        }
    }

    /// The first second after this one.
    fn after(&self, second: i64) -> Option<i64> {
        let from = second.checked_add(1).filter(|from| *from <= END)?;
        // Years are not the same in each cycle.
        if from > self.fields.end() {
            return None;
        }
        let next_wall = |wall| self.fields.next(wall);
        dst::next(next_wall, &self.zone, self.once(), from, ROUNDS).filter(|next| *next <= END)
    }
}

/// Up to the end of the table, then a whole cycle, and one more for what lies across their border: what
/// is absent from these is absent forever.
const ROUNDS: u32 = 3;

/// 9999-12-31T23:59:59Z.
pub(crate) const END: i64 = 253_402_300_799;

impl Schedule for Cron {
    fn next_at(&self, after: Time) -> Option<Time> {
        DateTime::from_timestamp(self.after(after.timestamp())?, 0)
    }

    fn latest_at(&self, from: Time, until: Time) -> Option<Time> {
        latest(from, until, |second| self.after(second))
    }

    fn count(&self, from: Time, until: Time) -> Option<u64> {
        let (from, until) = (from.timestamp() + 1, until.timestamp().min(END) + 1);
        Some(count::count(&self.fields, &self.zone, self.once(), from, until))
    }

    fn definition(&self) -> Option<String> {
        Some(self.to_string())
    }

    fn is_built_in(&self, _: crate::schedule::Token) -> bool {
        true
    }

    fn describe(&self) -> Option<String> {
        Some(describe::describe(self))
    }

    fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    fn wall_clock(&self) -> Option<&str> {
        Some(self.zone())
    }

    fn notes(&self, after: Time, until: Time) -> Vec<Note> {
        let policy = match self.dst {
            Dst::Debian if self.fields.is_wildcard() => notes::ELAPSED,
            Dst::Debian => notes::FIXED,
            Dst::Literal => "the schedule follows the wall clock",
        };
        let changes = notes::Changes {
            zone: &self.zone,
            once: self.once(),
            policy,
            end: self.fields.end(),
            next_wall: &|wall| self.fields.next(wall),
        };
        changes.notes(after, until)
    }
}

/// Equal times in the same zone under the same policy, however they were written.
impl PartialEq for Cron {
    fn eq(&self, other: &Self) -> bool {
        self.dst == other.dst && self.fields == other.fields && self.zone() == other.zone()
    }
}

impl Eq for Cron {}

/// The canonical text: equal for equal schedules, and read back by [`Cron::parse`].
impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", render::Canonical(&self.fields), self.zone())?;
        self.fmt_dst(f)
    }
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cron({self})")
    }
}

impl FromStr for Cron {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::parse(text)
    }
}
