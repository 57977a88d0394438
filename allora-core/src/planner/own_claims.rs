//! The time that the store needed for a node's own claims of an instant. Other nodes need about as long for
//! theirs.

use crate::time::{Time, saturating_add, since};
use std::time::Duration;

/// The longest time of own claims for which others wait.
const LONGEST: Duration = Duration::from_millis(500);

/// The own claims of an instant that were answered last.
#[derive(Clone, Copy, Default)]
pub(super) struct OwnClaims {
    /// The instant at which they were due.
    due_at: Time,
    /// The time of the last reply.
    answered_at: Time,
    /// The time between the two.
    took: Duration,
}

impl OwnClaims {
    /// Notes a claim of an occurrence that was due at `due_at`, and answered at `now`.
    pub(super) fn answered(&mut self, due_at: Time, now: Time) {
        let took = since(now, due_at);
        if took <= LONGEST && due_at >= self.due_at {
            *self = Self { due_at, answered_at: now, took };
        }
    }

    /// The time until which the second node (`backup` is 1) or the third (2) leaves an occurrence to the
    /// nodes before it.
    pub(super) fn others_until(&self, due_at: Time, backup: u32) -> Option<Time> {
        let is_as_old = due_at <= self.due_at;
        is_as_old.then(|| saturating_add(self.answered_at, self.took * backup))
    }
}
