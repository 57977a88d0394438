//! Lists of schedules: by name, the order of the stores, and by due time.

use super::{Definition, Schedules};
use crate::{
    backend::{JobState, Page},
    error::Result,
    time::Time,
};
use std::collections::BinaryHeap;

/// The schedules to list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Filter<'a> {
    /// Names that begin with this text.
    pub prefix: &'a str,
    /// Schedules of this kind only.
    pub kind: Option<&'a str>,
    /// Schedules in this condition only.
    pub condition: Option<Condition>,
    /// Stored schedules with this tag only.
    pub tag: Option<&'a str>,
    /// Stored schedules of this owner only.
    pub owner: Option<&'a str>,
}

/// A condition of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
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
    /// Its record or its definition cannot be read.
    Broken,
}

impl Condition {
    /// `true` if the schedule is in this condition. Conditions overlap: a paused schedule may be
    /// running, and have dead letters.
    pub fn holds(self, state: &JobState) -> bool {
        let idle = state.unreadable.is_none() && state.leases.is_empty() && state.paused.is_none();
        match self {
            Condition::Waiting => idle && state.due_at.is_some(),
            Condition::Running => !state.leases.is_empty(),
            Condition::Paused => state.paused.is_some(),
            Condition::Ended => idle && state.due_at.is_none(),
            Condition::Dead => !state.dead.is_empty(),
            Condition::Broken => {
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

    /// Lists schedules in this condition only.
    #[must_use]
    pub fn condition(mut self, condition: Condition) -> Self {
        self.condition = Some(condition);
        self
    }
}

/// The number of schedules that one request of a list reads.
pub(super) const PAGE: usize = 500;

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
            let is_filtered = filter.condition.is_some() || filter.has_labels();
            let size = if is_filtered { PAGE } else { (limit - listed.len()).min(PAGE) };
            let states = self.page(filter, after.as_deref(), size).await?;
            let is_last = states.len() < size;
            after = states.last().map(|state| state.name.clone());
            listed.extend(states.into_iter().filter(|state| is_in(filter, state)));
            if is_last {
                break;
            }
        }
        listed.truncate(limit);
        Ok(listed)
    }

    /// The `limit` jobs that are due first, the earliest first. Jobs without a next occurrence come
    /// last. The function reads the whole list and keeps `limit` jobs. The due index of the stores
    /// cannot be used: it lacks jobs in code and paused or ended schedules, and it has active runs
    /// at the end of their leases.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn list_by_due(&self, filter: Filter<'_>, limit: usize) -> Result<Vec<JobState>> {
        let mut first: BinaryHeap<ByDue> = BinaryHeap::new();
        let mut after: Option<String> = None;
        loop {
            let states = self.page(filter, after.as_deref(), PAGE).await?;
            let is_last = states.len() < PAGE;
            after = states.last().map(|state| state.name.clone());
            for state in states.into_iter().filter(|state| is_in(filter, state)) {
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

    pub(super) async fn page(
        &self,
        filter: Filter<'_>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<JobState>> {
        let mut page = Page::first(limit).prefix(filter.prefix);
        page.after = after;
        page.kind = filter.kind;
        self.within("list", self.queries()?.list(page)).await
    }
}

impl Filter<'_> {
    fn has_labels(&self) -> bool {
        self.tag.is_some() || self.owner.is_some()
    }
}

/// `true` if the state passes the parts of the filter that no store knows.
pub(super) fn is_in(filter: Filter<'_>, state: &JobState) -> bool {
    if !filter.condition.is_none_or(|condition| condition.holds(state)) {
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
