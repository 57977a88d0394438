//! Queries answered by the index.

use crate::Memory;
use allora_core::{
    Result, Time,
    backend::{Due, DueQuery, MOST_COUNTED, Page},
    record::Record,
    store::FlagStore,
};
use async_trait::async_trait;

#[async_trait]
impl FlagStore for Memory {
    async fn flagged_names(
        &self,
        key: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>> {
        let index = self.index();
        Ok(index.flagged(key, prefix, after).take(limit).map(str::to_owned).collect())
    }

    async fn count_flagged(&self, keys: &[String], prefix: &str) -> Result<Vec<u64>> {
        let index = self.index();
        let most = usize::try_from(MOST_COUNTED + 1).unwrap_or(usize::MAX);
        let count = |key: &String| index.flagged(key, prefix, None).take(most).count() as u64;
        Ok(keys.iter().map(count).collect())
    }

    async fn flag_keys(&self, begin: &str, limit: usize) -> Result<Vec<String>> {
        Ok(self.index().flags(begin).take(limit).map(str::to_owned).collect())
    }
}

impl Memory {
    /// The records that want attention, the earliest first.
    pub(crate) fn due(&self, query: DueQuery<'_>, now: Time) -> Due {
        let index = self.index();
        let mut due: Vec<(Time, &str)> = Vec::new();
        for kind in query.kinds {
            due.extend(index.due(kind).skip(query.skip).take(query.limit.saturating_add(1)));
        }
        due.sort_unstable();
        due.dedup();
        let ready = due.iter().take(query.limit).take_while(|(at, _)| *at < query.until).count();
        let next_due = due.get(ready).map(|(at, _)| *at);
        let found = due[..ready]
            .iter()
            .filter_map(|(_, name)| Some(index.get(name)?.0.to_record().state(name)));
        Due::new(now, found.collect(), next_due)
    }

    pub(crate) fn page(&self, page: Page<'_>) -> Vec<(String, Result<Record, String>)> {
        let index = self.index();
        let records = index
            .names_after(page.after.unwrap_or_default())
            .filter(|name| name.starts_with(page.prefix))
            .filter_map(|name| Some((name, index.get(name)?.0)))
            .filter(|(_, record)| page.kind.is_none_or(|kind| record.kind() == kind));
        records
            .take(page.limit)
            .map(|(name, record)| (name.to_owned(), Ok(record.to_record())))
            .collect()
    }
}
