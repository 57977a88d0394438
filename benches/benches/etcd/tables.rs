//! The tables that are printed.

use crate::raw::{self, clear, limit};
use allora_benches::{
    fleet::{self, Backlog, Due, MINUTE},
    node::{Delivery, Node, Tally, create, register},
    report::{self, median, percent, rate},
    server::etcd::requests,
};
use allora_core::{Backend, Time, backend::Page};
use allora_etcd::Etcd;
use futures::future::join_all;
use std::time::{Duration, SystemTime};

const BATCHES: [usize; 3] = [1, 100, 1_000];
const NODES: usize = 4;
/// All rivals of a row in turn, so often: the medians are shown.
const ROUNDS: usize = 5;
const LASTS: Duration = Duration::from_millis(400);
/// The size of the batches in which due schedules are found.
const FOUND: usize = 100;

fn name(letter: char, i: usize) -> String {
    format!("{letter}{i:07}")
}

async fn prepare(urls: &[String], jobs: usize) {
    let names: Vec<String> = (0..jobs).map(|i| name('c', i)).collect();
    register(&open(urls).await, &names).await;
}

async fn load(urls: &[String], nodes: usize, batch: usize, delivery: Delivery) -> Vec<Tally> {
    let one = async |node: usize| {
        let names: Vec<String> = (node * batch..(node + 1) * batch).map(|i| name('c', i)).collect();
        let mut node = Node::new(open(urls).await, &format!("node-{node}"), &names).await;
        node.round(delivery, &mut Tally::default()).await;
        node.work(delivery, LASTS).await
    };
    join_all((0..nodes).map(one)).await
}

/// Takes, and takes with their finishes, beside the raw limit.
pub(crate) async fn rates(urls: &[String]) {
    println!("\nJobs in code; moves per second, and what part of the raw limit that is\n");
    println!(
        "| batch | nodes | raw | take, at most once | of raw | take + finish, at least once | of \
         half the raw |"
    );
    println!("|---|---|---|---|---|---|---|");
    prepare(urls, NODES * BATCHES[2]).await;
    for batch in BATCHES {
        for nodes in [1, NODES] {
            let mut rounds = Vec::new();
            for _ in 0..ROUNDS {
                let raw = limit(urls, nodes, batch, LASTS).await;
                let takes = load(urls, nodes, batch, Delivery::AtMostOnce).await;
                let both = load(urls, nodes, batch, Delivery::AtLeastOnce).await;
                let takes: f64 = takes.iter().map(Tally::claims).sum();
                let both: f64 = both.iter().map(Tally::both).sum();
                rounds.push([raw, takes, takes / raw, both, both * 2.0 / raw]);
            }
            let [raw, takes, takes_of, both, both_of] =
                std::array::from_fn(|i| median(rounds.iter().map(|round| round[i])));
            println!(
                "| {batch} | {nodes} | {} | {} | {} | {} | {} |",
                rate(raw),
                rate(takes),
                percent(takes_of),
                rate(both),
                percent(both_of),
            );
        }
    }
    clear(urls).await;
}

/// The same work with more and more schedules in the store.
pub(crate) async fn stored(urls: &[String]) {
    println!("\n{FOUND} of the stored schedules are due: found, taken and finished\n");
    println!(
        "| stored | added per second | found per second | find + take + finish | a page of \
         {FOUND}, ms |"
    );
    println!("|---|---|---|---|---|");
    for stored in [100, 10_000, 100_000] {
        let begun = std::time::Instant::now();
        let now_at: Time = SystemTime::now().into();
        let store = open(urls).await;
        let names: Vec<String> = (0..stored).map(|i| name('s', i)).collect();
        // A day behind, these stay due however often they are claimed; the others never are.
        create(&store, &names[..FOUND], now_at - chrono::TimeDelta::days(1), &[]).await;
        create(&store, &names[FOUND..], now_at + chrono::TimeDelta::days(1), &[]).await;
        let added = stored as f64 / begun.elapsed().as_secs_f64();
        let mut node = Node::new(open(urls).await, "one", &[]).await;
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let (tally, finds) = node.work_on_found(FOUND, LASTS).await;
            rounds.push([finds, tally.both()]);
        }
        let [finds, both] = std::array::from_fn(|i| median(rounds.iter().map(|round| round[i])));
        let mut pages = Vec::new();
        for _ in 0..ROUNDS {
            let begun = std::time::Instant::now();
            let page = Page::first(FOUND).after(&names[0]);
            let listed = store.queries().unwrap().list(page).await.unwrap().len();
            assert_eq!(listed, FOUND.min(stored - 1));
            pages.push(begun.elapsed().as_secs_f64() * 1_000.0);
        }
        let (added, finds, both) = (rate(added), rate(finds), rate(both));
        println!("| {stored} | {added} | {finds} | {both} | {:.1} |", median(pages));
        clear(urls).await;
    }
}

/// Requests per occurrence, and of a scheduler that has nothing to do.
pub(crate) async fn counts(urls: &[String]) {
    println!("\n| batch | requests per occurrence, at most once | at least once |");
    println!("|---|---|---|");
    prepare(urls, BATCHES[2]).await;
    for batch in BATCHES {
        let names: Vec<String> = (0..batch).map(|i| name('c', i)).collect();
        let mut node = Node::new(open(urls).await, "one", &names).await;
        let mut figures = Vec::new();
        for delivery in [Delivery::AtMostOnce, Delivery::AtLeastOnce] {
            let mut tally = Tally::default();
            node.round(delivery, &mut tally).await;
            let (before, mut tally) = (requests(urls), Tally::default());
            for _ in 0..20 {
                node.round(delivery, &mut tally).await;
            }
            figures.push((requests(urls) - before) / tally.claimed as f64);
        }
        println!("| {batch} | {:.3} | {:.3} |", figures[0], figures[1]);
    }
    clear(urls).await;
    let count = async |minute: tokio::time::Sleep| {
        let before = requests(urls);
        minute.await;
        requests(urls) - before
    };
    let idle = fleet::idle(open(urls).await, MINUTE, count).await;
    println!("\nAn idle scheduler sends {idle:.0} requests a minute.");
    clear(urls).await;
}

/// Whole schedulers that run what waits, at least once.
pub(crate) async fn backlog(urls: &[String]) {
    println!("\n| whole workers | 1 | {NODES} |\n|---|---|---|");
    for backlog in Backlog::ALL {
        let mut ours = Vec::new();
        for nodes in [1, NODES] {
            clear(urls).await;
            let stores = join_all((0..nodes).map(|_| open(urls))).await;
            ours.push(rate(fleet::backlog(open(urls).await, stores, backlog).await));
        }
        println!("| allora, {backlog} | {} |", ours.join(" | "));
    }
    clear(urls).await;
}

/// The lateness of the runs of many jobs.
pub(crate) async fn late(urls: &[String]) {
    for (nodes, due) in [(1, Due::Spread), (3, Due::Spread), (3, Due::AtOnce)] {
        fleet::late(join_all((0..nodes).map(|_| open(urls))).await, due).await;
        clear(urls).await;
        let raw = raw::late(urls, nodes, due).await;
        let [p50, p99, most] =
            [0.5, 0.99, 1.0 - 1e-9].map(|part| report::at(raw.iter().copied(), part));
        println!("One raw transaction: answered after {p50:.1} ms, {p99:.1} ms, {most:.1} ms.");
        clear(urls).await;
    }
}

async fn open(urls: &[String]) -> Etcd {
    let builder =
        Etcd::builder().prefix(crate::raw::PREFIX).history(0).timeout(Duration::from_secs(10));
    builder.connect(urls.to_vec()).await.unwrap()
}
