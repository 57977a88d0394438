//! The state of jobs as a user of the facade reads it.
#![cfg(all(feature = "json", feature = "memory", feature = "tokio"))]

use allora::{
    Memory, Run, Scheduler, Schedules, StoredSchedule, Time,
    backend::{Counters, HistoryEntry, HistoryQuery, JobState, NextRun, Outcome},
    every,
    runtime::Tokio,
    stored::Filter,
};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);
const WAIT: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn health_jobs_states_and_history_are_values_that_serde_knows() {
    let start: Time = "2026-03-01T00:00:00Z".parse().unwrap();
    let runtime = Tokio::current().unwrap().starting_at(start);
    let store = Memory::new().with_history(100);
    let scheduler = Scheduler::builder(store.clone())
        .runtime(runtime.clone())
        .job("tidy", every(HOUR), async |_: Run| tokio::time::sleep(Duration::from_secs(2)).await)
        .kind("mail", async |_: Run| {})
        .build()
        .unwrap();
    let handle = scheduler.handle();
    tokio::spawn(scheduler.run());
    // Right after the start, before the job is registered.
    handle.pause("tidy", "not yet").await.unwrap();
    let end = handle.trigger_and_wait("tidy", "a", WAIT).await.unwrap();
    assert_eq!(end.outcome, Outcome::Succeeded);

    let schedules = Schedules::on(store, runtime.clone()).unwrap();
    let once = StoredSchedule::once("acme/7", "mail", start + HOUR).data(&["ann@acme.example"]);
    schedules.upsert(&once).await.unwrap();
    tokio::time::sleep(2 * HOUR).await;

    let health = serde_json::to_value(handle.health()).unwrap();
    assert_eq!((&health["jobs"], &health["paused"]), (&1.into(), &1.into()));
    let jobs = serde_json::to_value(handle.jobs()).unwrap();
    assert_eq!((&jobs[0]["name"], &jobs[0]["is_paused"]), (&"tidy".into(), &true.into()));

    // The scheduler's own records are not listed.
    let states: Vec<JobState> = schedules.list(Filter::default(), None, 10).await.unwrap();
    let names: Vec<&str> = states.iter().map(|state| &*state.name).collect();
    assert_eq!(names, ["acme/7", "tidy"]);
    let states = serde_json::to_value(&states).unwrap();
    assert_eq!(states[0]["counters"]["succeeded"], 1);
    assert_eq!(states[1]["paused"]["note"], "not yet");
    let counters: Counters = Counters::default();
    assert_eq!(serde_json::to_value(counters).unwrap()["lost"], 0);
    let next = serde_json::to_value(NextRun::from(start)).unwrap();
    assert_eq!(next["due_at"], "2026-03-01T00:00:00Z");

    let query = HistoryQuery::new(10).name("tidy");
    let entries: Vec<HistoryEntry> = handle.history(query).await.unwrap();
    assert_eq!(entries[0].duration(), Some(Duration::from_secs(2)));
    assert_eq!(serde_json::to_value(&entries[0]).unwrap()["outcome"], "succeeded");
    assert_eq!(schedules.history(query).await.unwrap(), entries);
}

#[test]
fn the_guide_has_a_row_for_each_condition() {
    let guide = include_str!("../../src/guide/troubleshooting.md");
    for code in allora::Condition::CODES {
        assert!(guide.contains(&format!("`{code}`")), "{code}");
    }
}
