//! The peer `apalis` 1.0 on the same servers: what `cargo xtask bench --peers` runs in turn with allora.
//!
//! `STORE WORKERS COUNT` fills a queue and has it worked off. It has no recurring schedules in its
//! stores; what is compared is work that waits there and is claimed, run and acknowledged. Tasks are
//! fetched in batches of a thousand and are not locked, which is its fastest setting. The time begins
//! with the first run, because workers wait for their poll interval before. The output is one line of
//! JSON: runs per second that were started, and that were acknowledged in the store.

mod postgres;
mod redis;
mod work_off;

use work_off::Rates;

/// The number of tasks that a worker fetches at once.
const BATCH: usize = 1_000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [store, workers, count] = &args[..] else { panic!("usage: peers STORE WORKERS COUNT") };
    let (workers, count) = (workers.parse().unwrap(), count.parse().unwrap());
    let url = |variable: &str| {
        std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set"))
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let Rates { started, acknowledged } = runtime.block_on(async {
        match &**store {
            "postgres" => postgres::measure(&url("ALLORA_TEST_POSTGRES_URL"), workers, count).await,
            "redis" => redis::measure(&url("ALLORA_TEST_REDIS_URL"), workers, count).await,
            other => panic!("no peer uses `{other}`"),
        }
    });
    println!(r#"{{"per_s":{acknowledged},"started_per_s":{started}}}"#);
}
