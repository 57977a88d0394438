//! The schedulers that are measured.

use crate::{
    figures::{Figures, Probe, fired},
    load::Load,
};
use allora_core::{Run, Scheduler, Time, every};
use allora_memory::Memory;
use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    time::{Duration, SystemTime},
};
use tokio_cron_scheduler::{Job, JobScheduler};

pub(crate) struct Rival {
    pub(crate) name: &'static str,
    pub(crate) run: fn(Load, usize) -> Figures,
}

pub(crate) const RIVALS: [Rival; 3] = [
    Rival { name: "bare-heap-loop", run: |load, jobs| block_on(bare(load, jobs)) },
    Rival { name: "allora", run: |load, jobs| block_on(allora(load, jobs)) },
    Rival { name: "tokio-cron-scheduler", run: |load, jobs| block_on(tokio_cron(load, jobs)) },
];

impl Rival {
    /// Beyond this it takes too long to add them.
    pub(crate) fn most_jobs(&self, load: Load) -> usize {
        match (self.name, load) {
            ("tokio-cron-scheduler", _) => 100_000,
            _ => usize::MAX,
        }
    }
}

fn block_on(measured: impl Future<Output = Figures>) -> Figures {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(measured)
}

/// The least that a scheduler in memory does: a heap of times, a sleep, a spawn.
async fn bare(load: Load, jobs: usize) -> Figures {
    let probe = Probe::before_adding(load, jobs);
    let first = load.next_begin() + if load == Load::Idle { load.period() } else { Duration::ZERO };
    let mut heap: BinaryHeap<Reverse<(SystemTime, usize)>> =
        (0..jobs).map(|n| Reverse((first + load.phase(n, jobs), n))).collect();
    let measuring = probe.added();
    tokio::spawn(async move {
        while let Some(Reverse((due, _))) = heap.peek().copied() {
            if let Ok(wait) = due.duration_since(SystemTime::now()) {
                tokio::time::sleep(wait).await;
            }
            let now = SystemTime::now();
            while let Some(Reverse((due, n))) = heap.peek().copied().filter(|next| next.0.0 <= now)
            {
                heap.pop();
                heap.push(Reverse((due + load.period(), n)));
                tokio::spawn(async move { fired(due) });
            }
        }
    });
    measuring.measure().await
}

async fn allora(load: Load, jobs: usize) -> Figures {
    let probe = Probe::before_adding(load, jobs);
    let first = load.next_begin();
    let mut builder = Scheduler::builder(Memory::new()).concurrency(jobs);
    for n in 0..jobs {
        let start = Time::from(first + load.phase(n, jobs));
        let schedule = every(load.period()).starting(start + load.period());
        builder = builder.job(format!("job-{n}"), schedule, async |run: Run| {
            fired(run.scheduled_at().into());
        });
    }
    let scheduler = builder.build().unwrap();
    let handle = scheduler.handle();
    let running = tokio::spawn(scheduler.run());
    let figures = probe.added().measure().await;
    handle.stop_now();
    running.await.unwrap();
    figures
}

async fn tokio_cron(load: Load, jobs: usize) -> Figures {
    let probe = Probe::before_adding(load, jobs);
    let scheduler = JobScheduler::new().await.unwrap();
    // It knows no phases: all are due at the full second.
    let expression = match load {
        Load::Idle => "0 0 0 1 1 *",
        Load::AtOnce => "*/4 * * * * *",
        Load::Spread => "* * * * * *",
    };
    for _ in 0..jobs {
        let job = Job::new(expression, |_, _| {
            let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
            fired(SystemTime::UNIX_EPOCH + Duration::from_secs(now));
        });
        scheduler.add(job.unwrap()).await.unwrap();
    }
    scheduler.start().await.unwrap();
    probe.added().measure().await
}
