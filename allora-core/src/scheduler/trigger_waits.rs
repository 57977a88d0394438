//! Callers that wait for the end of a manual trigger.

use crate::{
    backend::Outcome,
    error::{Error, ErrorKind},
    run::Run,
    trace,
};
use futures::channel::oneshot::{Receiver, Sender, channel};
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The callers on this node. A run here wakes them when the store has its end.
#[derive(Debug, Default)]
pub(crate) struct TriggerWaits(Mutex<Vec<Waiting>>);

#[derive(Debug)]
struct Waiting {
    name: String,
    id: String,
    sender: Sender<Outcome>,
}

impl TriggerWaits {
    /// Begins to wait. A dropped receiver ends the wait.
    pub(super) fn add(&self, name: &str, id: &str) -> Receiver<Outcome> {
        let (sender, receiver) = channel();
        let mut waiting = self.waiting();
        waiting.retain(|waiting| !waiting.sender.is_canceled());
        waiting.push(Waiting { name: name.to_owned(), id: id.to_owned(), sender });
        receiver
    }

    /// A run has ended, and the store has its outcome.
    pub(super) fn ended(&self, run: &Run, outcome: &Outcome) {
        let Some(id) = run.trigger().filter(|_| outcome.is_final()) else { return };
        let is_it =
            |waiting: &mut Waiting| waiting.name == run.name() && trace::is_same(&waiting.id, id);
        let ended: Vec<Waiting> = self.waiting().extract_if(.., is_it).collect();
        for Waiting { sender, .. } in ended {
            // The caller may have gone.
            let _ = sender.send(outcome.clone());
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error of a wait that has lasted this long.
pub(crate) fn not_ended(name: &str, id: &str, timeout: Duration, remedy: &str) -> Error {
    let text = format!("the trigger {id:?} of {name:?} has not ended within {timeout:?}; {remedy}");
    Error::new(ErrorKind::Unavailable, text).op("trigger_and_wait")
}

/// The error of a wait for a run that ended before, and whose end is not in the history.
pub(crate) fn end_unknown(name: &str, id: &str) -> Error {
    let text = format!(
        "the run of the trigger {id:?} of {name:?} has ended, and its end is not in the history (any \
         more); to run the job again, use another id"
    );
    Error::new(ErrorKind::NotFound, text).op("trigger_and_wait")
}

/// The error of a backend that replies to a trigger with something else.
pub(crate) fn not_triggered() -> Error {
    let wrong =
        "the backend's reply to a trigger does not say what it did; report it to its author";
    Error::new(ErrorKind::Other, wrong).op("trigger")
}

/// The error of a call that needs a history.
pub(crate) fn no_history(op: &'static str) -> Error {
    let text = "this store keeps no history; turn it on where the store is opened";
    Error::new(ErrorKind::Unsupported, text).op(op)
}
