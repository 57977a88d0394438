//! `graphile_worker`: its schedules have whole minutes, so every occurrence is a job that waits in the queue until its
//! time. Nearer than `apalis`, because processes share its schedules and because it documents the recovery of the jobs
//! of dead workers.
//!
//! It promises no number of runs; a job is removed when it has ended, and the jobs of a worker without a heartbeat are
//! given to others. This must be asked for, and is, with the lease of allora's trials in place of five minutes. An
//! error of the database ends the worker, as its documentation says, and the trial starts it again.

use super::{AGAIN, GRACE, LEASE, Log, Occurrence, WORK, micros, stopped};
use chrono::DateTime;
use graphile_worker::{
    IntoTaskHandlerResult, JobComplete, JobSpec, TaskHandler, Worker, WorkerContext,
};
use std::{sync::OnceLock, time::Duration};
use tokio::time::sleep;

/// The time of the first occurrence after the set-up, in milliseconds: workers are there by then.
const FIRST: i64 = 8_000;

/// The poll interval, by default a second: nobody is notified of a job that becomes due.
const POLL: Duration = Duration::from_millis(250);

/// The runs at once of a worker, each of which asks for a job at every poll, and its connections.
const CONCURRENCY: usize = 25;
const CONNECTIONS: u32 = 8;

static LOG: OnceLock<&Log> = OnceLock::new();

impl TaskHandler for Occurrence {
    const IDENTIFIER: &'static str = "occurrence";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        LOG.get().unwrap().begin(self, fence(context.job()));
        sleep(WORK).await;
    }
}

/// The time at which the job was locked.
fn fence(job: &graphile_worker::Job) -> i64 {
    job.locked_at().unwrap().timestamp_micros()
}

pub(super) async fn set_up(jobs: u64, seconds: i64, url: &str) {
    let worker = Worker::options().database_url(url).define_job::<Occurrence>();
    let utils = worker.init().await.unwrap().create_utils();
    let first = (micros() / 1_000 + FIRST) / 1_000;
    for at in (first..first + seconds).map(|second| second * 1_000) {
        let run_at = DateTime::from_timestamp_millis(at).unwrap();
        let spec = JobSpec::builder().run_at(run_at).build();
        let due: Vec<_> = (0..jobs).map(|job| (Occurrence { job, at }, &spec)).collect();
        utils.add_jobs(&due).await.unwrap();
    }
}

pub(super) async fn work(log: &'static Log, url: &str) {
    LOG.get_or_init(|| log);
    let worker = loop {
        let worker = Worker::options()
            .database_url(url)
            .max_pg_conn(CONNECTIONS)
            .concurrency(CONCURRENCY)
            .poll_interval(POLL)
            .heartbeat_interval(Duration::from_secs(1))
            .sweep_interval(Duration::from_secs(1))
            .sweep_threshold(LEASE)
            .recovery_delay(Duration::ZERO)
            .shutdown_signal(stopped())
            .shutdown_grace_period(GRACE)
            .shutdown_interrupted_job_retry_delay(Duration::ZERO)
            .define_job::<Occurrence>()
            .on(JobComplete, async |ended| {
                let run = serde_json::from_value(ended.job.payload().clone()).unwrap();
                LOG.get().unwrap().end(run, fence(&ended.job));
            });
        match worker.init().await {
            Ok(worker) => break worker,
            Err(error) => eprintln!("graphile_worker: {error}"),
        }
        sleep(AGAIN).await;
    };
    if let Err(error) = worker.run().await {
        eprintln!("graphile_worker: {error}");
        std::process::exit(i32::from(!super::STOP.load(super::Ordering::Relaxed)));
    }
}
