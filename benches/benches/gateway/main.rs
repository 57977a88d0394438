//! Workers over HTTP: runs claimed and completed through one gateway, and what waiting workers cost the store.
//!
//! `cargo xtask bench gateway` measures Redis (`ALLORA_TEST_REDIS_URL`) and PostgreSQL
//! (`ALLORA_TEST_POSTGRES_URL`). The schedules are due once, all at the start. Workers speak HTTP/1.1 over
//! loopback: each has one connection, asks for up to 50 runs, and reports their ends one by one. The raw
//! limit is the same node with a handler in its own process. It removes what it added.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot start says so")]
#![allow(clippy::print_stdout, reason = "its tables are what it is for")]
#![expect(clippy::disallowed_methods, reason = "it measures the clocks' passing")]

mod worker;

use allora_benches::{
    fleet::add_all,
    report::{at, rate},
    server,
};
use allora_console::{Access, Console, Gateway, Scope};
use allora_core::{
    Backend, BoxError, Handle, Run, Scheduler, SchedulerBuilder,
    stored::{Schedules, StoredSchedule},
};
use allora_redis::Redis;
use allora_sql::Sql;
use futures::future::join_all;
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::net::TcpListener;
use worker::Worker;

const PREFIX: &str = "allora_bench_gateway";
const RUNS: usize = 20_000;
const ROUNDS: usize = 3;
/// Numbers of workers. Each reports one end at a time, so few are limited by the time of a request.
const WORKERS: [usize; 2] = [64, 256];
/// The requests that wait while nothing is due.
const IDLE: usize = 200;
const IDLE_TIME: Duration = Duration::from_secs(20);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let count = args.first().map_or(RUNS, |count| count.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    println!(
        "| store | handler | runs/s, median of {ROUNDS} | part of the raw limit |\n|---|---|---|---|"
    );
    for (store, variable) in
        [("redis", "ALLORA_TEST_REDIS_URL"), ("postgres", "ALLORA_TEST_POSTGRES_URL")]
    {
        match std::env::var(variable) {
            Ok(url) => runtime.block_on(measure(store, &url, count)),
            Err(_) => println!("\n{store} is left out: {variable} is not set"),
        }
    }
}

async fn measure(store: &str, url: &str, count: usize) {
    let mut rounds = [(); 3].map(|()| Vec::new());
    for _ in 0..ROUNDS {
        rounds[0].push(round(store, url, count, None).await);
        for (i, workers) in WORKERS.into_iter().enumerate() {
            rounds[i + 1].push(round(store, url, count, Some(workers)).await);
        }
    }
    let [raw, served @ ..] = rounds.map(|rounds| at(rounds, 0.5));
    println!("| {store} | in its process | {} | |", rate(raw));
    for (workers, served) in WORKERS.into_iter().zip(served) {
        let part = served / raw * 100.0;
        println!("| {store} | {workers} workers | {} | {part:.0} % |", rate(served));
    }
    let (without, with) = (idle(store, url, 0).await, idle(store, url, IDLE).await);
    println!(
        "\n{store}: requests to the store in {IDLE_TIME:?} of a node that has nothing to do: {without}, with {IDLE} \
         waiting workers: {with}\n"
    );
    clear(store, url).await;
}

/// Empties the store, and opens it.
async fn clear(store: &str, url: &str) {
    match store {
        "redis" => server::redis::clear(url, PREFIX).await,
        _ => server::sql::clear(url, PREFIX).await,
    }
}

/// The runs that end in a second, of so many workers, or of a handler.
async fn round(store: &str, url: &str, count: usize, workers: Option<usize>) -> f64 {
    clear(store, url).await;
    match store {
        "redis" => {
            let open = async || Redis::builder().prefix(PREFIX).connect(url).await.unwrap();
            rate_of(open().await, open().await, count, workers).await
        }
        _ => {
            let open = async || Sql::builder().prefix(PREFIX).connect(url).await.unwrap();
            rate_of(open().await, open().await, count, workers).await
        }
    }
}

async fn rate_of(
    store: impl Backend,
    of_client: impl Backend,
    count: usize,
    workers: Option<usize>,
) -> f64 {
    let schedules = Schedules::new(of_client).unwrap();
    let at = schedules.store_now().await.unwrap();
    let jobs = (0..count).map(|i| {
        let lease = Duration::from_secs(60);
        StoredSchedule::once(format!("job-{i}"), "report", at).at_least_once(lease)
    });
    add_all(&schedules, &jobs.collect::<Vec<_>>()).await;
    let ended = Arc::new(AtomicUsize::new(0));
    let builder = Scheduler::builder(store).concurrency(4 * WORKERS[1] * worker::MOST);
    let begun = Instant::now();
    if let Some(workers) = workers {
        let process = serve(builder, schedules).await;
        let workers = (0..workers).map(|i| {
            let (ended, address) = (ended.clone(), process.address);
            tokio::spawn(async move {
                let mut worker = Worker::connect(address, i).await;
                while ended.load(Ordering::SeqCst) < count {
                    let runs = worker.claim(Duration::from_millis(200)).await;
                    for token in runs {
                        worker.complete(&token).await;
                        ended.fetch_add(1, Ordering::SeqCst);
                    }
                }
            })
        });
        join_all(workers.collect::<Vec<_>>()).await;
        let took = begun.elapsed();
        process.stop().await;
        return count as f64 / took.as_secs_f64();
    }
    let counted = ended.clone();
    let work = async move |_: Run| -> Result<(), BoxError> { Ok(()) };
    let builder = builder.kind("report", work).on_event(move |event| {
        if matches!(event, allora_core::Event::RunEnded { .. }) {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let scheduler = builder.build().unwrap();
    let handle = scheduler.handle();
    let running = tokio::spawn(scheduler.run());
    while ended.load(Ordering::SeqCst) < count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let took = begun.elapsed();
    handle.stop();
    running.await.unwrap();
    count as f64 / took.as_secs_f64()
}

/// A node with a gateway, and its server.
struct Process {
    address: SocketAddr,
    handle: Handle,
    tasks: [tokio::task::JoinHandle<()>; 2],
}

async fn serve(builder: SchedulerBuilder, schedules: Schedules) -> Process {
    let gateway = Gateway::new(&[7; 32]).unwrap();
    let scheduler = gateway.handle_on(builder).build().unwrap();
    let handle = scheduler.handle();
    let router = Console::new(schedules)
        .pages(false)
        .handle(handle.clone())
        .gateway(gateway)
        .access(|_| Some(Access::new("worker").with(Scope::Work)))
        .into_router();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let node = tokio::spawn(async { _ = scheduler.run().await });
    let server = tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
    Process { address, handle, tasks: [node, server] }
}

impl Process {
    async fn stop(self) {
        self.handle.stop();
        let [node, server] = self.tasks;
        node.await.unwrap();
        server.abort();
    }
}

/// The requests that the server of the store gets while so many workers wait.
async fn idle(store: &str, url: &str, workers: usize) -> f64 {
    clear(store, url).await;
    let process = match store {
        "redis" => {
            let open = async || Redis::builder().prefix(PREFIX).connect(url).await.unwrap();
            serve(Scheduler::builder(open().await), Schedules::new(open().await).unwrap()).await
        }
        _ => {
            let open = async || Sql::builder().prefix(PREFIX).connect(url).await.unwrap();
            serve(Scheduler::builder(open().await), Schedules::new(open().await).unwrap()).await
        }
    };
    let waiting: Vec<_> = (0..workers)
        .map(|i| {
            let address = process.address;
            tokio::spawn(async move {
                let mut worker = Worker::connect(address, i).await;
                loop {
                    worker.claim(Duration::from_secs(10)).await;
                }
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = requests(store, url).await;
    tokio::time::sleep(IDLE_TIME).await;
    let asked = requests(store, url).await - before;
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    process.stop().await;
    asked
}

async fn requests(store: &str, url: &str) -> f64 {
    match store {
        "redis" => server::redis::commands(url).await.1,
        _ => server::sql::transactions(url).await as f64,
    }
}
