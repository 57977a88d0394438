//! Load, commit and scan.

use crate::Memory;
use allora_core::{
    Result, Time,
    backend::{Batch, Due, DueQuery, Notification, Notifier, Page, TimeSource},
    record::Record,
    store::{
        ChangeStore, Commit, FastPath, FlagStore, HistoryStore, Load, Loaded, Outcome, RecordStore,
        Snapshot,
    },
};
use async_trait::async_trait;

#[async_trait]
impl RecordStore for Memory {
    /// The number of the write that left the record; 0 if there is none.
    type Version = u64;

    async fn load(&self, load: Load<'_>) -> Result<Snapshot<u64>> {
        let now = self.now(load.time);
        let index = self.index();
        let records = load.names.iter().map(|name| match index.get(name) {
            Some((record, version)) => Loaded::new(Some(record.to_record()), version),
            None => Loaded::new(None, 0),
        });
        Ok(Snapshot::new(now, records.collect()).min_fence(index.min_fence()))
    }

    async fn commit(&self, commit: Commit<'_, u64>) -> Result<Vec<Result<Outcome<u64>>>> {
        let mut index = self.index();
        let outcomes = commit.drafts.into_iter().map(|draft| {
            let version = index.get(draft.name).map_or(0, |(_, version)| version);
            if version != draft.loaded.version {
                return Ok(Outcome::Conflict(None));
            }
            index.put(draft.name, draft.after);
            index.append_history(draft.history);
            index.append_changes(draft.changes);
            Ok(Outcome::Written { notified: false })
        });
        Ok(outcomes.collect())
    }

    async fn fast_path(&self, batch: Batch<'_>) -> Result<FastPath<u64>> {
        Ok(self.apply_in_place(batch))
    }

    async fn scan(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Result<Record, String>)>> {
        let index = self.index();
        let records = index
            .names_after(after.unwrap_or_default())
            .filter(|name| name.starts_with(prefix))
            .filter_map(|name| Some((name.to_owned(), Ok(index.get(name)?.0.to_record()))));
        Ok(records.take(limit).collect())
    }

    async fn now(&self, time: TimeSource) -> Result<Time> {
        Ok(Memory::now(self, time))
    }

    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn history_store(&self) -> Option<&dyn HistoryStore> {
        self.pruning.is_on().then_some(self as _)
    }

    fn change_store(&self) -> Option<&dyn ChangeStore> {
        Some(self)
    }

    fn flag_store(&self) -> Option<&dyn FlagStore> {
        Some(self)
    }

    async fn prune(&self, now: Time) -> Result {
        self.index().purge_tombstones(now);
        Ok(())
    }

    fn notifier(&self) -> Option<&dyn Notifier> {
        Some(self)
    }

    async fn notify(&self, notifications: Vec<Notification>) {
        self.send(notifications);
    }

    async fn find_due(&self, query: DueQuery<'_>, time: TimeSource) -> Result<Due> {
        Ok(self.due(query, Memory::now(self, time)))
    }

    fn claims_due(&self) -> bool {
        true
    }

    async fn list(&self, page: Page<'_>) -> Result<Vec<(String, Result<Record, String>)>> {
        Ok(self.page(page))
    }

    async fn kinds(&self) -> Result<Vec<String>> {
        Ok(self.index().kinds())
    }
}
