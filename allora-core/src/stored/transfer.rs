//! Schedules on their way from one store to another.

use super::{Definition, Schedules, client::BATCH};
use crate::{
    backend::{Carried, NewSchedule, State},
    error::{Error, Kind, Result},
};

impl Schedules {
    /// Adds schedules that come from another store, as [`list`](Self::list) answers there, or as
    /// `Exported` has kept them; answers by position. Each goes on where it was: its cursor, pause,
    /// counters and dead letters come along. What was begun and has not ended is begun anew at
    /// least once, and not at all at most once; triggers that wait do not come along.
    ///
    /// Whoever runs them there is to be stopped before, or their occurrences run in both stores.
    ///
    /// # Errors
    /// Of one schedule: `AlreadyExists` if the name is taken; `Invalid` if it is a job in code, or
    /// cannot be read. Of the call: `Unavailable`; then some may have been added, and are answered
    /// with `AlreadyExists` when it is made again.
    ///
    /// # Cancel safety
    /// As [`add_all`](Self::add_all).
    pub async fn import(&self, states: &[State]) -> Result<Vec<Result<State>>> {
        let mut answers = Vec::with_capacity(states.len());
        for states in states.chunks(BATCH) {
            let can = |state: &&State| can_move(state).is_ok();
            let new: Vec<_> = states.iter().filter(can).map(carried).collect();
            let mut added = self.add_new(&new).await?.into_iter();
            answers.extend(states.iter().map(|state| {
                can_move(state)?;
                added.next().unwrap_or_else(|| Err(Error::new(Kind::Other, "no answer")))
            }));
        }
        Ok(answers)
    }
}

fn carried(state: &State) -> NewSchedule<'_> {
    NewSchedule::new(&state.name, &state.kind, &state.definition, state.cursor)
        .data(&state.data)
        .carrying(Carried::of(state))
}

/// Whether it is a stored schedule that can be read.
pub(super) fn can_move(state: &State) -> Result {
    let cannot =
        |why: &str| Err(Error::invalid(format!("{:?} cannot be moved: {why}", state.name)));
    if let Some(reason) = &state.parked {
        return cannot(&format!("its record cannot be read: {reason}"));
    }
    if state.kind.is_empty() {
        return cannot("it is a job in code, which the nodes that have it register by themselves");
    }
    match Definition::parse(&state.name, &state.definition) {
        Ok(_) => Ok(()),
        Err(error) => cannot(&format!("its definition cannot be read: {error}")),
    }
}
