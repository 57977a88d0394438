//! A fleet of simulated nodes around one store, of which everything is written to a trace.

use super::requests::{Failures, Requests};
use crate::support::{Faults, Faulty, Rates, failing, ms, secs, whole_history};
use allora_conformance::{
    faults::{
        Hooks, PartialBackend, Shares, SlowBackend, Speed, TracedRequests, TracedStore, Wrapped,
    },
    history::{
        Code, Seen, Trace,
        liveness::{Key, Liveness, Policy, Stall, check},
    },
};
use allora_core::{
    ActiveCondition, Backend, BoxError, Condition, Error, ErrorKind, Event, FailingPart, Handle,
    JobSpec, Pattern, Result, Run, Runtime, Schedule, Scheduler, SchedulerBuilder, Schedules,
    Stopped, StoredSchedule, Time,
    backend::{
        Action, Applied, Batch, ClaimDue, ClaimedDue, Due, DueQuery, HistoryEntry, HistoryQuery,
        JobState, OPERATOR, Operation, Page, Queries, Reply, TimeSource,
    },
    cron, job,
    runtime::{Sim, SimNode},
    stored::Definition,
};
use allora_memory::Memory;
use async_trait::async_trait;
use chrono::TimeDelta;
use futures::future::{BoxFuture, FutureExt};
use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// The default settings of a scheduler.
const POLL: Duration = secs(5);
const TIMEOUT: Duration = secs(1);

/// More observations and found records than a sound scheduler causes in any test.
const MOST: usize = 400_000;

/// More requests at one instant than sound schedulers send in any test.
const MOST_AT_ONCE: usize = 5_000;

pub(super) struct Fleet {
    pub(super) sim: Sim,
    pub(super) trace: Trace,
    /// Per-node ways to the store are built around it.
    store: TracedStore,
    memory: Memory,
    odd: Wrapped<Odd>,
    clock: SimNode,
    pub(super) speed: Option<Speed>,
    pub(super) shares: Shares,
    pub(super) slower_by: Duration,
    /// The nodes on which a poisonous run has begun.
    poisoned: Arc<Mutex<Vec<usize>>>,
    /// The poisonous occurrence of each job that has one: its first.
    poison: Arc<Mutex<HashMap<String, Time>>>,
    policies: Mutex<HashMap<String, Policy>>,
    keys: Mutex<HashMap<String, Key>>,
    /// The bound of a start, and the time that it may take more for each request without a reply.
    pub(super) bound: Option<(Duration, Duration)>,
    /// The store has a second clock, so many milliseconds ahead, and each of them answers in turn.
    second_clock: Arc<AtomicU64>,
}

/// A node that is being put together.
pub(super) struct Seat<'a> {
    fleet: &'a Fleet,
    pub(super) node: SimNode,
    pub(super) faults: Arc<Faults>,
    builder: Option<SchedulerBuilder>,
    added: Vec<(Arc<str>, Code)>,
    concurrency: usize,
}

/// A node with a scheduler.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) node: SimNode,
    pub(super) handle: Handle,
    pub(super) faults: Arc<Faults>,
    pub(super) failures: Failures,
    trace: Trace,
    pub(super) events: Arc<Mutex<Vec<Event>>>,
    pub(super) stopped: Arc<Mutex<Option<Stopped>>>,
}

impl Fleet {
    pub(super) fn new(seed: u64) -> Self {
        let sim = Sim::new(seed);
        let (truth, clock) = (sim.node(), sim.node());
        let trace = Trace::new(seed, move || truth.wall());
        let second_clock: Arc<AtomicU64> = Arc::default();
        let (wall, second, calls) = (clock.clone(), second_clock.clone(), AtomicU64::new(0));
        let memory = Memory::new().with_history(whole_history()).with_clock(move || {
            let ahead = ms(second.load(Relaxed)) * (calls.fetch_add(1, Relaxed) % 2) as u32;
            wall.wall() + ahead
        });
        let odd = Odd {
            work: Work {
                trace: trace.clone(),
                clock: clock.clone(),
                at: Mutex::default(),
                most: MOST.into(),
            },
            unreadable: Mutex::default(),
            notifies: true.into(),
        };
        let odd = Wrapped::around(memory.clone(), odd);
        Self {
            sim,
            store: TracedStore::new(odd.clone(), trace.clone()),
            memory,
            odd,
            trace,
            clock,
            speed: None,
            shares: Shares::default(),
            slower_by: Duration::ZERO,
            poisoned: Arc::default(),
            poison: Arc::default(),
            policies: Mutex::default(),
            keys: Mutex::default(),
            bound: None,
            second_clock,
        }
    }

    /// Starts a scheduler on a node of its own.
    pub(super) fn start(&self, build: impl FnOnce(&mut Seat<'_>)) -> Member {
        let node = self.sim.node();
        let faults: Arc<Faults> = Arc::default();
        let failures = Failures::default();
        let events: Arc<Mutex<Vec<Event>>> = Arc::default();
        let seen = events.clone();
        let builder = Scheduler::builder(self.way(&node, &faults, &failures))
            .runtime(node.clone())
            .on_event(move |event| seen.lock().unwrap().push(event.clone()))
            .label(format!("n{}", node.id()));
        let mut seat = Seat {
            fleet: self,
            node: node.clone(),
            faults: faults.clone(),
            builder: Some(builder),
            added: Vec::new(),
            concurrency: 1_000,
        };
        build(&mut seat);
        let Seat { builder, added, concurrency, .. } = seat;
        let scheduler = builder.unwrap().build().unwrap();
        let handle = scheduler.handle();
        let trace = self.trace.clone();
        let id: Arc<str> = handle.node().into();
        trace.write(Seen::Up { node: id.clone(), concurrency });
        for (job, code) in added {
            trace.write(Seen::Added { node: id.clone(), job, code });
        }
        let stopped = Arc::default();
        let member = Member { node, handle, faults, failures, trace, events, stopped };
        let (trace, stopped) = (member.trace.clone(), member.stopped.clone());
        member.node.spawn(Box::pin(async move {
            let ended = scheduler.run().await;
            trace.write(Seen::Down { node: id, unrecorded: Some(ended.unrecorded) });
            *stopped.lock().unwrap() = Some(ended);
        }));
        member
    }

    /// The way from a node to the store, from the outside: requests, the network, the store's speed,
    /// its partial failures, its records.
    fn way(&self, node: &SimNode, faults: &Arc<Faults>, failures: &Failures) -> Arc<dyn Backend> {
        let partial = PartialBackend::new(self.store.clone(), node.clone(), self.shares.clone());
        let store: Arc<dyn Backend> = match &self.speed {
            Some(speed) => Arc::new(SlowBackend::new(partial, node.clone(), speed.clone())),
            None => Arc::new(partial),
        };
        let way = Faulty::to(store, Arc::new(node.clone()), faults.clone());
        let (node, failures) = (Arc::new(node.clone()), failures.clone());
        let requests = Requests { node, failures, trace: self.trace.clone() };
        let way = Wrapped::around(way, requests);
        Arc::new(TracedRequests::new(way, self.trace.clone()))
    }

    /// Lets time pass, unless so much happens that the test would not end.
    pub(super) fn run_for(&self, time: Duration) {
        const PART: Duration = ms(200);
        let until = self.sim.elapsed() + time;
        while self.sim.elapsed() < until && !self.is_over() {
            self.sim.run_for(PART.min(until - self.sim.elapsed()));
        }
    }

    /// So much has happened that no time passes any more.
    pub(super) fn is_over(&self) -> bool {
        self.odd.hooks().work.is_too_much()
    }

    /// One operation of an operator, whose way to the store is sound.
    pub(super) fn operate(&self, name: &str, action: Action<'_>) -> Result<Reply> {
        let operations = [Operation::new(name, action)];
        let now = self.clock.wall();
        let batch = Batch::new(OPERATOR, TimeSource::Store { fallback: now }, &operations);
        self.sim.block_on(self.store.reschedule(batch))?.single()
    }

    /// An operator resets a job or a schedule.
    pub(super) fn reset(&self, name: &str) {
        let client = Schedules::on(self.store.clone(), self.clock.clone()).unwrap();
        self.sim.block_on(client.reset(name)).unwrap();
    }

    /// An operator deletes a job or a schedule.
    pub(super) fn delete(&self, name: &str) {
        assert_ne!(self.operate(name, Action::Delete).unwrap(), Reply::Absent, "{name}");
    }

    /// The store removes what is old.
    pub(super) fn prune(&self) {
        let now = self.clock.wall();
        self.sim.block_on(self.memory.prune(TimeSource::Store { fallback: now })).unwrap();
    }

    /// The remains of a stopped node: counts, leases, its record.
    pub(super) fn left(&self, member: &Member) -> Vec<String> {
        let (mut left, id) = (member.counts(), member.id());
        let queries = Backend::queries(&self.memory).unwrap();
        for prefix in ["", "allora:node:", "allora:key:"] {
            let page = Page::first(usize::MAX).prefix(prefix);
            for record in self.sim.block_on(queries.list(page)).unwrap() {
                if record.name.contains(&*id) || record.leases.iter().any(|one| one.node == *id) {
                    left.push(format!("{id}: {} {:?}", record.name, record.leases));
                }
            }
        }
        left
    }

    /// The record of a job, if it is there.
    pub(super) fn find(&self, name: &str) -> Option<JobState> {
        self.operate(name, Action::Read).unwrap().state()
    }

    pub(super) fn trigger(&self, name: &str, id: &str) -> bool {
        self.operate(name, Action::trigger(id)).is_ok()
    }

    /// Adds a job in code of a service without nodes, which is due from now on.
    pub(super) fn stranger(&self, name: &str) {
        let action = Action::Register { definition: "every 1h", version: 0, first: None };
        self.operate(name, action).unwrap();
        assert!(self.trigger(name, "pulled"));
    }

    /// Adds a stored schedule.
    pub(super) fn store(&self, name: &str, kind: &str, text: &str) {
        let definition = Definition::parse(name, text).unwrap();
        let schedule = StoredSchedule::new(name, kind, definition.text())
            .with_settings(definition.settings().clone());
        let client = Schedules::on(self.store.clone(), self.clock.clone()).unwrap();
        self.sim.block_on(client.add(&schedule)).unwrap();
    }

    /// Adds many records that are due, by operations of an operator.
    pub(super) fn store_many(&self, operations: &[Operation<'_>]) {
        for some in operations.chunks(1_000) {
            let time = TimeSource::Store { fallback: self.clock.wall() };
            let added = self.memory.reschedule(Batch::new(OPERATOR, time, some));
            self.sim.block_on(added).unwrap();
        }
        self.odd.hooks().work.most.fetch_add(1_000 * operations.len(), Relaxed);
    }

    /// A client of the store, whose way to it is sound.
    pub(super) fn client(&self) -> Schedules {
        Schedules::on(self.store.clone(), self.clock.clone()).unwrap()
    }

    /// The store's time.
    pub(super) fn now(&self) -> Time {
        self.clock.wall()
    }

    /// The store answers with two clocks in turn, of which one is ahead.
    pub(super) fn set_second_clock(&self, ahead_ms: u64) {
        self.second_clock.store(ahead_ms, Relaxed);
    }

    /// The history of a job with its active runs, the oldest entry first.
    pub(super) fn past(&self, name: &str) -> Vec<HistoryEntry> {
        let client = Schedules::on(self.memory.clone(), self.clock.clone()).unwrap();
        let past = client.history(HistoryQuery::new(usize::MAX).name(name));
        let mut past = self.sim.block_on(past).unwrap();
        past.reverse();
        past
    }

    /// The store notifies nodes, or does not.
    pub(super) fn set_notifies(&self, notifies: bool) {
        self.odd.hooks().notifies.store(notifies, Relaxed);
    }

    /// Only this record cannot be read.
    pub(super) fn set_unreadable(&self, name: Option<&str>) {
        let before = std::mem::replace(
            &mut *self.odd.hooks().unreadable.lock().unwrap(),
            name.map(str::to_owned),
        );
        for name in before.as_deref().into_iter().chain(name) {
            self.trace.record(name, Some(self.state(name)));
        }
    }

    /// The store's clock steps to this lead over the true time.
    pub(super) fn set_clock(&self, lead: TimeDelta) {
        self.clock.set_skew(lead);
        self.trace.write(Seen::Clock(lead.num_milliseconds()));
    }

    pub(super) fn state(&self, name: &str) -> JobState {
        self.sim.block_on(Backend::queries(&self.store).unwrap().get(name)).unwrap()
    }

    /// The number of requests that a node has sent.
    pub(super) fn requests(&self, member: &Member) -> usize {
        let id = member.handle.node();
        let seen = self.trace.observations();
        let sent = |seen: &Seen| matches!(seen, Seen::Request { node, .. } if &**node == id);
        seen.iter().filter(|one| sent(&one.seen)).count()
    }

    /// The breaches so far.
    pub(super) fn stalls(&self) -> Vec<Stall> {
        let policies = self.policies.lock().unwrap();
        let policy = |job: &str| policies.get(job).copied().unwrap_or_default();
        let keys = self.keys.lock().unwrap();
        let key = |job: &str| keys.get(job).cloned();
        let law = Liveness::new(POLL, TIMEOUT).policies(&policy).keys(&key);
        let law = self.bound.map_or(law, |(bound, loss)| law.within(bound, loss));
        let law = law.slower_by(self.slower_by);
        check(&self.trace, &law)
    }
}

/// The first breaches, one a line.
pub(super) fn listed(stalls: &[Stall]) -> String {
    let lines: Vec<_> = stalls.iter().take(10).map(ToString::to_string).collect();
    format!("{} breaches of liveness:\n{}", stalls.len(), lines.join("\n"))
}

impl Seat<'_> {
    pub(super) fn set(&mut self, change: impl FnOnce(SchedulerBuilder) -> SchedulerBuilder) {
        self.builder = self.builder.take().map(change);
    }

    pub(super) fn concurrency(&mut self, runs: usize) {
        self.concurrency = runs;
        self.set(|b| b.concurrency(runs));
    }

    pub(super) fn rates(&self, rates: Rates) {
        self.faults.set(rates);
    }

    /// Adds a job in code.
    pub(super) fn add(&mut self, name: &str, spec: JobSpec) {
        self.added.push((name.into(), Code::Job(spec.definition())));
        self.set(|b| b.add(name, spec));
    }

    /// Adds a job that runs on every node, every ten seconds.
    pub(super) fn add_every_node(&mut self, name: &str) {
        let (spec, code) = every_node(self.fleet, &self.node);
        self.added.push((name.into(), code));
        self.set(|b| b.add(name, spec));
    }

    /// A job that takes so long.
    pub(super) fn job(&self, schedule: impl Schedule, takes: Duration) -> JobSpec {
        self.fleet.job(&self.node, schedule, takes)
    }

    /// A job whose first occurrence is poison.
    pub(super) fn poison(&self, schedule: impl Schedule) -> JobSpec {
        self.fleet.poison(&self.node, schedule)
    }

    /// Runs stored schedules of the kinds that begin with this prefix, among them `kinds`.
    pub(super) fn kinds(&mut self, prefix: &str, kinds: &[String], takes: Duration) {
        let handler = self.fleet.handler(&self.node, takes);
        for kind in kinds {
            self.added.push((kind.as_str().into(), Code::Kind));
        }
        self.set(|b| b.kind(Pattern::prefix(prefix), handler));
    }
}

/// A job that runs on every node, every ten seconds.
fn every_node(fleet: &Fleet, node: &SimNode) -> (JobSpec, Code) {
    let schedule = cron("*/10 * * * * *").unwrap();
    let spec = fleet.job(node, schedule.clone(), Duration::ZERO).on_every_node();
    (spec, Code::EveryNode(Arc::new(move |after: Time| schedule.next_at(after))))
}

impl Fleet {
    /// A job that takes so long.
    pub(super) fn job(&self, node: &SimNode, schedule: impl Schedule, takes: Duration) -> JobSpec {
        job(schedule, self.handler(node, takes))
    }

    fn handler(
        &self,
        node: &SimNode,
        takes: Duration,
    ) -> impl FnOnce(Run) -> BoxFuture<'static, std::result::Result<(), BoxError>>
    + Clone
    + Send
    + Sync
    + 'static {
        let (node, trace) = (node.clone(), self.trace.clone());
        move |run: Run| {
            async move {
                let running = trace.begin(&run);
                if !takes.is_zero() {
                    node.sleep_until(node.now() + takes).await;
                }
                drop(running);
                Ok(())
            }
            .boxed()
        }
    }

    /// A job whose first occurrence is poison for its process: see [`poisoned`](Self::poisoned).
    pub(super) fn poison(&self, node: &SimNode, schedule: impl Schedule) -> JobSpec {
        let (node, trace) = (node.clone(), self.trace.clone());
        let (poison, poisoned) = (self.poison.clone(), self.poisoned.clone());
        job(schedule, async move |run: Run| {
            let running = trace.begin(&run);
            let at = run.scheduled_at();
            let first = *poison.lock().unwrap().entry(run.name().to_owned()).or_insert(at);
            // It never ends by itself: a node that was blocked for less than its lease is hit again.
            if first == at {
                loop {
                    poisoned.lock().unwrap().push(node.id());
                    node.sleep_until(node.now() + secs(5)).await;
                }
            }
            drop(running);
        })
    }

    /// The nodes on which a poisonous run has begun since the last call.
    pub(super) fn poisoned(&self) -> Vec<usize> {
        std::mem::take(&mut self.poisoned.lock().unwrap())
    }

    /// The number of runs of a job's poisonous occurrence.
    pub(super) fn poisonous_runs(&self, name: &str) -> usize {
        let first = self.poison.lock().unwrap().get(name).copied();
        let seen = self.trace.observations();
        let is_poison = |seen: &Seen| match seen {
            Seen::Began(run) => &*run.job == name && Some(run.scheduled_at) == first,
            _ => false,
        };
        seen.iter().filter(|one| is_poison(&one.seen)).count()
    }

    /// The job's policy, for the check.
    pub(super) fn policy(&self, job: &str, policy: Policy) {
        self.policies.lock().unwrap().insert(job.to_owned(), policy);
    }

    /// The job's concurrency key, for the check.
    pub(super) fn key(&self, job: &str, key: &str, limit: usize) {
        let record = format!("allora:key:{key}");
        self.keys.lock().unwrap().insert(job.to_owned(), Key { record, limit });
    }
}

impl Member {
    pub(super) fn id(&self) -> Arc<str> {
        self.handle.node().into()
    }

    /// The conditions of this node that should not be at the end, each with its reason.
    pub(super) fn conditions(&self) -> Vec<String> {
        let health = self.handle.health();
        let patience = TimeDelta::seconds(30);
        let line = |one: &ActiveCondition| match &one.condition {
            // The other nodes do their work.
            Condition::NodeDead { .. } | Condition::JobsOrphaned { .. } => None,
            Condition::KeyBusy { job, key, .. } => {
                let is_long = health.at - one.since > patience;
                is_long.then(|| format!("{job} waits for the key {key}"))
            }
            condition => Some(format!("{}: {condition}", condition.code())),
        };
        let mut lines: Vec<String> = health.conditions.iter().filter_map(line).collect();
        let number = |count: usize, what: &str| (count > 0).then(|| format!("{count} {what}"));
        lines.extend(number(health.unresolved_claims, "unresolved claims"));
        let (used, running) = (health.capacity.used, self.handle.running());
        lines.extend(
            (used != running).then(|| format!("{running} runs, but {used} of the capacity used")),
        );
        if lines.is_empty() && !health.is_healthy() {
            lines.push("not healthy, without a reason".to_owned());
        }
        lines.extend(self.contradictions());
        lines.into_iter().map(|line| format!("{}: {line}", self.id())).collect()
    }

    /// The conditions whose beginning an event has reported, and whose end none has, if health does not
    /// have them; and those of health without an event.
    fn contradictions(&self) -> Vec<String> {
        let name = |condition: &Condition| {
            let about = condition.evidence().into_iter().next();
            let about = about.filter(|(name, _)| ["job", "kind", "label", "node"].contains(name));
            format!("{} {about:?}", condition.code())
        };
        let mut open = BTreeSet::new();
        for event in &*self.events.lock().unwrap() {
            let is_right = match event {
                Event::Began(condition) => open.insert(name(condition)),
                Event::Ended(condition) => open.remove(&name(condition)),
                _ => true,
            };
            assert!(is_right, "a condition began or ended twice: {event}");
        }
        let health = self.handle.health();
        let seen: BTreeSet<_> = health.conditions.iter().map(|one| name(&one.condition)).collect();
        let differ = open.symmetric_difference(&seen);
        differ.map(|what| format!("health and events contradict each other: {what}")).collect()
    }

    /// The parts of the node whose requests to the store fail.
    pub(super) fn failing(&self) -> Vec<FailingPart> {
        failing(&self.handle.health())
    }

    /// The events about the store, in order.
    pub(super) fn store_events(&self) -> Vec<&'static str> {
        let word = |event: &Event| match event {
            Event::Began(Condition::StoreDown { .. }) => Some("store-down"),
            Event::Began(Condition::StoreRejects { .. }) => Some("store-rejects"),
            Event::Ended(Condition::StoreDown { .. }) => Some("store-down over"),
            Event::Ended(Condition::StoreRejects { .. }) => Some("store-rejects over"),
            _ => None,
        };
        self.events.lock().unwrap().iter().filter_map(word).collect()
    }

    pub(super) fn crash(&self) {
        self.node.crash();
        self.trace.write(Seen::Down { node: self.id(), unrecorded: None });
    }

    pub(super) fn stop(&self) {
        self.trace.write(Seen::Stopping(self.id()));
        self.handle.stop();
    }

    pub(super) fn pause(&self) {
        self.trace.write(Seen::Awake(self.id(), false));
        self.node.pause();
    }

    pub(super) fn suspend(&self) {
        self.trace.write(Seen::Awake(self.id(), false));
        self.node.suspend();
    }

    pub(super) fn resume(&self) {
        self.trace.write(Seen::Awake(self.id(), true));
        self.node.resume();
    }

    /// The counts of a stopped node that are not zero, and those of its health.
    fn counts(&self) -> Vec<String> {
        let Some(stopped) = *self.stopped.lock().unwrap() else {
            return vec![format!("{} has not stopped", self.id())];
        };
        let health = self.handle.health();
        let counts = [
            ("unrecorded", stopped.unrecorded),
            ("unresolved", stopped.unresolved),
            ("unresolved claims of the health", health.unresolved_claims),
            ("used capacity", health.capacity.used),
            ("failing parts", failing(&health).len()),
        ];
        let counts = counts.iter().filter(|(_, count)| *count > 0);
        counts.map(|(what, count)| format!("{}: {count} {what}", self.id())).collect()
    }

    /// Refuses the node's requests, or answers them again.
    pub(super) fn set_down(&self, down: bool) {
        self.faults.down.store(down, Relaxed);
        self.trace.write(Seen::Reachable(self.id(), !down));
    }

    /// Leaves the node's requests without a reply, or answers them again.
    pub(super) fn set_deaf(&self, deaf: bool) {
        self.faults.deaf.store(deaf, Relaxed);
        self.trace.write(Seen::Reachable(self.id(), !deaf));
    }

    pub(super) fn add(&self, name: &str, spec: JobSpec) {
        let code = Code::Job(spec.definition());
        self.handle.add(name, spec).unwrap();
        self.trace.write(Seen::Added { node: self.id(), job: name.into(), code });
    }

    pub(super) fn add_every_node(&self, fleet: &Fleet, name: &str) {
        let (spec, code) = every_node(fleet, &self.node);
        self.handle.add(name, spec).unwrap();
        self.trace.write(Seen::Added { node: self.id(), job: name.into(), code });
    }

    pub(super) fn remove(&self, name: &str) {
        assert!(self.handle.remove(name), "{name}");
        self.trace.write(Seen::Removed { node: self.id(), job: name.into() });
    }
}

/// A store of which a record cannot be read, and that may have no notifications. It refuses everything
/// when so much has happened that a node which asks again at once would keep the time from passing.
#[derive(Debug)]
struct Odd {
    work: Work,
    unreadable: Mutex<Option<String>>,
    notifies: AtomicBool,
}

/// The requests to the store.
#[derive(Debug)]
struct Work {
    trace: Trace,
    clock: SimNode,
    /// The number of requests at the time of the last one.
    at: Mutex<(Option<Instant>, usize)>,
    /// The largest sum of observations and found records.
    most: AtomicUsize,
}

impl Work {
    /// Counts a request. Returns whether too much has happened.
    fn count(&self) -> bool {
        if !self.is_too_much() {
            let (now, mut at) = (Some(self.clock.now()), self.at.lock().unwrap());
            *at = if at.0 == now { (now, at.1 + 1) } else { (now, 1) };
        }
        self.is_too_much()
    }

    fn is_too_much(&self) -> bool {
        self.at.lock().unwrap().1 >= MOST_AT_ONCE || self.trace.work() >= self.most.load(Relaxed)
    }
}

impl Odd {
    fn unreadable(&self, name: &str) -> Option<JobState> {
        let unreadable = self.unreadable.lock().unwrap();
        let is_odd = unreadable.as_deref() == Some(name);
        is_odd.then(|| JobState::unreadable(name, "a newer format"))
    }
}

#[async_trait]
impl Hooks for Odd {
    async fn reschedule(&self, store: &Arc<dyn Backend>, batch: Batch<'_>) -> Result<Applied> {
        if batch.node != OPERATOR && self.work.count() {
            return Err(Error::new(ErrorKind::Unavailable, "too much has happened"));
        }
        let odd: Vec<_> = batch.operations.iter().map(|one| self.unreadable(one.name)).collect();
        if odd.iter().all(Option::is_none) {
            return store.reschedule(batch).await;
        }
        let mut operations = batch.operations.to_vec();
        for (operation, _) in operations.iter_mut().zip(&odd).filter(|(_, odd)| odd.is_some()) {
            operation.action = Action::Read;
        }
        let read = Batch::new(batch.node, batch.time, &operations);
        let mut applied = store.reschedule(read).await?;
        for ((reply, odd), operation) in applied.replies.iter_mut().zip(odd).zip(batch.operations) {
            let is_run = matches!(
                operation.action,
                Action::Extend { .. }
                    | Action::Complete { .. }
                    | Action::Retry { .. }
                    | Action::Release { .. }
            );
            if let Some(odd) = odd {
                *reply = Ok(if is_run { Reply::LeaseLost } else { Reply::State(Box::new(odd)) });
            }
        }
        Ok(applied)
    }

    /// The test prunes.
    async fn prune(&self, _: &dyn Backend, _: TimeSource) -> Result {
        Ok(())
    }

    fn has_notifier(&self) -> bool {
        self.notifies.load(Relaxed)
    }

    async fn find_due(
        &self,
        store: &dyn Queries,
        query: DueQuery<'_>,
        time: TimeSource,
    ) -> Result<Due> {
        let mut due = store.find_due(query, time).await?;
        for state in &mut due.found {
            if let Some(odd) = self.unreadable(&state.name) {
                *state = odd;
            }
        }
        Ok(due)
    }

    /// Claims nothing while a record is unreadable: the store would find it by chance.
    async fn claim_due(
        &self,
        store: &dyn Queries,
        query: ClaimDue<'_>,
        time: TimeSource,
    ) -> Result<ClaimedDue> {
        let mut query = query;
        if self.unreadable.lock().unwrap().is_some() && !query.is_repeated {
            query.limit = 0;
        }
        store.claim_due(query, time).await
    }

    async fn get(&self, store: &dyn Queries, name: &str) -> Result<JobState> {
        let state = store.get(name).await?;
        Ok(self.unreadable(name).unwrap_or(state))
    }
}
