//! The changes by clients: pages of them, and their undoing.

use super::{Schedules, StoredSchedule};
use crate::{
    backend::{Action, HistoryCursor, HistoryQuery, JobState, no_reply},
    error::{Error, ErrorKind, Result},
    record::{Change, ChangeAction, ChangeResult, MAX_CHANGE_DATA},
    time::Time,
};

/// The number of changes that one request reads.
const CHUNK: usize = 500;

/// The most changes that one call reads to find those of its filter.
const MOST_READ: usize = 10_000;

/// The changes to show. Default: all.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ChangeFilter<'a> {
    /// Only those of this job, also if it was deleted. Default: of all jobs.
    pub name: Option<&'a str>,
    /// Only those of jobs whose names begin with this text.
    pub prefix: &'a str,
    /// Only those of this actor. Default: of all actors.
    pub actor: Option<&'a str>,
    /// Only these actions; none means all. [`ChangeAction::DEFINITIONS`]: the versions of a definition.
    pub actions: &'a [ChangeAction],
    /// Only those at or after this time.
    pub from: Option<Time>,
    /// Only those before this time.
    pub until: Option<Time>,
}

impl<'a> ChangeFilter<'a> {
    /// Of this job.
    #[must_use]
    pub fn name(mut self, name: &'a str) -> Self {
        self.name = Some(name);
        self
    }

    /// Of jobs whose names begin with this text.
    #[must_use]
    pub fn prefix(mut self, prefix: &'a str) -> Self {
        self.prefix = prefix;
        self
    }

    /// Of this actor.
    #[must_use]
    pub fn actor(mut self, actor: &'a str) -> Self {
        self.actor = Some(actor);
        self
    }

    /// Only these actions.
    #[must_use]
    pub fn actions(mut self, actions: &'a [ChangeAction]) -> Self {
        self.actions = actions;
        self
    }

    /// At or after this time.
    #[must_use]
    pub fn from(mut self, from: Time) -> Self {
        self.from = Some(from);
        self
    }

    /// Before this time.
    #[must_use]
    pub fn until(mut self, until: Time) -> Self {
        self.until = Some(until);
        self
    }

    fn has(&self, change: &Change) -> bool {
        change.name.starts_with(self.prefix)
            && self.actor.is_none_or(|actor| change.author.actor == actor)
            && (self.actions.is_empty() || self.actions.contains(&change.action))
            && self.until.is_none_or(|until| change.at < until)
            && self.from.is_none_or(|from| change.at >= from)
    }

    /// `true` if no older change is at or after the beginning. A sequence is never before its time.
    fn has_passed(&self, change: &Change) -> bool {
        self.from.is_some_and(|from| change.sequence < from.timestamp_micros())
    }
}

/// A page of the changes.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ChangePage {
    /// The changes, the newest first.
    pub changes: Vec<Change>,
    /// The place at which the next page begins; `None` if there is no more. A page may have fewer
    /// changes than were asked for, or none, and a next page nevertheless: one call reads at most
    /// 10 000 changes to find those of its filter.
    pub next: Option<HistoryCursor>,
}

impl Schedules {
    /// A page of the changes by clients that [say who they are](Self::by), the newest first, below
    /// `before`: the [`next`](ChangePage::next) of the page before. They are kept for a year, at most
    /// 100 000 (in etcd and in process memory 10 000); in a store without a record of all changes, the
    /// last 20 of each job, and for a week after its deletion only by its name.
    ///
    /// ```
    /// use allora::{Schedules, record::ChangeAction, stored::ChangeFilter};
    ///
    /// # async fn example(schedules: Schedules) -> allora::Result {
    /// let versions = ChangeFilter::default().name("acme/report").actions(&ChangeAction::DEFINITIONS);
    /// for change in schedules.changes(versions, None, 20).await?.changes {
    ///     println!("{} {} by {}", change.at, change.action.word(), change.author);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Unsupported` if the store keeps no changes; `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn changes(
        &self,
        filter: ChangeFilter<'_>,
        before: Option<&HistoryCursor>,
        limit: usize,
    ) -> Result<ChangePage> {
        let mut page = ChangePage { changes: Vec::new(), next: before.cloned() };
        let mut read = 0;
        while page.changes.len() < limit && read < MOST_READ {
            let query = HistoryQuery { name: filter.name, ..HistoryQuery::new(CHUNK) };
            let query = HistoryQuery { before: page.next.as_ref(), ..query };
            let found = self.within("changes", self.queries()?.changes(query)).await?;
            read += found.len();
            let is_last = found.len() < CHUNK;
            for change in found {
                if page.changes.len() == limit {
                    return Ok(page);
                }
                if filter.has_passed(&change) {
                    return Ok(ChangePage { next: None, ..page });
                }
                page.next = Some(change.cursor());
                if filter.has(&change) {
                    page.changes.push(change);
                }
            }
            if is_last {
                page.next = None;
                break;
            }
        }
        Ok(page)
    }

    /// Takes back a pause, a resumption, an edit or a deletion, and returns the state after it. A
    /// deleted schedule is added again, with the cursor, the pause, the counters and the dead letters
    /// that it had; its waiting triggers and further attempts are not. The undoing is a change itself.
    ///
    /// # Errors
    /// `AlreadyExists` if the job was changed since in the same respect, or its name is taken.
    /// `Invalid` for another change, for one that changed nothing, and if data of more than 64 KiB
    /// would be needed, which is not kept. `NotFound`, `Unavailable`.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have taken it back. Read the job.
    pub async fn undo(&self, change: &Change) -> Result<JobState> {
        let (name, word) = (&change.name, change.action.word());
        let cannot = |why: &str| {
            Error::invalid(format!("the {word} of {name:?} cannot be undone: {why}")).op("undo")
        };
        if change.result != ChangeResult::Applied {
            return Err(cannot("it changed nothing"));
        }
        let (before, after) = (change.state_before(), change.state_after());
        let lacks_data = || {
            let text = format!(
                "its data of more than {MAX_CHANGE_DATA} bytes is not kept; give it again in an edit"
            );
            cannot(&text)
        };
        match (change.action, before, after) {
            (ChangeAction::Pause | ChangeAction::Resume, Some(before), Some(after)) => {
                if self.get(name).await?.paused != after.paused {
                    return Err(changed_since(change));
                }
                let action = match &before.paused {
                    None => Action::Resume,
                    Some(pause) => Action::Pause { note: &pause.note, until: pause.until },
                };
                self.change(name, action).await
            }
            (ChangeAction::Modify, Some(..), Some(..)) if change.lacks_data => Err(lacks_data()),
            (ChangeAction::Modify, Some(before), Some(after)) => {
                let now = self.get(name).await?;
                if now.generation != after.generation {
                    return Err(changed_since(change));
                }
                // What the change has left as it was is empty on both sides.
                let mut former = JobState { kind: before.kind, ..now };
                if before.definition != after.definition {
                    former.definition = before.definition;
                }
                if before.data != after.data {
                    former.data = before.data;
                }
                self.modify(&StoredSchedule::of(&former)?).await
            }
            (ChangeAction::Delete, Some(_), None) if change.lacks_data => Err(lacks_data()),
            (ChangeAction::Delete, Some(before), None) => {
                let mut added = self.import(&[before]).await?;
                added.pop().unwrap_or_else(|| Err(no_reply()))
            }
            _ => Err(cannot("only pauses, resumptions, edits and deletions can be")),
        }
    }
}

/// The error of an undoing that comes too late.
fn changed_since(change: &Change) -> Error {
    let text = format!(
        "{:?} was changed since the {} of {}; undo the later change first, or edit the job",
        change.name,
        change.action.word(),
        change.at,
    );
    Error::new(ErrorKind::AlreadyExists, text).op("undo")
}
