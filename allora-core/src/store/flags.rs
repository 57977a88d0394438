//! The flags of jobs: once for every store that keeps an index of them.
//!
//! The index has names only. What a page shows is the record as it is now, so a name too many does no
//! harm.

use super::{Load, RecordStore};
use crate::{
    backend::{
        Count, Counts, DueQuery, Flag, Flagged, INDEXED, JobState, MOST_TEXTS, OVERDUE, Page,
        TimeSource, is_active,
    },
    error::Result,
    record::Record,
    time::{Time, end_of_time, saturating_add},
};
use async_trait::async_trait;
use std::collections::BTreeMap;

/// The number of names whose records are read at once.
const CHUNK: usize = 500;

/// The most jobs that one call reads.
const READ: usize = 10_000;

/// The most entries of the due index that are looked at for what runs, is overdue or cannot be read;
/// and the most paused jobs, and jobs in code.
const LOOKED_AT: usize = 2_000;

/// An index of the flags of jobs, written with the records
/// ([`Draft::flag_changes`](super::Draft::flag_changes)).
///
/// # Errors
/// Every method: `Unavailable`.
#[async_trait]
pub trait FlagStore: Send + Sync {
    /// The names under this [key](Flag::key), ordered as bytes: those that begin with `prefix` and are
    /// after `after`, at most `limit`.
    async fn flagged_names(
        &self,
        key: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>>;

    /// For each of these keys, the number of names under it that begin with `prefix`. A store may stop
    /// behind [`MOST_COUNTED`](crate::backend::MOST_COUNTED).
    async fn count_flagged(&self, keys: &[String], prefix: &str) -> Result<Vec<u64>>;

    /// The keys that begin with this text, ordered as bytes, at most `limit`. Keys without names may be
    /// among them.
    async fn flag_keys(&self, begin: &str, limit: usize) -> Result<Vec<String>>;
}

/// A page of the jobs with this flag.
pub(super) async fn flagged<S: RecordStore>(
    store: &S,
    index: &dyn FlagStore,
    flag: Flag<'_>,
    page: Page<'_>,
    time: TimeSource,
) -> Result<Flagged> {
    let is_wanted = |state: &JobState| page.kind.is_none_or(|kind| state.kind == kind);
    let Some(key) = flag.key() else {
        let looked = look(store, index, page.prefix, time).await?;
        let is_complete = looked.is_complete(flag);
        let names = looked.states.into_values().filter(|state| {
            let is_after = page.after.is_none_or(|after| *state.name > *after);
            is_after && is_wanted(state) && flag.holds(state, looked.now)
        });
        let mut found: Vec<JobState> = names.take(page.limit.saturating_add(1)).collect();
        let has_more = found.len() > page.limit;
        found.truncate(page.limit);
        let next = found.last().filter(|_| has_more).map(|state| state.name.clone());
        let flagged = Flagged::new(found, next);
        return Ok(if is_complete { flagged } else { flagged.incomplete() });
    };
    // Only a pause ends by itself, and stays in the index until its record is written.
    let now = match flag {
        Flag::Paused => RecordStore::now(store, time).await?,
        _ => Time::UNIX_EPOCH,
    };
    let mut after = page.after.map(str::to_owned);
    let (mut found, mut read) = (Vec::new(), 0);
    while found.len() < page.limit {
        if read >= READ {
            return Ok(Flagged::new(found, after).incomplete());
        }
        let limit = match page.kind {
            None => (page.limit - found.len()).min(CHUNK),
            Some(_) => CHUNK,
        };
        let names = index.flagged_names(&key, page.prefix, after.as_deref(), limit).await?;
        let is_last = names.len() < limit;
        read += names.len();
        for state in states(store, &names).await? {
            if found.len() < page.limit && is_wanted(&state) && flag.holds(&state, now) {
                found.push(state);
            }
        }
        if is_last && found.len() < page.limit {
            return Ok(Flagged::new(found, None));
        }
        after = names.last().cloned();
    }
    // Of the last names, some may be behind the page.
    let next = found.last().map(|state: &JobState| state.name.clone());
    Ok(Flagged::new(found, next))
}

/// The numbers of jobs with each flag, of those whose names begin with `prefix`.
pub(super) async fn counts<S: RecordStore>(
    store: &S,
    index: &dyn FlagStore,
    prefix: &str,
    time: TimeSource,
) -> Result<Counts> {
    let looked = look(store, index, prefix, time).await?;
    let states = INDEXED.into_iter().filter(|flag| Flag::STATES.contains(flag));
    let mut keys: Vec<String> = states.filter_map(Flag::key).collect();
    for begin in ["kind:", "owner:", "tag:"] {
        keys.extend(index.flag_keys(begin, MOST_TEXTS).await?);
    }
    let numbers = index.count_flagged(&keys, prefix).await?;
    let counted: BTreeMap<&str, u64> = keys.iter().map(String::as_str).zip(numbers).collect();
    let mut counts = Counts::default();
    for flag in Flag::STATES {
        // Of the paused jobs, some may be so no longer: they are looked at, as far as one call does that.
        let key = flag.key().filter(|_| flag != Flag::Paused || !looked.has_others);
        let count = match key {
            Some(key) => Count::new(counted.get(&*key).copied().unwrap_or_default(), true),
            None => {
                let has_it = looked.states.values().filter(|state| flag.holds(state, looked.now));
                Count::new(has_it.count() as u64, looked.is_complete(flag))
            }
        };
        counts.states.push((flag, count));
    }
    for (key, number) in counted.into_iter().filter(|(_, number)| *number > 0) {
        let Some((word, text)) = key.split_once(':') else { continue };
        let list = match word {
            "kind" => &mut counts.kinds,
            "owner" => &mut counts.owners,
            _ => &mut counts.tags,
        };
        list.push((text.to_owned(), Count::new(number, true)));
    }
    let now = looked.now;
    counts.active = looked.states.into_values().filter(|state| is_active(state, now)).collect();
    Ok(counts)
}

/// The jobs among which those that run, are overdue or cannot be read are found.
struct Looked {
    now: Time,
    states: BTreeMap<String, JobState>,
    /// No job is missing that is not in the due index.
    has_others: bool,
    /// The first time in the due index that was not looked at.
    next_due: Option<Time>,
}

impl Looked {
    fn is_complete(&self, flag: Flag<'_>) -> bool {
        let is_due_read = match (flag, self.next_due) {
            (Flag::Paused, _) => true,
            // The index begins with those.
            (Flag::Due, Some(next)) => next > self.now,
            (Flag::Overdue, Some(next)) => saturating_add(next, OVERDUE) > self.now,
            (_, next) => next.is_none(),
        };
        is_due_read && self.has_others
    }
}

/// Reads the first entries of the due index, in which every run of a stored schedule stands with the
/// end of its lease, and what is in no due index: paused jobs, and jobs in code.
async fn look<S: RecordStore>(
    store: &S,
    index: &dyn FlagStore,
    prefix: &str,
    time: TimeSource,
) -> Result<Looked> {
    let now = RecordStore::now(store, time).await?;
    let kinds = RecordStore::kinds(store).await?;
    let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    // At this time, and so with the leases of all nodes, whichever of them have live sessions.
    let query = DueQuery::new(&kinds, end_of_time(), LOOKED_AT);
    let due = RecordStore::find_due(store, query, TimeSource::Fixed(now)).await?;
    let mut has_others = true;
    let found = due.found.into_iter().filter(|state| state.name.starts_with(prefix));
    let mut all: BTreeMap<String, JobState> =
        found.map(|state| (state.name.clone(), state)).collect();
    for key in [Flag::Kind(""), Flag::Paused].into_iter().filter_map(Flag::key) {
        let names = index.flagged_names(&key, prefix, None, LOOKED_AT).await?;
        has_others &= names.len() < LOOKED_AT;
        for names in names.chunks(CHUNK) {
            let others = states(store, names).await?.into_iter();
            all.extend(others.map(|state| (state.name.clone(), state)));
        }
    }
    Ok(Looked { now, states: all, has_others, next_due: due.next_due })
}

/// The states of the jobs with these names, as far as they exist.
async fn states<S: RecordStore>(store: &S, names: &[String]) -> Result<Vec<JobState>> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let time = TimeSource::Fixed(Time::UNIX_EPOCH);
    let load = Load { fresh: true, ..Load::new("client", time, &names) };
    let loaded = store.load(load).await?.records;
    let mut states = Vec::with_capacity(names.len());
    for (name, loaded) in names.into_iter().zip(loaded) {
        let record = loaded?.record.map_err(|unreadable| unreadable.reason).transpose();
        states.extend(record.and_then(|record| shown(name, record)));
    }
    Ok(states)
}

/// The job as its readers see it; `None` if it was deleted.
pub(super) fn shown(name: &str, record: Result<Record, String>) -> Option<JobState> {
    match record {
        Ok(record) => record.is_live().then(|| record.state(name)),
        Err(reason) => Some(JobState::unreadable(name, reason)),
    }
}
