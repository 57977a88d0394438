//! Events, and the state of the store.

use super::{
    node::Node,
    store_health::{DOWN, FAILS, UP},
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

    /// The store has replied.
    pub(crate) fn store_is_up(&self) {
        if self.store.set(UP) {
            self.emit([Event::StoreUp]);
        }
    }

    /// A request has failed. Emits an event when the store's state changes.
    pub(crate) fn store_failed(&self, error: Error) {
        let is_down = error.kind() == ErrorKind::Unavailable;
        if self.store.set(if is_down { DOWN } else { FAILS }) {
            let error = Arc::new(error);
            let event =
                if is_down { Event::StoreDown { error } } else { Event::StoreError { error } };
            self.emit([event]);
        }
    }
}
