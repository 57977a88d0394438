//! One measurement, made once: what `cargo xtask bench` runs in turn with all others.
//!
//! - `workers STORE NODES COUNT CONCURRENCY`: whole workers and a burst of stored schedules;
//!   `workers-history`: the same on a store that keeps a history.
//! - `raw STORE CONNECTIONS COUNT BATCH`: the same work by bare statements or scripts.
//! - `late STORE NODES SECONDS`: the lateness of jobs in code that are due at one instant, and the part
//!   of the claims that failed.
//! - `killed STORE JOBS`: the latest start of jobs in code whose first node was killed just before; each
//!   node is a process of its own.
//! - `lists STORE STORED`: pages of so many stored schedules, and `sync` with all of them.
//! - `stored STORE STORED COUNT`: a burst on one worker, beside so many other stored schedules;
//!   the time from `add` to the run; and the rate of 64 concurrent callers that add one by one.
//! - `tick-jobs STORE SCHEDULES SECONDS KILLED` and `tick-schedules`: schedules that are due every
//!   second, on three processes of this program; one is killed if `KILLED` is 1.
//! - `plots FILE FOLDER`: the plots of the file that `cargo xtask bench` writes.
//!
//! The stores are `memory`, `sqlite`, `postgres`, `mysql`, `redis` and `etcd`; the server is that of
//! `ALLORA_TEST_POSTGRES_URL` and so on. `ALLORA_BENCH_SERVER_PID` is a process from which the server
//! descends; without it the server's processor time is left out. `ALLORA_BENCH_PERF_CONTROL` is the
//! pipe of a `perf record --control` that records `workers` and `late`. The output is one line of JSON,
//! an object of numbers. A measurement whose work was not completed panics and prints nothing to
//! standard output.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot start says so")]
#![allow(clippy::print_stdout, reason = "its line is what it is for")]
#![expect(clippy::disallowed_methods, reason = "it measures the clocks' passing")]

mod claims;
mod killed;
mod late;
mod lists;
mod place;
mod plots;
mod raw;
mod stored;
mod ticks;
mod workers;

use allora_benches::ticks::{Load, log_of_node};
use allora_core::backend::HistoryLimits;
use place::Place;
use serde_json::{Map, Value};

/// Named numbers.
type Figures = Map<String, Value>;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let words =
        if words.is_empty() { vec!["workers", "memory", "1", "7000", "1000"] } else { words };
    if let ["plots", file, folder] = words[..] {
        return plots::draw(file.as_ref(), folder.as_ref());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let figures = runtime.block_on(measure(&words));
    for (name, value) in &figures {
        assert!(value.as_f64().is_some_and(f64::is_finite), "{name}: {value} is not a measurement");
    }
    println!("{}", Value::Object(figures));
}

async fn measure(words: &[&str]) -> Figures {
    let number = |word: &str| -> usize {
        word.parse().unwrap_or_else(|_| panic!("`{word}` is not a number"))
    };
    let [what, store, numbers @ ..] = words else { panic!("which store?") };
    let numbers: Vec<usize> = numbers.iter().map(|word| number(word)).collect();
    let place = Place::of(store);
    if let (killed::NODE, [jobs]) = (*what, &numbers[..]) {
        killed::node(&place, *jobs).await;
        return Figures::new();
    }
    let ticks = match (*what, &numbers[..]) {
        ("tick-jobs", [schedules, ..]) => Some((ticks::Kind::InCode, *schedules)),
        ("tick-schedules", [schedules, ..]) => Some((ticks::Kind::Stored, *schedules)),
        _ => None,
    };
    if let (Some((kind, schedules)), Some(log)) = (ticks, log_of_node()) {
        ticks::node(&place, kind, schedules, log).await;
        return Figures::new();
    }
    place.clear().await;
    let figures = match (*what, &numbers[..]) {
        ("workers" | "workers-history", [nodes, count, concurrency]) => {
            let history = if *what == "workers" { 0.into() } else { HistoryLimits::default() };
            workers::measure(&place, *nodes, *count as u64, *concurrency, history).await
        }
        ("raw", [connections, count, batch]) => {
            raw::measure(&place, *connections, *count, *batch).await
        }
        ("late", [nodes, seconds]) => late::measure(&place, *nodes, *seconds).await,
        ("killed", [jobs]) => killed::measure(store, *jobs).await,
        ("lists", [stored]) => lists::measure(&place, *stored as u64).await,
        ("stored", [stored, count]) => stored::measure(&place, *stored as u64, *count as u64).await,
        (_, [schedules, seconds, killed]) if ticks.is_some() => {
            let (kind, _) = ticks.unwrap();
            let load =
                Load { schedules: *schedules, seconds: *seconds as u64, is_killed: *killed > 0 };
            ticks::measure(&place, kind, load).await
        }
        _ => panic!("`{}` is not a measurement", words.join(" ")),
    };
    place.clear().await;
    figures
}

/// A figure by its name.
fn figure(name: &str, value: f64) -> (String, Value) {
    (name.to_owned(), value.into())
}
