//! A client of the campaign: it triggers a job and edits another one, whatever happens to the store.

use super::{
    background::{Background, Found},
    node::LEASE,
};
use crate::{
    clock,
    failure::{Failure, Outcome},
    store::Store,
};
use allora_conformance::faults::{Acknowledged, EDITED, FaultWorkload, TRIGGERED};
use allora_core::{ErrorKind, Schedules, StoredSchedule};
use std::time::Duration;

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

/// Triggers and edits until it is dropped.
pub(super) fn start(schedules: Schedules, workload: FaultWorkload) -> Background<Said> {
    Background::start(|said| work(schedules, workload, said))
}

/// The schedules of a store.
pub(super) fn schedules(store: &Store) -> Outcome<Schedules> {
    Ok(Schedules::new(store.clone()).map_err(Failure::from)?.trigger_retention(REMEMBERED))
}

async fn work(schedules: Schedules, workload: FaultWorkload, said: Found<Said>) {
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
        said.lock().triggers.push(Acknowledged { id, at });
        if number.is_multiple_of(2) && edit(&schedules, number).await.is_ok() {
            said.lock().edits += 1;
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
