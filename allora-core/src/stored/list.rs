//! Lists of schedules: by name, the order of the stores, and by due time.

use super::{Definition, Schedules};
use crate::{
    backend::{Counts, DueQuery, Flag, Flagged, JobState, Page},
    error::{ErrorKind, Result},
    time::{Time, end_of_time},
};
use futures::{StreamExt, TryStreamExt, stream};
use std::collections::{BinaryHeap, HashSet};

/// The schedules to list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Filter<'a> {
    /// Names that begin with this text.
    pub prefix: &'a str,
    /// Schedules of this kind only.
    pub kind: Option<&'a str>,
    /// Schedules in this state only.
    pub state: Option<ScheduleState>,
    /// Stored schedules with this tag only.
    pub tag: Option<&'a str>,
    /// Stored schedules of this owner only.
    pub owner: Option<&'a str>,
    /// Stored schedules only, without the jobs in code.
    pub stored_only: bool,
}

/// A state of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleState {
    /// It waits for its next occurrence.
    Waiting,
    /// It has an active run.
    Running,
    /// It is paused.
    Paused,
    /// It has no further occurrence.
    Ended,
    /// It has dead letters.
    Dead,
    /// Its last attempt failed or was lost.
    Failing,
    /// Its record or its definition cannot be read, or the store lacks a calendar that it names.
    Broken,
}

impl ScheduleState {
    /// `true` if the schedule is in this state. States overlap: a paused schedule may be
    /// running, and have dead letters. The state does not show a missing calendar:
    /// [`Schedules::list`] and [`Schedules::definition`] find it.
    pub fn holds(self, state: &JobState) -> bool {
        if let Some(flag) = self.flag() {
            return flag.holds(state, Time::UNIX_EPOCH);
        }
        let is_broken =
            || !state.kind.is_empty() && Definition::parse(&state.name, &state.definition).is_err();
        match self {
            ScheduleState::Broken => state.unreadable.is_some() || is_broken(),
            _ => state.leases.is_empty() && state.paused.is_none() && state.due_at.is_some(),
        }
    }

    /// The flag that says the same; `None` if a store has no index of the state.
    fn flag(self) -> Option<Flag<'static>> {
        match self {
            ScheduleState::Running => Some(Flag::Running),
            ScheduleState::Paused => Some(Flag::Paused),
            ScheduleState::Ended => Some(Flag::Ended),
            ScheduleState::Dead => Some(Flag::Dead),
            ScheduleState::Failing => Some(Flag::Failing),
            ScheduleState::Waiting | ScheduleState::Broken => None,
        }
    }
}

impl<'a> Filter<'a> {
    /// Lists names that begin with this text.
    #[must_use]
    pub fn prefix(mut self, prefix: &'a str) -> Self {
        self.prefix = prefix;
        self
    }

    /// Lists schedules of this kind only.
    #[must_use]
    pub fn kind(mut self, kind: &'a str) -> Self {
        self.kind = Some(kind);
        self
    }

    /// Lists stored schedules with this tag only.
    #[must_use]
    pub fn tag(mut self, tag: &'a str) -> Self {
        self.tag = Some(tag);
        self
    }

    /// Lists stored schedules of this owner only.
    #[must_use]
    pub fn owner(mut self, owner: &'a str) -> Self {
        self.owner = Some(owner);
        self
    }

    /// Lists stored schedules only, without the jobs in code.
    #[must_use]
    pub fn stored_only(mut self) -> Self {
        self.stored_only = true;
        self
    }

    /// Lists schedules in this state only.
    #[must_use]
    pub fn state(mut self, state: ScheduleState) -> Self {
        self.state = Some(state);
        self
    }
}

/// The number of schedules that one request of a list reads.
pub(super) const PAGE: usize = 500;

/// The number of records that are read at a time.
const AT_A_TIME: usize = 16;

impl Schedules {
    /// The next `limit` jobs with names after `after`, by name. Jobs that come and go do not shift
    /// the pages.
    ///
    /// By a state, an owner, a tag or a kind, only the jobs that have it are read, where the store keeps an
    /// index of [flags](Flag). Three need a look at all jobs: those that wait, those that are broken and,
    /// among more than 2,000, those that run.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn list(
        &self,
        filter: Filter<'_>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<JobState>> {
        let mut listed = Vec::new();
        let mut pages = self.pages(filter, after);
        while listed.len() < limit {
            let Some(states) = pages.next(limit - listed.len()).await? else { break };
            listed.extend(states);
        }
        listed.truncate(limit);
        Ok(listed)
    }

    /// The `limit` jobs that are due first, the earliest first. Jobs without a next occurrence come
    /// last.
    ///
    /// Without another filter than [`Filter::stored_only`] and a kind, at most 500 stored schedules are
    /// read from the due index of the store: those that are returned, and those with active runs whose
    /// leases end before. Jobs in code, which the index lacks, are all read. Of jobs that are due at the
    /// same time as the last one, any may be returned. With another filter, or if fewer stored schedules
    /// have a next occurrence, the function reads all that [`list`](Self::list) does.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn list_by_due(&self, filter: Filter<'_>, limit: usize) -> Result<Vec<JobState>> {
        if let Some(first) = self.first_of_index(filter, limit).await? {
            return Ok(first);
        }
        let mut first: BinaryHeap<ByDue> = BinaryHeap::new();
        let mut pages = self.pages(filter, None);
        while let Some(states) = pages.next(PAGE).await? {
            for state in states {
                first.push(ByDue(state));
                if first.len() > limit {
                    first.pop();
                }
            }
        }
        Ok(first.into_sorted_vec().into_iter().map(|by_due| by_due.0).collect())
    }

    /// A page of the jobs with this flag, ordered by name as bytes: see
    /// [`Queries::flagged`](crate::backend::Queries::flagged).
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn flagged(&self, flag: Flag<'_>, page: Page<'_>) -> Result<Flagged> {
        let flagged = self.queries()?.flagged(flag, page, self.now());
        let mut flagged = self.within("flagged", flagged).await?;
        self.end_pauses(&mut flagged.found).await?;
        Ok(flagged)
    }

    /// The numbers of jobs with each flag, of those whose names begin with `prefix`: see
    /// [`Queries::counts`](crate::backend::Queries::counts).
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn counts(&self, prefix: &str) -> Result<Counts> {
        self.within("counts", self.queries()?.counts(prefix, self.now())).await
    }

    /// The schedules that are due first, from the due index; `None` if it does not have all of them.
    async fn first_of_index(
        &self,
        filter: Filter<'_>,
        limit: usize,
    ) -> Result<Option<Vec<JobState>>> {
        if !filter.is_of_index() || !(1..=PAGE).contains(&limit) {
            return Ok(None);
        }
        let queries = self.queries()?;
        let kinds = match filter.kind {
            Some(kind) => vec![kind.to_owned()],
            None => self.within("kinds", queries.kinds()).await?,
        };
        let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
        let mut size = limit;
        while size <= PAGE && !kinds.is_empty() {
            let query = DueQuery::new(&kinds, end_of_time(), size);
            let mut due = self.within("find_due", queries.find_due(query, self.now())).await?;
            self.end_pauses(&mut due.found).await?;
            // No schedule is listed later than it is due, and one whose lease ends before is listed
            // earlier: all that are due until the next entry of the index are among those found.
            let is_first = |state: &JobState| {
                let at = state.due_at;
                at.is_some_and(|at| due.next_due.is_none_or(|next_due| at <= next_due))
            };
            let mut first: Vec<ByDue> = due.found.into_iter().filter(is_first).map(ByDue).collect();
            if first.len() >= limit {
                if !filter.stored_only && filter.kind.is_none() {
                    let in_code = self.list(filter.kind(""), None, usize::MAX).await?;
                    first.extend(in_code.into_iter().map(ByDue));
                }
                first.sort();
                first.truncate(limit);
                return self.read_all(first).await.map(Some);
            }
            if due.next_due.is_none() {
                break;
            }
            size *= 2;
        }
        Ok(None)
    }

    /// The whole records: those from a due query may lack dead letters.
    async fn read_all(&self, found: Vec<ByDue>) -> Result<Vec<JobState>> {
        let reads: Vec<_> = found.into_iter().map(|found| self.read(found.0.name)).collect();
        let read: Vec<Option<JobState>> =
            stream::iter(reads).buffered(AT_A_TIME).try_collect().await?;
        Ok(read.into_iter().flatten().collect())
    }

    /// The record of this name; `None` if it was deleted meanwhile.
    async fn read(&self, name: String) -> Result<Option<JobState>> {
        match self.get(&name).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            read => read.map(Some),
        }
    }

    /// The pages of the jobs that the filter selects, with names after `after`.
    pub(super) fn pages<'a>(&'a self, filter: Filter<'a>, after: Option<&str>) -> Pages<'a> {
        let (after, is_over) = (after.map(str::to_owned), false);
        Pages { schedules: self, filter, flag: filter.flag(), after, is_over }
    }

    /// Those of these jobs that the filter selects.
    async fn select(&self, filter: Filter<'_>, mut states: Vec<JobState>) -> Result<Vec<JobState>> {
        let lacking = match filter.state {
            Some(ScheduleState::Broken) => self.lacking_calendars(&states).await?,
            _ => HashSet::new(),
        };
        let otherwise = Filter { state: None, ..filter };
        states.retain(|state| {
            filter.selects(state) || lacking.contains(&state.name) && otherwise.selects(state)
        });
        Ok(states)
    }
}

/// The pages of the jobs that a filter selects, by name.
pub(super) struct Pages<'a> {
    schedules: &'a Schedules,
    filter: Filter<'a>,
    /// The flag by which the store finds them; `None` if all jobs are read.
    flag: Option<Flag<'a>>,
    after: Option<String>,
    is_over: bool,
}

impl Pages<'_> {
    /// The next page, of about `limit` jobs, and of none if what was read was left out; `None` behind the
    /// last page.
    pub(super) async fn next(&mut self, limit: usize) -> Result<Option<Vec<JobState>>> {
        if self.is_over {
            return Ok(None);
        }
        let Self { schedules, filter, flag, .. } = *self;
        // Most of a page may be left out.
        let limit = if filter.leaves_out(flag) { PAGE } else { limit.min(PAGE) };
        let mut page = Page::first(limit).prefix(filter.prefix);
        page.after = self.after.as_deref();
        page.kind = filter.kind.filter(|kind| flag != Some(Flag::Kind(kind)));
        let Flagged { found, next, is_complete } = match flag {
            Some(flag) => schedules.flagged(flag, page).await?,
            None => {
                let mut found = schedules.within("list", schedules.queries()?.list(page)).await?;
                schedules.end_pauses(&mut found).await?;
                let last = found.last().filter(|_| found.len() == limit);
                let next = last.map(|state| state.name.clone());
                Flagged::new(found, next)
            }
        };
        if !is_complete && flag == Some(Flag::Running) {
            // What one call looks at does not have all runs.
            self.flag = None;
            return Ok(Some(Vec::new()));
        }
        (self.is_over, self.after) = (next.is_none(), next);
        schedules.select(filter, found).await.map(Some)
    }
}

impl<'a> Filter<'a> {
    /// The flag by which a store finds the jobs of the filter: the one that fewest jobs have, as a rule.
    fn flag(&self) -> Option<Flag<'a>> {
        let state = self.state.and_then(ScheduleState::flag);
        let label = self.owner.map(Flag::Owner).or(self.tag.map(Flag::Tag));
        let flag = if state == Some(Flag::Running) { label.or(state) } else { state.or(label) };
        flag.or(self.kind.map(Flag::Kind))
    }

    /// `true` if jobs that are found by this flag, or by none, may not be in the filter.
    fn leaves_out(&self, flag: Option<Flag<'_>>) -> bool {
        let others =
            [self.state.is_some(), self.owner.is_some(), self.tag.is_some(), self.stored_only];
        let is_one_found = flag.is_some_and(|flag| !matches!(flag, Flag::Kind(_)));
        others.into_iter().filter(|is_set| *is_set).count() > usize::from(is_one_found)
    }

    /// True if the due index has all jobs of the filter, but for those in code.
    fn is_of_index(&self) -> bool {
        let is_of_all = self.state.is_none() && self.owner.is_none() && self.tag.is_none();
        is_of_all && self.prefix.is_empty() && self.kind != Some("")
    }

    /// `true` if the state passes the parts of the filter that a page of a store does not know.
    fn selects(&self, state: &JobState) -> bool {
        let has = |flag: Flag<'_>| flag.holds(state, Time::UNIX_EPOCH);
        !(self.stored_only && state.kind.is_empty())
            && self.state.is_none_or(|one| one.holds(state))
            && self.owner.is_none_or(|owner| has(Flag::Owner(owner)))
            && self.tag.is_none_or(|tag| has(Flag::Tag(tag)))
    }
}

/// Ordered by due time and name. Jobs without a due time come last.
struct ByDue(JobState);

impl ByDue {
    fn key(&self) -> (bool, Option<Time>, &str) {
        (self.0.due_at.is_none(), self.0.due_at, &self.0.name)
    }
}

impl PartialEq for ByDue {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for ByDue {}

impl PartialOrd for ByDue {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByDue {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}
