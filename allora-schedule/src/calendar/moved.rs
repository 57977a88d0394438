//! Occurrences that move to another day instead of being left out: business days.
//!
//! Only the due time of an occurrence moves. Its scheduled time stays, because that identifies it, and
//! must not follow from a calendar that may change: the occurrence of Saturday the 1st, which ran on
//! Monday the 3rd, would otherwise run again when that Monday becomes a holiday.

use super::{Filtered, MILLISECOND, wrong::wrong};
use crate::{ParseError, Schedule, Sun, Time, at::shown, english::ordinal, time::from_millis};
use chrono::Datelike;
use std::fmt;

/// The direction in which an occurrence looks for a day that nothing excludes, and how far: the
/// argument of [`Filtered::moved`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Move {
    is_back: bool,
    nth: u32,
    in_month: bool,
    each: bool,
}

/// The largest number of days by which an occurrence moves.
const MOST_DAYS: i64 = 62;

/// The most occurrences on one day that may move: the first one of a job is searched day by day.
const MOST_A_DAY: usize = 24;

/// The largest number of allowed days that are counted: no month has more business days.
const MOST_NTH: u32 = 23;

impl Move {
    /// To the first allowed day, from its own day on.
    pub fn next() -> Self {
        Self { is_back: false, nth: 1, in_month: false, each: false }
    }

    /// To the last allowed day, its own day included.
    pub fn previous() -> Self {
        Self { is_back: true, ..Self::next() }
    }

    /// To the n-th allowed day, its own day included: `Move::next().nth(3)` of the 1st of a month is
    /// the third business day. Default: 1. Range: 1 to 23.
    #[must_use]
    pub fn nth(self, nth: u32) -> Self {
        Self { nth, ..self }
    }

    /// Not into another month: an occurrence whose month has no such day is left out.
    #[must_use]
    pub fn in_month(self) -> Self {
        Self { in_month: true, ..self }
    }

    /// Keeps each of several occurrences that are moved to one instant. They run one after the other,
    /// or at the same time, as the overlap policy says. Default: one of them runs, whose own day is the
    /// nearest, and the others are left out.
    #[must_use]
    pub fn each(self) -> Self {
        Self { each: true, ..self }
    }

    fn describe(self) -> String {
        let nth = match self.nth {
            1 => String::new(),
            nth => format!("{} ", ordinal(nth)),
        };
        let direction = if self.is_back { "previous" } else { "next" };
        let month = if self.in_month { " of the month" } else { "" };
        format!("the {nth}{direction} day{month} that is allowed")
    }
}

/// The text that a schedule has after its rules.
impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "move {}", if self.is_back { "previous" } else { "next" })?;
        if self.nth != 1 {
            write!(f, " {}", self.nth)?;
        }
        f.write_str(if self.in_month { " in-month" } else { "" })?;
        f.write_str(if self.each { " each" } else { "" })
    }
}

/// Reads the words after `move`, which begins at this byte.
pub(super) fn parse(at: usize, words: &[(usize, &str)]) -> Result<Move, ParseError> {
    let mut moving = match words.first() {
        Some((_, "next")) => Move::next(),
        Some((_, "previous")) => Move::previous(),
        other => {
            let (at, word) = other.copied().unwrap_or((at, "move"));
            return Err(wrong(
                at,
                word,
                "names no direction",
                "write `move next` or `move previous`",
            ));
        }
    };
    for (at, word) in &words[1..] {
        match *word {
            "in-month" if !moving.in_month => moving.in_month = true,
            "each" if !moving.each => moving.each = true,
            nth => match nth.parse() {
                Ok(nth @ 2..=MOST_NTH) if moving == Move { nth: 1, ..moving } => moving.nth = nth,
                _ => {
                    let remedy = "write a number from 2 to 23, `in-month` or `each`, each once";
                    return Err(wrong(*at, word, "is nothing that `move` has", remedy));
                }
            },
        }
    }
    Ok(moving)
}

/// The fate of an occurrence.
pub(super) enum Fate {
    /// It runs at this instant.
    At(Time),
    /// Another occurrence runs at this instant.
    With(Time),
    /// No day is allowed.
    Nowhere,
}

impl<S: Schedule> Filtered<S> {
    /// The schedule, whose occurrences [move](Move) to another day where a rule excludes them, instead of
    /// being left out. They keep their time of day in the zone of the schedule, or UTC if that follows
    /// no wall clock. It is about all rules, so it comes last: before it, write what is excluded. A
    /// schedule with more than 24 occurrences on one day cannot move.
    ///
    /// The *scheduled time* of an occurrence stays the one that the schedule names, and it is *due* at
    /// the moved time. It moves by up to 62 days; if no day is allowed, it is left out.
    ///
    /// ```
    /// use allora::schedule::{Dates, Move, Schedule, Weekdays, cron};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let payday = cron("0 9 1 * * Europe/Rome")?
    ///     .except(Weekdays::weekend())
    ///     .except(Dates::parse("2026-11-02")?)
    ///     .moved(Move::next());
    /// // The 1st is a Sunday, and the Monday a holiday.
    /// let scheduled_at = payday.next_at("2026-10-15T00:00:00Z".parse()?).ok_or("never")?;
    /// assert_eq!(scheduled_at.to_string(), "2026-11-01 08:00:00 UTC");
    /// assert_eq!(Schedule::moved(&payday, scheduled_at), Some("2026-11-03T08:00:00Z".parse()?));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn moved(mut self, moving: Move) -> Self {
        self.moving = Some(moving);
        self
    }

    /// The fate of an occurrence of the schedule, if occurrences move.
    pub(super) fn fate(&self, at: Time) -> Option<Fate> {
        let moving = self.moving?;
        let Some(to) = self.target(moving, at) else { return Some(Fate::Nowhere) };
        // Of those that are moved to one instant, the one runs that is nearest to it.
        let step = if moving.is_back { -1 } else { 1 };
        let is_between = |other: Time| if moving.is_back { other >= to } else { other <= to };
        let nearer = (1..=MOST_DAYS)
            .map_while(|days| self.clock.days_from(at, step * days).filter(|at| is_between(*at)))
            .find(|other| self.inner_next(*other - MILLISECOND) == Some(*other))
            .filter(|_| !moving.each && to != at);
        match nearer.and_then(|nearer| self.target(moving, nearer)) {
            Some(same) if same == to => Some(Fate::With(to)),
            _ => Some(Fate::At(to)),
        }
    }

    /// The instant to which an occurrence moves, its own if that is allowed.
    fn target(&self, moving: Move, at: Time) -> Option<Time> {
        let month = |at: Time| self.clock.date(at).map(|date| (date.year(), date.month()));
        let step = if moving.is_back { -1 } else { 1 };
        let days = (0..=MOST_DAYS).map_while(|days| match days {
            0 => Some(at),
            days => from_millis(self.clock.days_from(at, step * days)?.timestamp_millis()),
        });
        let days = days.take_while(|day| !moving.in_month || month(*day) == month(at));
        let mut allowed = days
            .filter(|day| self.rules.iter().all(|rule| rule.excludes(*day, &self.clock).is_none()));
        allowed.nth(moving.nth.saturating_sub(1) as usize)
    }

    /// The reason why an occurrence is left out, although occurrences move.
    pub(super) fn reason_to_leave_out(&self, at: Time) -> Option<String> {
        match self.fate(at)? {
            Fate::With(to) => Some(format!("another occurrence runs at {}", shown(to))),
            Fate::Nowhere if self.moving?.in_month => {
                Some("no such day of the month is allowed".into())
            }
            Fate::Nowhere => Some(format!("no day is allowed within {MOST_DAYS} days")),
            Fate::At(_) => None,
        }
    }

    /// That an occurrence is moved, and why.
    pub(super) fn move_of(&self, at: Time) -> Option<String> {
        let moving = self.moving?;
        let Fate::At(to) = self.fate(at)? else { return None };
        let excluded = self.rules.iter().find(|rule| rule.excludes(at, &self.clock).is_some());
        let why = excluded.map(|rule| format!(": {}", rule.reason(at, at, &self.clock)));
        let why = why.unwrap_or_default();
        let message =
            format!("{} is moved to {}, {}{why}", shown(at), shown(to), moving.describe());
        (to != at).then_some(message)
    }

    /// The error of a move that means nothing.
    pub(super) fn check_move(&self) -> Result<(), String> {
        let Some(moving) = self.moving else { return Ok(()) };
        if self.rules.is_empty() {
            return Err(
                "nothing excludes an occurrence that could move; write what is excluded before \
                        `move`, such as `except SAT SUN`"
                    .into(),
            );
        }
        if !(1..=MOST_NTH).contains(&moving.nth) {
            return Err(format!(
                "the {}. allowed day is out of range; use 1 to {MOST_NTH}",
                moving.nth
            ));
        }
        let text = self.schedule.definition().unwrap_or_default();
        let is_of_the_sun = text.split(' ').next().is_some_and(Sun::begins);
        if text.starts_with("@every") || is_of_the_sun {
            return Err(
                "without a time of day it cannot move to another day; use a cron expression, or leave \
                        `move` away"
                    .into(),
            );
        }
        if self.schedule.moved(Time::UNIX_EPOCH).is_some() {
            return Err("it moves twice; write all rules before one `move`".into());
        }
        let times = crate::next_n(&self.schedule, Time::UNIX_EPOCH, 400);
        let day = |at: &Time| self.clock.date(*at);
        let has_more = |most: usize| {
            let mut days = times.windows(most + 1);
            days.any(|some| some.first().map(day) == some.last().map(day))
        };
        if has_more(MOST_A_DAY) {
            return Err(format!(
                "more than {MOST_A_DAY} times on one day cannot move to another day; leave `move` away, or \
                 let it run less often"
            ));
        }
        if moving.each && has_more(1) {
            return Err(
                "several times on one day cannot each be kept, as they would overtake each other; \
                        leave `each` away"
                    .into(),
            );
        }
        Ok(())
    }

    /// ``, or the words after the description of the rules.
    pub(super) fn described_move(&self) -> String {
        let Some(moving) = self.moving else { return String::new() };
        let each = if moving.each { ", each of them" } else { "" };
        match moving.nth {
            1 => format!(", otherwise on {}{each}", moving.describe()),
            _ => format!(", moved to {}{each}", moving.describe()),
        }
    }
}
