//! History entries of one batch, before the store writes them.
//!
//! What a calendar excludes is recorded with the end of the run before it, or with an advance: a
//! statement of its own would double the cost of a dense calendar. So the range may lie in the
//! future, and is missing after a run that is lost.

use super::Change;
use crate::backend::{HistoryEntry, StreakReport};

/// A buffer for history entries, which drops those that nobody wants, and for the changes of clients.
#[derive(Debug, Default)]
pub struct HistoryBuffer {
    kept: Kept,
    entries: Vec<HistoryEntry>,
    changes: Vec<Change>,
    reports: Vec<StreakReport>,
}

/// The entries that a buffer keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kept {
    #[default]
    None,
    /// Those of runs whose leases have ended.
    Lapsed,
    AllButSuccesses,
    All,
}

impl HistoryBuffer {
    /// Keeps the entries.
    pub fn kept() -> Self {
        Self { kept: Kept::All, ..Self::default() }
    }

    /// Keeps the entries, except those of runs that succeeded and were not triggered.
    pub fn without_successes() -> Self {
        Self { kept: Kept::AllButSuccesses, ..Self::default() }
    }

    /// Drops the entries.
    pub fn off() -> Self {
        Self::default()
    }

    /// Keeps the entries of runs that are recorded as lost or expired: for a store without a history,
    /// whose nodes report such runs nevertheless. Later entries of these runs may be among them.
    pub fn lapsed() -> Self {
        Self { kept: Kept::Lapsed, ..Self::default() }
    }

    /// The entries recorded since the last call, in order; of one name and fence only the last one.
    pub fn take(&mut self) -> Vec<HistoryEntry> {
        let all = std::mem::take(&mut self.entries);
        let mut newest: Vec<HistoryEntry> = Vec::with_capacity(all.len());
        for entry in all {
            newest.retain(|other| (other.fence, &other.name) != (entry.fence, &entry.name));
            newest.push(entry);
        }
        newest
    }

    /// The changes since the last call, in order. Every buffer keeps them.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// The changes of failures in a row since the last call, in order. Every buffer keeps them.
    pub fn take_reports(&mut self) -> Vec<StreakReport> {
        std::mem::take(&mut self.reports)
    }

    pub(super) fn report(&mut self, report: Option<StreakReport>) {
        self.reports.extend(report);
    }

    pub(super) fn note(&mut self, change: Change) {
        self.changes.push(change);
    }

    pub(super) fn push(&mut self, entry: impl FnOnce() -> HistoryEntry) {
        // A run that lapsed before may end in the same batch.
        if matches!(self.kept, Kept::All | Kept::AllButSuccesses) || !self.entries.is_empty() {
            self.entries.push(entry());
        }
    }

    /// As [`push`](Self::push), of a run that succeeded, was not triggered, and not recorded as lost before.
    pub(super) fn push_success(&mut self, entry: impl FnOnce() -> HistoryEntry) {
        if self.kept != Kept::AllButSuccesses || !self.entries.is_empty() {
            self.push(entry);
        }
    }

    /// Gives the last entry, if it is kept, a text of the author of the operation.
    pub(super) fn annotate(&mut self, text: Option<String>) {
        if let Some(last) = self.entries.last_mut() {
            last.output = text;
        }
    }

    /// As [`push`](Self::push), of a run whose lease has ended.
    pub(super) fn push_lapsed(&mut self, entry: impl FnOnce() -> HistoryEntry) {
        if self.kept != Kept::None {
            self.entries.push(entry());
        }
    }
}
