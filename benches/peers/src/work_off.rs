//! Workers that work off a queue, and their rates.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Work that is not done then has failed.
const LONGEST: Duration = Duration::from_secs(120);

/// Runs per second, from the first run on.
pub(crate) struct Rates {
    pub(crate) started: f64,
    pub(crate) acknowledged: f64,
}

/// The runs of all workers.
#[derive(Default)]
pub(crate) struct Runs {
    count: AtomicU64,
    first: OnceLock<Instant>,
}

impl Runs {
    pub(crate) fn add(&self) {
        self.first.get_or_init(Instant::now);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until all have started, and then until the store has all acknowledgements.
    ///
    /// # Panics
    /// If that takes too long.
    pub(crate) async fn rates(&self, count: u64, acknowledged: impl AsyncFn() -> u64) -> Rates {
        let begun = Instant::now();
        let wait = async |what: &str, done: u64| {
            assert!(begun.elapsed() < LONGEST, "{done} of {count} were {what}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        while self.count.load(Ordering::Relaxed) < count {
            wait("started", self.count.load(Ordering::Relaxed)).await;
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
        Rates { started, acknowledged: count as f64 / first.elapsed().as_secs_f64() }
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
        let mut filled = $open;
        let tasks: Vec<u64> = (0..$count).collect();
        for tasks in tasks.chunks(1_000) {
            filled.push_bulk(tasks.to_vec()).await.unwrap();
        }
        let runs: ::std::sync::Arc<$crate::work_off::Runs> = Default::default();
        let workers: Vec<_> = (0..$workers)
            .map(|i| {
                let (storage, runs) = ($open, runs.clone());
                let count = move |_: u64| {
                    runs.add();
                    async { Ok::<(), BoxDynError>(()) }
                };
                let worker = WorkerBuilder::new(format!("peer-{i}"))
                    .backend(storage)
                    .parallelize(tokio::spawn)
                    .build(count);
                tokio::spawn(worker.run())
            })
            .collect();
        let rates = runs.rates($count, $acknowledged).await;
        for worker in workers {
            worker.abort();
            let _ = worker.await;
        }
        rates
    }};
}

pub(crate) use work_off;
