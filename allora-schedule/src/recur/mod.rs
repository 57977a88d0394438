//! Recurrence rules as in iCalendar (RFC 5545), and intervals by the calendar.
//!
//! The crate `rrule` was tried first. It begins each search at the start of the rule, so the next time
//! of a rule that is ten years old takes it a thousand times longer; it reads zones from a tz database
//! of its own, which may differ from the one of cron expressions; and it moves a time that the clocks
//! skip by an hour, where cron expressions have it at the end of the gap.

mod describe;
mod iso;
mod parse;
mod rule;
mod spec;

pub(crate) use iso::{is_iso, lacking, split_zone};
pub(crate) use parse::{is_property, is_recurrence, local, ordered};
pub(crate) use spec::{Freq, Spec, Stamp};

use crate::{
    Field, Note, ParseError, Schedule, Time, Warning,
    cron::{
        END,
        civil::DAY,
        dst,
        notes::{Changes, ELAPSED, FIXED, shown},
    },
    schedule::{latest, words},
    zone::Zone,
};
use chrono::DateTime;
use rule::Rule;
use std::{fmt, str::FromStr, sync::Arc};

/// A schedule by a recurrence rule of RFC 5545, or by an interval of the calendar.
///
/// ```
/// use allora::schedule::{Recurrence, Schedule};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rule: Recurrence = "DTSTART;TZID=Europe/Rome:20260302T090000 \
///                         RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE".parse()?;
/// let thursday = "2026-03-05T12:00:00Z".parse()?;
/// assert_eq!(rule.next_at(thursday), Some("2026-03-16T08:00:00Z".parse()?));
///
/// let hourly: Recurrence = "R5/2026-03-02T09:00:00Z/PT1H".parse()?;
/// assert_eq!(hourly.next_at(thursday), None);
/// # Ok(())
/// # }
/// ```
///
/// # Text
/// The lines of iCalendar, separated by blanks or line feeds, perhaps after `@rrule`:
///
/// | line | meaning |
/// |---|---|
/// | `DTSTART;TZID=Europe/Rome:20260302T090000` | the start, from which intervals count; `…Z` is in UTC; with neither, the zone is given separately, as for cron. Required |
/// | `RRULE:FREQ=MONTHLY;BYMONTHDAY=-1` | the rule: all parts of RFC 5545. Required |
/// | `EXDATE;TZID=Europe/Rome:20260316T090000,…` | occurrences to leave out; up to 64 |
/// | `RDATE:20260310T080000Z,…` | further occurrences; up to 64 |
///
/// Or a repeating interval of ISO 8601: `R5/2026-03-02T09:00:00Z/PT1H` has five occurrences, `R/…` has
/// no end. Hours, minutes and seconds of its duration are elapsed time; days, weeks, months and years
/// are those of the calendar, in the zone that may follow.
///
/// Anything that programs read differently is rejected: `BYWEEKNO` without `BYDAY`, or a local `UNTIL`
/// in a zone. `COUNT` may be up to 100,000, `INTERVAL` up to 1,000,000.
///
/// # The start
/// The first occurrence is the first time of the rule at or after the start. If the start is no time of
/// the rule, RFC 5545 leaves the result open; it is then no occurrence, and there is a warning.
///
/// # Changes of the clock
/// As for [`Cron`](crate::Cron). From `DAILY` up, a time that the clocks skip runs at the first instant
/// after the gap (RFC 5545: as much later as the gap is long), and one that is repeated runs the first
/// time. `HOURLY`, `MINUTELY` and `SECONDLY` follow elapsed time: nothing in the gap, both passes of
/// the hour that is repeated. `COUNT` counts the times of the wall clock.
#[derive(Clone)]
pub struct Recurrence {
    /// The wall second of the start.
    start: i64,
    zone: Arc<Zone>,
    names_zone: bool,
    spec: Spec,
    rule: Rule,
    /// Further occurrences, and those to leave out.
    more: Dates,
    except: Dates,
    /// The last second at which the rule may match.
    end: i64,
    warnings: Vec<Warning>,
}

/// Dates of a list.
#[derive(Clone, Default)]
struct Dates {
    written: Vec<Stamp>,
    /// The same as UTC seconds, sorted.
    seconds: Vec<i64>,
}

impl Dates {
    fn new(written: Vec<Stamp>, zone: &Zone) -> Self {
        let second = |stamp: &Stamp| match stamp {
            Stamp::Utc(second) => *second,
            Stamp::Wall(wall) => first_shown(zone, *wall),
        };
        let mut seconds: Vec<i64> = written.iter().map(second).collect();
        seconds.sort_unstable();
        Self { written, seconds }
    }
}

/// The first second at which the clock of a zone shows a wall time or a later one.
fn first_shown(zone: &Zone, wall: i64) -> i64 {
    let next = |from: i64| (from <= wall).then_some(wall);
    dst::next(next, zone, true, wall - 2 * DAY, ROUNDS).unwrap_or(END)
}

/// The cycles of 400 years up to the year 9999.
const ROUNDS: u32 = 22;

impl Recurrence {
    /// Reads lines of iCalendar, or a repeating interval of ISO 8601.
    ///
    /// # Errors
    /// Whatever has no single meaning, at its place; also rules without an occurrence.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut words = words(text);
        let mut first = words.next();
        if first.is_some_and(|(_, word)| word.eq_ignore_ascii_case("@rrule")) {
            first = words.next();
        }
        let at = first.map_or(text.len(), |(at, _)| at);
        let read = if is_iso(&text[at..]) { iso::parse } else { parse::parse };
        read(&text[at..]).map_err(|error| error.shifted(at))
    }

    /// A rule that begins at this wall second of a zone. Without a zone, a program may apply its
    /// user's default.
    pub(crate) fn new(
        spec: Spec,
        start: i64,
        zone: Option<Arc<Zone>>,
        [more, except]: [Vec<Stamp>; 2],
    ) -> Result<Self, ParseError> {
        let rule = Rule::new(&spec, start);
        let names_zone = zone.is_some();
        let zone = zone.unwrap_or_else(Zone::utc);
        let end = match spec.until {
            Some(Stamp::Utc(until)) => until,
            Some(Stamp::Wall(_)) | None => END,
        };
        let (more, except) = (Dates::new(more, &zone), Dates::new(except, &zone));
        let mut warnings = Vec::new();
        if rule.next(start) != Some(start) {
            let message = format!(
                "the start {} is no time of the rule, about which RFC 5545 says nothing: it is left out, \
                 and the first run is at the first time of the rule after it",
                shown(start)
            );
            warnings.push(Warning::new("start-outside-rule", message));
        }
        let new = Self { start, zone, names_zone, spec, rule, more, except, end, warnings };
        match new.after(-1) {
            Some(_) => Ok(new),
            None => {
                let rule = new.spec.to_string();
                let error = ParseError::new(Field::Text, 0, &rule, "has no occurrence");
                Err(error.remedy("check its BY parts, its end and EXDATE"))
            }
        }
    }

    /// The first day from `day` (since 1970) on with which a rule can begin, so that nothing of its
    /// first week or month lies before.
    pub(crate) fn first_day(spec: &Spec, day: i64) -> Option<i64> {
        Rule::first_day(spec, day)
    }

    /// The same times of the wall clock in another zone, as [`Cron::in_zone`](crate::Cron::in_zone).
    ///
    /// # Errors
    /// As there.
    pub fn in_zone(mut self, name: &str) -> Result<Self, ParseError> {
        self.zone = Zone::named(name, 0)?;
        self.names_zone = true;
        let dates = |dates: Dates| Dates::new(dates.written, &self.zone);
        (self.more, self.except) = (dates(self.more), dates(self.except));
        Ok(self)
    }

    /// The zone's name as the tz database writes it, or the offset.
    pub fn zone(&self) -> &str {
        self.zone.name()
    }

    /// `true` if a zone was named, by the text or with [`in_zone`](Self::in_zone).
    pub fn names_zone(&self) -> bool {
        self.names_zone
    }

    /// The first occurrence.
    pub fn first(&self) -> Option<Time> {
        DateTime::from_timestamp(self.after(-1)?, 0)
    }

    /// `true` if a local time runs when the clock first shows it or a later one.
    fn once(&self) -> bool {
        self.spec.freq <= Freq::Daily
    }

    /// The first second after this one.
    fn after(&self, second: i64) -> Option<i64> {
        let mut second = second.max(-1);
        loop {
            let from = second.checked_add(1).filter(|from| *from <= END)?;
            let next_wall = |wall| self.rule.next(wall);
            let by_rule = dst::next(next_wall, &self.zone, self.once(), from, ROUNDS);
            let by_rule = by_rule.filter(|next| *next <= self.end);
            let more = &self.more.seconds;
            let more = more.get(more.partition_point(|at| *at < from)).copied();
            let next = by_rule.into_iter().chain(more).min().filter(|next| *next <= END)?;
            if self.except.seconds.binary_search(&next).is_err() {
                return Some(next);
            }
            second = next;
        }
    }
}

/// The most occurrences that are counted one by one.
const MOST_COUNTED: u64 = 10_000;

impl Schedule for Recurrence {
    fn next_at(&self, after: Time) -> Option<Time> {
        DateTime::from_timestamp(self.after(after.timestamp())?, 0)
    }

    fn latest_at(&self, from: Time, until: Time) -> Option<Time> {
        latest(from, until, |second| self.after(second))
    }

    fn count(&self, from: Time, until: Time) -> Option<u64> {
        let mut at = from.timestamp();
        for count in 0..MOST_COUNTED {
            match self.after(at).filter(|next| *next <= until.timestamp()) {
                Some(next) => at = next,
                None => return Some(count),
            }
        }
        None
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
        let changes = Changes {
            zone: &self.zone,
            once: self.once(),
            policy: if self.once() { FIXED } else { ELAPSED },
            end: self.end,
            next_wall: &|wall| self.rule.next(wall),
        };
        changes.notes(after, until)
    }
}

/// Equal times in the same zone, however they were written.
impl PartialEq for Recurrence {
    fn eq(&self, other: &Self) -> bool {
        let parts = |it: &Self| (it.start, it.spec.clone(), it.zone.name().to_owned());
        parts(self) == parts(other)
            && self.more.written == other.more.written
            && self.except.written == other.except.written
    }
}

impl Eq for Recurrence {}

/// The canonical text, which [`Recurrence::parse`] reads back.
impl fmt::Display for Recurrence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_utc = self.zone() == "UTC";
        let zone = if is_utc { String::new() } else { format!(";TZID={}", self.zone()) };
        let stamp = |wall| if is_utc { Stamp::Utc(wall) } else { Stamp::Wall(wall) };
        write!(f, "@rrule DTSTART{zone}:{} RRULE:{}", stamp(self.start), self.spec)?;
        for (name, dates) in [("RDATE", &self.more.written), ("EXDATE", &self.except.written)] {
            let (local, utc): (Vec<Stamp>, Vec<Stamp>) =
                dates.iter().partition(|date| matches!(date, Stamp::Wall(_)));
            for (zone, dates) in [(&*zone, local), ("", utc)] {
                if !dates.is_empty() {
                    let dates: Vec<String> = dates.iter().map(Stamp::to_string).collect();
                    write!(f, " {name}{zone}:{}", dates.join(","))?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Recurrence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recurrence({self})")
    }
}

impl FromStr for Recurrence {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::parse(text)
    }
}
