//! The tables of BENCHMARKS.md, and most of those of `benches/TABLES.md`.

use super::{
    Facts, Parts,
    figures::Figures,
    markdown::{few_percent, milliseconds, multiple, number, or_dash, percent, rate, table},
    plan::{
        self, BATCH, BATCHES, BURSTS, KILLED_JOBS, LATE_NODES, LISTED, MAIN, NODES, ONE_AND_FOUR,
        OTHERS, SCHEDULERS, Size,
    },
};

/// The numbers of jobs at one instant that `late` measures.
const LATE_SIZES: [u64; 4] = [10, 100, 1_000, 5_000];

/// The rate of started runs.
pub(super) const STARTED: &str = "started_per_s";
/// The rate at which concurrent callers of one client add schedules one by one.
pub(super) const ADDED_ONE_BY_ONE: &str = "added_one_by_one_per_s";

/// The part of the claims of jobs in code that failed.
pub(super) const FAILED_CLAIMS: &str = "failed_claims";
/// The latest start of an instant whose first nodes were killed.
pub(super) const LATEST: &str = "latest_ms";
/// The time of a page of stored schedules.
pub(super) const PAGE: &str = "page_p50_ms";
/// The time of `sync` with a part of the stored schedules, and with a complete set.
pub(super) const SYNC: [&str; 2] = ["sync_s", "sync_complete_s"];

/// The parts of BENCHMARKS.md that are made here.
pub(super) fn parts(facts: &Facts, figures: &Figures) -> Parts {
    let plot = |table, file, title| with_plot(table, super::PLOTS, file, title);
    let lateness_plot = "Lateness against jobs per instant";
    vec![
        ("workers", plot(workers(facts, figures), "nodes", "Throughput against nodes")),
        ("lateness", plot(lateness(facts, figures), "lateness", lateness_plot)),
        ("timers", timers(facts, figures)),
    ]
}

/// The parts of `benches/TABLES.md` that are made here.
pub(super) fn others(facts: &Facts, figures: &Figures) -> Parts {
    // The page is beside the folder of the plots.
    let plot = |table, file, title| with_plot(table, "plots", file, title);
    vec![
        ("peers", peers(facts, figures)),
        ("processor", processor(facts, figures)),
        ("history", history(facts, figures)),
        ("batches", plot(batches(figures), "batches", "Throughput against the batch size")),
        ("stored", plot(stored(facts, figures), "stored", "Rate and latency against schedules")),
        ("lists", lists(figures)),
    ]
}

fn with_plot(table: String, folder: &str, file: &str, title: &str) -> String {
    format!("{table}\n\n![{title}]({folder}/{file}.svg)")
}

pub(super) fn name(store: &str) -> &str {
    match store {
        "postgres" => "PostgreSQL",
        "mysql" => "MariaDB",
        "redis" => "Redis",
        "sqlite" => "SQLite",
        other => other,
    }
}

pub(super) fn worker_key(store: &str, nodes: u64, count: u64) -> String {
    format!("workers {store} {nodes} {count} {BATCH}")
}

pub(super) fn history_key(store: &str, nodes: u64, count: u64) -> String {
    format!("workers-history {store} {nodes} {count} {BATCH}")
}

pub(super) fn peer_key(store: &str, nodes: u64, count: u64) -> String {
    format!("peers {store} {nodes} {count}")
}

pub(super) fn raw_key(store: &str, connections: u64, size: Size) -> String {
    format!("raw {store} {connections} {} {BATCH}", size.sustained)
}

/// The loads of a store.
fn loads(facts: &Facts, store: &str) -> Vec<u64> {
    match MAIN.contains(&store) {
        true => BURSTS.into_iter().chain([facts.size.sustained]).collect(),
        false => vec![BURSTS[1]],
    }
}

fn workers(facts: &Facts, figures: &Figures) -> String {
    let header = [
        "store",
        "due at once",
        "1 node",
        "2",
        "4",
        "8",
        "raw, 1 connection",
        "raw, 4",
        "of raw, 1 node",
        "of raw, 4",
    ];
    let row = |store: &str, count: u64| {
        let ours = |nodes| worker_key(store, nodes, count);
        let mut row = vec![name(store).to_owned(), number(count as f64)];
        let median = |key: &str| or_dash(figures.median(key, "per_s"), rate);
        row.extend(NODES.map(|nodes| median(&ours(nodes))));
        let raw = |nodes| raw_key(store, nodes, facts.size);
        row.extend(ONE_AND_FOUR.map(|nodes| median(&raw(nodes))));
        let part = |nodes| figures.ratio((&ours(nodes), &raw(nodes)), "per_s");
        row.extend(ONE_AND_FOUR.map(|nodes| or_dash(part(nodes), percent)));
        row
    };
    let stores = MAIN.into_iter().chain(OTHERS);
    let rows = stores.flat_map(|store| loads(facts, store).into_iter().map(move |n| row(store, n)));
    table(&header, rows)
}

/// The number of schedules that are due at once where rates with and without a history are compared.
pub(super) fn load_with_history(facts: &Facts, store: &str) -> u64 {
    if MAIN.contains(&store) { facts.size.sustained } else { BURSTS[1] }
}

/// Rates and processor time with a history and without.
fn history(facts: &Facts, figures: &Figures) -> String {
    let header = [
        "store",
        "due at once",
        "nodes",
        "per second, without",
        "with",
        "ratio",
        "client, µs, without",
        "with",
        "server, µs, without",
        "with",
    ];
    let row = |store: &str, nodes: u64| {
        let count = load_with_history(facts, store);
        let keys = [worker_key(store, nodes, count), history_key(store, nodes, count)];
        let both = |figure: &str, show: fn(f64) -> String| {
            keys.each_ref().map(|key| or_dash(figures.median(key, figure), show))
        };
        let mut row = vec![name(store).to_owned(), number(count as f64), nodes.to_string()];
        row.extend(both("per_s", rate));
        row.push(or_dash(figures.ratio((&keys[1], &keys[0]), "per_s"), percent));
        row.extend(both("client_us", milliseconds));
        row.extend(both("server_us", milliseconds));
        row
    };
    let stores = MAIN.into_iter().chain(OTHERS);
    table(&header, stores.flat_map(|store| ONE_AND_FOUR.map(|nodes| row(store, nodes))))
}

/// Started and acknowledged work beside that of `apalis`.
fn peers(facts: &Facts, figures: &Figures) -> String {
    let header = [
        "store",
        "due at once",
        "nodes",
        "started: allora",
        "apalis",
        "ratio",
        "acknowledged: allora",
        "apalis",
        "ratio",
    ];
    let row = |store: &str, count: u64, nodes: u64| {
        let (ours, peer) = (worker_key(store, nodes, count), peer_key(store, nodes, count));
        let mut row = vec![name(store).to_owned(), number(count as f64), nodes.to_string()];
        for figure in [STARTED, "per_s"] {
            row.extend([&ours, &peer].map(|key| or_dash(figures.median(key, figure), rate)));
            row.push(or_dash(figures.ratio((&ours, &peer), figure), multiple));
        }
        row
    };
    let rows = MAIN.into_iter().flat_map(|store| {
        let of = move |count| ONE_AND_FOUR.map(|nodes| row(store, count, nodes));
        loads(facts, store).into_iter().flat_map(of)
    });
    table(&header, rows)
}

/// The part of the machine's processor time that the occurrences took: the rest was idle, or other programs'.
pub(super) fn efficiency(facts: &Facts, figures: &Figures, key: &str) -> Option<f64> {
    let cores = facts.machine["cores"].as_f64().filter(|cores| *cores > 0.0)?;
    let micros =
        figures.median(key, "client_us")? + figures.median(key, "server_us").unwrap_or(0.0);
    Some(figures.median(key, "per_s")? * micros / (cores * 1e6))
}

fn processor(facts: &Facts, figures: &Figures) -> String {
    let header = [
        "store",
        "due at once",
        "nodes",
        "per second",
        "client, µs",
        "server, µs",
        "raw, server, µs",
        "efficiency",
    ];
    let row = |store: &str, count: u64, nodes: u64| {
        let ours = worker_key(store, nodes, count);
        let raw = raw_key(store, nodes, facts.size);
        vec![
            name(store).to_owned(),
            number(count as f64),
            nodes.to_string(),
            or_dash(figures.median(&ours, "per_s"), rate),
            or_dash(figures.median(&ours, "client_us"), milliseconds),
            or_dash(figures.median(&ours, "server_us"), milliseconds),
            or_dash(figures.median(&raw, "server_us"), milliseconds),
            or_dash(efficiency(facts, figures, &ours), percent),
        ]
    };
    let rows = MAIN.into_iter().chain(OTHERS).flat_map(|store| {
        let of = move |count| ONE_AND_FOUR.map(|nodes| row(store, count, nodes));
        loads(facts, store).into_iter().flat_map(of)
    });
    table(&header, rows)
}

fn batches(figures: &Figures) -> String {
    let header = ["store", "batch", "one whole worker", "raw, 1 connection", "of raw"];
    let rows = MAIN.into_iter().flat_map(|store| {
        BATCHES.map(|(batch, count)| {
            let ours = format!("workers {store} 1 {count} {batch}");
            let raw = format!("raw {store} 1 {count} {batch}");
            vec![
                name(store).to_owned(),
                number(batch as f64),
                or_dash(figures.median(&ours, "per_s"), rate),
                or_dash(figures.median(&raw, "per_s"), rate),
                or_dash(figures.ratio((&ours, &raw), "per_s"), percent),
            ]
        })
    });
    table(&header, rows)
}

pub(super) fn late_key(facts: &Facts, store: &str) -> String {
    format!("late {store} {LATE_NODES} {}", facts.size.seconds_of_lateness())
}

pub(super) fn killed_key(store: &str) -> String {
    format!("killed {store} {KILLED_JOBS}")
}

fn lateness(facts: &Facts, figures: &Figures) -> String {
    let mut header = vec!["store".to_owned()];
    header.extend(LATE_SIZES.map(|size| format!("{} jobs: p50, p99", number(size as f64))));
    header.extend(["failed claims", "first node killed"].map(String::from));
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let rows = MAIN.into_iter().chain(OTHERS).map(|store| {
        let key = late_key(facts, store);
        let figure = |name: &str, size: u64| {
            or_dash(figures.median(&key, &format!("{name}_ms_{size}")), milliseconds)
        };
        let mut row = vec![name(store).to_owned()];
        let pair = |size| format!("{}, {}", figure("p50", size), figure("p99", size));
        row.extend(LATE_SIZES.map(pair));
        row.push(or_dash(figures.median(&key, FAILED_CLAIMS), few_percent));
        row.push(or_dash(figures.median(&killed_key(store), LATEST), milliseconds));
        row
    });
    table(&header, rows)
}

pub(super) fn stored_key(store: &str, stored: u64) -> String {
    format!("stored {store} {stored} {}", BURSTS[1])
}

/// The rate of one worker beside so many other schedules, as a part of the rate with none.
pub(super) fn part_of_the_rate(figures: &Figures, store: &str, stored: u64) -> Option<f64> {
    figures.ratio((&stored_key(store, stored), &stored_key(store, 0)), "per_s")
}

fn stored(facts: &Facts, figures: &Figures) -> String {
    let header = [
        "store",
        "other schedules",
        "added in calls of 5,000, per second",
        "one by one by 64 callers, per second",
        "one worker, 7,000 due at once",
        "of the rate with none",
        "from `add` to the run, p50, ms",
        "p99, ms",
    ];
    let mut sizes = facts.size.stored().to_vec();
    sizes.sort_unstable();
    let rows = MAIN.into_iter().flat_map(|store| {
        let row = |stored: &u64| {
            let key = stored_key(store, *stored);
            vec![
                name(store).to_owned(),
                number(*stored as f64),
                or_dash(figures.median(&key, "added_per_s"), rate),
                or_dash(figures.median(&key, ADDED_ONE_BY_ONE), rate),
                or_dash(figures.median(&key, "per_s"), rate),
                or_dash(part_of_the_rate(figures, store, *stored), percent),
                or_dash(figures.median(&key, "wake_p50_ms"), milliseconds),
                or_dash(figures.median(&key, "wake_p99_ms"), milliseconds),
            ]
        };
        sizes.iter().map(row).collect::<Vec<_>>()
    });
    table(&header, rows)
}

pub(super) fn lists_key(store: &str) -> String {
    format!("lists {store} {LISTED}")
}

fn lists(figures: &Figures) -> String {
    let header = [
        "store",
        "stored schedules",
        "added in calls of 5,000, per second",
        "page of 100, p50, ms",
        "slowest page, ms",
        "`sync`, nothing changed, s",
        "the same as a complete set, s",
    ];
    let rows = MAIN.into_iter().chain(OTHERS).map(|store| {
        let figure = |name| figures.median(&lists_key(store), name);
        vec![
            name(store).to_owned(),
            number(LISTED as f64),
            or_dash(figure("added_per_s"), rate),
            or_dash(figure(PAGE), multiple),
            or_dash(figure("page_most_ms"), milliseconds),
            or_dash(figure(SYNC[0]), multiple),
            or_dash(figure(SYNC[1]), multiple),
        ]
    });
    table(&header, rows)
}

pub(super) fn timer_key(facts: &Facts, scheduler: &str, load: &str, jobs: u64) -> String {
    format!("timers {scheduler} {load} {jobs} {}", facts.size.seconds_of_timers())
}

fn timers(facts: &Facts, figures: &Figures) -> String {
    let header = [
        "jobs",
        "due",
        "scheduler",
        "late p50, ms",
        "p99, ms",
        "CPU per firing, µs",
        "bytes per job",
    ];
    let rows = plan::timers(facts.size).into_iter().flat_map(|(load, jobs)| {
        SCHEDULERS.map(|scheduler| {
            let key = timer_key(facts, scheduler, load, jobs);
            let figure = |name: &str| figures.median(&key, name);
            let due = if load == "idle" { "once a year" } else { "every 4 s, at one instant" };
            vec![
                number(jobs as f64),
                due.to_owned(),
                scheduler.to_owned(),
                or_dash(figure("p50_ms"), milliseconds),
                or_dash(figure("p99_ms"), milliseconds),
                or_dash(figure("cpu_us"), milliseconds),
                or_dash(figure("bytes_per_job"), number),
            ]
        })
    });
    table(&header, rows)
}
