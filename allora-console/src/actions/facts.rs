//! The records about the job of an action, as the store has them.

use crate::reader::Reader;
use allora_core::{
    Result, Time,
    backend::{JobState, NextRun},
    schedule::between,
    stored::Definition,
};
use chrono::TimeDelta;

/// The most occurrences that one form leaves out.
pub(crate) const MOST_SKIPPED: usize = 100;

/// The most times that are counted: as many triggers as may wait.
pub(super) const COUNTED: usize = 1_000;

/// A job that ran within this time is deleted only by its name.
const RECENT: TimeDelta = TimeDelta::days(30);

/// The records about the job, as the store has them.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) state: JobState,
    /// The note of its pause, as the reader may see it.
    pub(crate) note: String,
    /// `None` if it cannot be read.
    pub(crate) definition: Option<Definition>,
    pub(crate) next: Vec<NextRun>,
    pub(crate) now: Time,
}

impl Facts {
    /// # Errors
    /// `NotFound`, also for a job that the reader may not see; `Unavailable`.
    pub(crate) async fn read(reader: &Reader, name: &str) -> Result<Self> {
        let now = reader.store_now().await?;
        let state = reader.unredacted(name).await?;
        let definition = reader.definition(&state).await.ok();
        let mut next = reader.next(&state, MOST_SKIPPED + 1).await.unwrap_or_default();
        next.retain(|next| state.last_started < Some(next.scheduled_at));
        next.truncate(MOST_SKIPPED);
        let note = state.paused.as_ref().map(|pause| reader.redacted(name, &pause.note));
        Ok(Self { note: note.unwrap_or_default(), state, definition, next, now })
    }

    /// `true` if the name must be typed to delete the job.
    pub(crate) fn must_type(&self) -> bool {
        self.state.last_started.is_some_and(|at| at + RECENT > self.now)
    }

    /// The occurrences that came due during the pause, at most [`COUNTED`] and one more.
    pub(super) fn gap(&self) -> Vec<Time> {
        let Some(first) = self.next.first().map(|next| next.scheduled_at) else {
            return Vec::new();
        };
        let mut gap: Vec<Time> =
            Some(first).filter(|first| *first <= self.now).into_iter().collect();
        if let (Some(definition), false) = (&self.definition, gap.is_empty()) {
            gap.extend(between(definition.schedule(), first, self.now).take(COUNTED));
        }
        gap
    }
}
