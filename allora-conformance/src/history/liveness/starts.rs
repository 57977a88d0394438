//! Occurrences that can start are registered, claimed within the bound, and claimed before what was due
//! later.

use super::{CodeTimes, Judge, Key, Kind, Policy, RecordStory, Story};
use crate::history::{
    spans::Spans,
    trace::{Code, Delays},
};
use allora_core::{
    Time,
    backend::{JobState, OnExpiry},
    record::{KEEP_WAITER, MAX_LEASES},
};
use chrono::TimeDelta;
use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

/// The number of claims of later occurrences that nodes may have decided before they see an earlier
/// one.
const UNDERWAY: usize = 3;

/// An occurrence that could start, and since when.
struct Offer {
    state: Arc<JobState>,
    due_at: Time,
    from: Time,
    to: Time,
}

/// The claims of each node: their times, the times from which their jobs had been due, the jobs. A job
/// that catches up with its latest occurrence was due before that.
pub(super) type Claims = HashMap<Arc<str>, Vec<(Time, Time, Arc<str>)>>;

impl Judge<'_> {
    /// Occurrences that can start are claimed.
    pub(super) fn claims(
        &mut self,
        story: &Story,
        job: &Arc<str>,
        record: &RecordStory,
        claimed: &Claims,
    ) {
        let policy = (self.law.policy)(job);
        let key = (self.law.key)(job).map(|key| story.free(&key, self.end));
        let mut offers: Vec<Offer> = Vec::new();
        let mut is_open = false;
        let ends = record.states.iter().skip(1).map(|(at, _)| *at).chain([self.end]);
        for ((from, state), to) in record.states.iter().zip(ends) {
            let Some(state) = state.as_ref().filter(|state| state.unreadable.is_none()) else {
                is_open = false;
                continue;
            };
            for (from, to, lead) in story.steady(*from, to) {
                let Some(due_at) = state.due_at else { continue };
                let held = held_until(state, policy).map_or(due_at, |held| held.max(due_at));
                let from = from.max(held - lead);
                if from >= to {
                    continue;
                }
                match offers.last_mut().filter(|_| is_open) {
                    Some(offer) if offer.to == from && same(&offer.state, state) => offer.to = to,
                    _ => {
                        let due_at = due_at - lead;
                        offers.push(Offer { state: state.clone(), due_at, from, to });
                    }
                }
                is_open = true;
            }
        }
        for offer in offers {
            if offer.to - offer.from > self.law.bound {
                self.judge_offer(story, job, &offer, key.as_ref());
                // By several clocks, nothing tells what was due first.
                if self.law.loss.is_some() && key.is_none() && story.clock.len() == 1 {
                    self.judge_order(story, job, &offer, claimed);
                }
            }
        }
    }

    fn judge_offer(&mut self, story: &Story, job: &Arc<str>, offer: &Offer, key: Option<&Spans>) {
        let Offer { state, due_at, from, to } = offer;
        // Dead jobs keep their places in the queue of a key for a while.
        let waits = key.map_or(TimeDelta::zero(), |_| {
            TimeDelta::from_std(2 * KEEP_WAITER).unwrap_or_default()
        });
        let by_search = is_found(state);
        let idle = story.with_code(job, state).filter_map(|(node, held)| {
            let within = ((*from).max(held.0), (*to).min(held.1));
            let able = &story.nodes.get(node)?.able;
            let able = key.map_or(Cow::Borrowed(able), |free| Cow::Owned(able.and(free)));
            let bound = self.law.bound + waits;
            let is_long = |span: &(Time, Time)| {
                let slack = || self.slack(story, node, job, by_search, *span);
                span.1 - span.0 > bound && span.1 - span.0 > bound + slack()
            };
            let found = able.parts(within).find(is_long);
            found.map(|span| (node.clone(), span))
        });
        let idle: Vec<_> = idle.collect();
        if let Some((_, during)) = idle.first().cloned() {
            let nodes: BTreeSet<_> = idle.into_iter().map(|(node, _)| node).collect();
            let nodes = nodes.into_iter().collect();
            let head = state.head.as_ref();
            self.stall(Kind::NotClaimed, job, head, during, nodes).due_at = Some(*due_at);
        }
    }

    /// The occurrence that was due first is claimed first.
    fn judge_order(&mut self, story: &Story, job: &Arc<str>, offer: &Offer, claimed: &Claims) {
        let Offer { state, due_at, from, to } = offer;
        let by_search = is_found(state);
        for (node, held) in story.with_code(job, state) {
            let Some(life) = story.nodes.get(node) else { continue };
            let within = ((*from).max(held.0), (*to).min(held.1));
            for (since, until) in life.healthy.parts(within) {
                let slack = self.slack(story, node, job, by_search, (since, until));
                let seen = since + self.law.bound + slack;
                let later = claimed.get(node).into_iter().flatten().filter(|(at, due, other)| {
                    (seen..until).contains(at) && *due > seen && other != job
                });
                if later.count() > UNDERWAY {
                    let (nodes, head) = (vec![node.clone()], state.head.as_ref());
                    self.stall(Kind::Overtaken, job, head, (seen, until), nodes).due_at =
                        Some(*due_at);
                    return;
                }
            }
        }
    }

    /// The claims of all nodes.
    pub(super) fn claimed(&self, story: &Story) -> Claims {
        let mut claims = Claims::new();
        for (job, record) in story.jobs.iter().filter(|(job, _)| !job.starts_with("allora:")) {
            for lease in record.leases.values() {
                let Some((at, _)) = lease.until.first() else { continue };
                let before = record.states.partition_point(|(time, _)| time < at).checked_sub(1);
                let before = before.and_then(|n| record.states[n].1.as_ref()?.due_at);
                let due_at = before.map_or(lease.due_at, |before| before.min(lease.due_at));
                let claim = (*at, due_at - story.lead(*at), job.clone());
                claims.entry(lease.node.clone()).or_default().push(claim);
            }
        }
        claims
    }

    /// The time by which a start may be later because of requests of its node that were not answered.
    /// `by_search`: a search finds what is due.
    pub(super) fn slack(
        &self,
        story: &Story,
        node: &Arc<str>,
        job: &Arc<str>,
        by_search: bool,
        (from, to): (Time, Time),
    ) -> TimeDelta {
        let (Some(loss), Some(losses)) = (self.law.loss, story.losses.get(node)) else {
            return TimeDelta::zero();
        };
        let first = losses.partition_point(|(at, _)| *at < from);
        let during = losses[first..].iter().take_while(|(at, _)| *at <= to + loss);
        let delaying = during.filter(|(_, delays)| match delays {
            Delays::Nothing => false,
            Delays::Jobs(jobs) => jobs.contains(job),
            Delays::Found => by_search,
            Delays::All => true,
        });
        loss * i32::try_from(delaying.count()).unwrap_or(i32::MAX)
    }

    /// A job whose code a node has is in the store.
    pub(super) fn registrations(&mut self, story: &Story) {
        for (job, nodes) in &story.code {
            let record = story.jobs.get(job);
            let first = record.and_then(|record| {
                record.states.iter().find(|(_, state)| state.is_some()).map(|(at, _)| *at)
            });
            let first = first.unwrap_or(self.end);
            for (node, held) in nodes {
                if let Some(during) = self.unregistered(story, job, (node, held), first) {
                    self.stall(Kind::NotRegistered, job, None, during, vec![node.clone()]);
                }
            }
        }
    }

    fn unregistered(
        &self,
        story: &Story,
        job: &Arc<str>,
        (node, held): (&Arc<str>, &CodeTimes),
        first: Time,
    ) -> Option<(Time, Time)> {
        let life = story.nodes.get(node)?;
        let mine = held.iter().filter(|(.., code)| matches!(code, Code::Job(_)));
        mine.flat_map(|(from, to, _)| life.healthy.parts((*from, (*to).min(first)))).find(|span| {
            let slack = self.slack(story, node, job, false, *span);
            span.1 - span.0 > self.law.bound + slack
        })
    }
}

impl Story {
    /// The times at which a place of the key is free.
    fn free(&self, key: &Key, end: Time) -> Spans {
        let mut free = Spans::default();
        free.set(Time::MIN_UTC, true);
        let Some(record) = self.jobs.get(&*key.record) else {
            free.set(end, false);
            return free;
        };
        let ends = record.states.iter().skip(1).map(|(at, _)| *at).chain([end]);
        for ((from, state), to) in record.states.iter().zip(ends) {
            for (from, to, lead) in self.steady(*from, to) {
                let leases = state.iter().flat_map(|state| &state.leases);
                let mut until: Vec<Time> = leases.map(|lease| lease.until - lead).collect();
                until.retain(|until| *until > from);
                until.sort_unstable();
                free.set(from, until.len() < key.limit);
                let last = until.len().checked_sub(key.limit).map(|n| until[n]);
                if let Some(at) = last.filter(|at| *at < to) {
                    free.set(at, true);
                }
            }
        }
        free.set(end, false);
        free
    }
}

/// `true` if only a search finds what is due in this record.
fn is_found(state: &JobState) -> bool {
    !state.kind.is_empty() || state.head.as_ref().is_some_and(|head| head.trigger.is_some())
}

/// The time until which the record's active runs hold its head back.
fn held_until(state: &JobState, policy: Policy) -> Option<Time> {
    // A lease that is retried on expiry is in the head's due time.
    let lost = state.leases.iter().filter(|lease| lease.on_expiry == OnExpiry::Lost);
    let ends = lost.map(|lease| lease.until);
    if policy.is_exclusive {
        return ends.max();
    }
    (state.leases.len() >= MAX_LEASES).then(|| ends.min()).flatten()
}

/// `true` if nothing was claimed, changed or moved from one state to the other.
fn same(before: &JobState, after: &JobState) -> bool {
    let key = |state: &JobState| (state.incarnation, state.generation, state.fence);
    key(before) == key(after) && before.head == after.head
}
