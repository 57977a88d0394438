//! Flags: what operators look for among jobs, and how many jobs have each.
//!
//! A store keeps an index of those flags that few changes touch: a job that fails, is paused, has dead
//! letters or has ended, its kind, its owner and its tags. The others follow from what is there in any
//! case. A run moves with each claim, so an index of runs would be written by each claim: what runs, is
//! overdue or cannot be read is found in the index of due times.

use super::{JobState, Outcome};
use crate::{
    job::owner_and_tags,
    time::{Time, saturating_add},
};
use std::{fmt, time::Duration};

/// The highest number of jobs that is counted exactly.
pub const MOST_COUNTED: u64 = 10_000;

/// The time after which a job that was not claimed is overdue.
pub const OVERDUE: Duration = Duration::from_secs(60);

/// A property by which jobs are found and counted. A job can have several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Flag<'a> {
    /// It has an active run.
    Running,
    /// It can be claimed, and no node has claimed it yet.
    Due,
    /// It could be claimed [a minute](OVERDUE) ago, and no node has claimed it.
    Overdue,
    /// Its last attempt failed or was lost.
    Failing,
    /// It has dead letters.
    Dead,
    /// It is paused.
    Paused,
    /// It has no further occurrence, and nothing of it runs or waits.
    Ended,
    /// Its record cannot be read.
    Unreadable,
    /// Runs after it are to be triggered ([`Chain::outbox`](super::Chain::outbox)). It is no state of
    /// a job, and has no number: nodes look for it.
    Outbox,
    /// It is a stored schedule of this kind; with an empty text, a job in code.
    Kind(&'a str),
    /// It is a stored schedule of this owner.
    Owner(&'a str),
    /// It is a stored schedule with this tag.
    Tag(&'a str),
}

/// The flags of a store's index that are no words of the definition.
pub(crate) const INDEXED: [Flag<'static>; 5] =
    [Flag::Failing, Flag::Dead, Flag::Paused, Flag::Ended, Flag::Outbox];

impl Flag<'_> {
    /// The flags that need no text, in the order in which pages and tables show them.
    pub const STATES: [Flag<'static>; 8] = [
        Flag::Running,
        Flag::Due,
        Flag::Overdue,
        Flag::Failing,
        Flag::Dead,
        Flag::Paused,
        Flag::Ended,
        Flag::Unreadable,
    ];

    /// The word for the flag in stores and tables.
    pub fn word(self) -> &'static str {
        match self {
            Flag::Running => "running",
            Flag::Due => "due",
            Flag::Overdue => "overdue",
            Flag::Failing => "failing",
            Flag::Dead => "dead",
            Flag::Paused => "paused",
            Flag::Ended => "ended",
            Flag::Unreadable => "unreadable",
            Flag::Outbox => "outbox",
            Flag::Kind(_) => "kind",
            Flag::Owner(_) => "owner",
            Flag::Tag(_) => "tag",
        }
    }

    /// The text under which a store keeps the jobs with the flag, at most 210 bytes; `None` if the flag
    /// follows from other parts of a record.
    pub fn key(self) -> Option<String> {
        match self {
            Flag::Running | Flag::Due | Flag::Overdue | Flag::Unreadable => None,
            Flag::Kind(text) | Flag::Owner(text) | Flag::Tag(text) => {
                Some(format!("{}:{text}", self.word()))
            }
            Flag::Failing | Flag::Dead | Flag::Paused | Flag::Ended | Flag::Outbox => {
                Some(self.word().to_owned())
            }
        }
    }

    /// `true` if a job in this state has the flag at `now`.
    pub fn holds(self, state: &JobState, now: Time) -> bool {
        if state.unreadable.is_some() {
            return self == Flag::Unreadable;
        }
        let is_stored = !state.kind.is_empty();
        match self {
            Flag::Running => state.leases.iter().any(|lease| lease.claim_id != 0),
            Flag::Due => state.due_at.is_some_and(|due_at| due_at <= now),
            Flag::Overdue => {
                state.due_at.is_some_and(|due_at| saturating_add(due_at, OVERDUE) <= now)
            }
            Flag::Failing => has_failed(state.last.as_ref()),
            Flag::Dead => !state.dead.is_empty(),
            Flag::Paused => state.paused.as_ref().is_some_and(|pause| pause.lasts(now)),
            Flag::Ended => {
                state.paused.is_none()
                    && state.leases.is_empty()
                    && state.next.is_none()
                    && state.head.is_none()
            }
            Flag::Unreadable => false,
            Flag::Outbox => state.chain.as_ref().is_some_and(|chain| !chain.outbox.is_empty()),
            Flag::Kind(kind) => state.kind == kind,
            Flag::Owner(owner) => {
                is_stored && owner_and_tags(&state.definition).0.as_deref() == Some(owner)
            }
            Flag::Tag(tag) => is_stored && owner_and_tags(&state.definition).1.contains(tag),
        }
    }
}

/// True if the last attempt of a job failed, so that it is failing until one succeeds. An attempt that
/// is tried again counts, because a job that fails each night would be healthy between its attempts.
pub(crate) fn has_failed(last: Option<&Outcome>) -> bool {
    matches!(
        last,
        Some(Outcome::Failed(_) | Outcome::Retried(_) | Outcome::Dead(_) | Outcome::Lost)
    )
}

/// A page of the jobs with a flag.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Flagged {
    /// The jobs, ordered by name as bytes.
    pub found: Vec<JobState>,
    /// The name after which the next page begins; `None` if this one is the last. A page can be short,
    /// or empty, and have a next one.
    pub next: Option<String>,
    /// `false` if jobs with the flag may be missing: the store has no index of it, and the call has
    /// read as much as one call reads.
    pub is_complete: bool,
}

impl Flagged {
    /// These jobs, with nothing missing between them.
    pub fn new(found: Vec<JobState>, next: Option<String>) -> Self {
        Self { found, next, is_complete: true }
    }

    /// The call did not read everything.
    #[must_use]
    pub fn incomplete(mut self) -> Self {
        self.is_complete = false;
        self
    }
}

/// A number of jobs.
///
/// ```
/// use allora::backend::Count;
///
/// assert_eq!(Count::new(9_999, true).to_string(), "9999");
/// assert_eq!(Count::new(10_001, true).to_string(), "more than 10000");
/// assert_eq!(Count::new(12, false).to_string(), "at least 12");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Count {
    /// The number, at most [`MOST_COUNTED`].
    pub number: u64,
    /// `false` if there may be more.
    pub is_exact: bool,
}

impl Count {
    /// So many jobs were counted. `is_whole`: all jobs were looked at.
    pub fn new(number: u64, is_whole: bool) -> Self {
        Self { number: number.min(MOST_COUNTED), is_exact: is_whole && number <= MOST_COUNTED }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.is_exact, self.number) {
            (true, number) => write!(f, "{number}"),
            (false, MOST_COUNTED..) => write!(f, "more than {MOST_COUNTED}"),
            (false, number) => write!(f, "at least {number}"),
        }
    }
}

/// The numbers of jobs with each flag.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Counts {
    /// Of each of [`Flag::STATES`], in their order.
    pub states: Vec<(Flag<'static>, Count)>,
    /// Of each kind; under the empty text, of the jobs in code. Ordered as bytes, at most 1 000.
    pub kinds: Vec<(String, Count)>,
    /// Of each owner, as [`kinds`](Self::kinds).
    pub owners: Vec<(String, Count)>,
    /// Of each tag, as [`kinds`](Self::kinds).
    pub tags: Vec<(String, Count)>,
    /// The jobs that run, are due or overdue, or cannot be read, ordered by name: those that were
    /// counted. Dead letters may be missing in them.
    pub active: Vec<JobState>,
}

impl Counts {
    /// The number of jobs with this flag; `None` if the flag is not among those that were counted.
    pub fn of(&self, flag: Flag<'_>) -> Option<Count> {
        let in_list = |list: &[(String, Count)], text: &str| {
            list.iter().find(|(of, _)| of == text).map(|(_, count)| *count)
        };
        match flag {
            Flag::Kind(kind) => in_list(&self.kinds, kind),
            Flag::Owner(owner) => in_list(&self.owners, owner),
            Flag::Tag(tag) => in_list(&self.tags, tag),
            state => self.states.iter().find(|(of, _)| *of == state).map(|(_, count)| *count),
        }
    }

    /// The number of all jobs.
    pub fn jobs(&self) -> Count {
        let sum = self.kinds.iter().map(|(_, count)| count.number).sum();
        let is_whole = self.kinds.iter().all(|(_, count)| count.is_exact);
        Count::new(sum, is_whole && self.kinds.len() < MOST_TEXTS)
    }

    /// The numbers among these jobs. `is_whole`: there are no others.
    pub fn among(states: &[JobState], now: Time, is_whole: bool) -> Self {
        let mut counts = Self::default();
        for flag in Flag::STATES {
            let number = states.iter().filter(|state| flag.holds(state, now)).count();
            counts.states.push((flag, Count::new(number as u64, is_whole)));
        }
        counts.active = states.iter().filter(|state| is_active(state, now)).cloned().collect();
        let (mut kinds, mut owners, mut tags) = (Tally::new(), Tally::new(), Tally::new());
        for state in states.iter().filter(|state| state.unreadable.is_none()) {
            *kinds.entry(state.kind.clone()).or_default() += 1;
            if state.kind.is_empty() {
                continue;
            }
            let (owner, of_tags) = owner_and_tags(&state.definition);
            owner.into_iter().for_each(|owner| *owners.entry(owner).or_default() += 1);
            of_tags.into_iter().for_each(|tag| *tags.entry(tag).or_default() += 1);
        }
        let list = |tally: Tally| {
            let counted = |(text, number)| (text, Count::new(number, is_whole));
            tally.into_iter().take(MOST_TEXTS).map(counted).collect()
        };
        (counts.kinds, counts.owners, counts.tags) = (list(kinds), list(owners), list(tags));
        counts
    }
}

/// `true` if the job has one of the flags of which no index is kept.
pub(crate) fn is_active(state: &JobState, now: Time) -> bool {
    Flag::STATES.into_iter().any(|flag| flag.key().is_none() && flag.holds(state, now))
}

/// The most kinds, owners or tags that are counted.
pub(crate) const MOST_TEXTS: usize = 1_000;

type Tally = std::collections::BTreeMap<String, u64>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        backend::{Lease, OnExpiry, Pause},
        time::from_millis,
    };

    #[test]
    fn a_job_in_each_state_has_its_flags() {
        let at = |seconds: i64| from_millis(seconds * 1_000).unwrap();
        let flags = |state: &JobState, now| {
            let held = Flag::STATES.into_iter().filter(|flag| flag.holds(state, at(now)));
            held.map(Flag::word).collect::<Vec<_>>()
        };
        let mut state = JobState::empty("job");
        assert_eq!(flags(&state, 0), ["ended"]);
        (state.next, state.head, state.due_at) =
            (Some(at(60).into()), Some(at(60).into()), Some(at(60)));
        assert!(flags(&state, 59).is_empty());
        assert_eq!(flags(&state, 119), ["due"]);
        assert_eq!(flags(&state, 120), ["due", "overdue"]);
        state.leases = vec![Lease::new("n", 1, 1, at(60).into(), at(200), OnExpiry::Retry)];
        (state.due_at, state.last) = (Some(at(200)), Some(Outcome::Retried("e".into())));
        assert_eq!(flags(&state, 150), ["running", "failing"]);
        state.paused = Some(Pause { since: at(1), until: Some(at(151)), note: String::new() });
        assert_eq!(flags(&state, 150), ["running", "failing", "paused"]);
        assert_eq!(flags(&state, 151), ["running", "failing"], "a pause that is over");
        state.paused = None;
        state.leases[0].claim_id = 0;
        state.last = Some(Outcome::Interrupted);
        assert!(flags(&state, 150).is_empty(), "it was cancelled while it waited");
        assert_eq!(flags(&JobState::unreadable("job", "why"), 0), ["unreadable"]);
    }

    #[test]
    fn owner_and_tags_are_those_of_stored_schedules() {
        let mut state = JobState::empty("job");
        state.definition = "@daily; owner sales; tags eu,gold".into();
        let flags = [Flag::Owner("sales"), Flag::Tag("eu"), Flag::Tag("gold")];
        assert!(!flags.iter().any(|flag| flag.holds(&state, Time::UNIX_EPOCH)));
        state.kind = "mail".into();
        assert!(flags.iter().all(|flag| flag.holds(&state, Time::UNIX_EPOCH)));
        assert!(!Flag::Tag("e").holds(&state, Time::UNIX_EPOCH));
        let counts = Counts::among(&[state, JobState::empty("code")], Time::UNIX_EPOCH, true);
        let one = Count::new(1, true);
        for flag in [Flag::Owner("sales"), Flag::Tag("eu"), Flag::Kind("mail"), Flag::Kind("")] {
            assert_eq!(counts.of(flag), Some(one), "{flag:?}");
        }
        assert_eq!(counts.of(Flag::Paused), Some(Count::new(0, true)));
        assert_eq!(counts.of(Flag::Owner("other")), None);
    }
}
