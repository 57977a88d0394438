//! The errors of calls about triggers and the history.

use crate::error::{Error, ErrorKind};
use std::time::Duration;

/// The error of a wait that has lasted this long.
pub(super) fn not_ended(name: &str, id: &str, timeout: Duration) -> Error {
    let text = format!(
        "the trigger {id:?} of {name:?} has not ended within {timeout:?}, as far as is known here; wait \
         longer, or look for a node that runs it"
    );
    Error::new(ErrorKind::Unavailable, text).op("trigger_and_wait")
}

/// The error of a wait for a run that ended before, and whose end is not in the history.
pub(super) fn end_unknown(name: &str, id: &str) -> Error {
    let text = format!(
        "the run of the trigger {id:?} of {name:?} has ended, and its end is not in the history (any \
         more); to run the job again, use another id"
    );
    Error::new(ErrorKind::NotFound, text).op("trigger_and_wait")
}

/// The error of a backend that replies to a trigger with something else.
pub(super) fn not_triggered() -> Error {
    let wrong =
        "the backend's reply to a trigger does not say what it did; report it to its author";
    Error::new(ErrorKind::Other, wrong).op("trigger")
}

/// The error of a call that needs a history.
pub(super) fn no_history(op: &'static str) -> Error {
    let text = "this store keeps no history; turn it on where the store is opened";
    Error::new(ErrorKind::Unsupported, text).op(op)
}
