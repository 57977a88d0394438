//! The one function through which every change of one job goes, from a page or from the API, and what all changes have
//! in common: their author and their line in the log.

use crate::{reader::Reader, times::machine};
use allora_core::{
    Error, Occurrence, Result, StoredSchedule, Time,
    backend::{JobState, Triggered},
    record::{self, ChangeAction, ChangeResult},
    stored::{ChangeFilter, Gap},
};
use tracing::info;

/// A change of a job, with its values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Act {
    /// Up to this time, or until it is resumed.
    Pause(Option<Time>),
    Resume(Gap),
    Skip(usize),
    /// With this id, and data in place of the job's.
    Trigger(String, Option<Vec<u8>>),
    /// All that is active or waits, or the trigger with this id.
    Cancel(Option<String>),
    Rerun(Occurrence),
    Dismiss(Occurrence),
    Mark(Occurrence),
    /// The occurrences after the first time, up to the second one.
    Backfill(Time, Time),
    Reset,
    Delete,
    Add(Box<StoredSchedule>),
    /// With the generation that it was made from.
    Edit(Box<StoredSchedule>),
    /// Takes back this change.
    Undo(Box<record::Change>),
}

impl Act {
    /// Its word in the log.
    fn word(&self) -> &'static str {
        match self {
            Self::Pause(_) => "pause",
            Self::Resume(_) => "resume",
            Self::Skip(_) => "skip",
            Self::Trigger(..) => "trigger",
            Self::Cancel(_) => "cancel",
            Self::Rerun(_) => "rerun",
            Self::Dismiss(_) => "dismiss",
            Self::Mark(_) => "mark",
            Self::Backfill(..) => "backfill",
            Self::Reset => "reset",
            Self::Delete => "delete",
            Self::Add(_) => "add",
            Self::Edit(_) => "edit",
            Self::Undo(_) => "undo",
        }
    }
}

/// The result of a change.
#[derive(Debug)]
pub(crate) enum Effect {
    /// The job after it.
    Job(Box<JobState>),
    /// The number of runs that it is about, if they were counted.
    Runs(Option<usize>),
    Triggered(Box<Triggered>),
    Filled(Vec<Occurrence>),
    Deleted,
}

impl Effect {
    /// The number of runs that it is about, where there is one.
    pub(crate) fn runs(&self) -> Option<usize> {
        match self {
            Self::Runs(runs) => *runs,
            Self::Filled(filled) => Some(filled.len()),
            _ => None,
        }
    }
}

impl From<JobState> for Effect {
    fn from(state: JobState) -> Self {
        Self::Job(Box::new(state))
    }
}

/// Makes a change of this job with the reason that its actor gives: one line, which may be empty. The caller has made
/// sure that the reader may see the job.
///
/// # Errors
/// As the call of [`Schedules`](allora_core::Schedules) that makes it.
pub(crate) async fn apply(reader: &Reader, name: &str, act: &Act, note: &str) -> Result<Effect> {
    let result = done(reader, name, act, note).await;
    log_action(act.word(), name, (reader, note), result.as_ref().err());
    result
}

/// Logs a change of this job, or of these jobs, by its actor and with the note. The texts are strings, which every
/// subscriber quotes: no name and no note makes a line of its own.
pub(crate) fn log_action(
    action: &str,
    job: &str,
    (reader, note): (&Reader, &str),
    error: Option<&Error>,
) {
    let error = error.map(ToString::to_string);
    info!(
        target: "allora",
        action,
        job,
        actor = reader.access().who(),
        note,
        error = error.as_deref(),
        "an action by way of the {}",
        reader.way(),
    );
}

async fn done(reader: &Reader, name: &str, act: &Act, note: &str) -> Result<Effect> {
    let store = reader.whole_store(note);
    Ok(match act {
        Act::Pause(until) => {
            let note = signed(reader.access().who(), note);
            match until {
                None => store.pause(name, &note).await?.into(),
                Some(until) => store.pause_until(name, *until, &note).await?.into(),
            }
        }
        Act::Resume(gap) => store.resume(name, *gap).await?.into(),
        Act::Skip(n) => {
            let skipped = store.skip_next(name, *n).await?;
            let count = skipped.map_or(Some(0), |left_out| left_out.count);
            Effect::Runs(count.and_then(|count| usize::try_from(count).ok()))
        }
        Act::Trigger(id, data) => Effect::Triggered(Box::new(match data {
            None => store.trigger(name, id).await?,
            Some(data) => store.trigger_with(name, id, data.as_slice()).await?,
        })),
        Act::Cancel(None) => Effect::Runs(Some(store.cancel(name).await?)),
        Act::Cancel(Some(id)) => Effect::Runs(Some(store.cancel_trigger(name, id).await?)),
        Act::Rerun(occurrence) => store.rerun(name, occurrence).await?.into(),
        Act::Dismiss(occurrence) => store.dismiss(name, occurrence).await?.into(),
        Act::Mark(occurrence) => store.mark_succeeded(name, occurrence).await?.into(),
        Act::Backfill(from, until) => Effect::Filled(store.backfill(name, *from, *until).await?),
        Act::Reset => store.reset(name).await?.into(),
        Act::Delete => {
            store.delete(name).await?;
            Effect::Deleted
        }
        Act::Add(stored) => store.add(stored).await?.into(),
        Act::Edit(stored) => store.modify(stored).await?.into(),
        Act::Undo(change) => store.undo(change).await?.into(),
    })
}

/// The newest of these changes that the store has applied; `None` also for a store without a record of changes.
pub(crate) async fn last_change(
    reader: &Reader,
    name: &str,
    actions: &[ChangeAction],
) -> Option<record::Change> {
    let filter = ChangeFilter::default().name(name).actions(actions);
    let page = reader.changes(filter, None, 10).await.ok()?;
    page.changes.into_iter().find(|change| change.result == ChangeResult::Applied)
}

/// The id of a trigger that its form proposes: a second click triggers nothing.
pub(super) fn new_id(who: &str, now: Time) -> String {
    signed(who, &machine(now)).replace(": ", " ")
}

/// A note that says whose it is, for a record that has no place for a name.
pub(crate) fn signed(who: &str, note: &str) -> String {
    match who.is_empty() {
        true => note.to_owned(),
        false => format!("{who}: {note}"),
    }
}
