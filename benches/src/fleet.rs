//! The load: whole schedulers, on any store.

#![expect(clippy::disallowed_methods, reason = "it measures the clocks' passing")]
#![expect(clippy::print_stdout, reason = "its tables are what it is for")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on says so")]

use crate::{node::KIND, profile, report::at as quantile};
use allora_core::{
    Backend, CatchUp, Run, Scheduler, Time, at, cron, every, job,
    stored::{Filter, ScheduleState, Schedules, StoredSchedule},
    time::whole_millis,
};
use chrono::TimeDelta;
use futures::future::join_all;
use std::{
    fmt,
    ops::Range,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};
use tokio::time::Sleep;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The number of jobs.
pub const JOBS: usize = 1_000;
/// The number of schedules that wait to be run once.
const WAITING: u64 = 7_000;
/// When what is not done then is not waited for.
const LONGEST: Duration = Duration::from_secs(30);

fn wall() -> Time {
    SystemTime::now().into()
}

/// The output of `meanwhile`, during which these schedulers run.
pub async fn during<T>(schedulers: Vec<Scheduler>, meanwhile: impl Future<Output = T>) -> T {
    let handles: Vec<_> = schedulers.iter().map(Scheduler::handle).collect();
    let running: Vec<_> =
        schedulers.into_iter().map(|scheduler| tokio::spawn(scheduler.run())).collect();
    let measured = meanwhile.await;
    handles.iter().for_each(|handle| handle.stop());
    for stopped in join_all(running).await {
        stopped.unwrap();
    }
    measured
}

/// When the jobs of one second are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// All at the full second.
    AtOnce,
    /// Each at a millisecond of its own.
    Spread,
}

/// Runs a thousand jobs every other second on a scheduler for each store given, and says how late
/// their runs begin.
pub async fn late<B: Backend>(stores: Vec<B>, due: Due) {
    let nodes = stores.len();
    let lates: Arc<Mutex<Vec<f64>>> = Arc::default();
    let schedulers = stores.into_iter().map(|store| {
        // The nodes see each other within the first seconds.
        let heartbeat = Duration::from_secs(1);
        let mut builder = Scheduler::builder(store).concurrency(2 * JOBS).heartbeat(heartbeat);
        for i in 0..JOBS {
            let lates = lates.clone();
            let phase = match due {
                Due::AtOnce => 0,
                Due::Spread => i,
            };
            let phase = Duration::from_millis(phase as u64);
            let note = async move |run: Run| {
                let late = wall() - run.scheduled_at() - TimeDelta::from_std(phase).unwrap();
                lates.lock().unwrap().push(late.as_seconds_f64() * 1_000.0);
            };
            let job = job(cron("*/2 * * * * *").unwrap(), note).delay(phase);
            builder = builder.add(format!("late-{i}"), job);
        }
        builder.build().unwrap()
    });
    let measured = async {
        // The first occurrences belong to the start.
        tokio::time::sleep(Duration::from_secs(5)).await;
        lates.lock().unwrap().clear();
        tokio::time::sleep(Duration::from_secs(20)).await;
    };
    during(schedulers.collect(), measured).await;
    let lates = std::mem::take(&mut *lates.lock().unwrap());
    let when = if due == Due::AtOnce { "at the same instant" } else { "over one second" };
    println!(
        "\n{} runs on {nodes} node(s), {JOBS} jobs {when}: late by {:.1} ms (p50), {:.1} ms (p99), \
         {:.1} ms (at most).",
        lates.len(),
        quantile(lates.iter().copied(), 0.5),
        quantile(lates.iter().copied(), 0.99),
        lates.iter().copied().fold(f64::MIN, f64::max),
    );
}

/// The runs that wait for whole schedulers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backlog {
    /// Seven thousand schedules, each to be run once: as at midnight.
    Once,
    /// A thousand schedules that are two thousand occurrences behind, each of which waits for the
    /// one before it: as after a night without workers.
    Behind,
}

impl fmt::Display for Backlog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backlog::Once => "each due once",
            Backlog::Behind => "each far behind",
        })
    }
}

impl Backlog {
    /// Both.
    pub const ALL: [Self; 2] = [Backlog::Once, Backlog::Behind];

    fn stored(self, count: u64) -> Vec<StoredSchedule> {
        let first = wall() - TimeDelta::seconds(2_000);
        let stored = |i| match self {
            Backlog::Once => StoredSchedule::new(format!("once-{i}"), KIND, at(first)),
            Backlog::Behind => {
                StoredSchedule::new(format!("behind-{i}"), KIND, every(Duration::from_secs(1)))
                    .catch_up(CatchUp::All { limit: 10_000 })
            }
        };
        let stored = |i| stored(i).starting(first).at_least_once(Duration::from_secs(60));
        (0..count).map(stored).collect()
    }
}

/// The runs a second that whole schedulers with a backlog begin and end at least once. `prepares`
/// stores the backlog; each of `stores` has one scheduler with a concurrency of a thousand.
pub async fn backlog<B: Backend>(prepares: B, stores: Vec<B>, backlog: Backlog) -> f64 {
    let schedules = Schedules::new(prepares).unwrap();
    add(&schedules, backlog, if backlog == Backlog::Once { WAITING } else { JOBS as u64 }).await;
    let runs: Arc<AtomicU64> = Arc::default();
    let schedulers = stores.into_iter().map(|store| worker(store, &runs));
    let measured = async {
        if backlog == Backlog::Once {
            return work_off(&runs).await;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        let (before, begun) = (runs.load(Ordering::Relaxed), Instant::now());
        tokio::time::sleep(Duration::from_secs(5)).await;
        (runs.load(Ordering::Relaxed) - before) as f64 / begun.elapsed().as_secs_f64()
    };
    during(schedulers.collect(), measured).await
}

/// Runs per second of one scheduler with a concurrency of a thousand on `store`, on which so many
/// stored schedules are due at once: from its start until the last run has begun. `prepares`
/// adds them.
///
/// # Panics
/// If they are not all run once and completed.
pub async fn at_once<B: Backend>(prepares: B, store: B, count: u64) -> f64 {
    let schedules = Schedules::new(prepares).unwrap();
    add(&schedules, Backlog::Once, count).await;
    let runs: Arc<AtomicU64> = Arc::default();
    let worker = worker(store, &runs);
    let begun = Instant::now();
    let measured = async {
        while runs.load(Ordering::Relaxed) < count && begun.elapsed() < LONGEST {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        begun.elapsed()
    };
    let took = during(vec![worker], measured).await;
    assert_eq!(runs.load(Ordering::Relaxed), count, "not every schedule was run once");
    let all = usize::try_from(count).unwrap() + 1;
    let filter = Filter::default().kind(KIND).state(ScheduleState::Ended);
    let ended = schedules.list(filter, None, all).await.unwrap();
    assert_eq!(ended.len() as u64, count, "not every run was completed");
    count as f64 / took.as_secs_f64()
}

/// Stored schedules that are all due once at one instant, and the workers' limit of active runs.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    /// The number of schedules.
    pub count: u64,
    /// The concurrency of each worker, and so the most that it claims at once.
    pub concurrency: usize,
}

/// The time and the processor time that workers needed for all that was due.
#[derive(Debug)]
pub struct Done<T> {
    /// From the instant at which all were due until the last run had started.
    pub started: Duration,
    /// From that instant until the last completion was acknowledged and the workers had stopped.
    pub took: Duration,
    /// The output of the caller's function just before the instant.
    pub before: T,
    /// The same at the end.
    pub after: T,
}

/// The time between the start of the workers and the instant of the burst, in which they see each
/// other.
const LEAD: Duration = Duration::from_millis(2_400);
/// The time between two looks of a worker at the others.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// The time before the instant at which the caller's function is called.
const JUST_BEFORE: Duration = Duration::from_millis(30);

/// Has a burst run by one worker for each of `stores`, and waits for the last completion. The workers
/// are idle when the instant comes. `prepares` adds the schedules.
///
/// # Panics
/// If they are not all run once and completed.
pub async fn work_off_with<B: Backend, T>(
    prepares: B,
    stores: Vec<B>,
    burst: Burst,
    usage: impl Fn() -> T,
) -> Done<T> {
    let Burst { count, concurrency } = burst;
    let schedules = Schedules::new(prepares).unwrap();
    let due = add_before_due(&schedules, count).await;
    let (runs, last): (Arc<AtomicU64>, Arc<OnceLock<Instant>>) = Default::default();
    let worker = |store| {
        let (runs, last) = (runs.clone(), last.clone());
        let run = async move |_: Run| {
            if runs.fetch_add(1, Ordering::Relaxed) + 1 == count {
                last.get_or_init(Instant::now);
            }
        };
        let builder = Scheduler::builder(store).concurrency(concurrency).heartbeat(HEARTBEAT);
        builder.kind(KIND, run).build().unwrap()
    };
    let schedulers: Vec<_> = stores.into_iter().map(worker).collect();
    let until = |at: Time| tokio::time::sleep((at - wall()).to_std().unwrap_or_default());
    let handles: Vec<_> = schedulers.iter().map(Scheduler::handle).collect();
    // If adding took longer than expected, the start of the workers counts instead of the instant.
    let begun = Instant::now() + (due - wall()).to_std().unwrap_or_default();
    let running: Vec<_> =
        schedulers.into_iter().map(|scheduler| tokio::spawn(scheduler.run())).collect();
    until(due - JUST_BEFORE).await;
    let before = usage();
    until(due).await;
    profile::begin();
    while runs.load(Ordering::Relaxed) < count && begun.elapsed() < 4 * LONGEST {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // A scheduler stops when its completions are in the store.
    handles.iter().for_each(|handle| handle.stop());
    for stopped in join_all(running).await {
        stopped.unwrap();
    }
    let (took, after) = (begun.elapsed(), usage());
    profile::end();
    assert_eq!(runs.load(Ordering::Relaxed), count, "not every schedule was run once");
    // Without those behind them, of which there may be a million.
    let filter = Filter::default().kind(KIND).state(ScheduleState::Ended);
    let ended = schedules.list(filter, None, usize::try_from(count).unwrap()).await.unwrap();
    assert_eq!(ended.len() as u64, count, "not every run was completed");
    let started = last.get().unwrap().saturating_duration_since(begun);
    Done { started, took, before, after }
}

/// Adds schedules that are all due once at one instant, and returns it. The first few are due in a
/// year: their speed shows how far away the instant has to be.
async fn add_before_due(schedules: &Schedules, count: u64) -> Time {
    const FEW: u64 = 300;
    let begun = Instant::now();
    add_later(schedules, "few", 0..FEW).await;
    let all = begun.elapsed().mul_f64(1.3 * count as f64 / FEW as f64);
    let due = whole_millis(wall() + LEAD + all);
    let once = |i| {
        let stored = StoredSchedule::new(format!("once-{i}"), KIND, at(due)).starting(due);
        stored.at_least_once(Duration::from_secs(60))
    };
    let stored: Vec<_> = (0..count).map(once).collect();
    add_all(schedules, &stored).await;
    due
}

/// Adds schedules that are due in a year. A name behind `once` keeps them out of the check that all
/// of a burst was completed.
pub async fn add_later(schedules: &Schedules, name: &str, which: Range<u64>) {
    add_all(schedules, &later(name, which)).await;
}

/// Schedules that are due in a year, in the order of their names.
pub fn later(name: &str, which: Range<u64>) -> Vec<StoredSchedule> {
    let due = whole_millis(wall() + 365 * DAY);
    let later =
        |i| StoredSchedule::new(format!("{name}-{i:07}"), KIND, at(due)).data_bytes(*b"later");
    which.map(later).collect()
}

/// The number of concurrent callers that add one by one.
pub const CALLERS: u64 = 64;

/// Adds schedules that are due in a year, from concurrent callers, each one after the other. Caller `i`
/// has the client `i % clients.len()`. Returns the number a second.
pub async fn add_one_by_one(clients: &[Schedules], name: &str, count: u64) -> f64 {
    let due = whole_millis(wall() + 365 * DAY);
    let caller = |caller: u64| {
        let client = clients[caller as usize % clients.len()].clone();
        let of_caller = (caller..count).step_by(CALLERS as usize);
        let stored = of_caller.map(|i| {
            StoredSchedule::new(format!("{name}-{i:07}"), KIND, at(due)).data_bytes(*b"later")
        });
        let stored: Vec<_> = stored.collect();
        tokio::spawn(async move {
            for stored in &stored {
                client.add(stored).await.unwrap();
            }
        })
    };
    let begun = Instant::now();
    for caller in join_all((0..CALLERS).map(caller)).await {
        caller.unwrap();
    }
    count as f64 / begun.elapsed().as_secs_f64()
}

/// Adds schedules in calls of 5,000.
pub async fn add_all(schedules: &Schedules, stored: &[StoredSchedule]) {
    for stored in stored.chunks(5_000) {
        let added = schedules.add_all(stored).await.unwrap();
        added.into_iter().for_each(|one| drop(one.unwrap()));
    }
}

async fn add(schedules: &Schedules, backlog: Backlog, count: u64) {
    add_all(schedules, &backlog.stored(count)).await;
}

/// A scheduler that counts its runs of the stored schedules.
fn worker<B: Backend>(store: B, runs: &Arc<AtomicU64>) -> Scheduler {
    let runs = runs.clone();
    let count = async move |_: Run| {
        runs.fetch_add(1, Ordering::Relaxed);
    };
    Scheduler::builder(store).concurrency(JOBS).kind(KIND, count).build().unwrap()
}

/// The runs a second of the [`WAITING`], from the first that are seen to the last, so that the poll
/// interval does not count.
async fn work_off(runs: &AtomicU64) -> f64 {
    let done = || runs.load(Ordering::Relaxed);
    let end = Instant::now() + LONGEST;
    while done() == 0 && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (before, begun) = (done(), Instant::now());
    while done() < WAITING && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    (done() - before) as f64 / begun.elapsed().as_secs_f64()
}

/// The polls of an idle scheduler while its requests are counted.
#[derive(Clone, Copy, Debug)]
pub struct Polls {
    /// The time between two polls.
    pub every: Duration,
    /// The number of polls that are counted.
    pub counted: u32,
}

/// A minute of the default settings.
pub const MINUTE: Polls = Polls { every: Duration::from_secs(5), counted: 12 };

/// The requests of an idle scheduler to its store; `count` counts while it awaits the polls that
/// it is given.
pub async fn idle<B: Backend>(
    store: B,
    polls: Polls,
    count: impl AsyncFnOnce(Sleep) -> f64,
) -> f64 {
    let scheduler = Scheduler::builder(store)
        .poll_interval(polls.every)
        .job("yearly", every(365 * DAY), async |_: Run| {})
        .build()
        .unwrap();
    let measured = async {
        tokio::time::sleep(polls.every.max(Duration::from_secs(1))).await;
        count(tokio::time::sleep(polls.every * polls.counted)).await
    };
    during(vec![scheduler], measured).await
}
