//! Queries answered by the index.

use crate::Memory;
use allora_core::{
    Result, Time,
    backend::{Due, DueQuery, Page},
    record::Record,
};

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
