//! Instants of a schedule, each with the notes about it.

use crate::{Between, Note, Schedule, Time, between};

/// The instants after `from` (exclusive) and up to `until` (inclusive), in order, each with the
/// [notes](Schedule::notes) about the time since the one before.
///
/// ```
/// use allora_schedule::{NoteReason, Time, cron, explain};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let nightly = cron("30 2 * * * Europe/Rome")?;
/// let mut explained = explain(&nightly, "2026-03-28T12:00:00Z".parse()?, Time::MAX_UTC);
/// let first = explained.next().ok_or("never")?;
/// assert_eq!(first.scheduled_at.to_rfc3339(), "2026-03-29T01:00:00+00:00");
/// assert_eq!(first.notes[0].reason, NoteReason::Moved);
/// assert!(first.notes[0].message.contains("2026-03-29 02:30 does not exist in Europe/Rome"));
/// # Ok(())
/// # }
/// ```
pub fn explain(schedule: &dyn Schedule, from: Time, until: Time) -> Explain<'_> {
    Explain { schedule, before: from, between: between(schedule, from, until) }
}

/// An instant of a schedule, with the notes about it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explained {
    /// The instant that the schedule names.
    pub scheduled_at: Time,
    /// Reasons why it differs from the plain reading of the schedule; often empty.
    pub notes: Vec<Note>,
}

/// Iterator over explained instants; made by [`explain()`].
pub struct Explain<'a> {
    schedule: &'a dyn Schedule,
    before: Time,
    between: Between<'a>,
}

impl std::fmt::Debug for Explain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Explain").field("between", &self.between).finish_non_exhaustive()
    }
}

impl Iterator for Explain<'_> {
    type Item = Explained;

    fn next(&mut self) -> Option<Explained> {
        let scheduled_at = self.between.next()?;
        let notes = self.schedule.notes(self.before, scheduled_at);
        self.before = scheduled_at;
        Some(Explained { scheduled_at, notes })
    }
}

impl std::iter::FusedIterator for Explain<'_> {}
