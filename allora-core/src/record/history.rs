//! History entries of one batch, before the store writes them.

use crate::backend::HistoryEntry;

/// A buffer for history entries, which drops them where no history is kept.
#[derive(Debug, Default)]
pub struct HistoryBuffer {
    entries: Option<Vec<HistoryEntry>>,
}

impl HistoryBuffer {
    /// Keeps the entries.
    pub fn kept() -> Self {
        Self { entries: Some(Vec::new()) }
    }

    /// Drops the entries.
    pub fn off() -> Self {
        Self { entries: None }
    }

    /// The entries recorded since the last call, in order; of one name and fence only the last one.
    pub fn take(&mut self) -> Vec<HistoryEntry> {
        let all = self.entries.as_mut().map(std::mem::take).unwrap_or_default();
        let mut newest: Vec<HistoryEntry> = Vec::with_capacity(all.len());
        for entry in all {
            newest.retain(|other| (other.fence, &other.name) != (entry.fence, &entry.name));
            newest.push(entry);
        }
        newest
    }

    pub(super) fn push(&mut self, entry: impl FnOnce() -> HistoryEntry) {
        if let Some(entries) = &mut self.entries {
            entries.push(entry());
        }
    }
}
