//! Schedules without the occurrences that a calendar excludes: dates, hours, blackout periods, or
//! the times of another schedule.
//!
//! A calendar filters occurrences, and keeps the chain. A period counts from its last occurrence, so
//! a jump behind an exclusion would move all later ones. Instead the search asks the schedule for
//! the last occurrence within the excluded stretch, and for the next one after it: years of
//! exclusion cost one step.

mod moved;
mod named;
mod rule;
mod text;
mod wrong;

pub use moved::Move;
pub use named::Calendar;
pub(crate) use rule::Rule;
pub use rule::{Dates, Exclusion, Weekdays};
pub(crate) use text::{RULES, Rules};

use crate::{
    AnySchedule, Field, Note, NoteReason, ParseError, Schedule, ScheduleError, Time, Warning,
    at::shown, time::whole_millis, zone::Zone,
};
use chrono::TimeDelta;
use moved::Fate;
use rule::{Clock, Stretch};
use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

/// A schedule without what is excluded; made by [`Schedule::except`], [`Schedule::only_within`]
/// and [`Schedule::blackout`].
///
/// An excluded occurrence is left out: the next one is the first that nothing excludes.
/// [`explain`](crate::explain()) shows what is left out, and why. A scheduler with a history records it
/// as one range, skipped with the reason `calendar`, when the run before it has ended. After 100,000
/// excluded stretches in a row, the schedule counts as ended.
///
/// Its text is that of the schedule and one part for each rule:
///
/// | part | leaves out |
/// |---|---|
/// | `except 2026-12-25 2026-12-26` | occurrences of these dates; up to 64 |
/// | `except SAT SUN`, `except weekends` | occurrences of these days of the week |
/// | `except 0 9 1 1 *` | occurrences at an instant of this schedule |
/// | `except calendar:holidays-de` | occurrences that the [`Calendar`] of this name excludes |
/// | `only-within 9:00-17:30` | occurrences before 9:00 and from 17:30 on |
/// | `blackout 2026-12-20T00:00:00Z/2027-01-07T00:00:00Z` | occurrences from the first instant until before the second |
///
/// With `move next` or `move previous` behind them, what they exclude [moves](Self::moved) to another day
/// instead. A number, `in-month` and `each` may follow, as in `move next 3 in-month`: see [`Move`].
///
/// A named calendar has no rules until [`AnySchedule::with_calendars`] gives it to the schedule.
/// Without them, the schedule has no occurrence, and [`check`](Schedule::check) rejects it.
///
/// Dates and hours are in the schedule's zone, or in UTC if it follows no wall clock. A zone after
/// them applies to them alone.
///
/// ```
/// use allora::schedule::{Dates, Schedule, cron, parse};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let office = cron("0 9 * * MON-FRI Europe/Rome")?.except(Dates::parse("2026-12-25")?);
/// let thursday = "2026-12-24T12:00:00Z".parse()?;
/// let monday = office.next_at(thursday).ok_or("never")?;
/// assert_eq!(monday.to_string(), "2026-12-28 08:00:00 UTC");
///
/// let text = office.definition().ok_or("no text")?;
/// assert_eq!(text, "0 9 * * 1-5 Europe/Rome; except 2026-12-25");
/// assert_eq!(parse(&text)?.next_at(thursday), Some(monday));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filtered<S> {
    schedule: S,
    rules: Vec<Rule>,
    /// The move of what is excluded.
    moving: Option<Move>,
    /// The clock of rules without a zone.
    clock: Clock,
}

/// The most stretches in a row that a search passes over.
const MOST_STRETCHES: usize = 100_000;

/// The most steps of one search.
const MOST_STEPS: usize = 10_000;

/// The most notes about one range.
const MOST_NOTES: usize = 100;

const MILLISECOND: TimeDelta = TimeDelta::milliseconds(1);

impl<S: Schedule> Filtered<S> {
    pub(crate) fn new(schedule: S, rules: Vec<Rule>) -> Self {
        let zone = schedule.wall_clock().and_then(|zone| Zone::named(zone, 0).ok());
        let clock = Clock(zone.unwrap_or_else(Zone::utc));
        Self { schedule, rules, moving: None, clock }
    }

    /// With more rules, and another move if there is one.
    pub(crate) fn with(mut self, rules: Vec<Rule>, moving: Option<Move>) -> Self {
        self.rules.extend(rules);
        self.moving = moving.or(self.moving);
        self
    }

    /// The same rules for the same schedule as another type.
    pub(crate) fn map<T>(self, map: impl FnOnce(S) -> T) -> Filtered<T> {
        let Self { schedule, rules, moving, clock } = self;
        Filtered { schedule: map(schedule), rules, moving, clock }
    }

    /// As [`Schedule::except`]: one rule more.
    #[must_use]
    pub fn except(mut self, excluded: impl Into<Exclusion>) -> Self {
        self.rules.push(excluded.into().rule());
        self
    }

    /// As [`Schedule::only_within`]: one rule more.
    ///
    /// # Errors
    /// Hours in another notation, and unknown zones.
    pub fn only_within(mut self, hours: &str, zone: &str) -> Result<Self, ParseError> {
        self.rules.push(Rule::hours(hours, zone)?);
        Ok(self)
    }

    /// As [`Schedule::blackout`]: one rule more.
    #[must_use]
    pub fn blackout(mut self, from: Time, until: Time) -> Self {
        self.rules.push(Rule::Blackout(whole_millis(from), whole_millis(until)));
        self
    }

    /// The schedule without the calendar.
    pub fn schedule(&self) -> &S {
        &self.schedule
    }

    /// The rule that leaves out an occurrence, and the stretch around it that is left out with it.
    fn excluded_by(&self, at: Time) -> Option<(usize, Stretch)> {
        let alone = Stretch { since: at, until: at + MILLISECOND };
        match self.fate(at) {
            Some(Fate::At(_)) => return None,
            Some(Fate::With(_)) => return Some((0, alone)),
            Some(Fate::Nowhere) => return Some((1, alone)),
            None => {}
        }
        let mut rules = self.rules.iter().enumerate();
        rules.find_map(|(index, rule)| Some((index, rule.excludes(at, &self.clock)?)))
    }

    /// The last occurrence of the schedule from `at` on that the stretch excludes.
    fn last_of(&self, at: Time, stretch: &Stretch) -> Time {
        let until = stretch.until - MILLISECOND;
        let last = (until > at).then(|| self.schedule.latest_at(at, until)).flatten();
        last.filter(|last| (at..=until).contains(last)).unwrap_or(at)
    }

    /// `true` if a named calendar is not known yet.
    fn lacks_calendar(&self) -> bool {
        let lacks = |rule: &Rule| matches!(rule, Rule::Named(named) if named.calendar.is_none());
        self.rules.iter().any(lacks)
    }

    fn inner_next(&self, after: Time) -> Option<Time> {
        self.schedule.next_at(after).map(whole_millis).filter(|next| *next > after)
    }

    /// The excluded occurrences after `after` and up to `until`, found in at most `MOST_STEPS` steps.
    fn left_out(&self, after: Time, until: Time) -> impl Iterator<Item = LeftOut> {
        let (mut at, mut is_in_a_row) = (after, false);
        let steps = (0..MOST_STEPS).map_while(move |_| {
            let first = self.inner_next(at).filter(|next| *next <= until)?;
            let Some((rule, mut stretch)) = self.excluded_by(first) else {
                (at, is_in_a_row) = (first, false);
                return Some(None);
            };
            stretch.until = stretch.until.min(until + MILLISECOND);
            let last = self.last_of(first, &stretch);
            // `last_of` finds nothing but `first` where the schedule computes no latest.
            let count = if last == first {
                Some(1)
            } else {
                self.schedule.count(first, last).map(|more| more + 1)
            };
            let found = LeftOut { rule, range: Excluded { first, last, count }, is_in_a_row };
            (at, is_in_a_row) = (last, true);
            Some(Some(found))
        });
        steps.flatten()
    }
}

impl<S: Schedule> Schedule for Filtered<S> {
    fn next_at(&self, after: Time) -> Option<Time> {
        if self.lacks_calendar() {
            return None;
        }
        let mut at = self.inner_next(after)?;
        for _ in 0..MOST_STRETCHES {
            let Some((_, stretch)) = self.excluded_by(at) else { return Some(at) };
            at = self.inner_next(self.last_of(at, &stretch))?;
        }
        None
    }

    fn latest_at(&self, from: Time, until: Time) -> Option<Time> {
        if self.lacks_calendar() {
            return Some(from);
        }
        let mut until = until;
        for _ in 0..MOST_STEPS {
            let latest = self.schedule.latest_at(from, until)?;
            if latest <= from {
                return Some(from);
            }
            let Some((_, stretch)) = self.excluded_by(latest) else { return Some(latest) };
            until = stretch.since - MILLISECOND;
            if until <= from {
                return Some(from);
            }
        }
        None
    }

    fn count(&self, from: Time, until: Time) -> Option<u64> {
        let mut at = from;
        for count in 0..MOST_STEPS {
            match self.next_at(at).filter(|next| *next <= until) {
                Some(next) => at = next,
                None => return u64::try_from(count).ok(),
            }
        }
        None
    }

    fn excluded(&self, after: Time, until: Time) -> Option<Excluded> {
        let mut ranges = self.left_out(after, until).map(|one| one.range);
        let Some(mut all) = ranges.next() else { return self.schedule.excluded(after, until) };
        ranges.for_each(|range| all.extend(range));
        let more = self.inner_next(all.last).filter(|next| *next <= until);
        if more.is_some_and(|next| self.excluded_by(next).is_some()) {
            // The steps are used up.
            all.count = None;
        }
        if let Some(inner) = self.schedule.excluded(after, until) {
            all.count = all.count.zip(inner.count).map(|(count, more)| count + more);
            (all.first, all.last) = (all.first.min(inner.first), all.last.max(inner.last));
        }
        Some(all)
    }

    fn is_excluded(&self, at: Time) -> bool {
        let excludes = |rule: &Rule| match rule {
            Rule::Named(named) => named.excludes(at, &self.clock).is_some(),
            _ => false,
        };
        let is_excluded = match self.fate(at) {
            Some(fate) => !matches!(fate, Fate::At(_)),
            None => self.rules.iter().any(excludes),
        };
        is_excluded || self.schedule.is_excluded(at)
    }

    fn moved(&self, at: Time) -> Option<Time> {
        match self.fate(at) {
            Some(Fate::At(to)) => Some(to),
            Some(_) => Some(at),
            None => self.schedule.moved(at),
        }
    }

    fn after_end(&self, token: crate::schedule::Token) -> Option<Duration> {
        self.schedule.after_end(token)
    }

    fn definition(&self) -> Option<String> {
        let mut text = self.schedule.definition()?;
        for rule in &self.rules {
            text = format!("{text}; {rule}");
        }
        if let Some(moving) = self.moving {
            text = format!("{text}; {moving}");
        }
        Some(text)
    }

    fn is_built_in(&self, token: crate::schedule::Token) -> bool {
        self.schedule.is_built_in(token)
    }

    fn describe(&self) -> Option<String> {
        let mut text = self.schedule.describe()?;
        for rule in &self.rules {
            text = format!("{text}, {}", rule.describe());
        }
        Some(text + &self.described_move())
    }

    fn check(&self) -> Result<(), ScheduleError> {
        self.schedule.check()?;
        self.rules.iter().try_for_each(Rule::check)?;
        let text = || self.definition().unwrap_or_else(|| "the schedule".into());
        self.check_move().map_err(|why| ScheduleError::new(format!("{}: {why}", text())))?;
        let is_empty = self.schedule.next_at(Time::UNIX_EPOCH).is_some()
            && self.next_at(Time::UNIX_EPOCH).is_none();
        if is_empty {
            let text = text();
            return Err(ScheduleError::new(format!(
                "{text}: every occurrence is excluded; exclude fewer"
            )));
        }
        Ok(())
    }

    fn warnings(&self) -> &[Warning] {
        self.schedule.warnings()
    }

    fn wall_clock(&self) -> Option<&str> {
        self.schedule.wall_clock()
    }

    fn notes(&self, after: Time, until: Time) -> Vec<Note> {
        let mut notes = self.schedule.notes(after, until);
        let mut runs: Vec<LeftOut> = Vec::new();
        for more in self.left_out(after, until) {
            let is_full = runs.len() == MOST_NOTES;
            match runs.last_mut() {
                Some(run) if more.is_in_a_row && run.rule == more.rule => {
                    run.range.extend(more.range)
                }
                _ if is_full => break,
                _ => runs.push(more),
            }
        }
        notes.extend(runs.iter().map(|run| {
            let reason = self.reason_to_leave_out(run.range.first).unwrap_or_else(|| {
                self.rules[run.rule].reason(run.range.first, run.range.last, &self.clock)
            });
            Note::new(run.range.first, NoteReason::Excluded, format!("{}: {reason}", run.range))
        }));
        if self.moving.is_some() {
            let kept = crate::between(self, after, until).take(MOST_NOTES);
            let moved = kept.filter_map(|at| Some((at, self.move_of(at)?)));
            notes.extend(moved.map(|(at, message)| Note::new(at, NoteReason::OtherDay, message)));
        }
        notes.sort_by_key(|note| note.at);
        notes
    }
}

/// Excluded occurrences of one stretch, or of several in a row.
struct LeftOut {
    rule: usize,
    range: Excluded,
    /// No occurrence is between them and the excluded ones before.
    is_in_a_row: bool,
}

/// A range of occurrences that a calendar excludes: the result of [`Schedule::excluded`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excluded {
    /// The first of them.
    pub first: Time,
    /// The last of them.
    pub last: Time,
    /// Their number; `None`: counting them would take too long.
    pub count: Option<u64>,
}

impl Excluded {
    /// Adds the occurrences of a later range.
    fn extend(&mut self, later: Self) {
        self.last = later.last;
        self.count = self.count.zip(later.count).map(|(count, more)| count + more);
    }
}

impl fmt::Display for Excluded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (shown(self.first), shown(self.last));
        match self.count {
            Some(1) => write!(f, "{first} is left out"),
            Some(count) => write!(f, "{count} occurrences from {first} to {last} are left out"),
            None => write!(f, "the occurrences from {first} to {last} are left out"),
        }
    }
}

impl Filtered<AnySchedule> {
    /// The same times in another zone.
    pub(crate) fn in_zone(self, name: &str) -> Result<Self, ParseError> {
        let Self { schedule, mut rules, moving, .. } = self;
        if schedule.follows_a_clock() {
            return Ok(Self::new(schedule.in_zone(name)?, rules).with(Vec::new(), moving));
        }
        let zone = Zone::named(name, 0)?;
        let set: usize = rules.iter_mut().map(|rule| usize::from(rule.set_zone(&zone))).sum();
        if set == 0 {
            let reason = "means nothing to a schedule and a calendar without a wall clock";
            return Err(ParseError::new(Field::Zone, 0, name, reason).remedy("leave it away"));
        }
        Ok(Self::new(schedule, rules).with(Vec::new(), moving))
    }

    /// The names of its calendars.
    pub(crate) fn calendars(&self) -> BTreeSet<&str> {
        named::names(&self.rules)
    }

    /// With these calendars.
    pub(crate) fn with_calendars(
        mut self,
        mut find: impl FnMut(&str) -> Option<Arc<Calendar>>,
    ) -> Self {
        for rule in &mut self.rules {
            if let Rule::Named(named) = rule {
                named.calendar = find(&named.name);
            }
        }
        self
    }

    /// `true` if a zone that a program applies would mean something.
    pub(crate) fn lacks_zone(&self) -> bool {
        let is_open = !self.schedule.follows_a_clock() && self.rules.iter().any(Rule::lacks_zone);
        is_open || self.schedule.lacks_zone()
    }
}

impl<S: fmt::Display> fmt::Display for Filtered<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.schedule)?;
        self.rules.iter().try_for_each(|rule| write!(f, "; {rule}"))?;
        self.moving.map_or(Ok(()), |moving| write!(f, "; {moving}"))
    }
}
