//! Jobs that use tokio, under tokio's paused time.
#![expect(clippy::disallowed_methods, reason = "the jobs of users call tokio themselves")]

use allora_core::{
    Run, Runtime, Scheduler, Schedules, StoredSchedule, Time, cron, every, job, runtime::Tokio,
};
use allora_memory::Memory;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test(start_paused = true)]
async fn a_job_that_uses_tokio_runs_its_schedule_in_paused_time() {
    let runs = Arc::new(Mutex::new(Vec::new()));
    let seen = runs.clone();
    let sleeps = async move |run: Run| {
        tokio::time::sleep(20 * MINUTE).await;
        tokio::task::yield_now().await;
        seen.lock().unwrap().push(run.scheduled_at());
    };
    // The runtime is detected, as in production.
    let scheduler = Scheduler::builder(Memory::new()).job("hourly", every(HOUR), sleeps).build();
    let scheduler = scheduler.unwrap();
    let handle = scheduler.handle();
    let running = tokio::spawn(scheduler.run());
    tokio::time::sleep(6 * HOUR).await;
    handle.stop();
    assert_eq!(running.await.unwrap().unrecorded, 0);
    let runs = runs.lock().unwrap();
    assert!((5..=6).contains(&runs.len()), "{runs:?}");
    assert!(runs.windows(2).all(|pair| pair[1] - pair[0] == chrono::TimeDelta::hours(1)));
}

#[tokio::test(start_paused = true)]
async fn a_paused_runtime_that_starts_at_a_time_shows_it_to_store_and_schedule() {
    let start: Time = "2026-03-29T00:30:00Z".parse().unwrap();
    let runtime = Tokio::current().unwrap().starting_at(start);
    assert_eq!(runtime.wall(), start);
    let store = Memory::new();
    let runs = Arc::new(Mutex::new(Vec::new()));
    let seen = runs.clone();
    let report = async move |run: Run| seen.lock().unwrap().push(run.scheduled_at().to_rfc3339());
    // On the 29th the clocks of Rome go forward.
    let spec = job(cron("30 2 * * * Europe/Rome").unwrap(), report.clone());
    let scheduler = Scheduler::builder(store.clone())
        .runtime(runtime.clone())
        .add("report", spec)
        .kind("mail", report)
        .build()
        .unwrap();
    let schedules = Schedules::on(store, runtime.clone()).unwrap();
    let mail = StoredSchedule::new("mail", "mail", "0 2 29 3 *");
    schedules.add(&mail).await.unwrap();
    drop(tokio::spawn(scheduler.run()));
    tokio::time::sleep(3 * HOUR).await;
    assert_eq!(runtime.wall(), start + chrono::TimeDelta::hours(3));
    let expected = ["2026-03-29T01:00:00+00:00", "2026-03-29T02:00:00+00:00"];
    assert_eq!(*runs.lock().unwrap(), expected);
}

#[tokio::test]
async fn the_wall_clock_follows_tokios_from_the_pause_on_and_the_machines_before() {
    let runtime = Tokio::current().unwrap();
    let before = runtime.wall();
    tokio::time::pause();
    tokio::time::advance(HOUR).await;
    let paused = runtime.wall();
    assert!(
        paused - before < chrono::TimeDelta::minutes(30),
        "the jump before the first look counts"
    );
    tokio::time::advance(HOUR).await;
    assert_eq!(runtime.wall() - paused, chrono::TimeDelta::hours(1));
    assert_eq!(runtime.clone().wall(), runtime.wall());
}
