//! The cost of stored schedules through their client: added, read, changed, listed; and the time
//! until another node runs an added one.
//!
//! `cargo bench -p allora-benches --bench stored` measures SQLite and the servers whose URLs are in
//! `ALLORA_TEST_POSTGRES_URL`, `ALLORA_TEST_MYSQL_URL` and `ALLORA_TEST_REDIS_URL`
//! (`cargo xtask services up` says them), under a prefix of its own, and removes what it added.
//! `-- STORE [COUNT]` measures one store, with so many schedules in it instead of 10 000.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot start says so")]
#![allow(clippy::print_stdout, reason = "its tables are what it is for")]
#![expect(clippy::disallowed_methods, reason = "it measures the clocks' passing")]

use allora_benches::{
    fleet::{self, CALLERS},
    node::KIND,
    process,
    report::{at, rate},
};
use allora_core::{
    Backend, Run, Scheduler, Time,
    backend::Page,
    stored::{Filter, Schedules, StoredSchedule},
};
use allora_redis::Redis;
use allora_sql::Sql;
use futures::{StreamExt, stream};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime},
};

const PREFIX: &str = "allora_bench_stored";
/// So many are added, read and changed one by one.
const SINGLY: usize = 500;
/// So many are added one by one by concurrent callers, in each of the rounds.
const CONCURRENTLY: u64 = 3_200;
const ROUNDS: usize = 5;
const BATCH: usize = 10_000;
/// The number of waits for another node.
const WAKES: usize = 200;

/// The variables that name the servers.
const SERVERS: [(&str, &str); 3] = [
    ("postgres", "ALLORA_TEST_POSTGRES_URL"),
    ("mysql", "ALLORA_TEST_MYSQL_URL"),
    ("redis", "ALLORA_TEST_REDIS_URL"),
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let count = args.get(1).map_or(BATCH, |count| count.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let mut places =
        vec![("sqlite", format!("sqlite:{}", folder.path().join("bench.db").display()))];
    for (store, variable) in SERVERS {
        match std::env::var(variable) {
            Ok(url) => places.push((store, url)),
            Err(_) => println!("{store} is left out: {variable} is not set"),
        }
    }
    println!("| store, with {count} | what | figure |\n|---|---|---|");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    for (name, url) in places.iter().filter(|place| args.first().is_none_or(|arg| arg == place.0)) {
        runtime.block_on(async {
            if *name == "redis" {
                let open =
                    async || Redis::builder().prefix(PREFIX).history(0).connect(url.as_str()).await;
                measure(name, [open().await.unwrap(), open().await.unwrap()], count).await;
            } else {
                let open =
                    async || Sql::builder().prefix(PREFIX).history(0).connect(url.as_str()).await;
                measure(name, [open().await.unwrap(), open().await.unwrap()], count).await;
            }
        });
    }
}

fn wall() -> Time {
    SystemTime::now().into()
}

fn later(name: String) -> StoredSchedule {
    // In a year, as far as most of what is stored is concerned.
    StoredSchedule::new(name, KIND, "@yearly").data_bytes(b"{\"to\":\"a@example.com\"}".to_vec())
}

/// Everything on one store, on which two nodes are.
async fn measure<B: Backend + Clone>(store: &str, [one, other]: [B; 2], count: usize) {
    let row = |what: &str, figure: String| println!("| {store} | {what} | {figure} |");
    let client = Schedules::new(one.clone()).unwrap();
    remove_all(&client, &one).await;

    let begun = Instant::now();
    for i in 0..SINGLY {
        client.add(&later(format!("single-{i}"))).await.unwrap();
    }
    row("added one by one, a second", rate(SINGLY as f64 / begun.elapsed().as_secs_f64()));
    let begun = Instant::now();
    let mut read = Vec::new();
    for i in 0..SINGLY {
        read.push(client.get(&format!("single-{i}")).await.unwrap());
    }
    row("read one by one, a second", rate(SINGLY as f64 / begun.elapsed().as_secs_f64()));
    let begun = Instant::now();
    for state in &read {
        let changed = StoredSchedule::of(state).unwrap().schedule("@monthly");
        client.modify(&changed).await.unwrap();
    }
    row("changed one by one, a second", rate(SINGLY as f64 / begun.elapsed().as_secs_f64()));

    let begun = Instant::now();
    let mut there = 0;
    while there < count {
        let batch = BATCH.min(count - there);
        let stored: Vec<StoredSchedule> =
            (there..there + batch).map(|i| later(format!("many-{i:07}"))).collect();
        for added in client.add_all(&stored).await.unwrap() {
            added.unwrap();
        }
        there += batch;
    }
    row("added 10 000 in a call, a second", rate(count as f64 / begun.elapsed().as_secs_f64()));

    concurrently(store, &client, &one).await;

    let deep = format!("many-{:07}", count * 9 / 10);
    for (what, after) in [("a first page of 100", None), ("a deep page of 100", Some(&*deep))] {
        let times: Vec<f64> = pages(&client, after).await;
        row(&format!("{what}, ms (p50)"), format!("{:.1}", at(times, 0.5)));
    }
    wakes(store, &client, other).await;
    remove_all(&client, &one).await;
}

/// Callers with one client, whose requests they share, and callers with a client each. The rounds
/// alternate.
async fn concurrently<B: Backend + Clone>(store: &str, client: &Schedules, backend: &B) {
    let one = [client.clone()];
    let each: Vec<Schedules> =
        (0..CALLERS).map(|_| Schedules::new(backend.clone()).unwrap()).collect();
    let (mut shared, mut alone) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let name = format!("alone-{round}");
        alone.push(fleet::add_one_by_one(&each, &name, CONCURRENTLY / 4).await);
        let name = format!("shared-{round}");
        shared.push(fleet::add_one_by_one(&one, &name, CONCURRENTLY).await);
    }
    for (whose, rates) in [("one client", shared), ("a client each", alone)] {
        let all = rates.iter().copied().map(rate).collect::<Vec<_>>().join(", ");
        let median = rate(at(rates, 0.5));
        println!(
            "| {store} | added one by one by {CALLERS} callers with {whose}, a second | {median} ({all}) |"
        );
    }
}

async fn pages(client: &Schedules, after: Option<&str>) -> Vec<f64> {
    let mut times = Vec::new();
    for _ in 0..20 {
        let begun = Instant::now();
        let listed = client.list(Filter::default(), after, 100).await.unwrap();
        assert_eq!(listed.len(), 100);
        times.push(begun.elapsed().as_secs_f64() * 1_000.0);
    }
    times
}

/// From the return of `add` on one node to the first run on another one, which polls once an hour;
/// and the memory of that worker, which knows only of what is due.
async fn wakes<B: Backend>(store: &str, client: &Schedules, other: B) {
    let began: Arc<Mutex<HashMap<String, Instant>>> = Arc::default();
    let note = began.clone();
    let before = process::memory();
    let worker = Scheduler::builder(other)
        .poll_interval(Duration::from_secs(3_600))
        .kind("wake", async move |run: Run| {
            note.lock().unwrap().insert(run.name().to_owned(), Instant::now());
        })
        .build()
        .unwrap();
    let handle = worker.handle();
    let running = tokio::spawn(worker.run());
    tokio::time::sleep(Duration::from_secs(2)).await;
    let grown = process::memory().saturating_sub(before) / 1_024;
    let mut waited = Vec::new();
    for i in 0..WAKES {
        let name = format!("wake-{i}");
        let due = wall() - chrono::TimeDelta::milliseconds(1);
        let stored = StoredSchedule::new(&name, "wake", allora_core::at(due)).starting(due);
        client.add(&stored).await.unwrap();
        let added = Instant::now();
        let run = async {
            loop {
                if let Some(began) = began.lock().unwrap().get(&name) {
                    break *began;
                }
                tokio::time::sleep(Duration::from_micros(200)).await;
            }
        };
        match tokio::time::timeout(Duration::from_secs(5), run).await {
            Ok(run) => waited.push(run.saturating_duration_since(added).as_secs_f64() * 1_000.0),
            Err(_) => break,
        }
    }
    let waits = match waited.len() {
        WAKES => {
            format!("{:.1} (p50), {:.1} (p99)", at(waited.clone(), 0.5), at(waited, 0.99))
        }
        _ => "no notification: found by the poll".to_owned(),
    };
    println!("| {store} | from `add` to the run on another node, ms | {waits} |");
    println!("| {store} | memory of a worker beside them, KiB | {grown} |");
    handle.stop();
    running.await.unwrap();
}

async fn remove_all<B: Backend>(client: &Schedules, store: &B) {
    let queries = store.queries().unwrap();
    loop {
        let page = queries.list(Page::first(1_000)).await.unwrap();
        if page.is_empty() {
            return;
        }
        let delete = page.iter().map(|state| client.delete(&state.name));
        stream::iter(delete).buffer_unordered(64).for_each(async |one| one.unwrap()).await;
    }
}
