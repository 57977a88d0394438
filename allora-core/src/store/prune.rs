//! The removal of old history, once for every store: entries are counted by the hour before they go, and
//! those that stay once in each hour.

use super::{
    RecordStore,
    history::{HistoryStore, PAGE},
    hours,
};
use crate::{
    backend::{HistoryEntry, HistoryQuery, HistoryTrim, TimeSource},
    error::{ErrorKind, Result},
    time::Time,
};
use std::collections::BTreeSet;

/// The most jobs whose entries one call counts without removing any. Calls come every ten seconds, so the
/// price does not follow the number of jobs: one job a second.
const COUNTED: usize = 10;

/// Removes what is beyond the limits, job by job. If a call is dropped, the next one goes on where it was.
/// The store may reject the removal for one job; the other jobs' entries are removed all the same.
pub(super) async fn prune<S: RecordStore>(
    store: &S,
    history: &dyn HistoryStore,
    time: TimeSource,
    now: Time,
) -> Result {
    let pruning = history.pruning();
    if !pruning.has_appended() {
        return Ok(());
    }
    let kept = pruning.limits().at(now);
    let mut rejected = Ok(());
    for name in pruning.due() {
        match trim(store, history, &name, kept, (time, now)).await {
            Ok(()) => pruning.trimmed(&name),
            Err(error) if error.kind() == ErrorKind::Unavailable => return Err(error),
            Err(error) => rejected = Err(error),
        }
    }
    for _ in 0..COUNTED {
        let Some((name, entries)) = pruning.uncounted(now) else { break };
        match hours::count(store, history, &name, (time, now)).await {
            Err(error) if error.kind() == ErrorKind::Unavailable => return Err(error),
            Err(error) => rejected = rejected.and(Err(error)),
            Ok(None) => {}
            // Its own limits are lower than those by which the others are trimmed.
            Ok(Some(limits)) => {
                let trimmed = history.trim_history(&name, limits.within(kept, now)).await;
                rejected = rejected.and(trimmed);
            }
        }
        pruning.counted(&name, entries);
    }
    while let Some(below) = pruning.place(&kept, now) {
        let page = history.history_entries(HistoryQuery::new(PAGE).before(&below)).await?;
        let is_old = |entry: &&HistoryEntry| entry.fence < kept.of(entry.outcome.is_failure()).from;
        let names: BTreeSet<&str> = page.iter().filter(is_old).map(|entry| &*entry.name).collect();
        for name in names {
            match trim(store, history, name, kept, (time, now)).await {
                Err(error) if error.kind() == ErrorKind::Unavailable => return Err(error),
                trimmed => rejected = rejected.and(trimmed),
            }
        }
        pruning.passed(page.last().map(HistoryEntry::cursor));
    }
    if pruning.forgets(now) {
        hours::forget(store, time, now).await?;
        pruning.forgot(now);
    }
    rejected
}

/// Counts the entries of a job, and removes those that are not kept.
async fn trim<S: RecordStore>(
    store: &S,
    history: &dyn HistoryStore,
    name: &str,
    kept: HistoryTrim,
    (time, now): (TimeSource, Time),
) -> Result {
    let limits = hours::count(store, history, name, (time, now)).await?;
    let kept = limits.map_or(kept, |limits| limits.within(kept, now));
    history.trim_history(name, kept).await
}
