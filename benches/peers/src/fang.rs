//! `fang`: each node is a pool of workers, each of which fetches one task after the other; it fetches
//! no batches. The lock of a fetch ends before the task is marked as taken, so that two workers may run
//! it.

use crate::{Figures, database::Database, work_off::RUNS};
use fang::{
    AsyncQueue, AsyncQueueable, AsyncRunnable, AsyncWorkerPool, FangError, SleepParams,
    async_trait, typetag,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The workers and the connections of each node. More of them take the same task more often.
const WORKERS: u32 = 8;

/// The table of its migration, without the default of `id`, which needs an extension.
const TABLE: &str = "
    CREATE TYPE fang_task_state AS ENUM ('new', 'in_progress', 'failed', 'finished', 'retried');
    CREATE TABLE fang_tasks (
        id uuid PRIMARY KEY,
        metadata jsonb NOT NULL,
        error_message TEXT,
        state fang_task_state DEFAULT 'new' NOT NULL,
        task_type TEXT DEFAULT 'common' NOT NULL,
        uniq_hash TEXT,
        retries INTEGER DEFAULT 0 NOT NULL,
        scheduled_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT NOW(),
        created_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT NOW(),
        updated_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT NOW()
    );
    CREATE INDEX fang_tasks_state_index ON fang_tasks(state);
    CREATE INDEX fang_tasks_type_index ON fang_tasks(task_type);
    CREATE INDEX fang_tasks_scheduled_at_index ON fang_tasks(scheduled_at);
    CREATE INDEX fang_tasks_uniq_hash ON fang_tasks(uniq_hash);";

#[derive(Serialize, Deserialize)]
struct Counted {
    task: u64,
}

#[typetag::serde]
#[async_trait]
impl AsyncRunnable for Counted {
    async fn run(&self, _: &dyn AsyncQueueable) -> Result<(), FangError> {
        RUNS.add(self.task);
        Ok(())
    }
}

pub(crate) async fn measure(url: &str, nodes: u64, count: u64) -> Figures {
    RUNS.expect(count);
    let database = Database::create(url).await;
    database.run(TABLE).await;
    let fill = format!(
        "INSERT INTO fang_tasks (id, metadata) \
         SELECT gen_random_uuid(), jsonb_build_object('type', 'Counted', 'task', task) \
         FROM generate_series(0, {}) AS task",
        count - 1
    );
    database.run(&fill).await;
    // A worker sleeps if its task was taken by another one. By default it sleeps 5 s.
    let short = Duration::from_millis(10);
    let sleep = SleepParams {
        sleep_period: short,
        max_sleep_period: short,
        min_sleep_period: short,
        sleep_step: Duration::ZERO,
    };
    for _ in 0..nodes {
        let mut queue =
            AsyncQueue::builder().uri(database.url.clone()).max_pool_size(WORKERS).build();
        queue.connect().await.unwrap();
        let mut pool: AsyncWorkerPool<AsyncQueue> = AsyncWorkerPool::builder()
            .number_of_workers(WORKERS)
            .queue(queue)
            .sleep_params(sleep.clone())
            .build();
        pool.start().await;
    }
    // A task that has ended is removed.
    let done = async || count - database.number("SELECT count(*) FROM fang_tasks").await;
    let rates = RUNS.rates(done).await;
    database.drop().await;
    rates
}
