//! The peers on the same servers: what `cargo xtask bench --peers` runs in turn with allora.
//!
//! - `postgres WORKERS COUNT`, `redis WORKERS COUNT`: the queue `apalis` on these stores.
//! - `graphile_worker WORKERS COUNT`, `fang WORKERS COUNT`: these queues on PostgreSQL.
//! - `durare SCHEDULES SECONDS KILLED`: schedules that are due every second, on three processes of this
//!   program over PostgreSQL; one is killed if `KILLED` is 1.
//! - `chaos ..`: for `cargo xtask chaos --peer`, see there.
//!
//! A queue is filled and worked off: what is compared is work that waits in the store and is claimed,
//! run and acknowledged. The time begins with the first run, because workers wait for their poll
//! interval before. The output is one line of JSON: runs per second that were started, and that were
//! acknowledged in the store, and the number of runs of tasks that had been started before.

mod chaos;
mod database;
mod durare;
mod fang;
mod graphile_worker;
mod postgres;
mod redis;
mod work_off;

// Files of the measurements of allora, so that both sides are counted alike.
#[path = "../../src/process.rs"]
#[expect(dead_code, reason = "it serves others, too")]
mod process;
#[path = "../../src/report.rs"]
#[expect(dead_code, reason = "it serves others, too")]
mod report;
#[path = "../../src/ticks/mod.rs"]
mod ticks;

/// The number of tasks that a worker fetches at once, and works at, if its queue has such a setting.
const BATCH: usize = 1_000;

/// Named numbers.
type Figures = Vec<(&'static str, f64)>;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |word: &String| -> u64 {
        word.parse().unwrap_or_else(|_| panic!("`{word}` is not a number"))
    };
    let Some((peer, numbers)) = args.split_first() else { panic!("which peer?") };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if peer == "chaos" {
        return runtime.block_on(chaos::run(numbers));
    }
    let numbers: Vec<u64> = numbers.iter().map(number).collect();
    let figures = runtime.block_on(measure(peer, &numbers));
    let figures: Vec<String> =
        figures.iter().map(|(name, value)| format!(r#""{name}":{value}"#)).collect();
    println!("{{{}}}", figures.join(","));
}

async fn measure(peer: &str, numbers: &[u64]) -> Figures {
    let url = |variable: &str| {
        std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set"))
    };
    let sql = || url("ALLORA_TEST_POSTGRES_URL");
    match (peer, numbers) {
        ("postgres", [workers, count]) => postgres::measure(&sql(), *workers, *count).await,
        ("redis", [workers, count]) => {
            redis::measure(&url("ALLORA_TEST_REDIS_URL"), *workers, *count).await
        }
        ("graphile_worker", [workers, count]) => {
            graphile_worker::measure(&sql(), *workers, *count).await
        }
        ("fang", [workers, count]) => fang::measure(&sql(), *workers, *count).await,
        ("durare", [schedules, seconds, killed]) => {
            let load = ticks::Load {
                schedules: *schedules as usize,
                seconds: *seconds,
                is_killed: *killed > 0,
            };
            durare::measure(&sql(), load).await
        }
        _ => panic!("`{peer}` with {} numbers is not a measurement", numbers.len()),
    }
}
