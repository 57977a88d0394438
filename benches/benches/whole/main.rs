//! The measurements of one store, made once: what `cargo xtask bench compare` runs of two builds in
//! turn.
//!
//! # The contract with `cargo xtask bench compare`
//!
//! Each build compiles this program from its own tree, so that a build of today can be compared with
//! one whose backend traits were others. The command line and the output stay as they are here; a
//! change that cannot be avoided increases [`FORMAT`].
//!
//! - It is the bench `whole` of the package `allora-benches`, in the folder of this file, and is
//!   built with all features.
//! - Its arguments are `STORE PREFIX`. The store is `memory`, `sqlite`, `postgres`, `mysql`, `redis`
//!   or `etcd`; without arguments it is `memory`. The server is the one of the environment variable
//!   `ALLORA_TEST_POSTGRES_URL`, `ALLORA_TEST_MYSQL_URL`, `ALLORA_TEST_REDIS_URL` or
//!   `ALLORA_TEST_ETCD_URL`. Tables and keys begin with the prefix, and are removed before and after.
//! - It prints one line of JSON to standard output:
//!   `{"format":1,"store":"redis","figures":[{"name":"claims at most once, batch 1","unit":"/s",`
//!   `"better":"more","value":5120.5}]}`. `better` is `more` or `less`. Names are unique; a figure
//!   that only one of two builds has is not compared.
//! - A measurement whose work was not completed panics: the exit code is not 0, nothing is printed to
//!   standard output, and standard error says why.
//!
//! The code that a change of the backend traits must port is `allora_benches::node`.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot start says so")]
#![allow(clippy::print_stdout, reason = "its line is what it is for")]

mod figures;

use allora_benches::{
    fleet::{self, Polls},
    node::{Delivery, Node, Tally, register},
    server::{self, statements},
};
use allora_core::{Backend, backend::HistoryLimits};
use allora_memory::Memory;
use allora_redis::Redis;
use allora_sql::Sql;
use figures::{Better, Figure, line};
use std::time::Duration;
use tokio::time::Sleep;

/// The version of the contract.
const FORMAT: u32 = 1;
const BATCHES: [usize; 3] = [1, 100, 1_000];
const LASTS: Duration = Duration::from_millis(300);
/// Stored schedules that are due at once: on a server, and in memory, which is faster.
const DUE: u64 = 2_000;
const DUE_IN_MEMORY: u64 = 20_000;
/// The shortest poll that there is, so that three seconds count thirty polls.
const POLLS: Polls = Polls { every: Duration::from_millis(100), counted: 30 };

fn main() {
    statements::install();
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let store = args.first().map_or("memory", String::as_str);
    let prefix = args.get(1).map_or("allora_whole", String::as_str);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let figures = runtime.block_on(measure(store, prefix));
    println!("{}", line(store, &figures));
}

async fn measure(store: &str, prefix: &str) -> Vec<Figure> {
    match store {
        "memory" => {
            let memory = Memory::new();
            let with_history = Memory::new().with_history(HistoryLimits::default());
            // It has no requests that could be counted.
            let open = async |keeps| if keeps { with_history.clone() } else { memory.clone() };
            loaded(open, DUE_IN_MEMORY).await
        }
        "sqlite" => {
            let folder = tempfile::tempdir().unwrap();
            sql(&format!("sqlite:{}", folder.path().join("bench.db").display()), prefix).await
        }
        "postgres" => on_sql_server(&server("ALLORA_TEST_POSTGRES_URL"), prefix).await,
        "mysql" => on_sql_server(&server("ALLORA_TEST_MYSQL_URL"), prefix).await,
        "redis" => redis(&server("ALLORA_TEST_REDIS_URL"), prefix).await,
        #[cfg(feature = "etcd")]
        "etcd" => etcd(&[server("ALLORA_TEST_ETCD_URL")], prefix).await,
        other => panic!("no store is called `{other}`"),
    }
}

fn server(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set"))
}

/// The prefix of the store that keeps a history.
fn kept(prefix: &str) -> String {
    format!("{prefix}_kept")
}

async fn on_sql_server(url: &str, prefix: &str) -> Vec<Figure> {
    clear_sql(url, prefix).await;
    let figures = sql(url, prefix).await;
    clear_sql(url, prefix).await;
    figures
}

async fn clear_sql(url: &str, prefix: &str) {
    server::sql::clear(url, prefix).await;
    server::sql::clear(url, &kept(prefix)).await;
}

async fn sql(url: &str, prefix: &str) -> Vec<Figure> {
    let open = async |keeps| {
        let mut builder = Sql::builder().prefix(prefix);
        if keeps {
            builder = builder.prefix(kept(prefix)).history(HistoryLimits::default());
        }
        builder.connect(url).await.unwrap()
    };
    let mut figures = loaded(open, DUE).await;
    let count = async |polls: Sleep| statements::of(polls).await as f64;
    figures.push(idle(open(false).await, count).await);
    figures
}

async fn redis(url: &str, prefix: &str) -> Vec<Figure> {
    server::redis::clear(url, prefix).await;
    let open = async |keeps| {
        let mut builder = Redis::builder().prefix(prefix);
        if keeps {
            builder = builder.prefix(kept(prefix)).history(HistoryLimits::default());
        }
        builder.connect(url).await.unwrap()
    };
    let mut figures = loaded(open, DUE).await;
    let count = async |polls: Sleep| {
        let before = server::redis::commands(url).await.1;
        polls.await;
        server::redis::commands(url).await.1 - before
    };
    figures.push(idle(open(false).await, count).await);
    server::redis::clear(url, prefix).await;
    figures
}

#[cfg(feature = "etcd")]
async fn etcd(urls: &[String], prefix: &str) -> Vec<Figure> {
    server::etcd::clear(urls, prefix).await;
    server::etcd::clear(urls, &kept(prefix)).await;
    let open = async |keeps| {
        let mut builder =
            allora_etcd::Etcd::builder().prefix(prefix).timeout(Duration::from_secs(10));
        if keeps {
            builder = builder.prefix(kept(prefix)).history(HistoryLimits::default());
        }
        builder.connect(urls.to_vec()).await.unwrap()
    };
    let mut figures = loaded(open, DUE).await;
    let count = async |polls: Sleep| {
        let before = server::etcd::requests(urls);
        polls.await;
        server::etcd::requests(urls) - before
    };
    figures.push(idle(open(false).await, count).await);
    server::etcd::clear(urls, prefix).await;
    server::etcd::clear(urls, &kept(prefix)).await;
    figures
}

/// Claims and completions of one node, and a whole scheduler, also one whose store keeps a history.
async fn loaded<B: Backend>(open: impl AsyncFn(bool) -> B, due: u64) -> Vec<Figure> {
    let mut figures = Vec::new();
    for batch in BATCHES {
        let names: Vec<String> = (0..batch).map(|i| format!("batch-{batch}-{i}")).collect();
        let store = open(false).await;
        register(&store, &names).await;
        let mut node = Node::new(store, "one", &names).await;
        let once = work(&mut node, Delivery::AtMostOnce, batch).await;
        let again = work(&mut node, Delivery::AtLeastOnce, batch).await;
        let claims = [("at most once", once.claims()), ("at least once", again.claims())];
        for (delivery, value) in claims {
            figures.push(Figure::rate(format!("claims {delivery}, batch {batch}"), value));
        }
        figures.push(Figure::rate(format!("completions, batch {batch}"), again.completions()));
    }
    for (keeps, title) in [(false, ""), (true, ", with a history")] {
        let runs = fleet::at_once(open(keeps).await, open(keeps).await, due).await;
        figures.push(Figure::rate(format!("runs of a whole scheduler{title}"), runs));
    }
    figures
}

/// The work of a node that has its jobs for itself, and so must win all of them.
async fn work<B: Backend>(node: &mut Node<B>, delivery: Delivery, batch: usize) -> Tally {
    // Its statements and its connections are prepared before.
    node.round(delivery, &mut Tally::default()).await;
    let tally = node.work(delivery, LASTS).await;
    assert_eq!(tally.claimed, tally.rounds * batch as u64, "not every job was claimed");
    tally
}

/// Requests of an idle scheduler in as many polls as a minute has with the default settings.
async fn idle<B: Backend>(store: B, count: impl AsyncFnOnce(Sleep) -> f64) -> Figure {
    let counted = fleet::idle(store, POLLS, count).await;
    assert!(counted > 0.0, "the idle scheduler did not poll");
    let value = counted * f64::from(fleet::MINUTE.counted) / f64::from(POLLS.counted);
    let name = "requests of an idle scheduler".to_owned();
    Figure { name, unit: "/min", better: Better::Less, value }
}
