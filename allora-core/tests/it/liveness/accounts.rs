//! The account of a schedule's instants: each of them ran, was missed, was skipped, or is next.

use allora_core::{
    Time,
    backend::{HistoryEntry, JobState},
};
use chrono::TimeDelta;
use std::{collections::BTreeMap, time::Duration};

/// The gaps in the account of a job with this period, by its history, the oldest entry first, and its
/// record.
pub(super) fn unaccounted(
    period: Duration,
    past: &[HistoryEntry],
    state: Option<&JobState>,
) -> Vec<String> {
    let period = TimeDelta::from_std(period).unwrap();
    let mut spans: BTreeMap<Time, Time> = BTreeMap::new();
    for entry in past.iter().filter(|entry| entry.occurrence.trigger.is_none()) {
        let first = entry.occurrence.scheduled_at;
        let last = spans.entry(first).or_insert(first);
        *last = (*last).max(entry.last.unwrap_or(first));
    }
    let next = state.and_then(|state| state.next);
    spans.extend(next.map(|next| (next.scheduled_at, next.scheduled_at)));
    let mut gaps = Vec::new();
    let mut end: Option<Time> = None;
    for (first, last) in spans {
        let expected = end.map(|end| end + period);
        if let Some(expected) = expected.filter(|expected| *expected < first) {
            let (from, to) = (expected.format("%T%.3f"), first.format("%T%.3f"));
            gaps.push(format!("nothing accounts for {from} and what follows until {to}"));
        }
        end = end.max(Some(last));
    }
    gaps
}
