//! The tables: rivals of one row are measured in turn, several times over; shown are the medians.

use crate::raw::{PREFIX, Raw, Table, clear, info};
use allora_benches::{
    fleet::{self, Backlog, Due, MINUTE},
    node::{Delivery, Node, Tally, create, register},
    report::{median, percent, rate},
    server::redis::commands,
};
use allora_core::Backend;
use allora_redis::Redis;
use allora_redis_quorum::RedisQuorum;
use futures::future::join_all;
use std::time::{Duration, Instant, SystemTime};

const BATCHES: [usize; 3] = [1, 100, 1_000];
const NODES: usize = 4;
const PART: Duration = Duration::from_millis(300);
const TIMES: usize = 5;

/// Moves per second, of nodes with a batch of their own each.
pub(crate) async fn rates(url: &str) {
    println!("\nJobs in code, moves per second\n");
    println!(
        "| batch | nodes | raw, one hash | raw, same keys | take, at most once | of raw | \
         take + finish, at least once | of half the raw |\n|---|---|---|---|---|---|---|---|"
    );
    for batch in BATCHES {
        for nodes in [1, NODES] {
            row(url, batch, nodes).await;
        }
    }
    clear(url).await;
}

async fn row(url: &str, batch: usize, count: usize) {
    let (mut hashes, mut raws, mut nodes) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..count {
        let id = format!("{batch}-{count}-{n}");
        hashes.push(Raw::new(url, &id, batch, Table::OneHash).await);
        raws.push(Raw::new(url, &id, batch, Table::Keys).await);
        let names: Vec<String> = (0..batch).map(|i| format!("{id}-{i}")).collect();
        let store = open(url).await;
        register(&store, &names).await;
        nodes.push(Node::new(store, &id, &names).await);
    }
    let mut rounds = Vec::new();
    for _ in 0..TIMES {
        let hash = limit(&mut hashes).await;
        let raw = limit(&mut raws).await;
        let take = work(&mut nodes, Delivery::AtMostOnce, Tally::claims).await;
        let both = work(&mut nodes, Delivery::AtLeastOnce, Tally::both).await;
        rounds.push([hash, raw, take, take / raw, both, both * 2.0 / raw]);
    }
    let [hash, raw, take, take_of, both, both_of] =
        std::array::from_fn(|i| median(rounds.iter().map(|round| round[i])));
    println!(
        "| {batch} | {count} | {} | {} | {} | {} | {} | {} |",
        rate(hash),
        rate(raw),
        rate(take),
        percent(take_of),
        rate(both),
        percent(both_of),
    );
}

async fn limit(raws: &mut [Raw]) -> f64 {
    join_all(raws.iter_mut().map(|raw| raw.work(PART))).await.iter().sum()
}

/// The cost of stored schedules: to add, to keep, and to find among many that are not due.
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
            create(&store, &names, first, b"{\"to\":\"a\"}").await;
            there += names.len();
        }
        let added = adding as f64 / begun.elapsed().as_secs_f64();
        let bytes = (info(url, "memory", "used_memory").await - empty) / count as f64;
        let mut node = Node::new(open(url).await, "finds", &[]).await;
        let mut whole = Vec::new();
        for _ in 0..TIMES {
            whole.push(node.work_on_found(100, PART).await.0.both());
        }
        println!("| {count} | {} | {bytes:.0} | {} |", rate(added), rate(median(whole)));
    }
}

/// Commands per occurrence, and of a scheduler that has nothing to do.
pub(crate) async fn counts(url: &str) {
    println!("\n| batch | delivery | scripts called per occurrence | commands with theirs |");
    println!("|---|---|---|---|");
    for batch in BATCHES {
        let names: Vec<String> = (0..batch).map(|i| format!("count-{batch}-{i}")).collect();
        register(&open(url).await, &names).await;
        let mut node = Node::new(open(url).await, "one", &names).await;
        for (delivery, word) in
            [(Delivery::AtMostOnce, "at most once"), (Delivery::AtLeastOnce, "at least once")]
        {
            let (before, mut tally) = (commands(url).await, Tally::default());
            for _ in 0..20 {
                node.round(delivery, &mut tally).await;
            }
            let after = commands(url).await;
            let of = |before, after| (after - before) / tally.claimed as f64;
            println!(
                "| {batch} | {word} | {:.4} | {:.2} |",
                of(before.0, after.0),
                of(before.1, after.1)
            );
        }
    }
    clear(url).await;
    let count = async |minute: tokio::time::Sleep| {
        let before = commands(url).await.1;
        minute.await;
        commands(url).await.1 - before
    };
    let idle = fleet::idle(open(url).await, MINUTE, count).await;
    println!(
        "\nAn idle scheduler has {idle:.0} commands carried out a minute, those of scripts included."
    );
    clear(url).await;
}

/// Whole schedulers that run what waits, at least once.
pub(crate) async fn backlog(url: &str) {
    println!("\n| whole workers | 1 | {NODES} |\n|---|---|---|");
    for backlog in Backlog::ALL {
        let mut ours = Vec::new();
        for nodes in [1, NODES] {
            clear(url).await;
            let stores = join_all((0..nodes).map(|_| open(url))).await;
            ours.push(rate(fleet::backlog(open(url).await, stores, backlog).await));
        }
        println!("| allora, {backlog} | {} |", ours.join(" | "));
    }
    clear(url).await;
}

/// The lateness of the runs of many jobs.
pub(crate) async fn late(url: &str) {
    for (nodes, due) in [(1, Due::Spread), (3, Due::Spread), (1, Due::AtOnce), (3, Due::AtOnce)] {
        fleet::late(join_all((0..nodes).map(|_| open(url))).await, due).await;
        clear(url).await;
    }
}

/// A quorum of independent servers.
pub(crate) async fn quorum(urls: &[&str]) {
    for url in urls {
        clear(url).await;
    }
    let open = || async {
        let builder = RedisQuorum::builder().prefix(PREFIX);
        builder.connect(urls).await.unwrap()
    };
    open().await.init().await.unwrap();
    println!("\nA quorum of {}, moves per second\n", urls.len());
    println!("| batch | nodes | take, at most once | take + finish, at least once |");
    println!("|---|---|---|---|");
    for batch in BATCHES {
        for count in [1, NODES] {
            let mut nodes = Vec::new();
            for n in 0..count {
                let id = format!("{batch}-{count}-{n}");
                let names: Vec<String> = (0..batch).map(|i| format!("{id}-{i}")).collect();
                let store = open().await;
                register(&store, &names).await;
                nodes.push(Node::new(store, &id, &names).await);
            }
            let (mut takes, mut both) = (Vec::new(), Vec::new());
            for _ in 0..TIMES {
                takes.push(work(&mut nodes, Delivery::AtMostOnce, Tally::claims).await);
                both.push(work(&mut nodes, Delivery::AtLeastOnce, Tally::both).await);
            }
            println!("| {batch} | {count} | {} | {} |", rate(median(takes)), rate(median(both)));
        }
    }
    for url in urls {
        clear(url).await;
    }
}

/// All nodes at once: the sum of what is counted.
async fn work<B: Backend>(nodes: &mut [Node<B>], how: Delivery, of: fn(&Tally) -> f64) -> f64 {
    join_all(nodes.iter_mut().map(|node| node.work(how, PART))).await.iter().map(of).sum()
}

async fn open(url: &str) -> Redis {
    Redis::builder().prefix(PREFIX).history(0).connect(url).await.unwrap()
}
