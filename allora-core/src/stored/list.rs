//! Lists of schedules: by name, the order of the stores, and by due time.

use super::{Definition, Schedules};
use crate::{
    backend::{DueQuery, JobState, Page},
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
    /// Its record or its definition cannot be read, or the store lacks a calendar that it names.
    Broken,
}

impl ScheduleState {
    /// `true` if the schedule is in this state. States overlap: a paused schedule may be
    /// running, and have dead letters. The state does not show a missing calendar:
    /// [`Schedules::list`] and [`Schedules::definition`] find it.
    pub fn holds(self, state: &JobState) -> bool {
        let idle = state.unreadable.is_none() && state.leases.is_empty() && state.paused.is_none();
        match self {
            ScheduleState::Waiting => idle && state.due_at.is_some(),
            ScheduleState::Running => !state.leases.is_empty(),
            ScheduleState::Paused => state.paused.is_some(),
            ScheduleState::Ended => idle && state.due_at.is_none(),
            ScheduleState::Dead => !state.dead.is_empty(),
            ScheduleState::Broken => {
                let unread = || Definition::parse(&state.name, &state.definition).is_err();
                state.unreadable.is_some() || (!state.kind.is_empty() && unread())
            }
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
        let mut after = after.map(str::to_owned);
        while listed.len() < limit {
            // Most of a page may be filtered out.
            let is_filtered = filter.state.is_some() || filter.has_labels() || filter.stored_only;
            let size = if is_filtered { PAGE } else { (limit - listed.len()).min(PAGE) };
            let states = self.page(filter, after.as_deref(), size).await?;
            let is_last = states.len() < size;
            after = states.last().map(|state| state.name.clone());
            listed.extend(self.select(filter, states).await?);
            if is_last {
                break;
            }
        }
        listed.truncate(limit);
        Ok(listed)
    }

    /// The `limit` jobs that are due first, the earliest first. Jobs without a next occurrence come
    /// last.
    ///
    /// With [`Filter::stored_only`] and no other filter than a kind, at most 500 jobs are read from the
    /// due index of the store: those that are returned, and those with active runs whose leases end
    /// before. Of jobs that are due at the same time as the last one, any may be returned. Otherwise,
    /// and if fewer jobs have a next occurrence, the function reads the whole list: the index lacks
    /// jobs in code and paused or ended schedules.
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
        let mut after: Option<String> = None;
        loop {
            let states = self.page(filter, after.as_deref(), PAGE).await?;
            let is_last = states.len() < PAGE;
            after = states.last().map(|state| state.name.clone());
            for state in self.select(filter, states).await? {
                first.push(ByDue(state));
                if first.len() > limit {
                    first.pop();
                }
            }
            if is_last {
                return Ok(first.into_sorted_vec().into_iter().map(|by_due| by_due.0).collect());
            }
        }
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
            let due = self.within("find_due", queries.find_due(query, self.now())).await?;
            // No schedule is listed later than it is due, and one whose lease ends before is listed
            // earlier: all that are due until the next entry of the index are among those found.
            let is_first = |state: &JobState| {
                let at = state.due_at;
                at.is_some_and(|at| due.next_due.is_none_or(|next_due| at <= next_due))
            };
            let mut first: Vec<ByDue> = due.found.into_iter().filter(is_first).map(ByDue).collect();
            if first.len() >= limit {
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

    /// The states of a page that pass the filter.
    pub(super) async fn select(
        &self,
        filter: Filter<'_>,
        states: Vec<JobState>,
    ) -> Result<Vec<JobState>> {
        let lacking = match filter.state {
            Some(ScheduleState::Broken) => self.lacking_calendars(&states).await?,
            _ => HashSet::new(),
        };
        let otherwise = Filter { state: None, ..filter };
        let is_selected = |state: &JobState| {
            is_in(filter, state) || lacking.contains(&state.name) && is_in(otherwise, state)
        };
        Ok(states.into_iter().filter(is_selected).collect())
    }

    pub(super) async fn page(
        &self,
        filter: Filter<'_>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<JobState>> {
        let mut page = Page::first(limit).prefix(filter.prefix);
        page.after = after;
        page.kind = filter.kind;
        let mut states = self.within("list", self.queries()?.list(page)).await?;
        self.end_pauses(&mut states).await?;
        Ok(states)
    }
}

impl Filter<'_> {
    fn has_labels(&self) -> bool {
        self.tag.is_some() || self.owner.is_some()
    }

    /// True if the due index has no jobs but those of the filter.
    fn is_of_index(&self) -> bool {
        self.stored_only
            && self.kind != Some("")
            && self.prefix.is_empty()
            && self.state.is_none()
            && !self.has_labels()
    }
}

/// `true` if the state passes the parts of the filter that no store knows.
pub(super) fn is_in(filter: Filter<'_>, state: &JobState) -> bool {
    if filter.stored_only && state.kind.is_empty() {
        return false;
    }
    if !filter.state.is_none_or(|one| one.holds(state)) {
        return false;
    }
    if !filter.has_labels() {
        return true;
    }
    let definition = Definition::parse(&state.name, &state.definition);
    definition.is_ok_and(|definition| {
        let settings = definition.settings();
        let is_owner = |owner: &str| settings.owner.as_deref() == Some(owner);
        let has_tag = |tag: &str| settings.tags.contains(tag);
        !state.kind.is_empty()
            && filter.owner.is_none_or(is_owner)
            && filter.tag.is_none_or(has_tag)
    })
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
