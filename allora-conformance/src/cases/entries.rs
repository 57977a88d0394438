//! The parts of history entries that cases compare.

use allora_core::{
    Time,
    backend::{HistoryEntry, Outcome},
};

/// Fence aside, what an entry says: nominal instant, attempt, node, when it was written last,
/// outcome.
pub(super) fn told(past: &[HistoryEntry]) -> Vec<(Time, u32, &str, Time, &Outcome)> {
    past.iter()
        .map(|past| {
            let recorded_at = past.ended_at.or(past.started_at);
            (
                past.occurrence.scheduled_at,
                past.attempt,
                &*past.node,
                recorded_at.expect("an entry has a time"),
                &past.outcome,
            )
        })
        .collect()
}

/// When the attempts were due, when they started, when they ended.
pub(super) fn times(past: &[HistoryEntry]) -> Vec<(Option<Time>, Option<Time>, Option<Time>)> {
    past.iter().map(|past| (past.due_at, past.started_at, past.ended_at)).collect()
}
