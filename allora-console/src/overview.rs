//! The facts of the first page: how many jobs are in which state, and those that need a person.
//!
//! This is the only place that knows how these facts are found: it reads the list of the jobs, up to a
//! limit, and counts. A store that answers flags and counts from an index replaces `read`, and nothing
//! else changes.

use crate::{
    shared::Shared,
    words::{Around, Word, words},
};
use allora_core::{
    ActiveCondition, Condition, ErrorKind, NodeInfo, Result, Schedules, Time,
    backend::JobState,
    is_internal,
    stored::{Definition, Filter},
};
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

/// The largest number of jobs that are read.
pub(crate) const MOST: usize = 10_000;

/// The largest number of concurrency keys that are read for due jobs.
const MOST_KEYS: usize = 50;

/// The state of a store.
#[derive(Debug, Default)]
pub(crate) struct Overview {
    /// The number of jobs, and whether these are all.
    pub(crate) jobs: usize,
    pub(crate) is_whole: bool,
    /// The jobs by their states; a job is in each state that holds.
    pub(crate) by_word: BTreeMap<Word, Vec<JobState>>,
    /// The job that is due next.
    pub(crate) next: Option<(String, Time)>,
    pub(crate) nodes: Vec<NodeInfo>,
    /// Kinds that no live node handles.
    pub(crate) unhandled: Vec<Condition>,
    /// The conditions that the node of this process sees.
    pub(crate) conditions: Vec<ActiveCondition>,
}

impl Overview {
    pub(crate) async fn read(shared: &Shared, now: Time) -> Result<Self> {
        let schedules = &shared.schedules;
        let mut states = schedules.list(Filter::default(), None, MOST + 1).await?;
        let is_whole = states.len() <= MOST;
        states.truncate(MOST);
        let nodes = schedules.nodes().await?;
        let unhandled = schedules.unhandled_kinds().await?;
        let conditions = match &shared.handle {
            Some(handle) => handle.health().conditions,
            None => Vec::new(),
        };
        let busy = waiting_for_keys(schedules, &states, now).await?;
        let found = Self { is_whole, nodes, unhandled, conditions, ..Self::default() };
        Ok(found.with_jobs(states, &busy, now))
    }

    /// Counts these jobs. `busy`: the names of those that wait for a concurrency key.
    fn with_jobs(mut self, states: Vec<JobState>, busy: &HashSet<String>, now: Time) -> Self {
        for mut state in states.into_iter().filter(|state| !is_internal(&state.name)) {
            // No list shows it, and it may be large.
            state.data = Vec::new();
            let around = Around {
                is_orphaned: NodeInfo::is_orphan(&self.nodes, &state),
                is_key_busy: busy.contains(&state.name),
            };
            let words = words(&state, around, now);
            self.jobs += 1;
            if words.contains(&Word::Waiting)
                && let Some(due_at) = state.due_at
                && self.next.as_ref().is_none_or(|(_, next)| due_at < *next)
            {
                self.next = Some((state.name.clone(), due_at));
            }
            for word in words {
                self.by_word.entry(word).or_default().push(state.clone());
            }
        }
        self
    }

    /// The jobs in this state.
    pub(crate) fn of(&self, word: Word) -> &[JobState] {
        self.by_word.get(&word).map_or(&[], Vec::as_slice)
    }

    /// All jobs, those that need a person first; one in several states is there several times.
    pub(crate) fn each(&self) -> impl Iterator<Item = &JobState> {
        self.by_word.values().flatten()
    }

    /// The number of jobs in this state.
    pub(crate) fn count(&self, word: Word) -> usize {
        self.of(word).len()
    }
}

/// The names of the due jobs that wait for a concurrency key.
pub(crate) async fn waiting_for_keys(
    schedules: &Schedules,
    states: &[JobState],
    now: Time,
) -> Result<HashSet<String>> {
    let is_due =
        |state: &&JobState| state.leases.is_empty() && state.due_at.is_some_and(|due| due <= now);
    let mut by_record: BTreeMap<Arc<str>, Vec<(u32, &str)>> = BTreeMap::new();
    for state in states.iter().filter(is_due) {
        let Ok(definition) = Definition::parse(&state.name, &state.definition) else { continue };
        if let Some(key) = &definition.settings().concurrency_key {
            by_record.entry(key.record()).or_default().push((key.limit, &state.name));
        }
    }
    let mut waiting = HashSet::new();
    for (record, jobs) in by_record.into_iter().take(MOST_KEYS) {
        let record = match schedules.get(&record).await {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            record => record?,
        };
        let holders = record.leases.iter().filter(|lease| lease.until > now).count();
        let wait = jobs.into_iter().filter(|(limit, _)| holders >= *limit as usize);
        waiting.extend(wait.map(|(_, name)| name.to_owned()));
    }
    Ok(waiting)
}

#[cfg(test)]
impl Overview {
    /// The overview of these jobs, without nodes.
    pub(crate) fn of_test(states: Vec<JobState>, now: Time) -> Self {
        Self { is_whole: true, ..Self::default() }.with_jobs(states, &HashSet::new(), now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::times::at;
    use allora_core::Outcome;

    #[test]
    fn jobs_are_counted_in_every_state_they_are_in_and_the_next_one_is_found() {
        let now = at("2026-10-26T02:00:00Z");
        let job = |name: &str, due_at: &str| {
            let mut state = JobState::empty(name);
            state.due_at = Some(at(due_at));
            state
        };
        let mut failing = job("b", "2026-10-26T04:00:00Z");
        failing.last = Some(Outcome::Failed("refused".into()));
        let jobs = vec![
            job("a", "2026-10-26T05:00:00Z"),
            failing,
            job("c", "2026-10-26T01:00:00Z"),
            job("d", "2026-10-26T03:00:00Z"),
        ];
        let overview = Overview::of_test(jobs, now);
        assert_eq!((overview.jobs, overview.count(Word::Waiting)), (4, 3));
        assert_eq!(overview.of(Word::Overdue)[0].name, "c");
        assert_eq!((overview.count(Word::Failing), overview.each().count()), (1, 5));
        assert_eq!(overview.next, Some(("d".into(), at("2026-10-26T03:00:00Z"))));
    }
}
