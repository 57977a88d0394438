//! The history that the store has recorded, read while the workers run: a store that is emptied takes it along.

use super::background::{Background, Found};
use crate::{clock, store::Store};
use allora_core::backend::{HistoryCursor, HistoryEntry, HistoryQuery};
use std::{collections::HashMap, time::Duration};

/// The time between two reads, and the age up to which runs may still have ended since the last one.
const EACH: Duration = Duration::from_secs(2);
const AGE: Duration = Duration::from_secs(30);

/// The largest number of entries of one read.
const MOST: usize = 20_000;

/// The entries that were read.
pub(super) type Kept = HashMap<HistoryCursor, HistoryEntry>;

/// Reads until it is dropped.
pub(super) fn keep(store: Store) -> Background<Kept> {
    Background::start(|kept: Found<Kept>| async move {
        loop {
            clock::pause(EACH).await;
            let Some(history) = store.history() else { return };
            let query = HistoryQuery::new(MOST).from(clock::now() - AGE);
            // A store that does not answer is asked again.
            let entries = history.entries(query).await.unwrap_or_default();
            kept.lock().extend(entries.into_iter().map(|entry| (entry.cursor(), entry)));
        }
    })
}
