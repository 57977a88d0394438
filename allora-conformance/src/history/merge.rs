//! The merge of a store's own history into the log of the nodes.

use super::log::{Claims, Event, Outcome, What, booked};
use allora_core::backend::{self, HistoryEntry};
use std::collections::{HashMap, HashSet};

/// The events that nodes could not write, because they were killed or an answer was lost for good:
/// takes and ends that only the store's history has, the runs that it records as lost, and the
/// ranges that it records as missed or skipped.
///
/// A take that no node wrote down is dated by the entry. The entries of a trigger are those of the job that
/// it is in the log ([`booked`](super::booked)).
pub fn merge_store_history(log: &[Event], job: &str, past: &[HistoryEntry]) -> Vec<Event> {
    let (mut taken, mut ended, mut started) = (HashSet::new(), HashSet::new(), HashMap::new());
    for event in log.iter().filter(|event| event.job == job) {
        match event.what {
            What::Claim(claims) => drop(taken.insert(claims.fence)),
            What::End { fence, .. } => drop(ended.insert(fence)),
            What::Start { fence, .. } => drop(started.insert(fence, event.at)),
            _ => {}
        }
    }
    let mut merged = Vec::new();
    let is_of =
        |past: &&HistoryEntry| booked(&past.name, past.occurrence.trigger.as_deref()) == job;
    for past in past.iter().filter(is_of) {
        let Some(at) = past.ended_at.or(past.started_at) else { continue };
        let (fence, at) = (past.fence, at.timestamp_millis());
        let occurrence = past.occurrence.scheduled_at.timestamp_millis();
        let mut add = |at, what| {
            merged.push(Event { job: job.into(), node: past.node.clone(), at, what });
        };
        if matches!(past.outcome, backend::Outcome::Missed | backend::Outcome::Skipped) {
            let last = past.last.map_or(occurrence, |last| last.timestamp_millis());
            add(at, What::Skip { first: occurrence, last });
            continue;
        }
        if !taken.contains(&fence) {
            let claims = Claims { occurrence, fence, attempt: past.attempt, until: None };
            let started_at = past.started_at.map_or(at, |started| started.timestamp_millis());
            add(started_at, What::Claim(claims));
            // Without a clock, the store may have decided later.
            let answered = past.ended_at.map_or(i64::MAX, |ended| ended.timestamp_millis());
            add(answered, What::Answered { fence });
        }
        let outcome = match past.outcome {
            backend::Outcome::Lost => {
                add(at, What::Lost { occurrence, fence });
                continue;
            }
            backend::Outcome::Succeeded => Outcome::Succeeded,
            backend::Outcome::Failed(_) | backend::Outcome::Dead(_) => Outcome::Failed,
            backend::Outcome::Retried(_) | backend::Outcome::Interrupted => Outcome::Retry,
            backend::Outcome::Cancelled => Outcome::Cancelled,
            backend::Outcome::Released => Outcome::Released,
            _ => continue,
        };
        if !ended.contains(&fence) {
            // It was sent at some moment after the start. A claim that waited for it has the earlier time.
            let at = started.get(&fence).map_or(at, |started| at.min(*started));
            add(at, What::End { occurrence, fence, outcome });
        }
    }
    merged
}
