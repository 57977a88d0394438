//! The history: pages, and what its pruning reads and removes.

use crate::Memory;
use allora_core::{
    Result,
    backend::{HistoryCursor, HistoryEntry, HistoryMark, HistoryQuery},
    store::{HistoryCount, HistoryPruning, HistoryStore},
};
use async_trait::async_trait;

/// The default total.
pub(crate) const TOTAL: u64 = 100_000;

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

    async fn count_history(&self, _: Option<&HistoryCursor>) -> Result<HistoryCount> {
        Ok(HistoryCount::all(self.index().history_len() as u64))
    }

    async fn history_places(&self, places: &[(&str, u64)]) -> Result<Vec<Option<i64>>> {
        let index = self.index();
        Ok(places.iter().map(|(name, place)| index.history_place(name, *place)).collect())
    }

    async fn history_marks(
        &self,
        name: &str,
        below: i64,
        limit: usize,
    ) -> Result<Vec<HistoryMark>> {
        let index = self.index();
        let mark = |entry: &HistoryEntry| HistoryMark {
            fence: entry.fence,
            is_failure: entry.outcome.is_failure(),
        };
        Ok(index.history_of(name, below).take(limit).map(mark).collect())
    }

    async fn oldest_history(
        &self,
        above: Option<&HistoryCursor>,
        limit: usize,
    ) -> Result<Vec<HistoryCursor>> {
        Ok(self.index().oldest_history(above).take(limit).cloned().collect())
    }

    async fn remove_history(&self, entries: &[HistoryCursor]) -> Result {
        self.index().remove_history(entries);
        Ok(())
    }
}
