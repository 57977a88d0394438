//! The stream of hints, by virtual time.

use super::{console, with_idle_store};
use allora::{
    Memory, Run, Runtime, Scheduler, Schedules, StoredSchedule, async_trait,
    runtime::{Sim, SimNode},
};
use allora_conformance::faults::{Hooks, Wrapped};
use allora_console::{Access, Console};
use axum::{
    Router,
    body::{Body, BodyDataStream},
    http::{HeaderMap, Request},
};
use futures::StreamExt;
use std::time::Duration;
use tower::ServiceExt;

const BEGIN: &str = "retry: 1000\nid: 1\n\n";
const HINT: &str = "data: changed\n\n";

async fn open(router: &Router, last: Option<&str>) -> (u16, HeaderMap, BodyDataStream) {
    let mut request = Request::builder().uri("/events");
    if let Some(last) = last {
        request = request.header("last-event-id", last);
    }
    let answer = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let (parts, body) = answer.into_parts();
    (parts.status.as_u16(), parts.headers, body.into_data_stream())
}

async fn next(events: &mut BodyDataStream) -> Option<String> {
    let bytes = events.next().await?.unwrap();
    Some(String::from_utf8(bytes.to_vec()).unwrap())
}

/// A store without notifications, as SQLite.
#[derive(Debug)]
struct Silent;

#[async_trait]
impl Hooks for Silent {
    fn has_notifier(&self) -> bool {
        false
    }
}

fn job(name: &str) -> StoredSchedule {
    StoredSchedule::new(name, "report", "@daily")
}

#[test]
fn a_stream_pings_and_ends_after_a_minute_and_the_next_one_begins_with_a_hint() {
    with_idle_store(&[], async |schedules| {
        let runtime = schedules.runtime().clone();
        let router = console(schedules);
        let (status, headers, mut events) = open(&router, None).await;
        let begun = runtime.now();
        assert_eq!(
            (status, &headers["content-type"]),
            (200, &"text/event-stream".parse().unwrap())
        );
        assert_eq!(headers["cache-control"], "no-store");
        assert_eq!(headers["x-accel-buffering"], "no");
        assert!(headers.contains_key("content-security-policy"));
        // The watcher has subscribed after the page was read.
        for event in [BEGIN, HINT] {
            assert_eq!(next(&mut events).await.as_deref(), Some(event));
        }
        for pings in 1..4 {
            assert_eq!(next(&mut events).await.as_deref(), Some(": ping\n\n"));
            assert_eq!(runtime.now() - begun, Duration::from_secs(15) * pings);
        }
        assert_eq!(
            (next(&mut events).await, runtime.now() - begun),
            (None, Duration::from_secs(60))
        );
        let (_, _, mut again) = open(&router, Some("1")).await;
        assert_eq!(next(&mut again).await, Some(BEGIN.replace("\n\n", "\n") + HINT));
    });
}

#[test]
fn a_job_that_another_client_adds_is_a_hint_within_two_seconds() {
    for is_silent in [false, true] {
        let sim = Sim::new(1);
        let store = Memory::new();
        let others = Schedules::on(store.clone(), sim.node()).unwrap().by("ben");
        let own = match is_silent {
            true => Schedules::on(Wrapped::around(store, Silent), sim.node()),
            false => Schedules::on(store, sim.node()),
        };
        let router = console(own.unwrap());
        sim.block_on(async {
            let (.., mut events) = open(&router, None).await;
            assert_eq!(next(&mut events).await.as_deref(), Some(BEGIN));
            if !is_silent {
                assert_eq!(next(&mut events).await.as_deref(), Some(HINT));
            }
            for name in ["secret/1", "secret/2", "secret/3"] {
                sim.sleep_until(sim.now() + Duration::from_secs(3)).await;
                others.add(&job(name)).await.unwrap();
                let added = sim.now();
                assert_eq!(next(&mut events).await.as_deref(), Some(HINT), "{name}");
                assert!(sim.now() - added <= Duration::from_secs(2), "{:?}", sim.now() - added);
            }
            // Without news there is no hint.
            assert_eq!(next(&mut events).await.as_deref(), Some(": ping\n\n"), "{is_silent}");
        });
    }
}

#[test]
fn many_changes_are_one_hint_every_two_seconds() {
    with_idle_store(&["report"], async |schedules| {
        let runtime = schedules.runtime().clone();
        let (.., mut events) = open(&console(schedules.clone()), None).await;
        for event in [BEGIN, HINT] {
            assert_eq!(next(&mut events).await.as_deref(), Some(event));
        }
        let begun = runtime.now();
        let changes = async {
            for _ in 0..100 {
                schedules.pause("report", "again").await.unwrap();
                schedules.resume("report", allora::stored::Gap::CatchUp).await.unwrap();
                runtime.sleep_until(runtime.now() + Duration::from_millis(100)).await;
            }
        };
        let hints = async {
            let mut hints = 0;
            while runtime.now() - begun < Duration::from_secs(10) {
                assert_eq!(next(&mut events).await.as_deref(), Some(HINT));
                hints += 1;
            }
            hints
        };
        let ((), hints) = futures::join!(changes, hints);
        assert!((4..=6).contains(&hints), "{hints}");
    });
}

#[test]
fn there_are_32_streams_at_most_and_one_that_is_gone_makes_room() {
    with_idle_store(&[], async |schedules| {
        let router = console(schedules);
        let mut all = Vec::new();
        for _ in 0..32 {
            all.push(open(&router, None).await);
        }
        assert!(all.iter().all(|(status, ..)| *status == 200));
        let (status, headers, _) = open(&router, None).await;
        assert_eq!((status, headers.contains_key("retry-after")), (503, true));
        all.pop();
        assert_eq!(open(&router, None).await.0, 200);
    });
}

#[test]
fn the_streams_of_a_scheduler_that_stops_end() {
    let sim = Sim::new(1);
    let (store, node): (Memory, SimNode) = (Memory::new(), sim.node());
    let builder = Scheduler::builder(store.clone()).kind("report", async |_: Run| {});
    let scheduler = builder.runtime(node.clone()).build().unwrap();
    let handle = scheduler.handle();
    node.spawn(Box::pin(async { _ = scheduler.run().await }));
    let console = Console::new(Schedules::on(store, node).unwrap()).handle(handle.clone());
    let router = console.access(|_| Some(Access::reader("ann"))).into_router();
    sim.block_on(async {
        let (.., mut events) = open(&router, None).await;
        sim.sleep_until(sim.now() + Duration::from_secs(5)).await;
        handle.stop();
        let stopped = sim.now();
        while next(&mut events).await.is_some() {}
        assert!(sim.now() - stopped <= Duration::from_secs(2));
    });
}
