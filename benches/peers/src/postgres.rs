//! `apalis-postgres`: tasks are fetched in batches of a thousand and are not locked, which is its
//! fastest setting.

use crate::{
    BATCH, Figures,
    database::Database,
    work_off::{RUNS, work_off},
};
use apalis_postgres::{Config, PostgresStorage};

pub(crate) async fn measure(url: &str, workers: u64, count: u64) -> Figures {
    let database = Database::create(url).await;
    PostgresStorage::setup(&database.pool).await.unwrap();
    let open = || {
        let config = Config::default().queue("peer").batch_size(BATCH).lock_tasks(false);
        PostgresStorage::<u64>::new(&database.pool).with_config(config)
    };
    let acknowledged =
        async || database.number("SELECT count(*) FROM apalis.jobs WHERE status = 'Done'").await;
    let rates = work_off!(open(), workers, count, acknowledged);
    database.drop().await;
    rates
}
