//! The liveness of a scheduler, judged by a [`Trace`].
//!
//! **While one healthy node has a job's code and free capacity, and the store answers at least some
//! requests, an occurrence starts within a bound after it is due, not leased, and not held back by
//! its own policy.** Overlap, retry wait and pause are in the record, so that the check knows them
//! from there. What follows from the sentence is checked as well; [`Kind`] lists it.
//!
//! A node is healthy while it runs, was not asked to stop, is neither frozen nor suspended, and
//! the store [answers](Seen::Reachable) it. The clock of a stall begins again whenever no single
//! node has been healthy, with capacity, since it began.

mod starts;

use super::spans::Spans;
pub use super::stall::{Kind, Stall};

use super::trace::{Code, Delays, Execution, Following, Observation, Seen, Trace};
use allora_core::{
    Time,
    backend::{JobState, Occurrence, OnExpiry},
};
use chrono::TimeDelta;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    sync::Arc,
    time::Duration,
};

/// The bounds by which a trace is judged, and the policies of its jobs.
#[derive(Clone, Copy)]
pub struct Liveness<'a> {
    bound: TimeDelta,
    contact: TimeDelta,
    local: TimeDelta,
    /// The time that a start may take more for each request without a reply; `None` if the bound has
    /// room for them.
    loss: Option<TimeDelta>,
    policy: &'a dyn Fn(&str) -> Policy,
    key: &'a dyn Fn(&str) -> Option<Key>,
}

/// The concurrency key of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The name of its record.
    pub record: String,
    /// The largest number of its active runs.
    pub limit: usize,
}

/// The policy of a job, as far as its record does not show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// An occurrence waits for the runs before it: at most once, with another overlap than `Allow`.
    pub is_exclusive: bool,
}

impl fmt::Debug for Liveness<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Liveness")
            .field("bound", &self.bound)
            .field("contact", &self.contact)
            .finish_non_exhaustive()
    }
}

impl<'a> Liveness<'a> {
    /// The bounds of nodes with these settings: two poll intervals, two store timeouts and a second for
    /// a start, two store timeouts and a second for a run that goes on without its lease, half a second
    /// for an every-node job, whatever the store does. A node that is healthy for the last two thirds
    /// of a lease keeps it.
    pub fn new(poll_interval: Duration, store_timeout: Duration) -> Self {
        let second = Duration::from_secs(1);
        Self {
            bound: span(2 * (poll_interval + store_timeout) + second),
            contact: span(2 * store_timeout + second),
            local: TimeDelta::milliseconds(500),
            loss: None,
            policy: &|_| Policy::default(),
            key: &|_| None,
        }
    }

    /// The jobs have these policies. Default: no occurrence waits for another.
    #[must_use]
    pub fn policies(mut self, policy: &'a dyn Fn(&str) -> Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Requires that an idle node starts what is due within `bound`, and `loss` more for each of its
    /// requests about it that was not answered. A node that has claimed what it cannot start keeps at
    /// least half of its capacity for other work, and what was due first is claimed first.
    #[must_use]
    pub fn within(mut self, bound: Duration, loss: Duration) -> Self {
        (self.bound, self.loss) = (span(bound), Some(span(loss)));
        self
    }

    /// The jobs have these concurrency keys. Default: none has one.
    #[must_use]
    pub fn keys(mut self, key: &'a dyn Fn(&str) -> Option<Key>) -> Self {
        self.key = key;
        self
    }

    /// Allows this much more for a start: the time in which a slow store serves what is due at one
    /// instant.
    #[must_use]
    pub fn slower_by(mut self, time: Duration) -> Self {
        self.bound += span(time);
        self
    }
}

fn span(time: Duration) -> TimeDelta {
    TimeDelta::from_std(time).unwrap_or(TimeDelta::MAX)
}

/// Every breach in the trace, up to now by its clock.
///
/// Costs a few passes over the trace.
pub fn check(trace: &Trace, law: &Liveness<'_>) -> Vec<Stall> {
    let end = trace.now();
    let observations = trace.observations();
    let mut judge = Judge { seed: trace.seed(), law, end, found: Vec::new() };
    let story = Story::read(&observations, end, law.loss.is_some());
    let claimed = judge.claimed(&story);
    for (job, record) in &story.jobs {
        judge.claims(&story, job, record, &claimed);
        judge.leases(&story, job, record);
        judge.begins(&story, job, record);
        judge.backfills(&story, job, record);
    }
    judge.capacity(&story);
    judge.registrations(&story);
    judge.every_node(&story);
    judge.stops(&observations);
    judge.storms(&observations);
    judge.found.sort_by_key(|stall| (stall.kind, stall.during.0));
    judge.found
}

/// The life of one node.
#[derive(Default)]
struct Life {
    concurrency: usize,
    /// Leases without a run take at most half of it.
    is_halved: bool,
    up: bool,
    stopping: bool,
    awake: bool,
    reachable: bool,
    /// The runs of this node by job and fence: leased, called.
    used: HashMap<(Arc<str>, i64), (bool, bool)>,
    /// It first ran more jobs than its concurrency allows.
    crowded: Option<Time>,
    /// It is up, awake, and has capacity.
    free: Spans,
    /// As `free`, and the store answers.
    able: Spans,
    /// It is up, awake and answered, and was not asked to stop.
    healthy: Spans,
    /// As `healthy`, or it is stopping.
    alive: Spans,
}

impl Life {
    fn update(&mut self, at: Time) {
        let here = self.up && self.awake;
        let free = here && !self.stopping && self.used() < self.concurrency;
        self.free.set(at, free);
        self.able.set(at, free && self.reachable);
        self.healthy.set(at, here && !self.stopping && self.reachable);
        self.alive.set(at, here && self.reachable);
    }

    /// The used capacity.
    fn used(&self) -> usize {
        if !self.is_halved {
            return self.used.len();
        }
        let called = self.used.values().filter(|uses| uses.1).count();
        called + (self.used.len() - called).min(self.concurrency.div_ceil(2))
    }

    fn uses(&mut self, at: Time, run: (Arc<str>, i64), change: impl FnOnce(&mut (bool, bool))) {
        let uses = self.used.entry(run.clone()).or_default();
        change(uses);
        if *uses == (false, false) {
            self.used.remove(&run);
        }
        let called = self.used.values().filter(|uses| uses.1).count();
        if called > self.concurrency && self.crowded.is_none() {
            self.crowded = Some(at);
        }
        self.update(at);
    }
}

/// The life of one lease.
struct LeaseStory {
    node: Arc<str>,
    occurrence: Occurrence,
    attempt: u32,
    incarnation: i64,
    is_at_most_once: bool,
    due_at: Time,
    /// Each end that the store has granted, with the time of the grant.
    until: Vec<(Time, Time)>,
    /// The times without it, before an extension made it live again.
    absent: Vec<(Time, Time)>,
    gone: Option<Time>,
}

/// The life of one record.
#[derive(Default)]
struct RecordStory {
    states: Vec<(Time, Option<Arc<JobState>>)>,
    leases: BTreeMap<i64, LeaseStory>,
}

/// The times at which a node had a code.
type CodeTimes = Vec<(Time, Time, Code)>;

/// Node, job and fence.
type CallKey = (Arc<str>, Arc<str>, i64);

/// The observations, by node and job.
struct Story {
    nodes: HashMap<Arc<str>, Life>,
    jobs: BTreeMap<Arc<str>, RecordStory>,
    /// By job or kind, and node.
    code: BTreeMap<Arc<str>, BTreeMap<Arc<str>, CodeTimes>>,
    /// The calls of a run's code by node, job and fence, with their ends. Fences of every-node jobs
    /// are each node's own.
    calls: HashMap<CallKey, (Execution, Time, Time)>,
    /// The lead of the store's clock, from when on.
    clock: Vec<(Time, TimeDelta)>,
    /// The requests of each node that were not answered, with what they delay.
    losses: HashMap<Arc<str>, Vec<(Time, Delays)>>,
    is_halved: bool,
}

impl Story {
    fn read(observations: &[Observation], end: Time, is_halved: bool) -> Self {
        let mut story = Self {
            nodes: HashMap::new(),
            jobs: BTreeMap::new(),
            code: BTreeMap::new(),
            calls: HashMap::new(),
            clock: vec![(Time::MIN_UTC, TimeDelta::zero())],
            losses: HashMap::new(),
            is_halved,
        };
        for Observation { at, seen } in observations {
            story.take(*at, seen, end);
        }
        for life in story.nodes.values_mut() {
            for spans in [&mut life.free, &mut life.able, &mut life.healthy, &mut life.alive] {
                spans.set(end, false);
            }
        }
        story
    }

    fn take(&mut self, at: Time, seen: &Seen, end: Time) {
        let is_halved = self.is_halved;
        let mut change = |node: &Arc<str>, change: &dyn Fn(&mut Life)| {
            let life = self.nodes.entry(node.clone()).or_default();
            change(life);
            life.update(at);
        };
        match seen {
            Seen::Up { node, concurrency } => change(node, &|life| {
                (life.concurrency, life.is_halved) = (*concurrency, is_halved);
                (life.up, life.awake, life.reachable) = (true, true, true);
            }),
            Seen::Stopping(node) => change(node, &|life| life.stopping = true),
            Seen::Awake(node, awake) => change(node, &|life| life.awake = *awake),
            Seen::Reachable(node, reachable) => change(node, &|life| life.reachable = *reachable),
            Seen::Down { node, .. } => {
                change(node, &|life| life.up = false);
                for held in self.code.values_mut().filter_map(|nodes| nodes.get_mut(node)) {
                    close(held, at);
                }
            }
            Seen::Added { node, job, code } => {
                let nodes = self.code.entry(job.clone()).or_default();
                nodes.entry(node.clone()).or_default().push((at, end, code.clone()));
            }
            Seen::Removed { node, job } => {
                if let Some(held) = self.code.get_mut(job).and_then(|nodes| nodes.get_mut(node)) {
                    close(held, at);
                }
            }
            Seen::Began(execution) => {
                self.calls.insert(key(execution), (execution.clone(), at, end));
                let life = self.nodes.entry(execution.node.clone()).or_default();
                let run = (execution.job.clone(), execution.fence);
                life.uses(at, run, |uses| uses.1 = true);
            }
            Seen::Over(execution) => {
                if let Some(call) = self.calls.get_mut(&key(execution)) {
                    call.2 = at;
                }
                let run = (execution.job.clone(), execution.fence);
                let life = self.nodes.entry(execution.node.clone()).or_default();
                life.uses(at, run, |uses| uses.1 = false);
            }
            Seen::Clock(lead) => self.clock.push((at, TimeDelta::milliseconds(*lead))),
            Seen::Record { job, state } => self.take_record(at, job, state.as_ref()),
            Seen::Request { delays: Delays::Nothing, .. } => {}
            Seen::Request { node, delays, .. } => {
                self.losses.entry(node.clone()).or_default().push((at, delays.clone()));
            }
        }
    }

    fn take_record(&mut self, at: Time, job: &Arc<str>, state: Option<&Arc<JobState>>) {
        let record = self.jobs.entry(job.clone()).or_default();
        record.states.push((at, state.cloned()));
        let none = Vec::new();
        let leases = state.map_or(&none, |state| &state.leases);
        let live: HashSet<i64> = leases.iter().map(|lease| lease.fence).collect();
        for lease in leases {
            let node: Arc<str> = lease.node.as_str().into();
            let known = record.leases.entry(lease.fence).or_insert_with(|| LeaseStory {
                node: node.clone(),
                occurrence: lease.occurrence.clone(),
                attempt: lease.attempt,
                is_at_most_once: lease.on_expiry == OnExpiry::Lost,
                due_at: lease.due_at,
                incarnation: state.map_or(0, |state| state.incarnation),
                until: Vec::new(),
                absent: Vec::new(),
                gone: None,
            });
            if known.until.last().is_none_or(|(_, until)| *until != lease.until) {
                known.until.push((at, lease.until));
                // Not where an unreadable record is read again.
                known.absent.extend(known.gone.take().map(|gone| (gone, at)));
            }
            let life = self.nodes.entry(node).or_default();
            life.uses(at, (job.clone(), lease.fence), |uses| uses.0 = true);
        }
        for (fence, lease) in record.leases.iter_mut() {
            if lease.gone.is_none() && !live.contains(fence) {
                lease.gone = Some(at);
                let life = self.nodes.entry(lease.node.clone()).or_default();
                life.uses(at, (job.clone(), *fence), |uses| uses.0 = false);
            }
        }
    }

    /// The times from `from` to `to` in which the store's clock was steady, with its lead.
    fn steady(&self, from: Time, to: Time) -> impl Iterator<Item = (Time, Time, TimeDelta)> {
        let ends = self.clock.iter().skip(1).map(|(at, _)| *at).chain([Time::MAX_UTC]);
        let parts = self
            .clock
            .iter()
            .zip(ends)
            .map(move |((since, lead), until)| ((*since).max(from), until.min(to), *lead));
        parts.filter(|(from, to, _)| from < to)
    }

    fn lead(&self, at: Time) -> TimeDelta {
        let next = self.clock.partition_point(|(since, _)| *since <= at);
        self.clock[next - 1].1
    }

    /// The nodes that can run this record, and when they could.
    fn with_code<'a>(
        &'a self,
        job: &str,
        state: &JobState,
    ) -> impl Iterator<Item = (&'a Arc<str>, (Time, Time))> {
        let key = if state.kind.is_empty() { job } else { &state.kind };
        let definition = state.definition.clone();
        let nodes = self.code.get(key).into_iter().flatten();
        nodes.flat_map(move |(node, held)| {
            let definition = definition.clone();
            let fits = held.iter().filter(move |(.., code)| match code {
                // A node runs a job by another definition if its text tells the times.
                Code::Job(mine) => *mine == definition || !definition.starts_with("@code"),
                Code::Kind => true,
                Code::EveryNode(_) => false,
            });
            fits.map(move |(from, to, _)| (node, (*from, *to)))
        })
    }
}

fn key(execution: &Execution) -> CallKey {
    (execution.node.clone(), execution.job.clone(), execution.fence)
}

fn close(held: &mut CodeTimes, at: Time) {
    if let Some(last) = held.last_mut() {
        last.1 = last.1.min(at);
    }
}

struct Judge<'a> {
    seed: u64,
    law: &'a Liveness<'a>,
    end: Time,
    found: Vec<Stall>,
}

impl Judge<'_> {
    fn stall(
        &mut self,
        kind: Kind,
        job: &Arc<str>,
        occurrence: Option<&Occurrence>,
        during: (Time, Time),
        nodes: Vec<Arc<str>>,
    ) -> &mut Stall {
        let (seed, job) = (self.seed, job.clone());
        let occurrence = occurrence.cloned();
        self.found.push(Stall { seed, kind, job, occurrence, due_at: None, during, nodes });
        self.found.last_mut().expect("it was just added")
    }

    /// A claimed occurrence is started, and keeps its lease while its node is healthy.
    fn leases(&mut self, story: &Story, job: &Arc<str>, record: &RecordStory) {
        for (fence, lease) in &record.leases {
            let Some(life) = story.nodes.get(&lease.node) else { continue };
            let Some((granted, _)) = lease.until.first() else { continue };
            let call = story.calls.get(&(lease.node.clone(), job.clone(), *fence));
            let gone = lease.gone.unwrap_or(self.end);
            let (nodes, occurrence) = (vec![lease.node.clone()], Some(&lease.occurrence));
            let began = call.map_or(gone, |(_, began, _)| *began);
            let slack = |span| self.slack(story, &lease.node, job, true, span);
            let mut idle = life.healthy.parts((*granted, began.min(gone)));
            let idle = idle.find(|span| span.1 - span.0 > self.law.bound + slack(*span));
            // A place of a key is kept for the next claim.
            if let Some(during) = idle.filter(|_| !job.starts_with("allora:")) {
                self.stall(Kind::NotStarted, job, occurrence, during, nodes.clone());
            }
            let mut ends = lease.until.iter().map(|(at, until)| {
                // By the clock of the trace.
                (*at, *until - story.lead(*at))
            });
            let next = lease.until.iter().skip(1).map(|(at, _)| *at).chain([gone]);
            let lapse = ends.by_ref().zip(next).find(|((_, until), next)| until < next);
            if let Some(((extended, until), _)) = lapse {
                let last = (until - (until - extended) * 2 / 3, until);
                // A jump of the store's clock ends leases.
                let is_steady = story.lead(extended) == story.lead(until);
                if is_steady && life.alive.covers(last) {
                    self.stall(Kind::LeaseLapsed, job, occurrence, last, nodes.clone());
                }
            }
            // A late extension with the current fence gives the lease back.
            let lapsed = lapse.map(|((_, until), extended)| (until, extended));
            let is_deleted = record.states.iter().any(|(at, state)| {
                let incarnation = state.as_ref().map(|state| state.incarnation);
                *at >= *granted && incarnation != Some(lease.incarnation)
            });
            let Some((_, _, over)) = call.filter(|_| !is_deleted) else { continue };
            let unleased =
                lapsed.into_iter().chain(lease.absent.iter().copied()).chain([(gone, *over)]);
            let unleased = unleased.map(|(from, to)| (from, to.min(*over)));
            let during = unleased
                .filter(|(from, to)| from < to)
                .find_map(|span| life.alive.longer(span, self.law.contact));
            if let Some(during) = during {
                self.stall(Kind::NoLease, job, occurrence, during, nodes);
            }
        }
    }

    /// A run's code is called under its lease, and the call counts as an attempt.
    fn begins(&mut self, story: &Story, job: &Arc<str>, record: &RecordStory) {
        let mut begun: HashMap<(i64, &Occurrence, u32), Time> = HashMap::new();
        let mut called: HashMap<(i64, &Occurrence), Time> = HashMap::new();
        for (fence, lease) in &record.leases {
            let nodes = || vec![lease.node.clone()];
            let occurrence = Some(&lease.occurrence);
            let granted = lease.until.first().map(|(at, _)| *at);
            let attempt = (lease.incarnation, &lease.occurrence, lease.attempt);
            if let (Some(before), Some(granted)) = (begun.get(&attempt), granted) {
                let during = (*before, granted);
                self.stall(Kind::AttemptNotCounted, job, occurrence, during, nodes());
            }
            let Some((_, began, _)) = story.calls.get(&(lease.node.clone(), job.clone(), *fence))
            else {
                continue;
            };
            begun.insert(attempt, *began);
            let occurrence_of_life = (lease.incarnation, &lease.occurrence);
            if lease.is_at_most_once
                && let Some(before) = called.insert(occurrence_of_life, *began)
            {
                self.stall(Kind::RanTwice, job, occurrence, (before, *began), nodes());
            }
            let until = lease.until.iter().take_while(|(at, _)| at <= began).last();
            let until = until.map(|(at, until)| *until - story.lead(*at));
            let end = lease.gone.into_iter().chain(until).min();
            if let Some(end) = end.filter(|end| end < began) {
                self.stall(Kind::BegunTooLate, job, occurrence, (end, *began), nodes());
            }
        }
    }

    /// Triggers do not keep the schedule waiting: when its occurrence is due, one of them is claimed
    /// before it at most, and one more where two nodes act at the same time.
    fn backfills(&mut self, story: &Story, job: &Arc<str>, record: &RecordStory) {
        let mut last_fence = i64::MIN;
        let (mut due, mut before) = (None, Vec::new());
        for (at, state) in &record.states {
            let Some(state) = state else { continue };
            let cursor = state.next.filter(|next| {
                state.paused.is_none() && state.last_started < Some(next.scheduled_at)
            });
            if due != cursor {
                (due, before) = (cursor, Vec::new());
            }
            let claimed = state.leases.iter().filter(|lease| lease.fence > last_fence);
            let triggered = claimed.clone().filter(|lease| lease.occurrence.trigger.is_some());
            let is_due = cursor.is_some_and(|next| next.due_at - story.lead(*at) < *at);
            if is_due {
                before.extend(triggered.map(|lease| (*at, lease.node.as_str().into())));
            }
            last_fence = claimed.map(|lease| lease.fence).fold(last_fence, i64::max);
            if let (Some(next), [(from, _), _, (to, node)]) = (cursor, &before[..]) {
                let (occurrence, during) = (next.scheduled_at.into(), (*from, *to));
                let nodes = vec![Arc::clone(node)];
                self.stall(Kind::ScheduleHeldBack, job, Some(&occurrence), during, nodes);
                return;
            }
        }
    }

    /// A node runs as many jobs as its concurrency allows.
    fn capacity(&mut self, story: &Story) {
        for (node, life) in &story.nodes {
            if let Some(at) = life.crowded {
                self.stall(Kind::TooManyRuns, &"".into(), None, (at, at), vec![node.clone()]);
            }
        }
    }

    /// Every-node jobs run on each node, whatever the store does.
    fn every_node(&mut self, story: &Story) {
        let mut calls: HashMap<_, Vec<(Time, Time)>> = HashMap::new();
        for (execution, began, _) in story.calls.values() {
            let key = (&execution.job, &execution.node);
            calls.entry(key).or_default().push((execution.scheduled_at, *began));
        }
        for (job, nodes) in &story.code {
            for (node, held) in nodes {
                let calls = calls.get(&(job, node)).map_or(&[][..], Vec::as_slice);
                for (from, to, code) in held {
                    if let (Code::EveryNode(following), Some(life)) = (code, story.nodes.get(node))
                    {
                        let here = Here { job, node, calls, held: (*from, *to), following };
                        self.on_node(life, &here);
                    }
                }
            }
        }
    }

    fn on_node(&mut self, life: &Life, here: &Here<'_>) {
        let Here { job, node, calls, held: (from, to), following } = *here;
        let nodes = vec![node.clone()];
        let old = calls.iter().find(|(at, began)| *at < from && (from..to).contains(began));
        if let Some((at, began)) = old {
            let occurrence = Occurrence::from(*at);
            let during = (from, *began);
            self.stall(Kind::OldOccurrence, job, Some(&occurrence), during, nodes.clone());
        }
        // A node that has just started has no time before the first reply, or the end of the request.
        let mut next = following(from + self.law.contact);
        while let Some(at) = next.filter(|at| *at + self.law.local < to) {
            let during = (at, at + self.law.local);
            let ran = calls.iter().any(|(of, began)| *of >= at && *began <= during.1);
            // A node that was suspended has a wrong time until the next reply.
            let rested = ((at - self.law.bound).max(from), during.1);
            if !ran && life.free.covers(rested) {
                let occurrence = Occurrence::from(at);
                self.stall(Kind::NotRunHere, job, Some(&occurrence), during, nodes).due_at =
                    Some(at);
                return;
            }
            next = following(at);
        }
    }

    /// A node that stops has ended, released or counted its runs.
    fn stops(&mut self, observations: &[Observation]) {
        let mut leases: HashMap<Arc<str>, Arc<JobState>> = HashMap::new();
        let mut stopping: HashMap<Arc<str>, Time> = HashMap::new();
        for Observation { at, seen } in observations {
            match seen {
                Seen::Record { job, state: Some(state) } => {
                    leases.insert(job.clone(), state.clone());
                }
                Seen::Record { job, state: None } => drop(leases.remove(job)),
                Seen::Stopping(node) => drop(stopping.insert(node.clone(), *at)),
                Seen::Down { node, unrecorded: Some(counted) } => {
                    let live = |state: &&Arc<JobState>| {
                        state.leases.iter().any(|lease| *lease.node == **node)
                    };
                    let left: Vec<_> = leases.values().filter(live).collect();
                    if left.len() > *counted {
                        let since = stopping.get(node).copied().unwrap_or(*at);
                        let job: Arc<str> = left[0].name.as_str().into();
                        let nodes = vec![node.clone()];
                        self.stall(Kind::LeftBehind, &job, None, (since, *at), nodes);
                    }
                }
                _ => {}
            }
        }
    }

    /// A node is quiet while nothing happens.
    fn storms(&mut self, observations: &[Observation]) {
        const WINDOW: TimeDelta = TimeDelta::seconds(10);
        let changes: Vec<Time> = observations
            .iter()
            .filter(|one| matches!(one.seen, Seen::Record { .. }))
            .map(|one| one.at)
            .collect();
        let mut requests: BTreeMap<Arc<str>, Vec<(Time, usize)>> = BTreeMap::new();
        for Observation { at, seen } in observations {
            if let Seen::Request { node, found, .. } = seen {
                requests.entry(node.clone()).or_default().push((*at, *found));
            }
        }
        for (node, requests) in requests {
            let (mut first, mut found) = (0, 0);
            for (i, (at, records)) in requests.iter().enumerate() {
                found += records;
                while requests[first].0 + WINDOW < *at {
                    found -= requests[first].1;
                    first += 1;
                }
                let from = *at - WINDOW;
                let changed = changes.partition_point(|change| change <= at)
                    - changes.partition_point(|change| *change < from);
                let sent = i + 1 - first;
                if sent > 100 + 4 * changed || found > 20_000 + 20 * changed {
                    self.stall(Kind::Storm, &"".into(), None, (from, *at), vec![node]);
                    break;
                }
            }
        }
    }
}

/// One every-node job on one node.
struct Here<'a> {
    job: &'a Arc<str>,
    node: &'a Arc<str>,
    /// The nominal times of its runs, and when they began.
    calls: &'a [(Time, Time)],
    held: (Time, Time),
    following: &'a Following,
}
