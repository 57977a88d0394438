//! The tables that are printed.

use crate::raw::{Raw, Table, name};
use allora_benches::{
    fleet::{self, Backlog, Due, MINUTE},
    node::{Delivery, KIND, Node, Tally, now},
    report::{median, percent, rate},
    server::statements,
};
use allora_core::{
    Backend, Time,
    backend::{Action, Batch, NewSchedule, Operation},
};
use allora_sql::Sql;
use futures::future::join_all;
use std::time::{Duration, SystemTime};
use tokio::task::JoinSet;

const BATCHES: [usize; 3] = [1, 100, 1_000];
const NODES: usize = 4;
/// All rivals of a row in turn, so often: the medians are shown, also of the parts.
const ROUNDS: usize = 7;
const LASTS: Duration = Duration::from_millis(200);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The size of the batches in which due schedules are found.
const FOUND: usize = 100;

/// The distribution of the jobs among several nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Share {
    Own,
    Same,
}

/// Takes, and takes with their finishes, beside the raw limit.
pub(crate) async fn rates(raw: &Raw, url: &str) {
    println!("\nJobs in code; moves per second, and what part of the raw limit that is\n");
    println!(
        "| batch | nodes | raw, 3 columns | raw, all columns | take, at most once | of raw | \
         take + finish, at least once | of half the raw |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    prepare_in_code(raw, url, NODES * BATCHES[2]).await;
    for batch in BATCHES {
        for (nodes, share) in [(1, Share::Own), (NODES, Share::Own), (NODES, Share::Same)] {
            let batches: Vec<Vec<String>> = (0..nodes)
                .map(|node| if share == Share::Same { 0 } else { node * batch })
                .map(|first| (first..first + batch).map(|i| name('c', i)).collect())
                .collect();
            // Nobody wins twice, so that the limit of one batch on several nodes is that of one.
            let limited = if share == Share::Same { &batches[..1] } else { &batches[..] };
            let mut rounds = Vec::new();
            for _ in 0..ROUNDS {
                let narrow = raw.limit(Table::Narrow, limited, LASTS).await;
                let wide = raw.limit(Table::Wide, limited, LASTS).await;
                let takes = load(url, &batches, Delivery::AtMostOnce).await;
                let both = load(url, &batches, Delivery::AtLeastOnce).await;
                let takes: f64 = takes.iter().map(Tally::claims).sum();
                let both: f64 = both.iter().map(Tally::both).sum();
                rounds.push([narrow, wide, takes, takes / wide, both, both * 2.0 / wide]);
            }
            let [narrow, wide, takes, takes_of, both, both_of] =
                std::array::from_fn(|i| median(rounds.iter().map(|round| round[i])));
            println!(
                "| {batch} | {nodes}{} | {} | {} | {} | {} | {} | {} |",
                if share == Share::Same { ", same jobs" } else { "" },
                rate(narrow),
                rate(wide),
                rate(takes),
                percent(takes_of),
                rate(both),
                percent(both_of),
            );
        }
    }
    raw.clear().await;
}

/// The same work with more and more schedules in the store.
pub(crate) async fn stored(raw: &Raw, url: &str) {
    println!(
        "\n{FOUND} of the stored schedules are due: found, taken and finished, at least once\n"
    );
    println!(
        "| stored | raw, all columns | found per second | take + finish | find + take + finish |"
    );
    println!("|---|---|---|---|---|");
    let most = if matches!(raw, Raw::Postgres(_)) { 1_000_000 } else { 100_000 };
    for stored in [100, 10_000, 100_000, 1_000_000].into_iter().filter(|n| *n <= most) {
        prepare_stored(raw, url, stored).await;
        let names: Vec<String> = (0..FOUND).map(|i| name('h', i)).collect();
        let mut node = Node::new(open(url).await, "one", &names).await;
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let limit = raw.limit(Table::Indexed, std::slice::from_ref(&names), LASTS).await;
            let (found, finds) = node.work_on_found(FOUND, LASTS).await;
            let known = node.work(Delivery::AtLeastOnce, LASTS).await;
            rounds.push([limit, finds, known.both(), found.both()]);
        }
        let [limit, finds, known, found] =
            std::array::from_fn(|i| median(rounds.iter().map(|round| round[i])));
        println!(
            "| {stored} | {} | {} | {} | {} |",
            rate(limit),
            rate(finds),
            rate(known),
            rate(found)
        );
        raw.clear().await;
    }
}

/// Statements per occurrence, and of a scheduler that has nothing to do.
pub(crate) async fn counts(raw: &Raw, url: &str) {
    println!("\n| batch | statements per occurrence, at most once | at least once |");
    println!("|---|---|---|");
    prepare_in_code(raw, url, BATCHES[2]).await;
    for batch in BATCHES {
        let names: Vec<String> = (0..batch).map(|i| name('c', i)).collect();
        let mut node = Node::new(open(url).await, "one", &names).await;
        let mut figures = Vec::new();
        for delivery in [Delivery::AtMostOnce, Delivery::AtLeastOnce] {
            let mut tally = Tally::default();
            let statements = statements::of(async {
                for _ in 0..10 {
                    node.round(delivery, &mut tally).await;
                }
            });
            let statements = statements.await;
            figures.push(format!("{:.4}", statements as f64 / tally.claimed as f64));
        }
        println!("| {batch} | {} | {} |", figures[0], figures[1]);
    }
    let idle =
        fleet::idle(open(url).await, MINUTE, async |minute| statements::of(minute).await as f64)
            .await;
    println!("\nAn idle scheduler sends {idle:.0} statements a minute.");
    raw.clear().await;
}

/// Whole schedulers that run what waits, at least once.
pub(crate) async fn backlog(raw: &Raw, url: &str) {
    println!("\n| whole workers | 1 | {NODES} |\n|---|---|---|");
    for backlog in Backlog::ALL {
        let mut ours = Vec::new();
        for nodes in [1, NODES] {
            raw.clear().await;
            let stores = join_all((0..nodes).map(|_| open(url))).await;
            ours.push(rate(fleet::backlog(open(url).await, stores, backlog).await));
        }
        println!("| allora, {backlog} | {} |", ours.join(" | "));
    }
    raw.clear().await;
}

/// The lateness of the runs of many jobs.
pub(crate) async fn late(raw: &Raw, url: &str) {
    for due in [Due::Spread, Due::AtOnce] {
        raw.clear().await;
        fleet::late(join_all((0..3).map(|_| open(url))).await, due).await;
    }
    raw.clear().await;
}

/// Each node takes and finishes its batch, all at once.
async fn load(url: &str, batches: &[Vec<String>], delivery: Delivery) -> Vec<Tally> {
    let mut nodes = JoinSet::new();
    for (i, names) in batches.iter().enumerate() {
        let mut node = Node::new(open(url).await, &format!("node-{i}"), names).await;
        // Its statements are prepared before.
        node.round(delivery, &mut Tally::default()).await;
        nodes.spawn(async move { node.work(delivery, LASTS).await });
    }
    nodes.join_all().await
}

/// So many jobs as code registers them, all overdue.
async fn prepare_in_code(raw: &Raw, url: &str, jobs: usize) {
    raw.clear().await;
    let sql = open(url).await;
    let register =
        Action::Register { definition: "every second", version: 1, first: Some(long_ago().into()) };
    apply(&sql, Operation::new("model", register)).await;
    raw.multiply("model", 'c', jobs).await;
    raw.copy_jobs().await;
}

/// So many stored schedules; the first of them are overdue, the others are for next year.
async fn prepare_stored(raw: &Raw, url: &str, stored: usize) {
    raw.clear().await;
    let sql = open(url).await;
    let next_year: Time = (SystemTime::now() + 365 * DAY).into();
    for (model, first) in [("due", long_ago()), ("later", whole(next_year))] {
        let new = NewSchedule::new(KIND, "every second", Some(first.into()));
        apply(&sql, Operation::new(model, Action::Create(new))).await;
    }
    raw.multiply("due", 'h', FOUND).await;
    raw.multiply("later", 'l', stored - FOUND).await;
    apply(&sql, Operation::new("due", Action::Delete)).await;
    raw.copy_jobs().await;
}

async fn apply(sql: &Sql, operation: Operation<'_>) {
    sql.reschedule(Batch::new("preparation", now(), &[operation])).await.unwrap().single().unwrap();
}

/// More seconds ago than any job is taken here.
fn long_ago() -> Time {
    whole((SystemTime::now() - 400 * DAY).into())
}

/// The full second.
fn whole(at: Time) -> Time {
    let into = at.timestamp_subsec_nanos();
    at - Duration::from_nanos(into.into())
}

async fn open(url: &str) -> Sql {
    Sql::builder().prefix(crate::raw::PREFIX).history(0).connect(url).await.unwrap()
}
