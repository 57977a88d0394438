//! A client of the campaign: it triggers a job and edits another one, whatever happens to the store.

use super::node::LEASE;
use crate::{
    clock,
    failure::{Failure, Outcome},
    store::Store,
};
use allora_conformance::faults::{Acknowledged, EDITED, FaultWorkload, TRIGGERED};
use allora_core::{ErrorKind, Schedules, StoredSchedule};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::task::JoinHandle;

/// The time between two triggers; every second time it edits as well.
const EACH: Duration = Duration::from_secs(1);

/// The wait before a request is repeated.
const AGAIN: Duration = Duration::from_millis(200);

/// The time for which the store remembers the ids of triggers: longer than an outage.
const REMEMBERED: Duration = Duration::from_secs(300);

/// The changes that the store has acknowledged.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) triggers: Vec<Acknowledged>,
    pub(super) edits: usize,
}

/// Dropped, it ends.
pub(super) struct Client {
    said: Arc<Mutex<Said>>,
    task: JoinHandle<()>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Client {
    /// A client of these schedules.
    pub(super) fn start(schedules: Schedules, workload: FaultWorkload) -> Self {
        let said = Arc::new(Mutex::new(Said::default()));
        #[expect(clippy::disallowed_methods, reason = "the command has one runtime")]
        let task = tokio::spawn(work(schedules, workload, said.clone()));
        Self { said, task }
    }

    /// The changes that the store has acknowledged so far.
    pub(super) fn said(&self) -> Said {
        std::mem::take(&mut *locked(&self.said))
    }
}

/// The schedules of a store.
pub(super) fn schedules(store: &Store) -> Outcome<Schedules> {
    Ok(Schedules::new(store.clone()).map_err(Failure::from)?.trigger_retention(REMEMBERED))
}

fn locked(said: &Mutex<Said>) -> std::sync::MutexGuard<'_, Said> {
    said.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

async fn work(schedules: Schedules, workload: FaultWorkload, said: Arc<Mutex<Said>>) {
    for number in 0_u64.. {
        clock::pause(EACH).await;
        let id = format!("order-{number}");
        let at = loop {
            match schedules.trigger(TRIGGERED, &id).await {
                Ok(triggered) => break triggered.occurrence.scheduled_at.timestamp_millis(),
                // The store was emptied.
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    if workload.store(&schedules, LEASE).await.is_err() {
                        clock::pause(AGAIN).await;
                    }
                }
                Err(_) => clock::pause(AGAIN).await,
            }
        };
        locked(&said).triggers.push(Acknowledged { id, at });
        if number.is_multiple_of(2) && edit(&schedules, number).await.is_ok() {
            locked(&said).edits += 1;
        }
    }
}

/// Reads the schedule and stores it with other data. An edit that meets another one, as its own whose answer was
/// lost, is left.
async fn edit(schedules: &Schedules, number: u64) -> allora_core::Result {
    loop {
        let edited = async {
            let read = StoredSchedule::of(&schedules.get(EDITED).await?)?;
            schedules.modify(&read.data_bytes(number.to_string())).await
        };
        match edited.await {
            Err(error) if error.kind() == ErrorKind::Unavailable => clock::pause(AGAIN).await,
            other => return other.map(drop),
        }
    }
}
