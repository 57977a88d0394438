//! Why a job runs when it does: the next instants, each with its due time and the reasons.

use super::{Schedule, between, spread_of};
use crate::time::{Time, checked_add};
use chrono::TimeDelta;
use std::time::Duration;

/// Something that a schedule has to say about an instant.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Note {
    /// The instant it is about: for a change of the clock, the change.
    pub at: Time,
    /// What happens.
    pub kind: NoteKind,
    /// The same in words.
    pub message: String,
}

impl Note {
    /// A note about an instant.
    pub fn new(at: Time, kind: NoteKind, message: impl Into<String>) -> Self {
        Self { at, kind, message: message.into() }
    }
}

/// What a [`Note`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoteKind {
    /// A local time does not exist; it runs at the first instant after the gap.
    Moved,
    /// A local time does not exist; it is left out.
    Skipped,
    /// A local time exists twice; it runs the first time.
    Once,
    /// A local time exists twice; it runs both times.
    Twice,
    /// Anything else: read the message.
    Other,
}

/// The settings of a job that decide when its occurrences are due.
///
/// ```
/// use allora_core::{cron, schedule::{Shape, explain}};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let nightly = cron("30 2 * * * Europe/Rome")?;
/// let shape = Shape::new("invoices").delay(Duration::from_secs(60));
/// let explained = explain(&nightly, &shape, "2026-03-28T12:00:00Z".parse()?, 1);
/// assert_eq!(explained[0].nominal.to_rfc3339(), "2026-03-29T01:00:00+00:00");
/// assert_eq!(explained[0].due.to_rfc3339(), "2026-03-29T01:01:00+00:00");
/// assert!(explained[0].reasons[0].contains("2026-03-29 02:30 does not exist in Europe/Rome"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shape {
    /// The job's name: the spread follows from it.
    pub name: String,
    /// How long after its nominal time an occurrence is due.
    pub delay: Duration,
    /// How much more at most, by [`spread_of`].
    pub spread: Duration,
    /// Nominal times before this one are left out.
    pub start: Option<Time>,
    /// Nominal times after this one are left out.
    pub end: Option<Time>,
    /// How many runs there are in all.
    pub max_runs: Option<u64>,
}

impl Shape {
    /// A job without delay, spread or bounds.
    pub fn new(name: impl Into<String>) -> Self {
        let (delay, spread) = (Duration::ZERO, Duration::ZERO);
        Self { name: name.into(), delay, spread, start: None, end: None, max_runs: None }
    }

    /// Due this long after the nominal time.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Due up to this long later still, by [`spread_of`].
    #[must_use]
    pub fn spread(mut self, spread: Duration) -> Self {
        self.spread = spread;
        self
    }

    /// No nominal time before `start`.
    #[must_use]
    pub fn start(mut self, start: Time) -> Self {
        self.start = Some(start);
        self
    }

    /// No nominal time after `end`.
    #[must_use]
    pub fn end(mut self, end: Time) -> Self {
        self.end = Some(end);
        self
    }

    /// No more runs than these.
    #[must_use]
    pub fn max_runs(mut self, runs: u64) -> Self {
        self.max_runs = Some(runs);
        self
    }

    /// When an occurrence is due: nominal time, delay and spread; `None` after the year 9999.
    pub fn due(&self, nominal: Time) -> Option<Time> {
        let spread = spread_of(&self.name, nominal, self.spread);
        checked_add(nominal, self.delay.checked_add(spread)?)
    }
}

/// One occurrence to come.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explained {
    /// The instant that the schedule names.
    pub nominal: Time,
    /// When it may be taken: nominal time, delay and spread.
    pub due: Time,
    /// What made it differ from the plain reading of the schedule, in words; often empty.
    pub reasons: Vec<String>,
}

/// Between an instant and the one before it.
const SHORTEST: TimeDelta = TimeDelta::milliseconds(1);

/// The next `n` occurrences after `after` (exclusive), fewer if the schedule or the job's bounds
/// end before, each with its reasons. `max_runs` counts from `after`.
pub fn explain(schedule: &dyn Schedule, shape: &Shape, after: Time, n: usize) -> Vec<Explained> {
    let limit = shape.max_runs.map_or(n, |runs| n.min(usize::try_from(runs).unwrap_or(n)));
    let until = shape.end.unwrap_or(Time::MAX_UTC);
    let begin = match shape.start.and_then(|start| start.checked_sub_signed(SHORTEST)) {
        // The chain goes on from `after`, so that a period keeps its grid.
        Some(start) if start > after => schedule.latest_at(after, start).unwrap_or(start),
        _ => after,
    };
    let mut before = begin;
    let mut explained: Vec<Explained> = Vec::new();
    for nominal in between(schedule, begin, until).take(limit) {
        let Some(due) = shape.due(nominal) else { break };
        let reasons = reasons(schedule, shape, before, nominal);
        before = nominal;
        explained.push(Explained { nominal, due, reasons });
    }
    if let Some(first) = explained.first_mut().filter(|_| shape.start > Some(after)) {
        first.reasons.push("the first since the job's start".into());
    }
    let last = explained.len();
    if let Some(occurrence) = explained.last_mut() {
        if shape.max_runs == Some(last as u64) {
            occurrence.reasons.push(format!("the last of {last} runs"));
        } else if last < n && schedule.next_at(occurrence.nominal).is_none_or(|next| next > until) {
            occurrence.reasons.push("the last before the job's or the schedule's end".into());
        }
    }
    explained
}

fn reasons(schedule: &dyn Schedule, shape: &Shape, before: Time, nominal: Time) -> Vec<String> {
    let notes = schedule.notes(before, nominal);
    let mut reasons: Vec<String> = notes.into_iter().map(|note| note.message).collect();
    if !shape.delay.is_zero() {
        reasons.push(format!("delayed by {:?}", shape.delay));
    }
    let spread = spread_of(&shape.name, nominal, shape.spread);
    if !spread.is_zero() {
        reasons.push(format!("spread by {spread:?}, from the job's name"));
    }
    reasons
}
