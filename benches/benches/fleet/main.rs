//! Whole workers on stored schedules that are all due at one instant: runs per second, and the
//! processor time per occurrence of the server and of this process.
//!
//! `cargo bench -p allora-benches --bench fleet -- postgres 7000 5` measures a burst of 7,000 with one
//! node and with four, five times in turn. The store is `postgres`, `mysql`, `sqlite`, `redis` or
//! `memory`; the server is that of `ALLORA_TEST_POSTGRES_URL` and the like. `ALLORA_BENCH_SERVER_PID`
//! is the id of the server's first process, without which its processor time is not shown. The rate is
//! that of acknowledged work: until the last completion. Queries that claim are measured in turn with
//! searches and claims by operations; a fourth argument `query` or `operations` selects one of them.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot start says so")]
#![allow(clippy::print_stdout, reason = "its table is what it is for")]

use allora_benches::{fleet, ordinary::ordinary, process, server};
use allora_core::Backend;
use allora_memory::Memory;
use allora_redis::Redis;
use allora_sql::Sql;

const PREFIX: &str = "allora_fleet";
const NODES: [usize; 2] = [1, 4];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let store = args.first().map_or("memory", String::as_str);
    let number = |i: usize, or: u64| args.get(i).map_or(or, |arg| arg.parse().unwrap());
    let (count, rounds) = (number(1, 7_000), number(2, 3));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for _ in 0..rounds {
            for nodes in NODES {
                for way in ["operations", "query"] {
                    if args.get(3).is_none_or(|only| only == way) {
                        one(store, nodes, count, way).await;
                    }
                }
            }
        }
    });
}

async fn one(store: &str, nodes: usize, count: u64, way: &str) {
    match store {
        "memory" => {
            let memory = Memory::new();
            either((store, way), count, async || memory.clone(), nodes).await;
        }
        "sqlite" => {
            let folder = tempfile::tempdir().unwrap();
            let url = format!("sqlite:{}", folder.path().join("bench.db").display());
            let open =
                async || Sql::builder().prefix(PREFIX).history(0).connect(&url).await.unwrap();
            either((store, way), count, open, nodes).await;
        }
        "postgres" | "mysql" => {
            let variable = format!("ALLORA_TEST_{}_URL", store.to_uppercase());
            let url = std::env::var(variable).unwrap();
            server::sql::clear(&url, PREFIX).await;
            let open =
                async || Sql::builder().prefix(PREFIX).history(0).connect(&url).await.unwrap();
            either((store, way), count, open, nodes).await;
            server::sql::clear(&url, PREFIX).await;
        }
        "redis" => {
            let url = std::env::var("ALLORA_TEST_REDIS_URL").unwrap();
            server::redis::clear(&url, PREFIX).await;
            let open =
                async || Redis::builder().prefix(PREFIX).history(0).connect(&*url).await.unwrap();
            either((store, way), count, open, nodes).await;
            server::redis::clear(&url, PREFIX).await;
        }
        other => panic!("no store is called `{other}`"),
    }
}

async fn either<B: Backend>(of: (&str, &str), count: u64, open: impl AsyncFn() -> B, nodes: usize) {
    match of.1 {
        "query" => measure(of, count, open, nodes).await,
        _ => measure(of, count, async || ordinary(open().await), nodes).await,
    }
}

async fn measure<B: Backend>(
    (store, way): (&str, &str),
    count: u64,
    open: impl AsyncFn() -> B,
    nodes: usize,
) {
    let prepares = open().await;
    let mut stores = Vec::new();
    for _ in 0..nodes {
        stores.push(open().await);
    }
    let server = std::env::var("ALLORA_BENCH_SERVER_PID").ok();
    let server = server.map(|pid| pid.parse().unwrap());
    let all = || (process::cpu(), server.map(process::cpu_of_tree));
    let burst = fleet::Burst { count, concurrency: fleet::JOBS };
    let done = fleet::work_off_with(prepares, stores, burst, all).await;
    let each = |before: std::time::Duration, after: std::time::Duration| {
        (after - before).as_secs_f64() * 1e6 / count as f64
    };
    let (before, after) = (done.before, done.after);
    let server = before.1.zip(after.1).map_or(f64::NAN, |(before, after)| each(before, after));
    println!(
        "{store} {count} due, {nodes} node(s), by {way}: {:.0} runs/s, client {:.1} us, server {server:.1} us",
        count as f64 / done.took.as_secs_f64(),
        each(before.0, after.0),
    );
}
