//! Jobs that no code has any more are deleted; those that a node has are not touched.

use crate::stores::{Kind, Place, create, pause, runtime, send};
use allora_core::{
    Backend, ErrorKind, Run, Scheduler, Time,
    backend::{Action, DueQuery, JobState, NewSchedule, NextRun, Operation, Page, TimeSource},
    every,
    runtime::Tokio,
    time::from_millis,
};
use allora_redis::Redis;
use std::time::{Duration, SystemTime};

/// Far longer than a machine that runs all tests at once may keep a node waiting.
const AFTER: Duration = Duration::from_secs(3_600);

/// In milliseconds.
const HOUR: i64 = 3_600_000;

#[expect(clippy::disallowed_methods, reason = "the server's clock decides")]
fn wall() -> Time {
    from_millis(Time::from(SystemTime::now()).timestamp_millis()).unwrap()
}

/// Registers a job that is due so many milliseconds from now, as a node did, two hours ago, that then
/// ended.
async fn register(store: &Redis, name: &str, due: i64) {
    let now = wall().timestamp_millis();
    let at = from_millis(now + due).unwrap();
    let first = Some(NextRun { scheduled_at: at, due_at: at });
    let register = Action::Register { definition: "d", version: 0, first };
    let then = from_millis(now - 2 * HOUR).unwrap();
    send(store, TimeSource::Fixed(then), Operation::new(name, register)).await.unwrap();
}

/// Nodes have watched since two hours ago, and searched this number of milliseconds ago.
async fn watched(place: &Place, searched: i64) {
    let now = wall().timestamp_micros();
    for mut server in place.raw().await {
        for pattern in
            [format!("{{{}}}:state", place.prefix), format!("{{{}:*:state", place.prefix)]
        {
            let mut list = redis::cmd("KEYS");
            let shards: Vec<String> = list.arg(pattern).query_async(&mut server).await.unwrap();
            for state in shards {
                let mut set = redis::cmd("HSET");
                set.arg(state).arg("searched_at").arg(now - searched * 1_000);
                set.arg("watched_since").arg(now - 2 * HOUR * 1_000);
                set.exec_async(&mut server).await.unwrap();
            }
        }
    }
}

async fn state(store: &Redis, name: &str) -> Option<JobState> {
    match store.queries().unwrap().get(name).await {
        Ok(state) => Some(state),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            None
        }
    }
}

#[test]
fn a_job_that_no_code_has_vanishes_and_no_other_does() {
    for kind in [Kind::One, Kind::Cluster] {
        let Some(place) = kind.place() else { continue };
        runtime().block_on(async {
            let store = place.open().await;
            let queries = store.queries().unwrap();
            for (name, due) in
                [("left", -2 * HOUR), ("live", -2 * HOUR), ("rare", HOUR), ("paused", -2 * HOUR)]
            {
                register(&store, name, due).await;
            }
            let now = TimeSource::Store { fallback: wall() };
            let operation = Operation::new("paused", Action::Pause { note: "", until: None });
            send(&store, now, operation).await.unwrap().state().unwrap();
            let new = NewSchedule::new("mail", "d", Some(wall().into()));
            create(&store, now, "stored", new).await;

            let left = state(&store, "left").await.unwrap();
            let scheduler = |store: Redis, name: &str| {
                Scheduler::builder(store)
                    .runtime(Tokio::current().unwrap())
                    .job(name, every(Duration::from_millis(300)), async |_: Run| {})
                    .build()
                    .unwrap()
            };
            // One node has the only live job; another one, which deletes, does not know of it.
            let live = scheduler(place.open().await, "live");
            let mut handles = vec![live.handle()];
            let mut nodes = vec![runtime().spawn(live.run())];
            let begun = loop {
                match state(&store, "live").await {
                    Some(state) if state.counters.started > 0 => break state,
                    _ => pause(50).await,
                }
            };
            watched(&place, HOUR / 5).await;
            let forgets = place.connect(Redis::builder().forget_unused(AFTER)).await.unwrap();
            let other = scheduler(forgets, "other");
            handles.push(other.handle());
            nodes.push(runtime().spawn(other.run()));
            let gone = async {
                while state(&store, "left").await.is_some()
                    || state(&store, "live")
                        .await
                        .is_some_and(|live| live.counters.started == begun.counters.started)
                {
                    pause(50).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(60), gone).await.unwrap();

            let names: Vec<String> = queries
                .list(Page::first(9))
                .await
                .unwrap()
                .into_iter()
                .map(|state| state.name)
                .collect();
            assert_eq!(names, ["live", "other", "paused", "rare", "stored"]);
            let live = state(&store, "live").await.unwrap();
            assert_eq!(live.incarnation, begun.incarnation, "it is the same job");
            assert!(live.counters.started > begun.counters.started);
            let phase =
                |state: &JobState| state.next.unwrap().scheduled_at.timestamp_millis() % 300;
            assert_eq!(phase(&live), phase(&begun), "it keeps its phase");

            // The name begins anew, and no fence is given twice.
            register(&store, "left", HOUR).await;
            let again = state(&store, "left").await.unwrap();
            assert!(again.incarnation > left.fence && again.fence > left.fence);
            handles.iter().for_each(|handle| handle.stop());
            for node in nodes {
                node.await.unwrap();
            }
            place.clear().await;
        });
    }
}

#[test]
fn after_an_outage_of_all_nodes_the_time_begins_anew() {
    let Some(place) = Kind::One.place() else { return };
    runtime().block_on(async {
        let builder = || Redis::builder().forget_unused(AFTER);
        let store = place.connect(builder()).await.unwrap();
        // Due, and not moved, for two hours.
        register(&store, "a", -2 * HOUR).await;
        for (searched, is_gap) in [(HOUR / 2, true), (HOUR / 5, false)] {
            watched(&place, searched).await;
            let another = place.connect(builder()).await.unwrap();
            let search = async || {
                let query = DueQuery::new(&["mail"], wall(), 1);
                let now = TimeSource::Store { fallback: wall() };
                another.queries().unwrap().find_due(query, now).await.unwrap();
                state(&store, "a").await.is_some()
            };
            if is_gap {
                assert!(search().await, "it is deleted after a gap");
                continue;
            }
            // A search on a slow machine comes in parts.
            let gone = async { while search().await {} };
            tokio::time::timeout(Duration::from_secs(60), gone).await.unwrap();
        }
        place.clear().await;
    });
}
