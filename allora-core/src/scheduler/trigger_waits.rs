//! The callers on this node that wait until the run of a manual trigger has ended.

use crate::{backend::Ended, run::Run, trace};
use futures::channel::oneshot::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The callers on this node. A run here wakes them when the store has its end.
#[derive(Debug, Default)]
pub(crate) struct TriggerWaits(Mutex<Vec<Waiting>>);

#[derive(Debug)]
struct Waiting {
    name: String,
    id: String,
    sender: Sender<Ended>,
}

impl TriggerWaits {
    /// Begins to wait. A dropped receiver ends the wait.
    pub(super) fn add(&self, name: &str, id: &str) -> Receiver<Ended> {
        let (sender, receiver) = channel();
        let mut waiting = self.waiting();
        waiting.retain(|waiting| !waiting.sender.is_canceled());
        waiting.push(Waiting { name: name.to_owned(), id: id.to_owned(), sender });
        receiver
    }

    /// A run has ended so, and the store has its end.
    pub(super) fn ended(&self, run: &Run, end: &Ended) {
        let Some(id) = run.trigger().filter(|_| end.outcome.is_final()) else { return };
        let is_it =
            |waiting: &mut Waiting| waiting.name == run.name() && trace::is_same(&waiting.id, id);
        let ended: Vec<Waiting> = self.waiting().extract_if(.., is_it).collect();
        for Waiting { sender, .. } in ended {
            // The caller may have gone.
            let _ = sender.send(end.clone());
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
