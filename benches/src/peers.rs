//! The peer on the same server: `apalis` 1.0, the task queue that has both stores and is built on
//! the very drivers that are used here. It has no recurring schedules in its stores; what is
//! compared is work that waits there and is taken, run and ended. What it needs there is removed.

#![expect(clippy::disallowed_methods, reason = "it measures the clocks' passing")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on says so")]

use crate::fleet::{WAITING, work_off};
use apalis_core::{
    backend::TaskSink,
    error::BoxDynError,
    worker::{builder::WorkerBuilder, ext::parallelize::ParallelizeExt},
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

const AT_ONCE: usize = 1_000;

/// Fills one queue and has it worked off by so many workers; a macro because the types of a worker
/// say everything that it is made of.
macro_rules! work_off {
    ($open:expr, $workers:expr) => {{
        let mut filled = $open;
        let tasks: Vec<u64> = (0..WAITING).collect();
        for tasks in tasks.chunks(1_000) {
            filled.push_bulk(tasks.to_vec()).await.unwrap();
        }
        let runs: Arc<AtomicU64> = Arc::default();
        let workers: Vec<_> = (0..$workers)
            .map(|i| {
                let runs = runs.clone();
                let count = move |_: u64| {
                    runs.fetch_add(1, Ordering::Relaxed);
                    async { Ok::<(), BoxDynError>(()) }
                };
                let storage = $open;
                let worker = WorkerBuilder::new(format!("peer-{i}"))
                    .backend(storage)
                    .parallelize(tokio::spawn)
                    .build(count);
                tokio::spawn(worker.run())
            })
            .collect();
        let rate = work_off(&runs).await;
        for worker in workers {
            worker.abort();
            let _ = worker.await;
        }
        rate
    }};
}

/// The runs a second of so many workers, of a backlog in Redis whose keys begin with `prefix`.
pub async fn redis(url: &str, prefix: &str, workers: usize) -> f64 {
    use apalis_redis::{Config, RedisStorage};
    let queue = format!("{{{prefix}}}:peer:{workers}");
    let connection = apalis_redis::connect(url).await.unwrap();
    let open = || {
        let config = Config::default().queue(&*queue).batch_size(AT_ONCE).lock_tasks(false);
        RedisStorage::<u64, _>::new(connection.clone()).with_config(config)
    };
    work_off!(open(), workers)
}

/// The runs a second of so many workers, of a backlog in PostgreSQL, in a database of its own on
/// the server of `url`.
pub async fn postgres(url: &str, workers: usize) -> f64 {
    use apalis_postgres::{Config, PgPool, PostgresStorage};
    const DATABASE: &str = "allora_bench_peer";
    let server = PgPool::connect(url).await.unwrap();
    let drop = format!("DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)");
    sqlx::raw_sql(sqlx::AssertSqlSafe(drop.clone())).execute(&server).await.unwrap();
    let create = format!("CREATE DATABASE {DATABASE}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(create)).execute(&server).await.unwrap();
    let options = (*server.connect_options()).clone().database(DATABASE);
    let pool = PgPool::connect_with(options).await.unwrap();
    PostgresStorage::setup(&pool).await.unwrap();
    let open = || {
        let config = Config::default().queue("peer").batch_size(AT_ONCE).lock_tasks(false);
        PostgresStorage::<u64>::new(&pool).with_config(config)
    };
    let rate = work_off!(open(), workers);
    pool.close().await;
    sqlx::raw_sql(sqlx::AssertSqlSafe(drop)).execute(&server).await.unwrap();
    rate
}
