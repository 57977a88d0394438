//! The tables: rivals of one row are measured in turn, several times over; shown are the medians.

use crate::raw::{Raw, info};
use allora_benches::node::{Delivery, KIND, Node, Tally, now};
use allora_core::{
    Backend,
    backend::{Act, NewSchedule, Plan, Reschedule},
};
use allora_redis::Redis;
use futures::future::join_all;
use std::time::{Duration, Instant, SystemTime};

const PART: Duration = Duration::from_millis(300);
const TIMES: usize = 5;

/// Moves per second, of nodes with a batch of their own each.
pub(crate) async fn rates(url: &str) {
    println!("\nJobs in code, moves per second\n");
    println!(
        "| batch | nodes | raw | take, at most once | of raw | take + finish, at least once | of \
         half the raw |\n|---|---|---|---|---|---|---|"
    );
    for batch in [1, 100, 1_000] {
        for nodes in [1, 4] {
            row(url, batch, nodes).await;
        }
    }
}

async fn row(url: &str, batch: usize, count: usize) {
    let mut raws = Vec::new();
    let mut nodes = Vec::new();
    for n in 0..count {
        let id = format!("{batch}-{count}-{n}");
        raws.push(Raw::new(url, &id, batch).await);
        let names: Vec<String> = (0..batch).map(|i| format!("{id}-{i}")).collect();
        register(url, &names).await;
        nodes.push(Node::new(open(url).await, &id, &names).await);
    }
    let (mut raw, mut take, mut both) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TIMES {
        raw.push(join_all(raws.iter_mut().map(|raw| raw.work(PART))).await.iter().sum::<f64>());
        let once = join_all(nodes.iter_mut().map(|node| node.work(Delivery::AtMostOnce, PART)));
        take.push(once.await.iter().map(Tally::takes).sum::<f64>());
        let least = join_all(nodes.iter_mut().map(|node| node.work(Delivery::AtLeastOnce, PART)));
        both.push(least.await.iter().map(Tally::both).sum::<f64>());
    }
    let (raw, take, both) = (median(raw), median(take), median(both));
    println!(
        "| {batch} | {count} | {} | {} | {:.0} % | {} | {:.0} % |",
        short(raw),
        short(take),
        100.0 * take / raw,
        short(both),
        200.0 * both / raw,
    );
}

/// Jobs in code whose schedules began long ago.
async fn register(url: &str, names: &[String]) {
    let first = Some(SystemTime::now().into()).map(|now: allora_core::Time| {
        allora_core::backend::Next::from(allora_core::time::whole_millis(
            now - chrono::TimeDelta::days(3_650),
        ))
    });
    let act = || Act::Register { definition: "every 1s", version: 0, first };
    let plans: Vec<Plan<'_>> = names.iter().map(|name| Plan::new(name, act())).collect();
    open(url).await.reschedule(Reschedule::new("prepares", now(), &plans)).await.unwrap();
}

/// What stored schedules cost: to add, to keep, and to find among many that are not due.
pub(crate) async fn stored(url: &str) {
    println!("\nStored schedules: 100 of them due all the time, the others next year\n");
    println!(
        "| stored | added per second | bytes each | find + take + finish, batch 100 |\n\
         |---|---|---|---|"
    );
    let store = open(url).await;
    let ago = |days| {
        let then: allora_core::Time = SystemTime::now().into();
        allora_core::time::whole_millis(then - chrono::TimeDelta::days(days))
    };
    let mut there = 0;
    let empty = info(url, "memory", "used_memory").await;
    for count in [100, 10_000, 100_000, 1_000_000] {
        let begun = Instant::now();
        let adding = count - there;
        while there < count {
            let names: Vec<String> =
                (there..count.min(there + 1_000)).map(|i| format!("stored-{i}")).collect();
            let first = if there < 100 { ago(3_650) } else { ago(-365) };
            let new = names.iter().map(|name| {
                NewSchedule::new(name, KIND, "every 1s", Some(first.into())).data(b"{\"to\":\"a\"}")
            });
            let new: Vec<NewSchedule<'_>> = new.collect();
            store.schedules().unwrap().add(&new, now()).await.unwrap();
            there += names.len();
        }
        let rate = adding as f64 / begun.elapsed().as_secs_f64();
        let bytes = (info(url, "memory", "used_memory").await - empty) / count as f64;
        let mut node = Node::new(open(url).await, "finds", &[]).await;
        let mut whole = Vec::new();
        for _ in 0..TIMES {
            whole.push(node.work_on_found(100, PART).await.0.both());
        }
        println!("| {count} | {} | {bytes:.0} | {} |", short(rate), short(median(whole)));
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// As `12.3 k`.
fn short(value: f64) -> String {
    match value {
        1_000_000.0.. => format!("{:.2} M", value / 1e6),
        100_000.0.. => format!("{:.0} k", value / 1e3),
        1_000.0.. => format!("{:.1} k", value / 1e3),
        _ => format!("{value:.0}"),
    }
}

async fn open(url: &str) -> Redis {
    Redis::builder().prefix(crate::raw::PREFIX).connect(url).await.unwrap()
}
