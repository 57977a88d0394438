//! The history: pages, and its pruning.

use crate::Memory;
use allora_core::{
    Result,
    backend::{HistoryEntry, HistoryQuery, HistoryTrim},
    store::{HistoryPruning, HistoryStore},
};
use async_trait::async_trait;

/// The default number of entries of each job.
pub(crate) const PER_JOB: u64 = 100;

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
