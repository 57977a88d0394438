//! Records without a use: jobs in code that no live build declares, one-off schedules that have run,
//! and concurrency keys that no job holds or waits for.
//!
//! A removal names the fence and the cursor that were read, and spares a record in which a run,
//! retry, trigger, dead letter or pause waits, because another node may claim or edit the job in
//! between.

use super::NodeInfo;
use crate::{
    backend::JobState,
    name::is_internal,
    schedule::AnySchedule,
    stored::Definition,
    time::{Time, saturating_add},
};
use chrono::DateTime;
use std::time::Duration;

/// The time for which the job of an unknown name is due, without a lease, until it is an orphan
/// among nodes with different jobs.
const DUE: Duration = Duration::from_secs(600);

/// The rule for a job in code that a node does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrphanRule {
    /// No live node has the job: all have the same jobs as the one that looks, or the registry has
    /// the names of all their jobs.
    NoNodeHasIt,
    /// Live nodes have different jobs. A node that knows the job would have claimed its due
    /// occurrence.
    Due,
}

/// The orphaned jobs that one pass over the records has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Orphans {
    pub(crate) count: usize,
    /// The first names.
    pub(crate) examples: Vec<String>,
    /// Others were written so lately that the node that did may not be in the registry yet.
    pub(crate) has_young: bool,
}

impl Orphans {
    pub(crate) fn add(&mut self, name: &str) {
        self.count += 1;
        if self.examples.len() < 8 {
            self.examples.push(name.to_owned());
        }
    }

    /// These were removed.
    pub(crate) fn remove(&mut self, names: &[String]) {
        self.count = self.count.saturating_sub(names.len());
        self.examples.retain(|name| !names.contains(name));
    }
}

/// `true` if the record of a job in code, which the node that looks does not have, is one that no
/// live build declares. A one-off job that has run is none: a build has no more use for it.
pub(crate) fn is_orphaned(state: &JobState, rule: OrphanRule, now: Time) -> bool {
    let is_due = |at: Time| saturating_add(at, DUE) <= now;
    let has_ended = || state.due_at.is_none() && state.last_started.is_some() && is_one_off(state);
    state.kind.is_empty()
        && !is_internal(&state.name)
        && state.unreadable.is_none()
        && state.leases.is_empty()
        && !has_ended()
        && match rule {
            OrphanRule::NoNodeHasIt => true,
            OrphanRule::Due => state.due_at.is_some_and(is_due),
        }
}

impl NodeInfo {
    /// `true` if the job in code of this record is orphaned: none of the live ones among these nodes
    /// has it. Without a live node that is not known, and it is `false`. A one-off job that has run is
    /// no orphan, and neither is one that was defined after a live node wrote its record.
    pub fn is_orphan(nodes: &[NodeInfo], state: &JobState) -> bool {
        let live = || nodes.iter().filter(|node| node.is_live);
        let Some(seen) = live().map(|node| node.last_seen).min() else { return false };
        is_orphaned(state, OrphanRule::NoNodeHasIt, seen)
            && !live().any(|node| node.may_declare(&state.name))
            && DateTime::from_timestamp_micros(state.generation) < Some(seen)
    }
}

/// `true` if it was claimed or defined after this time.
pub(crate) fn is_written_after(state: &JobState, at: Time) -> bool {
    written_at(state).is_none_or(|written| written > at)
}

/// The time since which a record without a use is of none: its last claim or definition, or the
/// time since which its occurrence is due.
pub(crate) fn unused_since(state: &JobState) -> Option<Time> {
    written_at(state).max(state.due_at)
}

/// The time since which a concurrency key is not used: its last grant, and the ends of the leases of
/// its holders and of the places in its queue.
pub(crate) fn key_unused_since(state: &JobState) -> Option<Time> {
    let leases = state.leases.iter().map(|lease| lease.until);
    let waiters = state.waiters.iter().map(|waiter| waiter.until);
    leases.chain(waiters).chain(written_at(state)).max()
}

/// `true` if it is a one-off schedule that was started and has ended.
pub(crate) fn is_finished(state: &JobState, now: Time) -> bool {
    let has_ended = !state.kind.is_empty()
        && state.unreadable.is_none()
        && state.last_started.is_some()
        && state.due_at.is_none()
        && state.next.is_none()
        && state.leases.is_empty()
        && !state.is_paused(now)
        && state.dead.is_empty();
    has_ended && is_one_off(state)
}

fn is_one_off(state: &JobState) -> bool {
    Definition::parse(&state.name, &state.definition).is_ok_and(|definition| {
        matches!(definition.schedule(), AnySchedule::At(_))
            || definition.settings().max_runs == Some(1)
    })
}

/// The time of the last claim or definition, by the store's clock: fences are drawn from it.
fn written_at(state: &JobState) -> Option<Time> {
    DateTime::from_timestamp_micros(state.fence)
}
