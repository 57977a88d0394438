//! The history and the changes by clients: pages, and their pruning.

use crate::{
    Sql,
    client::{Client, number, retry},
    driver::{Statement, Value},
    encoding::history_entry,
};
use allora_core::{
    Result,
    backend::{HistoryEntry, HistoryQuery, HistoryTrim, Newest},
    record::{Change, codec},
    store::{ChangeStore, HistoryPruning, HistoryStore},
};
use async_trait::async_trait;

const PRUNE: &str = "prune";

/// The most entries that one statement removes: other work waits for none that takes long.
const REMOVED: u64 = 256;

#[async_trait]
impl HistoryStore for Sql {
    fn pruning(&self) -> &HistoryPruning {
        &self.client.history
    }

    async fn history_entries(&self, query: HistoryQuery<'_>) -> Result<Vec<HistoryEntry>> {
        let statement = self.client.dialect.history_entries(query);
        let rows = self.client.read_history("entries", statement).await?;
        // An entry that cannot be read is left out.
        Ok(rows.into_iter().filter_map(history_entry).collect())
    }

    async fn trim_history(&self, name: &str, kept: HistoryTrim) -> Result {
        for is_failure in [false, true] {
            self.client.trim(name, is_failure, kept).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl ChangeStore for Sql {
    fn pruning(&self) -> &HistoryPruning {
        &self.client.history
    }

    async fn change_entries(&self, query: HistoryQuery<'_>) -> Result<Vec<Change>> {
        let statement = self.client.dialect.change_entries(query);
        let rows = self.client.read_history("changes", statement).await?;
        let bytes = rows.into_iter().filter_map(|mut row| row.pop()?.into_bytes());
        Ok(bytes.filter_map(|bytes| codec::decode_change(&bytes).ok()).collect())
    }

    async fn trim_changes(&self, kept: Newest) -> Result {
        let first = self.client.dialect.first_change_beyond(kept.entries);
        let first = number(self.client.read_history(PRUNE, first).await?);
        let below = kept.from.max(first.map_or(0, |first| first + 1));
        self.client.remove_all(&self.client.dialect.remove_changes(below, REMOVED)).await
    }
}

impl Client {
    async fn read_history(
        &self,
        op: &'static str,
        statement: Statement,
    ) -> Result<Vec<Vec<Value>>> {
        retry!(self, op, self.driver.rows(statement.clone()))
    }

    /// Removes the failures of a job, or its other entries, beyond their limits.
    async fn trim(&self, name: &str, is_failure: bool, kept: HistoryTrim) -> Result {
        let kept = kept.of(is_failure);
        let first = self.dialect.first_beyond(name, is_failure, kept.entries);
        let first = number(self.read_history(PRUNE, first).await?);
        let below = kept.from.max(first.map_or(0, |first| first + 1));
        self.remove_all(&self.dialect.remove_history(name, is_failure, below, REMOVED)).await
    }

    /// Repeats a statement that removes some at a time, until nothing is left to remove.
    async fn remove_all(&self, statement: &Statement) -> Result {
        while self.remove(statement).await? >= REMOVED {}
        Ok(())
    }

    /// The number of rows that a statement removes.
    async fn remove(&self, statement: &Statement) -> Result<u64> {
        let removed = retry!(self, PRUNE, async {
            let mut lent = self.driver.writer().await?;
            let done = lent.conn()?.run(statement.clone()).await;
            self.driver.end(lent, done)
        })?;
        Ok(removed.rows)
    }
}
