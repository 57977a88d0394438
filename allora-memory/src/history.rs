//! The history and the changes by clients: pages, and their pruning.

use crate::Memory;
use allora_core::{
    Result,
    backend::{HistoryEntry, HistoryQuery, HistoryTrim, Newest},
    record::Change,
    store::{ChangeStore, HistoryPruning, HistoryStore},
};
use async_trait::async_trait;

/// The default number of entries of each job.
pub(crate) const PER_JOB: u64 = 100;

/// The number of changes by clients.
pub(crate) const CHANGES: u64 = 10_000;

#[async_trait]
impl HistoryStore for Memory {
    fn pruning(&self) -> &HistoryPruning {
        &self.pruning
    }

    async fn history_entries(&self, query: HistoryQuery<'_>) -> Result<Vec<HistoryEntry>> {
        let index = self.index();
        let of_name = |entry: &&HistoryEntry| query.name.is_none_or(|name| entry.name == name);
        let entries = index.history(query.before).filter(of_name);
        Ok(entries.take(query.limit).cloned().collect())
    }

    async fn trim_history(&self, name: &str, kept: HistoryTrim) -> Result {
        self.index().trim_history(name, kept);
        Ok(())
    }
}

#[async_trait]
impl ChangeStore for Memory {
    fn pruning(&self) -> &HistoryPruning {
        &self.pruning
    }

    async fn change_entries(&self, query: HistoryQuery<'_>) -> Result<Vec<Change>> {
        let index = self.index();
        let of_name = |change: &&Change| query.name.is_none_or(|name| change.name == name);
        let changes = index.changes(query.before).filter(of_name);
        Ok(changes.take(query.limit).cloned().collect())
    }

    async fn trim_changes(&self, kept: Newest) -> Result {
        self.index().trim_changes(kept);
        Ok(())
    }
}
