//! Jobs that wait for a time of a store whose clock was ahead, by their records alone.

use super::Definition;
use crate::{
    backend::JobState,
    job::{ahead_unless, ahead_until as ahead_of, is_code},
    time::Time,
};

/// The time until which a job waits because the store's clock was ahead when its record was written.
/// `None` if its schedule explains what the record says, or an operator has
/// [reset](super::Schedules::reset) it since.
///
/// `now` is the present by the store's clock. Distances of up to a minute are not reported. The times
/// of a schedule that is not one of this library are known to its nodes alone. Here, such a job waits
/// if its next occurrence is later than the time at which its record was written.
pub fn ahead_until(state: &JobState, now: Time) -> Option<Time> {
    match Definition::parse(&state.name, &state.definition) {
        Ok(definition) => ahead_of(&state.name, &definition.bare(), state, now),
        Err(_) if is_code(&state.definition) => {
            ahead_unless(state, now, |cursor, written| cursor.scheduled_at > written)
        }
        Err(_) => None,
    }
}
