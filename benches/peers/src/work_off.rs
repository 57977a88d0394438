//! Workers that work off a queue, and their rates.

use crate::Figures;
use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Work that is not done then has failed.
const LONGEST: Duration = Duration::from_secs(120);

/// The runs of all workers of this process; a static because some tasks carry nothing but their data.
pub(crate) static RUNS: Runs = Runs {
    tasks: OnceLock::new(),
    started: AtomicU64::new(0),
    repeated: AtomicU64::new(0),
    first: OnceLock::new(),
};

pub(crate) struct Runs {
    /// True for each task that has been started.
    tasks: OnceLock<Box<[AtomicBool]>>,
    started: AtomicU64,
    repeated: AtomicU64,
    first: OnceLock<Instant>,
}

impl Runs {
    /// Expects tasks with these numbers, from 0.
    pub(crate) fn expect(&self, count: u64) {
        self.tasks.get_or_init(|| (0..count).map(|_| AtomicBool::new(false)).collect());
    }

    /// Notes that a task starts.
    pub(crate) fn add(&self, task: u64) {
        self.first.get_or_init(Instant::now);
        let is_repeated = self.tasks.get().unwrap()[task as usize].swap(true, Ordering::Relaxed);
        let counter = if is_repeated { &self.repeated } else { &self.started };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until all have started, and then until the store has all acknowledgements.
    ///
    /// # Panics
    /// If that takes too long.
    pub(crate) async fn rates(&self, acknowledged: impl AsyncFn() -> u64) -> Figures {
        let count = self.tasks.get().unwrap().len() as u64;
        let begun = Instant::now();
        let wait = async |what: &str, done: u64| {
            assert!(begun.elapsed() < LONGEST, "{done} of {count} were {what}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        while self.started.load(Ordering::Relaxed) < count {
            wait("started", self.started.load(Ordering::Relaxed)).await;
        }
        let first = *self.first.get().unwrap();
        let started = count as f64 / first.elapsed().as_secs_f64();
        loop {
            let done = acknowledged().await;
            if done >= count {
                break;
            }
            wait("acknowledged", done).await;
        }
        vec![
            ("per_s", count as f64 / first.elapsed().as_secs_f64()),
            ("started_per_s", started),
            ("repeated", self.repeated.load(Ordering::Relaxed) as f64),
        ]
    }
}

/// Fills a queue of `$open` with `$count` tasks and has it worked off by `$workers`; a macro because
/// the types of a worker name everything that it is made of.
macro_rules! work_off {
    ($open:expr, $workers:expr, $count:expr, $acknowledged:expr) => {{
        use ::apalis_core::{
            backend::TaskSink,
            error::BoxDynError,
            worker::{builder::WorkerBuilder, ext::parallelize::ParallelizeExt},
        };
        RUNS.expect($count);
        let mut filled = $open;
        let tasks: Vec<u64> = (0..$count).collect();
        for tasks in tasks.chunks(1_000) {
            filled.push_bulk(tasks.to_vec()).await.unwrap();
        }
        let workers: Vec<_> = (0..$workers)
            .map(|i| {
                let storage = $open;
                let run = |task: u64| {
                    RUNS.add(task);
                    async { Ok::<(), BoxDynError>(()) }
                };
                let worker = WorkerBuilder::new(format!("peer-{i}"))
                    .backend(storage)
                    .parallelize(tokio::spawn)
                    .build(run);
                tokio::spawn(worker.run())
            })
            .collect();
        let rates = RUNS.rates($acknowledged).await;
        for worker in workers {
            worker.abort();
            let _ = worker.await;
        }
        rates
    }};
}

pub(crate) use work_off;
