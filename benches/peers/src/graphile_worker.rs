//! `graphile_worker`: each worker fetches a thousand jobs at once into its local queue, runs as many at
//! once, and writes completions in batches. These are the settings that its guides name for throughput.

use crate::{BATCH, Figures, database::Database, work_off::RUNS};
use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, TaskHandler, Worker, WorkerContext,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Clone, Serialize, Deserialize)]
struct Counted {
    task: u64,
}

impl TaskHandler for Counted {
    const IDENTIFIER: &'static str = "counted";

    async fn run(self, _: WorkerContext) -> impl IntoTaskHandlerResult {
        RUNS.add(self.task);
        Ok::<(), String>(())
    }
}

pub(crate) async fn measure(url: &str, workers: u64, count: u64) -> Figures {
    RUNS.expect(count);
    let database = Database::create(url).await;
    let mut opened = Vec::new();
    for _ in 0..workers {
        let options = Worker::options().database_url(&database.url).define_job::<Counted>();
        let queue = LocalQueueConfig::default().with_size(BATCH);
        let options = options.concurrency(BATCH).local_queue(queue);
        // The longer of the delays that its documentation recommends.
        let options = options.complete_job_batch_delay(Duration::from_millis(5));
        opened.push(options.init().await.unwrap());
    }
    let (utils, spec) = (opened[0].create_utils(), JobSpec::default());
    let jobs: Vec<(Counted, &JobSpec)> = (0..count).map(|task| (Counted { task }, &spec)).collect();
    for jobs in jobs.chunks(1_000) {
        utils.add_jobs(jobs).await.unwrap();
    }
    let running: Vec<_> = opened
        .into_iter()
        .map(|worker| tokio::spawn(async move { worker.run().await.unwrap() }))
        .collect();
    let left = async || {
        let left = "SELECT count(*) FROM graphile_worker._private_jobs";
        count - database.number(left).await
    };
    let rates = RUNS.rates(left).await;
    running.iter().for_each(tokio::task::JoinHandle::abort);
    database.drop().await;
    rates
}
