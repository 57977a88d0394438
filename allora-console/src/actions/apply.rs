//! The one function through which every action on one job goes, and what all actions have in common: their author
//! and their line in the log.

use super::{facts::Facts, verb::Verb};
use crate::{reader::Reader, times::machine};
use allora_core::{
    Error, ErrorKind, Occurrence, Result, Time, backend::Author, check_name, stored::Gap,
};
use tracing::info;

/// An action with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Up to this time, or until it is resumed.
    Pause(Option<Time>),
    Resume(Gap),
    Skip(usize),
    /// With this id.
    Trigger(String),
    /// All that is active or waits, or the trigger with this id.
    Cancel(Option<String>),
    Rerun(Occurrence),
    Dismiss(Occurrence),
    /// The occurrences after the first time, up to the second one.
    Backfill(Time, Time),
    Reset,
    Delete,
}

/// An action on a job, with the reason that its actor gives.
#[derive(Clone, Debug)]
pub(crate) struct Change<'a> {
    pub(crate) verb: Verb,
    pub(crate) act: Act,
    /// One line; may be empty.
    pub(crate) note: &'a str,
}

/// Does it, and returns the number of runs that it is about, where there is one. The facts show that the reader may
/// see the job.
///
/// # Errors
/// As the call of [`Schedules`](allora_core::Schedules) that does it.
pub(crate) async fn apply(
    reader: &Reader,
    facts: &Facts,
    change: &Change<'_>,
) -> Result<Option<usize>> {
    let name = facts.state.name.as_str();
    let result = done(reader, name, change).await;
    log_action(
        change.verb.word(),
        name,
        (reader.access().who(), change.note),
        result.as_ref().err(),
    );
    result
}

/// Logs an action on this job, or on these jobs, by its actor and with the note. The texts are strings, which every
/// subscriber quotes: no name and no note makes a line of its own.
pub(super) fn log_action(
    action: &str,
    job: &str,
    (actor, note): (&str, &str),
    error: Option<&Error>,
) {
    let error = error.map(ToString::to_string);
    info!(
        target: "allora",
        action,
        job,
        actor,
        note,
        error = error.as_deref(),
        "an action of the console"
    );
}

async fn done(reader: &Reader, name: &str, change: &Change<'_>) -> Result<Option<usize>> {
    let store = reader.whole_store().clone().by(author(reader.access().who(), change.note));
    match &change.act {
        Act::Pause(until) => {
            let note = signed(reader.access().who(), change.note);
            match until {
                None => store.pause(name, &note).await?,
                Some(until) => store.pause_until(name, *until, &note).await?,
            };
        }
        Act::Resume(gap) => _ = store.resume(name, *gap).await?,
        Act::Skip(n) => {
            let skipped = store.skip_next(name, *n).await?;
            let count = skipped.map_or(Some(0), |left_out| left_out.count);
            return Ok(count.and_then(|count| usize::try_from(count).ok()));
        }
        Act::Trigger(id) => _ = store.trigger(name, id).await?,
        Act::Cancel(None) => return store.cancel(name).await.map(Some),
        Act::Cancel(Some(id)) => return store.cancel_trigger(name, id).await.map(Some),
        Act::Rerun(occurrence) => _ = store.rerun(name, occurrence).await?,
        Act::Dismiss(occurrence) => _ = store.dismiss(name, occurrence).await?,
        Act::Backfill(from, until) => {
            return Ok(Some(store.backfill(name, *from, *until).await?.len()));
        }
        Act::Reset => _ = store.reset(name).await?,
        Act::Delete => match store.delete(name).await {
            // It is gone, as was asked for.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            deleted => deleted?,
        },
    }
    Ok(None)
}

/// The author in the record of changes. A service may call its readers by anything, and the record wants a
/// name.
pub(super) fn author(who: &str, note: &str) -> Author {
    let actor = if check_name(who).is_ok() { who } else { "a reader" };
    Author::new(actor).via("console").note(note)
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
