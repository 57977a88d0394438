//! Why a job runs when it does: the next instants, each with its due time and the reasons.

use super::{Schedule, between, spread_of};
use crate::{job::Settings, time::Time};

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

/// The next `n` occurrences of the job `name` after `after` (exclusive), fewer if the schedule or
/// the job's bounds end before, each with its reasons. Of the settings, delay, spread, bounds and
/// `max_runs` (counted from `after`) matter here.
///
/// ```
/// use allora_core::{Settings, cron, schedule::explain};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let nightly = cron("30 2 * * * Europe/Rome")?;
/// let settings = Settings { delay: Duration::from_secs(60), ..Settings::default() };
/// let explained = explain("invoices", &nightly, &settings, "2026-03-28T12:00:00Z".parse()?, 1);
/// assert_eq!(explained[0].nominal.to_rfc3339(), "2026-03-29T01:00:00+00:00");
/// assert_eq!(explained[0].due.to_rfc3339(), "2026-03-29T01:01:00+00:00");
/// assert!(explained[0].reasons[0].contains("2026-03-29 02:30 does not exist in Europe/Rome"));
/// # Ok(())
/// # }
/// ```
pub fn explain(
    name: &str,
    schedule: &dyn Schedule,
    settings: &Settings,
    after: Time,
    n: usize,
) -> Vec<Explained> {
    let limit = settings.max_runs.map_or(n, |runs| n.min(usize::try_from(runs).unwrap_or(n)));
    let until = settings.end.unwrap_or(Time::MAX_UTC);
    let begin = settings.begin(after, |at| schedule.next_at(at));
    let mut before = begin;
    let mut explained: Vec<Explained> = Vec::new();
    for nominal in between(schedule, begin, until).take(limit) {
        let Some(next) = settings.next(name, nominal) else { break };
        let due = next.due_at;
        let reasons = reasons(name, schedule, settings, before, nominal);
        before = nominal;
        explained.push(Explained { nominal, due, reasons });
    }
    if let Some(first) = explained.first_mut().filter(|_| settings.start > Some(after)) {
        first.reasons.push("the first since the job's start".into());
    }
    let last = explained.len();
    if let Some(occurrence) = explained.last_mut() {
        if settings.max_runs == Some(last as u64) {
            occurrence.reasons.push(format!("the last of {last} runs"));
        } else if last < n && schedule.next_at(occurrence.nominal).is_none_or(|next| next > until) {
            occurrence.reasons.push("the last before the job's or the schedule's end".into());
        }
    }
    explained
}

fn reasons(
    name: &str,
    schedule: &dyn Schedule,
    settings: &Settings,
    before: Time,
    nominal: Time,
) -> Vec<String> {
    let notes = schedule.notes(before, nominal);
    let mut reasons: Vec<String> = notes.into_iter().map(|note| note.message).collect();
    if !settings.delay.is_zero() {
        reasons.push(format!("delayed by {:?}", settings.delay));
    }
    let spread = spread_of(name, nominal, settings.spread);
    if !spread.is_zero() {
        reasons.push(format!("spread by {spread:?}, from the job's name"));
    }
    reasons
}
