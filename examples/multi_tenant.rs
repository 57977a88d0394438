//! Ten thousand customers, each with a schedule of their own: `cargo run --release --example
//! multi_tenant`.
//!
//! They are added in one call, and run by three nodes. Their owners change, pause and delete them
//! while the nodes run. Afterwards every occurrence must have run exactly once.

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use allora::{
    BoxError, Memory, Result, Run, Scheduler, Schedules, StoredSchedule,
    stored::{Filter, Gap},
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

const CUSTOMERS: usize = 10_000;
const PERIOD: Duration = Duration::from_secs(10);

/// The observed runs: how often each occurrence ran, and how many ran on each node.
#[derive(Default)]
struct Seen {
    occurrences: HashMap<String, u32>,
    nodes: BTreeMap<String, u32>,
}

fn name(customer: usize) -> String {
    format!("customer/{customer:05}/report")
}

fn node(store: Memory, label: &str, seen: &Arc<Mutex<Seen>>) -> Result<Scheduler> {
    let seen = seen.clone();
    Scheduler::builder(store)
        .label(label)
        .concurrency(200)
        .kind("report", async move |run: Run| {
            let mut seen = seen.lock().expect("no run panics");
            *seen.occurrences.entry(run.occurrence_key()).or_default() += 1;
            *seen.nodes.entry(run.node()[..1].to_owned()).or_default() += 1;
        })
        .build()
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let store = Memory::new();
    let schedules = Schedules::new(store.clone())?;

    let began = Instant::now();
    // Each within the period at a time of its own, which follows from its name.
    let all: Vec<StoredSchedule> = (0..CUSTOMERS)
        .map(|customer| {
            let report = StoredSchedule::new(name(customer), "report", "@every 10s").jitter(PERIOD);
            report.data(&serde_json::json!({ "customer": customer }))
        })
        .collect();
    for added in schedules.add_all(&all).await? {
        added?;
    }
    println!("{CUSTOMERS} schedules added in {:.1?}", began.elapsed());

    let seen = Arc::new(Mutex::new(Seen::default()));
    let mut handles = Vec::new();
    let mut nodes = Vec::new();
    for label in ["a", "b", "c"] {
        let scheduler = node(store.clone(), label, &seen)?;
        handles.push(scheduler.handle());
        nodes.push(tokio::spawn(scheduler.run()));
    }

    tokio::time::sleep(PERIOD / 2).await;
    // One customer wants another time, one pauses, one leaves.
    let twice = StoredSchedule::of(&schedules.get(&name(1)).await?)?.schedule("@every 5s");
    schedules.modify(&twice.jitter(Duration::ZERO)).await?;
    schedules.pause(&name(2), "on holiday").await?;
    schedules.delete(&name(3)).await?;
    for _ in 0..3 {
        tokio::time::sleep(PERIOD / 2).await;
        let runs = seen.lock().expect("no run panics").occurrences.len();
        println!("{:>5.1?} {runs} occurrences", began.elapsed());
    }
    schedules.resume(&name(2), Gap::Missed).await?;
    handles.iter().for_each(allora::Handle::stop);
    for node in nodes {
        node.await?;
    }

    let first = schedules.list_by_due(Filter::default().prefix("customer/"), 3).await?;
    for state in first {
        let due = state.due_at.map_or("no time".to_owned(), |at| at.format("%T%.3f").to_string());
        println!("next: {} at {due}", state.name);
    }
    let seen = seen.lock().expect("no run panics");
    println!("by node: {:?}", seen.nodes);
    let twice = seen.occurrences.values().filter(|times| **times != 1).count();
    println!("{} occurrences, {twice} of them not exactly once", seen.occurrences.len());
    assert!(twice == 0 && seen.occurrences.len() > CUSTOMERS / 2);
    Ok(())
}
