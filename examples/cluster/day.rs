//! A day of a real crontab in one process, in some seconds.
//!
//! Some schedulers, each with all the jobs of `examples/crontab`, share one store. A day goes by
//! on clocks that run fast; then a table says who ran what, and every occurrence is looked for:
//! each must have run on exactly one of them.

use crate::fast::Fast;
use allora::{
    BoxError, CatchUp, Memory, Run, Runtime, Scheduler, Time,
    crontab::{self, Entry, When},
    job,
    runtime::Tokio,
    schedule::between,
};
use futures::future::join_all;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

/// The runs that began: job, scheduled time, node.
type Log = Arc<Mutex<Vec<(String, Time, usize)>>>;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

pub(crate) async fn run(nodes: usize, seconds: u32) -> Result<(), BoxError> {
    let entries = crontab::parse_system(include_str!("../crontab"))?;
    let tokio = Tokio::current()?;
    let clock = Fast {
        from: "2026-03-02T00:00:00Z".parse()?,
        began: tokio.now(),
        speed: u32::try_from(DAY.as_secs())? / seconds,
        tokio,
    };
    println!("{} jobs on {nodes} nodes; a day passes in {seconds} s", entries.len());

    let store = Memory::new();
    let log = Log::default();
    let mut running = Vec::new();
    for node in 1..=nodes {
        let scheduler = machine(node, &store, &clock, &entries, &log)?;
        running.push(scheduler.run_until(clock.sleep_until(clock.began + DAY)));
    }
    join_all(running).await;

    let log = log.lock().expect("no run panics");
    print_table(&entries, nodes, &log);
    // The last minutes are left out: an occurrence may be due when the nodes are stopping.
    let until = clock.from + DAY - Duration::from_secs(10 * 60);
    check(&entries, &log, clock.from, until)
}

/// One node, with every job of the crontab; each command is a closure that notes the run.
fn machine(
    node: usize,
    store: &Memory,
    clock: &Fast,
    entries: &[Entry],
    log: &Log,
) -> Result<Scheduler, BoxError> {
    let mut builder = Scheduler::builder(store.clone())
        .label(format!("machine-{node}"))
        .runtime(clock.clone())
        // A real second is a good hour here, also for the limits that guard against a slow store.
        .store_timeout(Duration::from_secs(60))
        .poll_interval(Duration::from_secs(60 * 60))
        .lost_after(Duration::from_secs(60 * 60));
    for entry in entries {
        let When::Cron(schedule) = &entry.when else { continue };
        let log = log.clone();
        let run = async move |run: Run| {
            let mut log = log.lock().expect("no run panics");
            log.push((run.name().to_owned(), run.scheduled_at(), node));
        };
        // If this machine is slow, a minute of the fast clock may pass unseen: catch up with all.
        let entry_job = job(schedule.clone(), run).catch_up(CatchUp::All { limit: 1_000 });
        builder = builder.add(entry.name.as_str(), entry_job);
    }
    Ok(builder.build()?)
}

fn print_table(entries: &[Entry], nodes: usize, log: &[(String, Time, usize)]) {
    print!("\n{:<44}", "job");
    (1..=nodes).for_each(|node| print!("  machine-{node}"));
    println!("     all");
    for entry in entries {
        let runs = log.iter().filter(|(name, ..)| *name == entry.name);
        let by = |node| runs.clone().filter(|run| run.2 == node).count();
        print!("{:<44}", entry.name.chars().take(43).collect::<String>());
        (1..=nodes).for_each(|node| print!("{:>11}", by(node)));
        println!("{:>8}", runs.clone().count());
    }
}

/// Every occurrence up to `until` must have run, and none twice.
fn check(
    entries: &[Entry],
    log: &[(String, Time, usize)],
    from: Time,
    until: Time,
) -> Result<(), BoxError> {
    let mut runs: BTreeMap<(&str, Time), usize> = BTreeMap::new();
    for (name, at, _) in log {
        *runs.entry((name, *at)).or_default() += 1;
    }
    let twice = runs.values().filter(|count| **count > 1).count();
    let mut expected = 0;
    let mut lost = 0;
    for entry in entries {
        let When::Cron(schedule) = &entry.when else { continue };
        for at in between(schedule, from, until) {
            expected += 1;
            lost += usize::from(!runs.contains_key(&(entry.name.as_str(), at)));
        }
    }
    println!("\n{expected} occurrences expected, {lost} lost, {twice} ran twice");
    if lost + twice > 0 {
        return Err("an occurrence did not run exactly once".into());
    }
    println!("every occurrence ran exactly once");
    Ok(())
}
