//! The common parts of backends around another one.

use allora_core::{Backend, Error, ErrorKind, Result, backend::Queries};

/// The methods of a `Backend` in which nothing is changed, sent or written down: those of its field
/// `store`.
macro_rules! forward_the_rest {
    () => {
        fn namespace(&self) -> &str {
            self.store.namespace()
        }

        fn durability_warning(&self) -> Option<&str> {
            self.store.durability_warning()
        }

        fn history(&self) -> Option<&dyn allora_core::backend::History> {
            self.store.history()
        }

        fn notifier(&self) -> Option<&dyn allora_core::backend::Notifier> {
            self.store.notifier()
        }
    };
}

pub(super) use forward_the_rest;

/// The queries of a store.
///
/// # Errors
/// `Unsupported` if it has none.
pub(super) fn queries_of(store: &dyn Backend) -> Result<&dyn Queries> {
    let none = || Error::new(ErrorKind::Unsupported, "the store has no queries");
    store.queries().ok_or_else(none)
}
