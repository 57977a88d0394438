//! The history: pages, and what its pruning reads and removes.

use crate::{
    Sql,
    client::{Client, number, retry},
    dialect::{Dialect, PLACES},
    driver::{Statement, Value},
    encoding::history_entry,
};
use allora_core::{
    Result,
    backend::{HistoryCursor, HistoryEntry, HistoryMark, HistoryQuery, Outcome},
    store::{HistoryCount, HistoryPruning, HistoryStore},
};
use async_trait::async_trait;

const PRUNE: &str = "prune";

/// The number of entries that one statement counts: other work waits for none that takes long.
const COUNTED: u64 = 20_000;

/// The number of entries that one statement removes.
const REMOVED: usize = 64;

#[async_trait]
impl HistoryStore for Sql {
    fn pruning(&self) -> &HistoryPruning {
        &self.client.history
    }

    async fn history_entries(&self, query: HistoryQuery<'_>) -> Result<Vec<HistoryEntry>> {
        let rows =
            self.client.read_history("entries", self.dialect().history_entries(query)).await?;
        // An entry that cannot be read is left out.
        Ok(rows.into_iter().filter_map(history_entry).collect())
    }

    /// A part of the entries, whose last one is found by an offset; only the last part is counted.
    async fn count_history(&self, below: Option<&HistoryCursor>) -> Result<HistoryCount> {
        const OP: &str = "size";
        let last = self.dialect().history_place(below, COUNTED);
        let rows = self.client.read_history(OP, last).await?;
        if let Some(last) = rows.into_iter().next().and_then(cursor) {
            return Ok(HistoryCount { entries: COUNTED, last: Some(last) });
        }
        let rest =
            self.client.read_history(OP, self.dialect().history_count(below, COUNTED)).await?;
        let entries = number(rest).and_then(|entries| entries.try_into().ok());
        Ok(HistoryCount::all(entries.unwrap_or_default()))
    }

    async fn history_places(&self, places: &[(&str, u64)]) -> Result<Vec<Option<i64>>> {
        let mut fences = Vec::with_capacity(places.len());
        for places in places.chunks(PLACES) {
            let statement = self.dialect().history_places(places);
            let rows = self.client.read_history(PRUNE, statement).await?;
            let found = rows.into_iter().flatten().map(Value::into_int);
            fences.extend(found.take(places.len()));
        }
        Ok(fences)
    }

    async fn history_marks(
        &self,
        name: &str,
        below: i64,
        limit: usize,
    ) -> Result<Vec<HistoryMark>> {
        let statement = self.dialect().history_marks(name, below, limit);
        let rows = self.client.read_history(PRUNE, statement).await?;
        Ok(rows.into_iter().filter_map(mark).collect())
    }

    async fn oldest_history(
        &self,
        above: Option<&HistoryCursor>,
        limit: usize,
    ) -> Result<Vec<HistoryCursor>> {
        let statement = self.dialect().oldest_history(above, limit);
        let rows = self.client.read_history(PRUNE, statement).await?;
        Ok(rows.into_iter().filter_map(cursor).collect())
    }

    async fn remove_history(&self, entries: &[HistoryCursor]) -> Result {
        let client = &self.client;
        for entries in entries.chunks(REMOVED) {
            let statement = self.dialect().remove_history(entries);
            retry!(client, PRUNE, async {
                let mut lent = client.driver.writer().await?;
                let done = lent.conn()?.run(statement.clone()).await;
                client.driver.end(lent, done)
            })?;
        }
        Ok(())
    }
}

impl Sql {
    fn dialect(&self) -> &Dialect {
        &self.client.dialect
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
}

/// The place of an entry.
fn cursor(row: Vec<Value>) -> Option<HistoryCursor> {
    let mut cells = row.into_iter();
    let fence = cells.next()?.into_int()?;
    let name = String::from_utf8(cells.next()?.into_bytes()?).ok()?;
    Some(HistoryCursor { fence, name })
}

/// The fence and the outcome of an entry.
fn mark(row: Vec<Value>) -> Option<HistoryMark> {
    let mut cells = row.into_iter();
    let fence = cells.next()?.into_int()?;
    let word = cells.next()?.into_bytes()?;
    let outcome = Outcome::from_word(&String::from_utf8_lossy(&word), "");
    Some(HistoryMark { fence, is_failure: outcome.is_some_and(|outcome| outcome.is_failure()) })
}
