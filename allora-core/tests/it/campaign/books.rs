//! Checks of one job's history: the runs that took place against the record in the store.

use super::scenario::{Plan, When};
use crate::support::{Entry, Over};
use allora_core::{
    CatchUp, Overlap, Schedule, Time,
    backend::{HistoryEntry, JobState, Outcome},
};
use chrono::TimeDelta;
use std::collections::{BTreeMap, BTreeSet};

/// The key of an occurrence: incarnation, time, and trigger.
type Key = String;

/// Panics with what is wrong.
pub(super) fn audit(
    plan: &Plan,
    runs: &[Entry],
    past: &[HistoryEntry],
    (state, redefined, has_one_life): (&JobState, bool, bool),
    now: Time,
) {
    let name = &plan.name;
    fences(name, runs, past);
    not_early(plan, runs);
    let taken: BTreeMap<i64, &HistoryEntry> = past.iter().map(|past| (past.fence, past)).collect();
    for run in runs {
        let told = taken.get(&run.fence);
        let told = told.unwrap_or_else(|| panic!("{name}: the store knows nothing of {run:?}"));
        assert_eq!(
            told.occurrence.scheduled_at, run.at,
            "{name}: the store knows it otherwise: {run:?}"
        );
        assert_eq!(told.node, run.node, "{name}: it was won by another node: {run:?}");
        assert!(run.ended.is_some() || now - run.began < TimeDelta::minutes(1), "{name}: {run:?}");
    }
    starts(plan, runs, &taken);
    overlaps(plan, runs, &taken, redefined);
    if has_one_life {
        let lives: BTreeSet<&str> = runs.iter().map(life).collect();
        assert!(lives.len() <= 1, "{name}: another life, without a deletion: {lives:?}");
        every_instant(plan, past, (state, redefined), now);
    }
}

/// Which life of the name a run belongs to: the third part of its key.
fn life(run: &Entry) -> &str {
    run.key.split('/').nth(2).unwrap()
}

/// One run to a fence; fences grow in the order of the store's steps.
fn fences(name: &str, runs: &[Entry], past: &[HistoryEntry]) {
    let fences: BTreeSet<i64> = runs.iter().map(|run| run.fence).collect();
    assert_eq!(fences.len(), runs.len(), "{name}: two runs with one fence");
    let mut keyed: BTreeMap<&Key, &Entry> = BTreeMap::new();
    let mut runs: Vec<&Entry> = runs.iter().collect();
    runs.sort_by_key(|run| run.fence);
    for run in runs {
        if let Some(before) = keyed.insert(&run.key, run) {
            let again = run.attempt >= before.attempt;
            assert!(again, "{name}: an earlier attempt with a later fence: {before:?} {run:?}");
        }
    }
    assert!(past.windows(2).all(|pair| pair[0].fence < pair[1].fence), "{name}: fences");
}

/// Nothing starts before its time by the store's clock, which here is the true one.
fn not_early(plan: &Plan, runs: &[Entry]) {
    for run in runs {
        let due = run.at + if run.trigger.is_some() { TimeDelta::zero() } else { delay(plan) };
        assert!(run.began >= due, "{}: too early: {run:?}", plan.name);
    }
}

fn delay(plan: &Plan) -> TimeDelta {
    TimeDelta::from_std(plan.delay).unwrap()
}

/// At most once: one start. At least once: one completion, and none after it.
fn starts(plan: &Plan, runs: &[Entry], taken: &BTreeMap<i64, &HistoryEntry>) {
    let name = &plan.name;
    let mut by_key: BTreeMap<&Key, Vec<&Entry>> = BTreeMap::new();
    for run in runs {
        by_key.entry(&run.key).or_default().push(run);
    }
    for (key, mut attempts) in by_key {
        attempts.sort_by_key(|run| run.fence);
        if plan.lease.is_none() {
            assert_eq!(attempts.len(), 1, "{name}: {key} was started twice: {attempts:?}");
        }
        let over = |run: &&Entry| taken[&run.fence].is_final();
        let ended = attempts.iter().filter(|run| over(run)).count();
        assert!(ended <= 1, "{name}: {key} was completed twice: {attempts:?}");
        if let Some(done) = attempts.iter().position(over) {
            assert_eq!(done + 1, attempts.len(), "{name}: {key} ran after its end: {attempts:?}");
        }
    }
}

/// Where runs must not overlap, one begins only when the previous one has ended, or its lease has.
/// Then the store has the previous one as expired or lost, or its occurrence was given up.
fn overlaps(plan: &Plan, runs: &[Entry], taken: &BTreeMap<i64, &HistoryEntry>, redefined: bool) {
    if plan.lease.is_none() && plan.overlap == Overlap::Allow {
        return;
    }
    let mut runs: Vec<&Entry> = runs.iter().collect();
    runs.sort_by_key(|run| run.fence);
    for pair in runs.windows(2) {
        let (before, after) = (pair[0], pair[1]);
        let apart = before.ended.is_some_and(|(end, _)| end <= after.began);
        let outcome = &taken[&before.fence].outcome;
        let given_up = match outcome {
            Outcome::Expired | Outcome::Lost => true,
            Outcome::Dead(error) => error.starts_with("given up"),
            _ => false,
        };
        let another_life = life(before) != life(after);
        assert!(
            apart || given_up || another_life,
            "{}: overlapping: {before:?} ({outcome:?}) {after:?}",
            plan.name
        );
        // An at-most-once occurrence that a stopping node released may come after its successor,
        // and one that waits for another attempt after the first instant of a new definition.
        if let Some((_, Over::Ran)) = before.ended
            && apart
            && plan.lease.is_some()
            && !another_life
            && !redefined
        {
            let triggers = before.trigger.is_some() || after.trigger.is_some();
            assert!(before.at <= after.at || triggers, "{}: {before:?} {after:?}", plan.name);
        }
    }
}

/// Every instant of the schedule from the first known one to the cursor ran, failed, was missed or
/// skipped, or was lost; none twice, except for attempts.
fn every_instant(
    plan: &Plan,
    past: &[HistoryEntry],
    (state, redefined): (&JobState, bool),
    now: Time,
) {
    let name = &plan.name;
    if plan.delay.is_zero() && plan.max_runs.is_none() && state.counters.started == 0 {
        return;
    }
    let mut covered: BTreeMap<Time, (Time, &HistoryEntry)> = BTreeMap::new();
    for entry in past.iter().filter(|entry| entry.occurrence.trigger.is_none()) {
        let (first, last) =
            (entry.occurrence.scheduled_at, entry.last.unwrap_or(entry.occurrence.scheduled_at));
        if let Some((_, before)) = covered.insert(first, (last, entry)) {
            let attempts = before.last.is_none() && entry.last.is_none();
            assert!(attempts, "{name}: {first} has two fates: {before:?} {entry:?}");
        }
    }
    past.iter().for_each(|entry| counted(plan, entry));
    let mut ends: Option<Time> = None;
    for (first, (last, entry)) in &covered {
        if let Some(end) = ends {
            assert!(*first > end, "{name}: {first} has two fates: {entry:?}");
            let next = next_at(plan, end);
            // A definition begins at its own time: what passed while a run of the one before was
            // going on has no definition that could name it.
            let gap = next.is_some_and(|next| next < *first) && uncut(past);
            let gap = gap && !redefined;
            assert!(!gap, "{name}: {next:?} has no fate, before {first}");
        }
        ends = Some(*last);
    }
    going_on(plan, state, now);
}

/// In the end something is going on, or nothing is left to do.
fn going_on(plan: &Plan, state: &JobState, now: Time) {
    let name = &plan.name;
    let alive = state.leases.iter().any(|held| held.until > now);
    let busy = plan.takes.as_secs() > 5 || matches!(plan.catch_up, CatchUp::All { .. });
    if let (false, false, Some(due_at)) = (alive, busy, state.due_at) {
        let waits = due_at + TimeDelta::seconds(30) > now;
        assert!(waits, "{name}: nobody takes what is due at {due_at}: {state:?}");
    }
    // An occurrence that fails is tried for as long as this, and may have begun when the one before
    // it was over.
    let tried = TimeDelta::from_std(2 * plan.longest()).unwrap();
    let late = TimeDelta::from_std(plan.delay + plan.spread).unwrap() + TimeDelta::seconds(90);
    if let Some(cursor) = state.next {
        let moves = cursor.scheduled_at + late + tried > now;
        assert!(busy || moves, "{name}: stands still at {cursor:?}: {state:?}");
    }
}

/// `true` if the schedule's chain is the same from beginning to end.
fn uncut(past: &[HistoryEntry]) -> bool {
    past.iter().all(|entry| entry.count.is_some())
}

/// Missed and skipped occurrences were counted correctly.
fn counted(plan: &Plan, entry: &HistoryEntry) {
    let (Some(last), Some(count)) = (entry.last, entry.count) else { return };
    let (mut at, mut walked) = (entry.occurrence.scheduled_at, 1);
    while at < last {
        at = next_at(plan, at).unwrap_or(last);
        walked += 1;
    }
    assert_eq!((at, walked), (last, count), "{}: {entry:?}", plan.name);
}

fn next_at(plan: &Plan, after: Time) -> Option<Time> {
    match &plan.when {
        When::Every(period) => every(*period, after),
        When::Cron(cron) => cron.next_at(after),
    }
}

fn every(period: std::time::Duration, after: Time) -> Option<Time> {
    Some(after + TimeDelta::from_std(period).ok()?)
}
