//! A claimed occurrence whose run is to start.

use super::{HeldKey, SlotId};
use crate::{
    backend::{Claimed, Cursor, Occurrence},
    job::{CheckedSchedule, JobSpec},
    time::Time,
};
use allora_schedule::Excluded;
use std::{sync::Arc, time::Duration};

/// A run to start.
pub(crate) struct Start {
    /// The place of its job; `None` if a query has claimed it.
    pub(crate) slot: Option<SlotId>,
    pub(crate) name: Arc<str>,
    pub(crate) spec: JobSpec,
    pub(crate) claimed: Claimed,
    /// The cursor's move by its completion.
    pub(crate) then: Cursor,
    pub(crate) late: Duration,
    /// The scheduled times from which and to which the cursor moves for it, if it moves.
    pub(crate) passes: Option<(Time, Time)>,
    /// The job's concurrency key.
    pub(crate) key: Option<HeldKey>,
    /// `false`: an unresolved claim has won, and the node's capacity is used up meanwhile. It is
    /// released.
    pub(crate) has_room: bool,
}

impl Start {
    /// The occurrences that the calendar excludes where the cursor moves. Calls the user's schedule.
    pub(crate) fn excluded(&self) -> Option<Excluded> {
        let (after, until) = self.passes?;
        CheckedSchedule::of(&self.name, &self.spec).excluded(after, until).ok().flatten()
    }
}

/// The scheduled times from which and to which one of these moves takes the cursor.
pub(super) fn moved(from: &Occurrence, moves: [Cursor; 2]) -> Option<(Time, Time)> {
    let to = |cursor: Cursor| match cursor {
        Cursor::To(next) => next.map(|next| next.scheduled_at),
        Cursor::Keep | Cursor::AfterEnd => None,
    };
    let until = moves.into_iter().find_map(to).filter(|_| from.trigger.is_none())?;
    Some((from.scheduled_at, until))
}
