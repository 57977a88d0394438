//! The one function through which every action goes.

use super::{facts::Facts, verb::Verb};
use crate::reader::Reader;
use allora_core::{ErrorKind, Occurrence, Result, Time, backend::Author, check_name, stored::Gap};
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
/// Who did what, why, and with what result passes here, and nowhere else.
///
/// # Errors
/// As the call of [`Schedules`](allora_core::Schedules) that does it.
pub(crate) async fn apply(
    reader: &Reader,
    facts: &Facts,
    change: &Change<'_>,
) -> Result<Option<usize>> {
    let name = facts.state.name.as_str();
    let actor = reader.access().who();
    let result = done(reader, name, change).await;
    let error = result.as_ref().err().map(ToString::to_string);
    // As strings, which every subscriber quotes: no name and no note makes a line of its own.
    info!(
        target: "allora",
        action = change.verb.word(),
        job = name,
        actor,
        note = change.note,
        error = error.as_deref(),
        "an action of the console"
    );
    result
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
fn author(who: &str, note: &str) -> Author {
    let actor = if check_name(who).is_ok() { who } else { "a reader" };
    Author::new(actor).via("console").note(note)
}

/// A note that says whose it is, for a record that has no place for a name.
pub(crate) fn signed(who: &str, note: &str) -> String {
    match who.is_empty() {
        true => note.to_owned(),
        false => format!("{who}: {note}"),
    }
}
