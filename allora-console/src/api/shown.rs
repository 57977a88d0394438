//! The objects of the API that the library does not have: pages, and jobs with their states.

use crate::{
    reader::Reader,
    words::{Around, Word, words},
};
use allora_core::{NodeInfo, Result, Time, backend::JobState, record::Change};
use serde::Serialize;
use serde_json::{Value, json, to_value};
use std::hash::{DefaultHasher, Hash, Hasher};

/// A page of a list, with the token of the next one.
pub(crate) fn page(items: impl Serialize, next: Option<String>) -> Value {
    json!({ "items": items, "next": next })
}

/// A job, with its states in words.
pub(crate) fn job(state: &JobState, states: &[Word]) -> Value {
    let mut object = to_value(state).unwrap_or_default();
    object["states"] = states.iter().map(|word| word.text()).collect();
    object
}

/// A job that the reader has been given, with its states, and the progress of its runs.
pub(crate) async fn whole_job(reader: &Reader, state: &JobState, now: Time) -> Result<Value> {
    let nodes = reader.nodes().await?;
    let is_orphaned = NodeInfo::is_orphan(&nodes, state);
    let waiting = reader.waiting_for_keys(std::slice::from_ref(state), now).await?;
    let around = Around { is_orphaned, is_key_busy: !waiting.is_empty() };
    let mut object = job(state, &words(state, around, now));
    let progress = nodes.iter().flat_map(|node| &node.progress);
    let progress = progress.filter(|run| run.name == state.name);
    object["progress"] = json!(progress.collect::<Vec<_>>());
    Ok(object)
}

/// The mark of what a caller sees of a job: another one after each change, and not after an extension of a lease
/// or a checkpoint.
pub(crate) fn tag(state: &JobState) -> String {
    let mut object = to_value(state).unwrap_or_default();
    object["version"].take();
    object["checkpoints"].take();
    for lease in object["leases"].as_array_mut().into_iter().flatten() {
        lease["until"].take();
    }
    let mut hasher = DefaultHasher::new();
    object.to_string().hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// A change, with what the reader may see of the job before and after.
pub(crate) fn change(reader: &Reader, change: &Change) -> Value {
    let mut object = to_value(change).unwrap_or_default();
    for (side, state) in [("before", change.state_before()), ("after", change.state_after())] {
        object[side] = json!(state.map(|state| reader.shown(state)));
    }
    object
}
