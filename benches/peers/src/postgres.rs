//! `apalis-postgres`, in a database of its own, which is removed.

use crate::{
    BATCH,
    work_off::{Rates, work_off},
};
use apalis_postgres::{Config, PgPool, PostgresStorage};
use sqlx::AssertSqlSafe;

const DATABASE: &str = "allora_bench_peer";

pub(crate) async fn measure(url: &str, workers: u64, count: u64) -> Rates {
    let server = PgPool::connect(url).await.unwrap();
    let run = async |text: String| {
        sqlx::raw_sql(AssertSqlSafe(text)).execute(&server).await.unwrap();
    };
    let drop = || format!("DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)");
    run(drop()).await;
    run(format!("CREATE DATABASE {DATABASE}")).await;
    let options = (*server.connect_options()).clone().database(DATABASE);
    let pool = PgPool::connect_with(options).await.unwrap();
    PostgresStorage::setup(&pool).await.unwrap();
    let open = || {
        let config = Config::default().queue("peer").batch_size(BATCH).lock_tasks(false);
        PostgresStorage::<u64>::new(&pool).with_config(config)
    };
    let acknowledged = async || {
        let text = "SELECT count(*) FROM apalis.jobs WHERE status = 'Done'";
        let done: i64 = sqlx::query_scalar(text).fetch_one(&pool).await.unwrap();
        u64::try_from(done).unwrap()
    };
    let rates = work_off!(open(), workers, count, acknowledged);
    pool.close().await;
    run(drop()).await;
    rates
}
