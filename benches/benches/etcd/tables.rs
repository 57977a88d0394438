//! The tables that are printed.

use crate::raw::{clear, limit, requests};
use allora_benches::node::{Delivery, KIND, Node, Tally, now};
use allora_core::{
    Backend, Run, Scheduler, Time,
    backend::{Act, NewSchedule, Plan, Reschedule},
    every,
};
use allora_etcd::Etcd;
use std::{
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

const BATCHES: [usize; 3] = [1, 100, 1_000];
const NODES: usize = 4;
/// All rivals of a row in turn, so often: the medians are shown.
const ROUNDS: usize = 5;
const LASTS: Duration = Duration::from_millis(400);
/// What is due is found in batches of so many.
const FOUND: usize = 100;

fn name(letter: char, i: usize) -> String {
    format!("{letter}{i:07}")
}

/// Jobs in code that have been due for a day.
async fn prepare(urls: &[String], jobs: usize) {
    let first: Time = SystemTime::now().into();
    let first = Some((first - chrono::TimeDelta::days(1)).into());
    let names: Vec<String> = (0..jobs).map(|i| name('c', i)).collect();
    let act = || Act::Register { definition: "every 1s", version: 0, first };
    let plans: Vec<Plan<'_>> = names.iter().map(|name| Plan::new(name, act())).collect();
    open(urls).await.reschedule(Reschedule::new("prepare", now(), &plans)).await.unwrap();
}

async fn load(urls: &[String], nodes: usize, batch: usize, delivery: Delivery) -> Vec<Tally> {
    let one = async |node: usize| {
        let names: Vec<String> = (node * batch..(node + 1) * batch).map(|i| name('c', i)).collect();
        let mut node = Node::new(open(urls).await, &format!("node-{node}"), &names).await;
        node.round(delivery, &mut Tally::default()).await;
        node.work(delivery, LASTS).await
    };
    futures::future::join_all((0..nodes).map(one)).await
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
                let takes: f64 = takes.iter().map(Tally::takes).sum();
                let both: f64 = both.iter().map(Tally::both).sum();
                rounds.push([raw, takes, takes / raw, both, both * 2.0 / raw]);
            }
            let [raw, takes, takes_of, both, both_of] =
                std::array::from_fn(|i| median(rounds.iter().map(|round| round[i])));
            println!(
                "| {batch} | {nodes} | {raw:.0} | {takes:.0} | {:.0} % | {both:.0} | {:.0} % |",
                takes_of * 100.0,
                both_of * 100.0,
            );
        }
    }
    clear(urls).await;
}

/// The same work with more and more schedules in the store.
pub(crate) async fn stored(urls: &[String]) {
    println!("\n{FOUND} of the stored schedules are due: found, taken and finished\n");
    println!("| stored | added per second | found per second | find + take + finish |");
    println!("|---|---|---|---|");
    for stored in [100, 10_000, 100_000] {
        let begun = std::time::Instant::now();
        let now_at: Time = SystemTime::now().into();
        let store = open(urls).await;
        let names: Vec<String> = (0..stored).map(|i| name('s', i)).collect();
        let add = async |names: &[String], first: Time| {
            let new = |name| NewSchedule::new(name, KIND, "every 1s", Some(first.into()));
            let new: Vec<NewSchedule<'_>> = names.iter().map(|name| new(name)).collect();
            for new in new.chunks(5_000) {
                let added = store.schedules().unwrap().add(new, now()).await.unwrap();
                assert!(added.iter().all(Result::is_ok));
            }
        };
        // A day behind, these stay due however often they are taken; the others never are.
        add(&names[..FOUND], now_at - chrono::TimeDelta::days(1)).await;
        add(&names[FOUND..], now_at + chrono::TimeDelta::days(1)).await;
        let added = stored as f64 / begun.elapsed().as_secs_f64();
        let mut node = Node::new(open(urls).await, "one", &[]).await;
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let (tally, finds) = node.work_on_found(FOUND, LASTS).await;
            rounds.push([finds, tally.both()]);
        }
        let [finds, both] = std::array::from_fn(|i| median(rounds.iter().map(|round| round[i])));
        println!("| {stored} | {added:.0} | {finds:.0} | {both:.0} |");
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
            figures.push((requests(urls) - before) / tally.won as f64);
        }
        println!("| {batch} | {:.3} | {:.3} |", figures[0], figures[1]);
    }
    clear(urls).await;
    let scheduler = Scheduler::builder(open(urls).await)
        .job("daily", every(Duration::from_secs(86_400)), async |_: Run| {})
        .build()
        .unwrap();
    let handle = scheduler.handle();
    let idle = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let before = requests(urls);
        tokio::time::sleep(Duration::from_secs(30)).await;
        let idle = (requests(urls) - before) * 2.0;
        handle.stop();
        idle
    };
    let (_, idle) = futures::join!(scheduler.run(), idle);
    println!("\nAn idle scheduler sends {idle:.0} requests a minute.");
    clear(urls).await;
}

/// How late the runs of 1 000 jobs begin that are due in the same second.
pub(crate) async fn late(urls: &[String]) {
    const JOBS: usize = 1_000;
    let lates: Arc<Mutex<Vec<f64>>> = Arc::default();
    let mut builder = Scheduler::builder(open(urls).await);
    for i in 0..JOBS {
        let lates = lates.clone();
        let spread = Duration::from_millis(i as u64);
        let job = allora_core::job(every(Duration::from_secs(2)), async move |run: Run| {
            let now: Time = SystemTime::now().into();
            let late = now - run.scheduled_at() - chrono::TimeDelta::from_std(spread).unwrap();
            lates.lock().unwrap().push(late.as_seconds_f64() * 1_000.0);
        });
        builder = builder.add(name('l', i), job.delay(spread));
    }
    let scheduler = builder.build().unwrap();
    let handle = scheduler.handle();
    let stop = async {
        tokio::time::sleep(Duration::from_secs(12)).await;
        handle.stop();
    };
    futures::join!(scheduler.run(), stop);
    let mut lates = std::mem::take(&mut *lates.lock().unwrap());
    lates.sort_by(f64::total_cmp);
    let at = |part: f64| lates[((lates.len() - 1) as f64 * part) as usize];
    println!(
        "\n{} runs, {JOBS} jobs over each second: late by {:.1} ms (p50), {:.1} ms (p99).",
        lates.len(),
        at(0.5),
        at(0.99)
    );
    clear(urls).await;
}

fn median(all: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = all.collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

async fn open(urls: &[String]) -> Etcd {
    let builder = Etcd::builder().prefix(crate::raw::PREFIX).timeout(Duration::from_secs(10));
    builder.connect(urls.to_vec()).await.unwrap()
}
