//! `apalis-redis`, with the settings of `apalis-postgres` and keys of its own, which are removed.

use crate::{
    BATCH, Figures,
    work_off::{RUNS, work_off},
};
use apalis_redis::{Config, RedisStorage};

const QUEUE: &str = "{allora_bench_peer}";

pub(crate) async fn measure(url: &str, workers: u64, count: u64) -> Figures {
    let connection = apalis_redis::connect(url).await.unwrap();
    clear(connection.clone()).await;
    let config = || Config::default().queue(QUEUE).batch_size(BATCH).lock_tasks(false);
    let open = || RedisStorage::<u64, _>::new(connection.clone()).with_config(config());
    let acknowledged = async || {
        let mut command = redis::cmd("SCARD");
        command.arg(config().done_jobs_set());
        let done: u64 = command.query_async(&mut connection.clone()).await.unwrap();
        done
    };
    let rates = work_off!(open(), workers, count, acknowledged);
    clear(connection.clone()).await;
    rates
}

async fn clear(mut connection: redis::aio::ConnectionManager) {
    let mut cursor = 0_u64;
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg("*allora_bench_peer*").arg("COUNT").arg(10_000);
        let (next, keys): (u64, Vec<String>) = scan.query_async(&mut connection).await.unwrap();
        if !keys.is_empty() {
            let () = redis::cmd("UNLINK").arg(keys).query_async(&mut connection).await.unwrap();
        }
        cursor = next;
        if cursor == 0 {
            return;
        }
    }
}
