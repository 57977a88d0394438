//! Jobs that no code has any more are forgotten; those that somebody has are not touched.

use crate::stores::{Kind, runtime};
use allora_core::{
    Backend, Kind as ErrorKind, Run, Runtime as _, Scheduler, Time,
    backend::{Act, Change, NewSchedule, Next, Now, Page, Plan, Reschedule, State},
    every,
    runtime::Tokio,
    time::from_millis,
};
use allora_redis::Redis;
use std::time::{Duration, SystemTime};

const AFTER: Duration = Duration::from_secs(2);

#[expect(clippy::disallowed_methods, reason = "the server's clock decides")]
fn wall() -> Time {
    from_millis(Time::from(SystemTime::now()).timestamp_millis()).unwrap()
}

async fn a_moment() {
    let runtime = Tokio::current().unwrap();
    runtime.sleep_until(runtime.now() + Duration::from_millis(50)).await;
}

/// Registers a job that is due after so many milliseconds, as a node does that then ends.
async fn register(store: &Redis, name: &str, due: i64) {
    let at = from_millis(wall().timestamp_millis() + due).unwrap();
    let first = Some(Next { at, due_at: at });
    let plans = [Plan::new(name, Act::Register { definition: "d", version: 0, first })];
    let asked = Reschedule::new("old", Now::Store { node: wall() }, &plans);
    store.reschedule(asked).await.unwrap();
}

async fn state(store: &Redis, name: &str) -> Option<State> {
    match store.schedules().unwrap().get(name).await {
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
            let schedules = store.schedules().unwrap();
            for (name, due) in [("left", 0), ("rare", 3_600_000), ("paused", 0)] {
                register(&store, name, due).await;
            }
            let pause = Change::Pause { note: "" };
            schedules.modify("paused", pause, Now::Store { node: wall() }).await.unwrap();
            let at = wall();
            let new = NewSchedule::new("stored", "mail", "d", Some(Next { at, due_at: at }));
            let added = schedules.add(&[new], Now::Store { node: wall() }).await.unwrap();
            added.into_iter().for_each(|state| drop(state.unwrap()));

            let left = state(&store, "left").await.unwrap();
            // One node forgets, another one does not know of it and has the only live job.
            let forgets = place.connect(Redis::builder().forget_unused(AFTER)).await.unwrap();
            let scheduler = |store: Redis, name: &str| {
                Scheduler::builder(store)
                    .runtime(Tokio::current().unwrap())
                    .job(name, every(Duration::from_millis(300)), async |_: Run| {})
                    .build()
                    .unwrap()
            };
            let nodes = [scheduler(forgets, "other"), scheduler(place.open().await, "live")];
            let handles = [nodes[0].handle(), nodes[1].handle()];
            let nodes = nodes.map(|node| runtime().spawn(node.run()));
            let begun = loop {
                match state(&store, "live").await {
                    Some(state) if state.counters.started > 0 => break state,
                    _ => a_moment().await,
                }
            };
            let gone = async {
                while state(&store, "left").await.is_some() {
                    a_moment().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(30), gone).await.unwrap();

            let names: Vec<String> = schedules
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
            let phase = |state: &State| state.cursor.unwrap().at.timestamp_millis() % 300;
            assert_eq!(phase(&live), phase(&begun), "it keeps its phase");

            // The name begins anew, and no fence is given twice.
            register(&store, "left", 0).await;
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
        let builder = || Redis::builder().forget_unused(Duration::from_secs(3_600));
        let store = place.connect(builder()).await.unwrap();
        // Due, and let alone, for two hours, but somebody has watched for a moment only.
        register(&store, "a", -7_200_000).await;
        let mut server = place.raw().await.remove(0);
        let state_key = format!("{{{}}}:state", place.prefix);
        let hour = 3_600_000_000_i64;
        let now = wall().timestamp_micros();
        let watched = async |server: &mut redis::aio::MultiplexedConnection| {
            let mut get = redis::cmd("HGET");
            get.arg(&state_key).arg("watched");
            get.query_async::<i64>(server).await.unwrap()
        };
        for (looked, is_kept) in [(now - hour / 2, false), (now - hour / 5, true)] {
            let mut set = redis::cmd("HSET");
            set.arg(&state_key).arg("looked").arg(looked).arg("watched").arg(now - 2 * hour);
            set.exec_async(&mut server).await.unwrap();
            let another = place.connect(builder()).await.unwrap();
            another
                .reschedule(Reschedule::new("n", Now::Store { node: wall() }, &[]))
                .await
                .unwrap();
            assert_eq!(watched(&mut server).await < now - hour, is_kept);
            // Its fence was drawn just now: it stays in either case.
            assert!(state(&store, "a").await.is_some());
        }
        place.clear().await;
    });
}
