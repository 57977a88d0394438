//! A laboratory: simulated machines with schedulers on them around one memory store that has a true
//! clock of its own.

use super::{Entry, Faults, Faulty, Log, Over, Rates};
use allora_core::{
    ActiveCondition, Backend, BoxError, Condition, Event, FailingPart, Handle, Health, Run,
    Runtime, Schedule, Scheduler, SchedulerBuilder, Schedules, Stopped, StoredSchedule, Time,
    backend::{
        Action, Batch, HistoryEntry, HistoryLimits, HistoryQuery, JobState, OPERATOR, Operation,
        Reply, TimeSource,
    },
    job,
    runtime::{Sim, SimNode},
    stored::Definition,
};
use allora_memory::Memory;
use futures::future::{BoxFuture, FutureExt};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

pub(crate) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Limits that no test reaches: what happened is judged by the history.
pub(crate) fn whole_history() -> HistoryLimits {
    let century = 36_500 * secs(86_400);
    HistoryLimits::from(1_000_000).age(century).failure_age(century)
}

pub(crate) struct Lab {
    pub(crate) sim: Sim,
    pub(crate) store: Memory,
    pub(crate) log: Log,
    clock: SimNode,
}

/// A machine on which a scheduler is being put together.
pub(crate) struct Seat {
    pub(crate) node: SimNode,
    pub(crate) log: Log,
    pub(crate) faults: Arc<Faults>,
    store: Memory,
    events: Arc<Mutex<Vec<Event>>>,
}

/// A machine with a scheduler.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) node: SimNode,
    pub(crate) handle: Handle,
    pub(crate) faults: Arc<Faults>,
    events: Arc<Mutex<Vec<Event>>>,
    stopped: Arc<Mutex<Option<Stopped>>>,
}

/// So many seconds after the simulation began.
pub(crate) fn at(seconds: f64) -> Time {
    Time::from_timestamp_millis(1_767_225_600_000 + (seconds * 1_000.0) as i64).unwrap()
}

impl Lab {
    pub(crate) fn new(seed: u64) -> Self {
        Self::starting(Sim::new(seed))
    }

    pub(crate) fn starting(sim: Sim) -> Self {
        let clock = sim.node();
        let wall = clock.clone();
        let store = Memory::new().with_history(whole_history()).with_clock(move || wall.wall());
        Self { log: Log::new(clock.clone()), sim, store, clock }
    }

    /// Puts a scheduler onto a machine of its own and starts it.
    pub(crate) fn start(
        &self,
        build: impl FnOnce(&Seat, SchedulerBuilder) -> SchedulerBuilder,
    ) -> Member {
        self.start_on(self.sim.node(), build)
    }

    pub(crate) fn start_on(
        &self,
        node: SimNode,
        build: impl FnOnce(&Seat, SchedulerBuilder) -> SchedulerBuilder,
    ) -> Member {
        let seat = self.seat(node);
        let builder = build(&seat, seat.builder());
        seat.run(builder.build().unwrap())
    }

    pub(crate) fn seat(&self, node: SimNode) -> Seat {
        Seat {
            node,
            log: self.log.clone(),
            faults: Arc::default(),
            store: self.store.clone(),
            events: Arc::default(),
        }
    }

    /// The machine of the store.
    pub(crate) fn clock(&self) -> SimNode {
        self.clock.clone()
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.wall()
    }

    /// Runs until so many seconds after the start.
    pub(crate) fn until(&self, seconds: f64) {
        self.sim.run_until(at(seconds));
    }

    pub(crate) fn state(&self, name: &str) -> JobState {
        let queries = Backend::queries(&self.store).unwrap();
        self.sim.block_on(queries.get(name)).unwrap()
    }

    /// The state of a job, if the store has it.
    pub(crate) fn state_of(&self, name: &str) -> Option<JobState> {
        let queries = Backend::queries(&self.store).unwrap();
        self.sim.block_on(queries.get(name)).ok()
    }

    /// One operation of an operator, whose way to the store is sound.
    pub(crate) fn operate(&self, name: &str, action: Action<'_>) -> allora_core::Result<Reply> {
        let operations = [Operation::new(name, action)];
        let batch = Batch::new(OPERATOR, TimeSource::Fixed(self.now()), &operations);
        self.sim.block_on(self.store.reschedule(batch))?.single()
    }

    /// Adds a stored schedule, over a way to the store that is sound.
    pub(crate) fn store(&self, name: &str, kind: &str, text: &str) {
        let definition = Definition::parse(name, text).unwrap();
        let schedule = StoredSchedule::new(name, kind, definition.text())
            .with_settings(definition.settings().clone());
        let client = Schedules::on(self.store.clone(), self.clock.clone()).unwrap();
        self.sim.block_on(client.add(&schedule)).unwrap();
    }

    /// The history of a job with its active runs, the oldest entry first.
    pub(crate) fn past(&self, name: &str) -> Vec<HistoryEntry> {
        let client = Schedules::on(self.store.clone(), self.clock.clone()).unwrap();
        let past = client.history(HistoryQuery::new(usize::MAX).name(name));
        let mut past = self.sim.block_on(past).unwrap();
        past.reverse();
        past
    }

    /// The outcomes of a job's occurrences, one text each: `succeeded 10` is the run of the instant
    /// 10 s after the start, `missed 10-30 3` a range of three missed instants.
    pub(crate) fn story(&self, name: &str) -> Vec<String> {
        let second = |time: Time| (time - at(0.0)).num_milliseconds() as f64 / 1_000.0;
        let entry = |past: &HistoryEntry| match past.last {
            Some(last) => format!(
                "{} {}-{} {}",
                past.outcome.word(),
                second(past.occurrence.scheduled_at),
                second(last),
                past.count.map_or("?".to_owned(), |count| count.to_string()),
            ),
            None => format!("{} {}", past.outcome.word(), second(past.occurrence.scheduled_at)),
        };
        self.past(name).iter().map(entry).collect()
    }

    /// That the n-th execution of a job was over then, give or take the nodes' little waits.
    #[track_caller]
    pub(crate) fn assert_over(&self, name: &str, n: usize, when: Time, how: Over) {
        let runs = self.log.of(name);
        let run = runs.get(n).unwrap_or_else(|| panic!("{name} ran {} times", runs.len()));
        let near = |end: Time| (end - when).abs() <= chrono::TimeDelta::milliseconds(2);
        let over = run.ended.is_some_and(|(end, over)| near(end) && over == how);
        assert!(over, "{name} at {} ended {:?}, not {how:?} {when}", run.at, run.ended);
    }

    /// When, in seconds after the start, a job's executions were nominally due, in the order in
    /// which they were won.
    pub(crate) fn ran(&self, name: &str) -> Vec<f64> {
        let second = |entry: Entry| (entry.at - at(0.0)).num_milliseconds() as f64 / 1_000.0;
        let mut runs = self.log.of(name);
        runs.sort_by_key(|run| run.fence);
        runs.into_iter().map(second).collect()
    }
}

impl Seat {
    pub(crate) fn builder(&self) -> SchedulerBuilder {
        self.builder_on(self.store.clone())
    }

    /// A builder on this store, with faults on the way to it.
    pub(crate) fn builder_on(&self, store: impl Backend) -> SchedulerBuilder {
        let events = self.events.clone();
        let runtime: Arc<dyn Runtime> = Arc::new(self.node.clone());
        let store = Faulty::to(store, runtime, self.faults.clone());
        Scheduler::builder(store)
            .runtime(self.node.clone())
            .label(format!("n{}", self.node.id()))
            .on_event(move |event| events.lock().unwrap().push(event.clone()))
    }

    pub(crate) fn rates(&self, rates: Rates) {
        self.faults.set(rates);
    }

    /// A job that takes so long.
    pub(crate) fn job(&self, schedule: impl Schedule, takes: Duration) -> allora_core::JobSpec {
        self.work(schedule, takes, |_| Ok(()))
    }

    /// A job that takes so long and then ends as `end` says.
    pub(crate) fn work(
        &self,
        schedule: impl Schedule,
        takes: Duration,
        end: impl Fn(&Run) -> Result<(), BoxError> + Clone + Send + Sync + 'static,
    ) -> allora_core::JobSpec {
        job(schedule, self.handler(takes, end))
    }

    /// Work that takes so long and then ends as `end` says: for jobs in code and in the store.
    pub(crate) fn handler(
        &self,
        takes: Duration,
        end: impl Fn(&Run) -> Result<(), BoxError> + Clone + Send + Sync + 'static,
    ) -> impl FnOnce(Run) -> BoxFuture<'static, Result<(), BoxError>> + Clone + Send + Sync + 'static
    {
        let (node, log) = (self.node.clone(), self.log.clone());
        move |run: Run| {
            async move {
                let execution = log.begin(&run);
                if !takes.is_zero() {
                    node.sleep_until(node.now() + takes).await;
                }
                let ended = end(&run);
                execution.over(if ended.is_ok() { Over::Ran } else { Over::Failed });
                ended
            }
            .boxed()
        }
    }

    pub(crate) fn run(self, scheduler: Scheduler) -> Member {
        let handle = scheduler.handle();
        let stopped: Arc<Mutex<Option<Stopped>>> = Arc::default();
        let told = stopped.clone();
        self.node.spawn(Box::pin(async move {
            let ended = scheduler.run().await;
            *told.lock().unwrap() = Some(ended);
        }));
        let Self { node, faults, events, .. } = self;
        Member { node, handle, faults, events, stopped }
    }
}

impl Member {
    pub(crate) fn stopped(&self) -> Option<Stopped> {
        *self.stopped.lock().unwrap()
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }

    /// The events, in order, without the ordinary ones of runs: the code of a condition, with `over` at
    /// its end, and the names of others.
    pub(crate) fn news(&self) -> Vec<String> {
        let name = |event: &Event| match event {
            Event::Began(condition) => Some(condition.code().to_owned()),
            Event::Ended(condition) => Some(format!("{} over", condition.code())),
            Event::RunStarted { .. } | Event::RunEnded { .. } => None,
            event => Some(format!("{event:?}").split([' ', '{']).next()?.to_owned()),
        };
        self.events().iter().filter_map(name).collect()
    }

    /// The parts of the node whose requests to the store fail.
    pub(crate) fn failing(&self) -> Vec<FailingPart> {
        failing(&self.handle.health())
    }

    /// `true` if the node has a condition with this code.
    pub(crate) fn has(&self, code: &str) -> bool {
        self.handle.health().with(code).next().is_some()
    }
}

/// The parts of a node whose requests to the store fail.
pub(crate) fn failing(health: &Health) -> Vec<FailingPart> {
    let parts = |one: &ActiveCondition| match &one.condition {
        Condition::StoreDown { parts, .. } | Condition::StoreRejects { parts, .. } => parts.clone(),
        _ => Vec::new(),
    };
    health.conditions.iter().flat_map(parts).collect()
}
