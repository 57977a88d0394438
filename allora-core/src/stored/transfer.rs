//! Transfer of schedules from one store to another.
//!
//! Cursor, counters, pause and dead letters are in the write that creates the schedule: without its
//! cursor it would repeat or miss occurrences. A run that is active in the source runs again, at
//! least once.

use super::{Definition, Schedules, requests::BATCH};
use crate::{
    backend::{Action, ImportedProgress, JobState, NewSchedule, Operation, no_reply},
    error::{Error, Result},
    schedule::Schedule as _,
    time::Time,
};

impl Schedules {
    /// Adds schedules from another store, as returned by its [`list`](Self::list) or kept as
    /// `ScheduleExport`. Returns the results by position. Each schedule continues where it stopped:
    /// its cursor, pause, counters and dead letters are imported. A run that was active is run
    /// again at least once, or not at all at most once. Waiting triggers are not imported.
    ///
    /// Stop the nodes of the other store first, or occurrences run in both stores.
    ///
    /// # Errors
    /// Of one schedule: `AlreadyExists` if the name is taken; `Invalid` if it is a job in code, or
    /// cannot be read. Of the call: `Unavailable`. Some schedules may then have been added; a
    /// repeated call returns `AlreadyExists` for them.
    ///
    /// # Cancel safety
    /// As [`add_all`](Self::add_all).
    pub async fn import(&self, states: &[JobState]) -> Result<Vec<Result<JobState>>> {
        let mut answers = Vec::with_capacity(states.len());
        for states in states.chunks(BATCH) {
            let now = self.recent_store_time().await?;
            let definitions: Vec<Result<Definition>> = states.iter().map(can_move).collect();
            let calendars = self.calendars_of(definitions.iter().flatten()).await?;
            let checked = states.iter().zip(definitions).map(|(state, definition)| {
                // What its nodes will report, if a calendar is missing.
                match calendars.give(definition?) {
                    Ok(definition) => self.check_period(&state.name, &definition, now),
                    Err(_) => Ok(()),
                }
            });
            let checked: Vec<Result> = checked.collect();
            let can = states.iter().zip(&checked).filter(|(_, checked)| checked.is_ok());
            let new: Vec<_> = can.map(|(state, _)| moved(state)).collect();
            let mut added = self.create(&new).await?.into_iter();
            answers.extend(checked.into_iter().map(|checked| {
                checked?;
                added.next().unwrap_or_else(|| Err(no_reply()))
            }));
        }
        Ok(answers)
    }
}

/// The operation that creates the schedule with its progress.
fn moved(state: &JobState) -> Operation<'_> {
    let new = NewSchedule::new(&state.kind, &state.definition, state.next)
        .data(&state.data)
        .progress(ImportedProgress::of(state));
    Operation::new(&state.name, Action::Create(new))
}

/// Checks that it is a stored schedule that can be read. Returns its definition.
pub(super) fn can_move(state: &JobState) -> Result<Definition> {
    let cannot =
        |why: &str| Err(Error::invalid(format!("{:?} cannot be moved: {why}", state.name)));
    if let Some(reason) = &state.unreadable {
        return cannot(&format!("its record cannot be read: {reason}"));
    }
    if state.kind.is_empty() {
        return cannot("it is a job in code, which its nodes register by themselves");
    }
    let definition = match Definition::parse(&state.name, &state.definition) {
        Ok(definition) => definition,
        Err(error) => return cannot(&format!("its definition cannot be read: {error}")),
    };
    let is_early = state.next.is_some_and(|next| next.due_at < next.scheduled_at);
    // A calendar may move an occurrence to an earlier day.
    if is_early && definition.schedule().moved(Time::UNIX_EPOCH).is_none() {
        return cannot(
            "its next occurrence has a due_at before its scheduled_at; give a later one",
        );
    }
    Ok(definition)
}
