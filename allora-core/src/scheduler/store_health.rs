//! The result of the last requests to the store.

use std::sync::{Mutex, PoisonError};

/// The parts of a node that send requests to the store. Each fails by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Claims,
    Search,
    Extensions,
    Ends,
    Locks,
}

/// The state of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    /// It replies.
    #[default]
    Up,
    /// It does not reply.
    Down,
    /// It replies with an error. So it is not down for the other parts, either.
    Fails,
}

/// The state of the store for each part, and the state that was reported: the worst of all.
#[derive(Debug, Default)]
pub(super) struct StoreHealth(Mutex<([State; 5], State)>);

impl StoreHealth {
    /// Sets the state for a part. Returns the state to report, if it has changed.
    pub(super) fn set(&self, part: Part, state: State) -> Option<State> {
        let (parts, reported) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut parts[part as usize], state);
        if before != State::Up && state == State::Up {
            // The end of an outage, probably. The other parts report what they find next.
            *parts = Default::default();
        }
        let worst = parts.iter().copied().max().unwrap_or_default();
        (std::mem::replace(reported, worst) != worst).then_some(worst)
    }

    /// A part has nothing more to send. The next reply of any part shows the store's state.
    pub(super) fn idle(&self, part: Part) {
        let (parts, _) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        parts[part as usize] = State::Up;
    }
}
