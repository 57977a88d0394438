//! Queries that the indexes answer.

use crate::{
    client::{Client, decides, number, retry},
    encoding::{StoredRow, history_entry},
};
use allora_core::{
    Result, Time,
    backend::{Due, DueQuery, HistoryEntry, HistoryQuery, JobState, Page, TimeSource},
    record::Record,
    time::saturating_add,
};
use std::time::Duration;

/// Delay before a record that cannot be read is found again: a node with a newer build then has it,
/// and it does not always come before the others.
const UNREADABLE_PAUSE: Duration = Duration::from_secs(60);

impl Client {
    /// The records that want attention, the earliest first.
    pub(crate) async fn find_due(&self, query: DueQuery<'_>, time: TimeSource) -> Result<Due> {
        const OP: &str = "find_due";
        let mut kinds = query.kinds.to_vec();
        kinds.sort_unstable();
        kinds.dedup();
        if kinds.is_empty() {
            return Ok(Due::new(self.now(OP, time).await?, Vec::new(), None));
        }
        let statement = self.dialect.find_due(&kinds, query.skip, query.limit.saturating_add(1));
        let read = self.read(&*self.driver, OP, statement).await?;
        let now = decides(time, read.clock);
        let mut due: Vec<(Time, StoredRow)> = Vec::new();
        for row in read.rows {
            let at = match &row.record {
                Ok(record) => record.index_at(),
                Err(_) => row.index_at.or(Some(Time::UNIX_EPOCH)),
            };
            due.extend(at.map(|at| (at, row)));
        }
        due.sort_by(|(at, a), (bt, b)| (at, &a.name).cmp(&(bt, &b.name)));
        let ready = due.iter().take(query.limit).take_while(|(at, _)| *at < query.until).count();
        let next_due = due.get(ready).map(|(at, _)| *at);
        due.truncate(ready);
        let mut found = Vec::with_capacity(ready);
        for (_, row) in due {
            let StoredRow { name, version, record, .. } = row;
            match record {
                Ok(record) => found.push(record.state(&name)),
                Err(reason) => {
                    self.postpone(&name, version, now).await?;
                    found.push(JobState::unreadable(name, reason));
                }
            }
        }
        Ok(Due::new(now, found, next_due))
    }

    /// Moves a record that cannot be read to a later place in the due index.
    async fn postpone(&self, name: &str, version: i64, now: Time) -> Result {
        let index_at = saturating_add(now, UNREADABLE_PAUSE).timestamp_millis();
        retry!(self, "find_due", async {
            let mut writer = self.driver.writer().await?;
            writer.conn().run(self.dialect.postpone(name, version, index_at)).await.map(drop)
        })
    }

    /// A page of the list.
    pub(crate) async fn list(
        &self,
        page: Page<'_>,
    ) -> Result<Vec<(String, Result<Record, String>)>> {
        let read = self.read(&*self.driver, "list", self.dialect.list(&page)).await?;
        Ok(read.rows.into_iter().map(|row| (row.name, row.record)).collect())
    }

    /// The kinds in the due index.
    pub(crate) async fn kinds(&self) -> Result<Vec<String>> {
        let mut kinds: Vec<String> = Vec::new();
        // A step of the index for each kind, and none for each schedule.
        loop {
            let after = kinds.last().map_or("", String::as_str);
            let rows = retry!(self, "kinds", self.driver.rows(self.dialect.kind_after(after)))?;
            let next = rows.into_iter().flatten().next().and_then(crate::driver::Value::into_bytes);
            match next.and_then(|kind| String::from_utf8(kind).ok()) {
                Some(kind) => kinds.push(kind),
                None => return Ok(kinds),
            }
        }
    }

    /// A page of the history.
    pub(crate) async fn history_entries(
        &self,
        query: HistoryQuery<'_>,
    ) -> Result<Vec<HistoryEntry>> {
        let statement = self.dialect.history_entries(query);
        let rows = retry!(self, "entries", self.driver.rows(statement.clone()))?;
        // An entry that cannot be read is left out.
        Ok(rows.into_iter().filter_map(history_entry).collect())
    }

    /// The fence of the newest history entry beyond the limit.
    pub(crate) async fn history_edge(&self, op: &'static str) -> Result<Option<i64>> {
        let edge = self.dialect.history_edge(self.history_limit.cast_signed());
        Ok(number(retry!(self, op, self.driver.rows(edge.clone()))?))
    }
}
