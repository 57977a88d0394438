//! Due jobs that no node claims because their concurrency key is busy.

use crate::{failure::Outcome, session::Session, values::shown};
use allora_core::{
    ConcurrencyKey, Error, ErrorKind, KeyHolder, Time,
    backend::{JobState, Lease},
    stored::Definition,
};
use std::collections::BTreeMap;

/// The jobs among these that are due and wait for a busy concurrency key, each with the key.
pub(super) async fn key_waits(
    session: &Session,
    states: &[JobState],
    now: Time,
) -> Outcome<BTreeMap<String, String>> {
    let (mut waits, mut records) = (BTreeMap::new(), BTreeMap::new());
    let is_due =
        |state: &&JobState| state.leases.is_empty() && state.due_at.is_some_and(|due| due <= now);
    for state in states.iter().filter(is_due) {
        let Some(key) = key_of(state) else { continue };
        let record = key.record();
        if !records.contains_key(&record) {
            let read = record_of(session, &key).await?;
            records.insert(record.clone(), read);
        }
        let Some(Some(read)) = records.get(&record) else { continue };
        let holders = read.leases.iter().filter(|lease| lease.until > now).count();
        if holders >= key.limit as usize {
            waits.insert(state.name.clone(), key.key.to_string());
        }
    }
    Ok(waits)
}

/// The concurrency key of a job.
pub(super) fn key_of(state: &JobState) -> Option<ConcurrencyKey> {
    Definition::parse(&state.name, &state.definition).ok()?.settings().concurrency_key.clone()
}

/// The record of a key; `None` if no job has ever held it.
pub(super) async fn record_of(
    session: &Session,
    key: &ConcurrencyKey,
) -> Result<Option<JobState>, Error> {
    match session.schedules.get(&key.record()).await {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        state => state.map(Some),
    }
}

/// The holder of a place of a key, as text.
pub(super) fn holder(lease: &Lease) -> String {
    let KeyHolder { job, node, since, .. } = KeyHolder::of(lease);
    format!("{job} on {node} since {}", shown(since))
}
