//! The facts of the first page: how many jobs are in which state, and those that need a person.
//!
//! Of a small store, all jobs are read. Of a larger one, the store counts them by their flags, and only those are
//! read that are due first, run, or may need a person.

use crate::{
    reader::Reader,
    words::{Around, Word, words},
};
use allora_core::{
    ActiveCondition, Condition, ErrorKind, Handle, NodeInfo, Result, Time,
    backend::{Count, Counts, Flag, JobState},
    is_internal,
    stored::Filter,
};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// The largest number of jobs that are read at first, and then for each state.
const READ: usize = 500;

/// The states whose jobs are looked for.
const SOUGHT: [Word; 7] = [
    Word::Unreadable,
    Word::Overdue,
    Word::Dead,
    Word::Failing,
    Word::Orphaned,
    Word::Running,
    Word::Paused,
];

/// The state of a store.
#[derive(Debug, Default)]
pub(crate) struct Overview {
    /// The number of jobs that were read, and whether these are all.
    pub(crate) jobs: usize,
    pub(crate) is_whole: bool,
    /// The numbers of all jobs, if these are not all.
    counts: Counts,
    /// The states of which all jobs were read.
    whole: BTreeSet<Word>,
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
    pub(crate) async fn read(reader: &Reader, handle: Option<&Handle>, now: Time) -> Result<Self> {
        let mut found = Self {
            nodes: reader.nodes().await?,
            unhandled: reader.unhandled_kinds().await?,
            conditions: reader.conditions(handle),
            ..Self::default()
        };
        let first = reader.first(READ).await?;
        found.is_whole = first.len() < READ;
        found.add(reader, first, now).await?;
        if found.is_whole || reader.lists_by_due() {
            found.next = found.earliest();
        }
        if !found.is_whole {
            found.counts = reader.counts(now).await?;
            let mut states = Vec::new();
            for word in SOUGHT {
                states.extend(found.sought(word, reader).await?);
            }
            // Dead letters may be missing in these, so they come last.
            states.append(&mut found.counts.active);
            found.add(reader, states, now).await?;
        }
        Ok(found)
    }

    /// The jobs with the flag of this state, unless there is none.
    async fn sought(&mut self, word: Word, reader: &Reader) -> Result<Vec<JobState>> {
        let Some(flag) = flag(word) else { return Ok(Vec::new()) };
        let count = self.counts.of(flag).unwrap_or_default();
        if count == Count::new(0, true) || flag.key().is_none() {
            // Those that no index has were read when they were counted.
            self.whole.extend(count.is_exact.then_some(word));
            return Ok(Vec::new());
        }
        let page = reader.flagged(flag, Filter::default(), None, READ).await?;
        if page.next.is_none() && page.is_complete {
            self.whole.insert(word);
        }
        Ok(page.found)
    }

    /// Reads these jobs too, as far as they exist.
    pub(crate) async fn learn(
        &mut self,
        reader: &Reader,
        names: &[String],
        now: Time,
    ) -> Result<()> {
        let mut states = Vec::new();
        for name in names {
            match reader.get(name).await {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                state => states.push(state?),
            }
        }
        self.add(reader, states, now).await
    }

    async fn add(&mut self, reader: &Reader, states: Vec<JobState>, now: Time) -> Result<()> {
        let busy = reader.waiting_for_keys(&states, now).await?;
        self.add_known(states, &busy, now);
        Ok(())
    }

    /// Adds those of these jobs that are not there yet. `busy`: the names of those that wait for a concurrency key.
    fn add_known(&mut self, states: Vec<JobState>, busy: &HashSet<String>, now: Time) {
        let mut known: HashSet<String> = self.each().map(|state| state.name.clone()).collect();
        for mut state in states {
            if is_internal(&state.name) || !known.insert(state.name.clone()) {
                continue;
            }
            // No list shows them, and they may be large.
            (state.data, state.checkpoints) = (Vec::new(), Vec::new());
            let around = Around {
                is_orphaned: NodeInfo::is_orphan(&self.nodes, &state),
                is_key_busy: busy.contains(&state.name),
            };
            let words = words(&state, around, now);
            self.jobs += 1;
            for word in words {
                self.by_word.entry(word).or_default().push(state.clone());
            }
        }
    }

    /// Of the jobs that were read, the one that is due next.
    fn earliest(&self) -> Option<(String, Time)> {
        let due = |state: &JobState| state.due_at.map(|due_at| (state.name.clone(), due_at));
        self.of(Word::Waiting).iter().filter_map(due).min_by_key(|(_, due_at)| *due_at)
    }

    /// The jobs in this state, as far as they were read.
    pub(crate) fn of(&self, word: Word) -> &[JobState] {
        self.by_word.get(&word).map_or(&[], Vec::as_slice)
    }

    /// All jobs that were read, those that need a person first; one in several states is there several times.
    pub(crate) fn each(&self) -> impl Iterator<Item = &JobState> {
        self.by_word.values().flatten()
    }

    /// `true` if all jobs in this state were read.
    pub(crate) fn has_all(&self, word: Word) -> bool {
        self.is_whole || self.whole.contains(&word)
    }

    /// The number of all jobs.
    pub(crate) fn all(&self) -> Count {
        match self.is_whole {
            true => Count::new(self.jobs as u64, true),
            false => self.counts.jobs(),
        }
    }

    /// The number of jobs in this state; `None` if it is not known.
    pub(crate) fn count(&self, word: Word) -> Option<Count> {
        let read = self.of(word).len() as u64;
        match (self.has_all(word), word) {
            (true, _) => Some(Count::new(read, true)),
            (false, Word::Waiting) => None,
            (false, Word::Orphaned | Word::KeyWait | Word::Due) => Some(Count::new(read, false)),
            (false, _) => flag(word).and_then(|flag| self.counts.of(flag)),
        }
    }
}

/// The flag by which the jobs in this state are looked for.
fn flag(word: Word) -> Option<Flag<'static>> {
    match word {
        Word::Unreadable => Some(Flag::Unreadable),
        word => word.flag(),
    }
}

#[cfg(test)]
impl Overview {
    /// The overview of these jobs, without nodes.
    pub(crate) fn of_test(states: Vec<JobState>, now: Time) -> Self {
        let mut overview = Self { is_whole: true, ..Self::default() };
        overview.add_known(states, &HashSet::new(), now);
        overview.next = overview.earliest();
        overview
    }

    /// As of a larger store with these numbers, of which these jobs were read.
    pub(crate) fn of_many(states: Vec<JobState>, counts: Counts, now: Time) -> Self {
        Self { is_whole: false, counts, ..Self::of_test(states, now) }
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
        let number = |word| overview.count(word).map(|count| count.number);
        assert_eq!((overview.jobs, number(Word::Waiting)), (4, Some(3)));
        assert_eq!(overview.of(Word::Overdue)[0].name, "c");
        assert_eq!((number(Word::Failing), overview.each().count()), (Some(1), 5));
        assert_eq!(overview.next, Some(("d".into(), at("2026-10-26T03:00:00Z"))));
    }

    #[test]
    fn of_a_larger_store_the_numbers_are_those_of_the_flags() {
        let now = at("2026-10-26T02:00:00Z");
        let mut dead = JobState::empty("a");
        dead.last = Some(Outcome::Lost);
        let mut counts = Counts::default();
        counts.states.push((Flag::Failing, Count::new(1_200, true)));
        counts.kinds.push(("mail".into(), Count::new(20_000, true)));
        let mut overview = Overview::of_many(vec![dead], counts, now);
        assert_eq!(overview.all().to_string(), "more than 10000");
        assert_eq!(overview.count(Word::Failing), Some(Count::new(1_200, true)));
        assert_eq!(overview.count(Word::Waiting), None);
        overview.whole.insert(Word::Failing);
        assert_eq!(overview.count(Word::Failing), Some(Count::new(1, true)));
    }
}
