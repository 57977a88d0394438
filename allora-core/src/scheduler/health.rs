//! Events, and the state of the store.

use super::{
    node::Node,
    store_health::{Part, State},
};
use crate::{
    error::{Error, ErrorKind},
    event::Event,
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

impl Node {
    /// Logs events, and hands them to the user's closure.
    pub(crate) fn emit(&self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            super::log::log(&event);
            if let Some(on_event) = &self.on_event {
                // A panic in user code must not end the scheduler.
                let _ = catch_unwind(AssertUnwindSafe(|| on_event(&event)));
            }
        }
    }

    /// The store has replied to a request of this part.
    pub(super) fn store_answered(&self, part: Part) {
        self.store_is(part, State::Up, None);
    }

    /// A request of this part has failed.
    pub(super) fn store_failed(&self, part: Part, error: Error) {
        let is_down = error.kind() == ErrorKind::Unavailable;
        self.store_is(part, if is_down { State::Down } else { State::Fails }, Some(error));
    }

    /// Emits an event when the store's state changes.
    fn store_is(&self, part: Part, state: State, error: Option<Error>) {
        let Some(state) = self.store.set(part, state) else { return };
        let event = match (state, error) {
            (State::Up, _) => Event::StoreUp,
            (State::Down, Some(error)) => Event::StoreDown { error: Arc::new(error) },
            (State::Fails, Some(error)) => Event::StoreError { error: Arc::new(error) },
            // One of several parts that fail has recovered.
            (_, None) => return,
        };
        self.emit([event]);
    }
}
