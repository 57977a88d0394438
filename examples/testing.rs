//! Tests of a schedule without waiting: `cargo run --example testing`, or see the test below.
//!
//! `Sim` is a runtime with virtual time: a week of a few jobs passes in less than a second, and the
//! same seed gives the same week again.

use allora::{
    CatchUp, Memory, Result, Run, Runtime, Scheduler, Time, cron, job,
    runtime::{Sim, SimNode},
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// The service under test: weekly invoices, on Monday morning in Rome.
fn invoices(store: &Memory, node: &SimNode, sent: &Arc<Mutex<Vec<Time>>>) -> Result<Scheduler> {
    let sent = sent.clone();
    let send = async move |run: Run| {
        sent.lock().expect("no run panics").push(run.scheduled_at());
    };
    let monday = cron("0 6 * * MON Europe/Rome")?;
    Scheduler::builder(store.clone())
        .runtime(node.clone())
        .add("invoices", job(monday, send).catch_up(CatchUp::Latest))
        .build()
}

/// Invoices go out on Monday although every machine was down at six o'clock.
fn a_night_without_machines_delays_the_invoices(seed: u64) -> Result {
    let sim = Sim::starting_at(seed, "2026-03-01T12:00:00Z".parse().expect("a Sunday"));
    let store = Memory::new();
    let sent = Arc::new(Mutex::new(Vec::new()));

    let first = sim.node();
    let scheduler = invoices(&store, &first, &sent)?;
    first.spawn(Box::pin(async move { _ = scheduler.run().await }));
    sim.run_for(10 * HOUR);
    first.crash();
    sim.run_for(10 * HOUR);
    assert!(sent.lock().expect("no run panics").is_empty());

    let second = sim.node();
    let scheduler = invoices(&store, &second, &sent)?;
    second.spawn(Box::pin(async move { _ = scheduler.run().await }));
    sim.run_for(HOUR);
    let monday: Time = "2026-03-02T05:00:00Z".parse().expect("six o'clock in Rome");
    assert_eq!(*sent.lock().expect("no run panics"), [monday]);
    Ok(())
}

fn main() -> Result {
    for seed in 0..100 {
        a_night_without_machines_delays_the_invoices(seed)?;
    }
    println!("100 nights without machines, and the invoices went out each time");
    Ok(())
}

#[test]
fn invoices_survive_a_night_without_machines() {
    a_night_without_machines_delays_the_invoices(1).unwrap();
}
