//! The pages of the console at scale, and what viewers cost the nodes.
//!
//! `cargo xtask bench console` measures SQLite, and PostgreSQL if `ALLORA_TEST_POSTGRES_URL` names a
//! server (`cargo xtask services up postgres` says it). In the store are 100,000 schedules of 40 kinds
//! and 50 owners, some paused, and 1,000,000 entries of the history, one of 50 a failure; `-- 1000`
//! makes it 1,000 schedules with 10 entries each. A page is asked for as a service would do it, without
//! a network; so its time is that of the server. It removes what it added.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot start says so")]
#![allow(clippy::print_stdout, reason = "its tables are what it is for")]
#![expect(clippy::disallowed_methods, reason = "it measures the clocks' passing")]

mod history;

use allora_benches::{
    fleet::add_all,
    node::{Delivery, Node, register},
    report::{at, rate},
    server,
};
use allora_console::{Access, Console};
use allora_core::stored::{Schedules, StoredSchedule};
use allora_sql::Sql;
use axum::{
    Router,
    body::{Body, to_bytes},
    http::Request,
};
use futures::future::join_all;
use std::time::{Duration, Instant};
use tower::ServiceExt;

const PREFIX: &str = "allora_bench_console";
const SCHEDULES: usize = 100_000;
/// The entries of each schedule.
const ENTRIES: usize = 10;
/// The times that each page is asked for.
const TIMES: usize = 40;
const VIEWERS: u32 = 10;
/// The time after which an open page asks for itself again.
const LIVE: Duration = Duration::from_secs(5);
const ROUNDS: usize = 8;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let count = args.first().map_or(SCHEDULES, |count| count.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let mut urls = vec![format!("sqlite:{}", folder.path().join("bench.db").display())];
    match std::env::var("ALLORA_TEST_POSTGRES_URL") {
        Ok(url) => urls.push(url),
        Err(_) => println!("postgres is left out: ALLORA_TEST_POSTGRES_URL is not set"),
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    for url in urls {
        runtime.block_on(measure(&url, count));
    }
}

async fn open(url: &str) -> Sql {
    Sql::builder().prefix(PREFIX).history(1_000).connect(url).await.unwrap()
}

async fn measure(url: &str, count: usize) {
    let is_server = !url.starts_with("sqlite");
    if is_server {
        server::sql::clear(url, PREFIX).await;
    }
    let store = if is_server { "postgres" } else { "sqlite" };
    let begun = Instant::now();
    let schedules = Schedules::new(open(url).await).unwrap();
    add_all(&schedules, &jobs(count)).await;
    for i in (0..count).step_by(count / 200) {
        schedules.pause(&name(i), "the bench").await.unwrap();
    }
    history::fill(url, PREFIX, ENTRIES).await;
    let entries = count * ENTRIES;
    println!(
        "\n{store}: {count} schedules, {entries} entries, filled in {:.0?}\n",
        begun.elapsed()
    );
    let access = Access::reader("bench").with_data();
    let console = Console::new(schedules).access(move |_| Some(access.clone())).into_router();
    pages(&console, count).await;
    viewers(&console, url).await;
    if is_server {
        server::sql::clear(url, PREFIX).await;
    }
}

fn name(i: usize) -> String {
    format!("tenants/{:05}/job-{}", i / 4, i % 4)
}

fn jobs(count: usize) -> Vec<StoredSchedule> {
    let job = |i: usize| {
        let (kind, owner) = (format!("kind-{}", i % 40), format!("team-{}", i % 50));
        StoredSchedule::new(name(i), kind, "H H * * * Europe/Rome").owner(owner).tag("bench")
    };
    (0..count).map(job).collect()
}

/// The time and the size of each page.
async fn pages(console: &Router, count: usize) {
    let one = name(count / 2).replace('/', "%2F");
    let paths = [
        ("Now", "/".to_owned()),
        ("Jobs", "/jobs".to_owned()),
        ("Jobs, in the middle", format!("/jobs?after={one}")),
        ("Jobs by next time", "/jobs?sort=next".to_owned()),
        ("Jobs by name", "/jobs?q=tenants%2F00042".to_owned()),
        ("Jobs of a kind", "/jobs?kind=kind-7".to_owned()),
        ("Jobs of an owner", "/jobs?owner=team-7".to_owned()),
        ("Jobs with a tag", "/jobs?tag=bench".to_owned()),
        ("Jobs, paused", "/jobs?state=paused".to_owned()),
        ("Jobs, dead", "/jobs?state=dead".to_owned()),
        ("Jobs, overdue", "/jobs?state=overdue".to_owned()),
        ("Job", format!("/job?name={one}")),
        ("Runs, failures", "/runs".to_owned()),
        ("Runs, all", "/runs?outcome=all".to_owned()),
        ("Runs of a kind", "/runs?outcome=all&kind=kind-7".to_owned()),
        ("Nodes", "/nodes".to_owned()),
        ("Try", "/schedule?text=30+2+*+*+*".to_owned()),
    ];
    println!("| page | p50, ms | p95, ms | kB |");
    println!("|---|---|---|---|");
    for (title, path) in paths {
        let mut times = Vec::new();
        let mut bytes = 0;
        for _ in 0..TIMES {
            let begun = Instant::now();
            bytes = get(console, &path).await;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        let (half, most) = (at(times.iter().copied(), 0.5), at(times, 0.95));
        println!("| {title} | {half:.1} | {most:.1} | {:.0} |", bytes as f64 / 1e3);
    }
}

async fn get(console: &Router, path: &str) -> usize {
    let request = Request::builder().uri(path).body(Body::empty()).unwrap();
    let answer = console.clone().oneshot(request).await.unwrap();
    assert!(answer.status().is_success(), "{path}: {}", answer.status());
    to_bytes(answer.into_body(), 1 << 24).await.unwrap().len()
}

/// Claims and completions of a node, with viewers of *Now* and without, in turn.
async fn viewers(console: &Router, url: &str) {
    let names: Vec<String> = (0..100).map(|i| format!("claimed-{i}")).collect();
    let store = open(url).await;
    register(&store, &names).await;
    let mut node = Node::new(store, "one", &names).await;
    let (mut alone, mut seen) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        alone.push(node.work(Delivery::AtLeastOnce, LIVE).await.both());
        let watching = (0..VIEWERS).map(|i| {
            let console = console.clone();
            tokio::spawn(async move {
                tokio::time::sleep(LIVE / VIEWERS * i).await;
                loop {
                    get(&console, "/").await;
                    tokio::time::sleep(LIVE).await;
                }
            })
        });
        let watching: Vec<_> = watching.collect();
        seen.push(node.work(Delivery::AtLeastOnce, LIVE).await.both());
        watching.iter().for_each(tokio::task::JoinHandle::abort);
        join_all(watching).await;
    }
    let (alone, seen) = (at(alone, 0.5), at(seen, 0.5));
    println!(
        "\nclaims with their ends, median of {ROUNDS}: {}/s without viewers, {}/s with {VIEWERS}: {:.0} %",
        rate(alone),
        rate(seen),
        seen / alone * 100.0
    );
}
