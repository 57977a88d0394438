//! The result of the last requests to the store.

pub(crate) use crate::health::StorePart as Part;

use crate::{health::FailingPart, time::Time};
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

/// The state of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::scheduler) enum State {
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
pub(in crate::scheduler) struct StoreHealth(Mutex<Parts>);

#[derive(Debug, Default)]
struct Parts {
    failing: Vec<FailingPart>,
    reported: State,
    /// The last end of an outage.
    recovered_at: Option<Instant>,
}

/// A failure of a request: the state that it shows, its time, and its error as text.
pub(in crate::scheduler) struct Failure {
    pub(in crate::scheduler) state: State,
    pub(in crate::scheduler) at: Time,
    pub(in crate::scheduler) error: String,
    /// The earliest time at which the request can have been sent.
    pub(in crate::scheduler) sent: Instant,
}

impl StoreHealth {
    /// Sets the state for a part at `now`. Returns the state to report, if it has changed.
    pub(in crate::scheduler) fn set(
        &self,
        part: Part,
        failure: Option<Failure>,
        now: Instant,
    ) -> Option<State> {
        let parts = &mut *self.parts();
        // A request that was sent during an outage says nothing about the time after it.
        let recovered_at = parts.recovered_at;
        let failure_is_old =
            |failure: &Failure| failure.state == State::Down && Some(failure.sent) < recovered_at;
        if failure.as_ref().is_some_and(failure_is_old) {
            return None;
        }
        let before = parts.failing.iter().position(|failing| failing.part == part);
        match (before, failure) {
            (None, None) => {}
            // The end of an outage, probably. The other parts report what they find next.
            (Some(_), None) => {
                parts.failing.clear();
                parts.recovered_at = Some(now);
            }
            (before, Some(Failure { state, at, error, .. })) => {
                let since = before.map_or(at, |i| parts.failing.swap_remove(i).since);
                let is_rejected = state == State::Fails;
                parts.failing.push(FailingPart { part, is_rejected, since, error });
            }
        }
        let state = |failing: &FailingPart| match failing.is_rejected {
            true => State::Fails,
            false => State::Down,
        };
        let worst = parts.failing.iter().map(state).max().unwrap_or_default();
        (std::mem::replace(&mut parts.reported, worst) != worst).then_some(worst)
    }

    /// A part has nothing more to send. The next reply of any part shows the store's state.
    pub(in crate::scheduler) fn idle(&self, part: Part) {
        self.parts().failing.retain(|failing| failing.part != part);
    }

    /// `true` if the requests of some part have no reply. A store that rejects requests replies.
    pub(in crate::scheduler) fn is_down(&self) -> bool {
        self.parts().failing.iter().any(|failing| !failing.is_rejected)
    }

    /// The parts whose requests fail.
    pub(in crate::scheduler) fn failing(&self) -> Vec<FailingPart> {
        let mut failing = self.parts().failing.clone();
        failing.sort_by_key(|failing| failing.part);
        failing
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
