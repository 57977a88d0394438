//! Occurrences that have been due for a minute without being claimed by any node.
//!
//! What this node remembers of a record may be old, because another node may have run the job
//! since. So an occurrence is overdue only if the store shows it as due as well.

use crate::{
    backend::{DueQuery, JobState, Operation, Reply, TimeSource},
    condition::{Code, Condition, OVERDUE, StorePart},
    error::Result,
    job::{Overlap, Placement},
    scheduler::{
        node::Node,
        store_request::{send, within},
    },
    stored::Routed,
    time::Time,
};
use std::{collections::HashMap, sync::Arc};

/// The largest number of records that are read at once: more of them would show the same condition.
const READS: usize = 100;

/// The overdue occurrences of the last look. One is reported when it is seen again: what becomes due
/// while a machine sleeps or a store is down is overdue for an instant.
#[derive(Debug, Default)]
pub(in crate::scheduler) struct Overdue {
    seen: HashMap<Arc<str>, Time>,
}

impl Overdue {
    /// Looks for overdue occurrences, and reports them unless a condition that is reported explains
    /// them. If the store does not answer, what was known stays.
    pub(in crate::scheduler) async fn look(&mut self, node: &Node) {
        let now = node.now(&node.shared());
        let Ok(found) = find(node, now).await else { return };
        node.metrics.overdue(found.len());
        let before = std::mem::replace(&mut self.seen, found.iter().cloned().collect());
        let overdue: Vec<Condition> = {
            let seen = node.board.seen();
            let active = &seen.active;
            let is_full = active.of(Code::CapacityFull).next().is_some();
            let is_explained = is_full || active.fails(StorePart::Claims);
            let is_reported = |(job, due_at): &(Arc<str>, Time)| {
                let was_reported = active.get(Code::JobOverdue, job);
                was_reported.is_some_and(|one| one.since == *due_at)
                    || before.get(job) == Some(due_at) && !is_explained && !active.explains(job)
            };
            let reported = found.into_iter().filter(is_reported);
            reported.map(|(job, due_at)| Condition::JobOverdue { job, due_at }).collect()
        };
        node.set_conditions(Code::JobOverdue, overdue);
    }
}

/// The overdue occurrences at `now`, ordered by name.
async fn find(node: &Node, now: Time) -> Result<Vec<(Arc<str>, Time)>> {
    let suspected = node.board.overdue(now);
    let (here, shared): (Vec<_>, Vec<_>) =
        suspected.into_iter().partition(|(.., placement)| *placement == Placement::EveryNode);
    let mut found: Vec<_> = here.into_iter().map(|(name, due_at, _)| (name, due_at)).collect();
    let mut shared: Vec<_> = shared.into_iter().map(|(name, due_at, _)| (due_at, name)).collect();
    // Those that have been due for longest.
    shared.sort();
    shared.truncate(READS);
    found.extend(confirmed(node, shared).await?);
    found.extend(stored(node, now).await?);
    found.sort();
    Ok(found)
}

/// The occurrences of jobs in code that their records show as due as well. The planner reads the
/// others again.
async fn confirmed(node: &Node, suspected: Vec<(Time, Arc<str>)>) -> Result<Vec<(Arc<str>, Time)>> {
    if suspected.is_empty() {
        return Ok(Vec::new());
    }
    let operations: Vec<_> = suspected.iter().map(|(_, name)| Operation::read(name)).collect();
    let applied = send(node, &operations).await?;
    let mut confirmed = Vec::new();
    for ((due_at, name), reply) in suspected.into_iter().zip(applied.replies) {
        match reply? {
            Reply::State(state) if state.due_at == Some(due_at) => confirmed.push((name, due_at)),
            _ => node.changed(&name),
        }
    }
    Ok(confirmed)
}

/// The overdue occurrences of stored schedules that this node can start.
async fn stored(node: &Node, now: Time) -> Result<Vec<(Arc<str>, Time)>> {
    let router = node.router();
    let Some(queries) = node.backend.queries().filter(|_| router.has_kinds(&[])) else {
        return Ok(Vec::new());
    };
    let kinds = within(node, "kinds", queries.kinds()).await?;
    let kinds = kinds.iter().map(String::as_str).filter(|kind| router.matches(kind));
    let kinds: Vec<&str> = kinds.collect();
    if kinds.is_empty() {
        return Ok(Vec::new());
    }
    let until = now - OVERDUE;
    let query = DueQuery::new(&kinds, until, READS).node(&node.id);
    let time = TimeSource::Store { fallback: node.runtime.wall() };
    let due = within(node, "find_due", queries.find_due(query, time)).await?.found;
    let due = due.iter().filter(|state| can_start(node, state, now));
    Ok(due.filter_map(|state| Some((state.name.as_str().into(), state.due_at?))).collect())
}

/// `true` if this node can start what is due of a stored schedule, as far as its record shows.
fn can_start(node: &Node, state: &JobState, now: Time) -> bool {
    if state.unreadable.is_some() || node.board.seen().active.explains(&state.name) {
        return false;
    }
    let Routed::Here(spec) = node.route(state) else { return false };
    let is_held = state.leases.iter().any(|lease| lease.until > now);
    let is_held = is_held && spec.settings.overlap != Overlap::Allow;
    // Its record does not show who holds the key.
    !is_held && spec.settings.concurrency_key.is_none()
}
