//! The pass over all records that finds those without a use: orphaned jobs in code, one-off
//! schedules that have ended, and concurrency keys that no job holds or waits for.
//!
//! One node makes it, once an hour and whenever the jobs of the nodes have changed. It rests after
//! each page, so it reads for a hundredth of the time.

use crate::{
    backend::{Action, JobState, Operation, Page, Queries, Reply},
    condition::{Code, Condition, StorePart},
    error::{ErrorKind, Result},
    event::Event,
    name::{KEY, LONG_KEY, is_key_record},
    registry::{
        Fleet, OrphanRule, Orphans, is_finished, is_orphaned, is_written_after, key_unused_since,
        unused_since,
    },
    scheduler::{
        monotonic::later,
        node::Node,
        side_request::SideRequest,
        store_request::{send, within},
    },
    time::{Time, saturating_add},
};
use std::{
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

/// The interval of the passes.
const INTERVAL: Duration = Duration::from_secs(3_600);

/// The age of a record, in heartbeats, from which it may be an orphan.
const YOUNG: u32 = 4;

/// The number of records in one request.
const PAGE: usize = 500;

/// The time after which a concurrency key is removed that no job has held or waited for. Its fences
/// continue if it is used again.
const KEYS: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The rest after a page, as a multiple of the time that it took, and its limit.
const REST: u32 = 99;
const LONGEST_REST: Duration = Duration::from_secs(5);

pub(in crate::scheduler) struct Retention {
    request: SideRequest<Result<Orphans>>,
    next: Instant,
    /// The jobs of the live nodes at the last look, and at the last pass.
    seen: Option<Vec<(usize, u64)>>,
    passed: Option<Vec<(usize, u64)>>,
    orphans: Orphans,
}

impl Retention {
    pub(in crate::scheduler) fn new(now: Instant) -> Self {
        let (request, orphans) = (SideRequest::default(), Orphans::default());
        Self { request, next: now, seen: None, passed: None, orphans }
    }

    /// The orphans that the last pass has found.
    pub(in crate::scheduler) fn orphans(&self) -> &Orphans {
        &self.orphans
    }

    /// Begins a pass, if it is time for one. Nodes that start and stop change their jobs one after
    /// the other: the pass waits until two looks have seen the same.
    pub(in crate::scheduler) fn renew(&mut self, node: &Arc<Node>, fleet: &Fleet) {
        self.report(node);
        let mut jobs: Vec<(usize, u64)> =
            fleet.live().map(|node| (node.jobs, node.jobs_hash)).collect();
        jobs.sort_unstable();
        jobs.dedup();
        let is_stable = self.seen.as_ref() == Some(&jobs);
        let has_changed = self.passed.as_ref() != Some(&jobs);
        self.seen = Some(jobs);
        let is_time = node.runtime.now() >= self.next || has_changed;
        if self.request.has_begun() || !is_stable || !is_time {
            return;
        }
        self.passed.clone_from(&self.seen);
        self.next = later(node.runtime.now(), INTERVAL);
        let rule = match fleet.has_one_set_of_jobs() || fleet.has_all_names() {
            true => OrphanRule::NoNodeHasIt,
            false => OrphanRule::Due,
        };
        let (node, fleet) = (node.clone(), fleet.clone());
        self.request.begin(async move {
            let Some(queries) = node.backend.queries() else { return Ok(Orphans::default()) };
            pass(&node, queries, &fleet, rule).await
        });
    }

    /// Another node makes the passes.
    pub(in crate::scheduler) fn is_of_another_node(&mut self, node: &Node) {
        node.set_conditions(Code::JobsOrphaned, None);
        (self.seen, self.passed) = (None, None);
        self.request = SideRequest::default();
        self.orphans = Orphans::default();
    }

    /// Ready if a pass has ended.
    pub(in crate::scheduler) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.request.poll(cx)
    }

    /// Reports what a pass has found.
    pub(in crate::scheduler) fn report(&mut self, node: &Node) {
        let Some(found) = self.request.take() else { return };
        match found {
            Ok(orphans) => {
                if orphans.has_young {
                    // The next look begins another pass.
                    self.passed = None;
                }
                self.orphans = orphans;
                let Orphans { count, examples, .. } = &self.orphans;
                let orphaned = (*count > 0)
                    .then(|| Condition::JobsOrphaned { count: *count, examples: examples.clone() });
                node.set_conditions(Code::JobsOrphaned, orphaned);
            }
            Err(error) => {
                // The next look begins another pass.
                self.passed = None;
                if error.kind() != ErrorKind::Unavailable {
                    node.store_failed(StorePart::Registry, &error);
                }
            }
        }
    }
}

/// Reads all records, counts the orphans, and removes what its retention period has passed for.
async fn pass(
    node: &Node,
    queries: &dyn Queries,
    fleet: &Fleet,
    rule: OrphanRule,
) -> Result<Orphans> {
    let mut orphans = Orphans::default();
    for prefix in ["", KEY, LONG_KEY] {
        pass_over(node, queries, fleet, prefix, rule, &mut orphans).await?;
    }
    Ok(orphans)
}

/// The pass over the records whose names begin with this prefix.
async fn pass_over(
    node: &Node,
    queries: &dyn Queries,
    fleet: &Fleet,
    prefix: &str,
    rule: OrphanRule,
    orphans: &mut Orphans,
) -> Result {
    let young = YOUNG * node.config.heartbeat;
    let mut after: Option<String> = None;
    loop {
        let begun = node.runtime.now();
        let page = Page { after: after.as_deref(), ..Page::first(PAGE).prefix(prefix) };
        let states = within(node, "list", queries.list(page)).await?;
        let now = node.now(&node.shared());
        let mut unused = Vec::new();
        for state in &states {
            if is_key_record(&state.name) {
                let since = key_unused_since(state).filter(|_| state.unreadable.is_none());
                if since.is_some_and(|since| saturating_add(since, KEYS) <= now) {
                    unused.push(state);
                }
                continue;
            }
            let is_declared = || node.has_job(&state.name) || fleet.declares(&state.name);
            let is_unknown = || !is_declared() && is_orphaned(state, rule, now);
            let kept_for = if state.kind.is_empty() && is_unknown() {
                if is_written_after(state, now - young) {
                    orphans.has_young = true;
                    continue;
                }
                orphans.add(&state.name);
                node.config.prune_orphans_after
            } else if is_finished(state, now) {
                node.config.prune_finished_after
            } else {
                None
            };
            if kept_for.is_some_and(|kept_for| is_over(state, kept_for, now)) {
                unused.push(state);
            }
        }
        let pruned = prune(node, &unused).await?;
        orphans.remove(&pruned);
        if states.len() < PAGE {
            return Ok(());
        }
        after = states.last().map(|state| state.name.clone());
        let took = node.runtime.now().saturating_duration_since(begun);
        let rest = took.saturating_mul(REST).min(LONGEST_REST);
        node.runtime.sleep_until(later(node.runtime.now(), rest)).await;
    }
}

fn is_over(state: &JobState, kept_for: Duration, now: Time) -> bool {
    unused_since(state).is_some_and(|since| saturating_add(since, kept_for) <= now)
}

/// Removes these records, unless they have changed or something waits in them. Returns the names of
/// those that were removed.
async fn prune(node: &Node, unused: &[&JobState]) -> Result<Vec<String>> {
    if unused.is_empty() {
        return Ok(Vec::new());
    }
    let operations: Vec<Operation<'_>> = unused
        .iter()
        .map(|state| {
            let cursor = state.next.map(|cursor| cursor.scheduled_at);
            Operation::new(&state.name, Action::Prune { fence: state.fence, cursor })
        })
        .collect();
    let applied = send(node, &operations).await?;
    node.wrote();
    let mut pruned = Vec::new();
    for (state, reply) in unused.iter().zip(applied.replies) {
        if reply? == Reply::Deleted {
            pruned.push(state.name.clone());
        }
    }
    let jobs = pruned.iter().filter(|name| !is_key_record(name));
    node.emit(jobs.map(|name| Event::Pruned { name: name.as_str().into() }));
    Ok(pruned)
}
