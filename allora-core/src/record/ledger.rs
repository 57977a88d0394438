//! Where steps note what readers of the history should know.

use crate::backend::Past;

/// Collects entries for the history, or throws them away unmade where nobody keeps one.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: Option<Vec<Past>>,
}

impl Ledger {
    /// Keeps what is noted.
    pub fn kept() -> Self {
        Self { entries: Some(Vec::new()) }
    }

    /// Keeps nothing.
    pub fn off() -> Self {
        Self { entries: None }
    }

    /// What was noted since the last call, in order. An entry replaces an earlier one of the same
    /// name and fence.
    pub fn take(&mut self) -> Vec<Past> {
        self.entries.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(super) fn note(&mut self, entry: impl FnOnce() -> Past) {
        if let Some(entries) = &mut self.entries {
            entries.push(entry());
        }
    }
}
