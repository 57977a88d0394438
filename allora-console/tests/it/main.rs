//! The router as a browser sees it: every page, its guards, and its names.

#![allow(clippy::unwrap_used, reason = "a test that unwraps says where")]

mod actions;
mod api;
mod edit;
mod events;
mod guards;
mod hours;
mod limits;
mod pages;
#[cfg(feature = "tokens")]
mod signed;

use allora::{
    Memory, Run, Scheduler, Schedules, StoredSchedule,
    backend::HistoryLimits,
    runtime::{Runtime, Sim, SimNode},
};
use allora_console::{Access, Console};
use axum::{
    Router,
    body::{Body, to_bytes},
    http::{HeaderMap, Request},
};
use tower::ServiceExt;

/// An answer of the router.
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

async fn ask(router: &Router, method: &str, path: &str) -> Answer {
    send(router, Request::builder().method(method).uri(path).body(Body::empty()).unwrap()).await
}

async fn send(router: &Router, request: Request<Body>) -> Answer {
    let (parts, body) = router.clone().oneshot(request).await.unwrap().into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    let body = String::from_utf8(body.to_vec()).unwrap();
    Answer { status: parts.status.as_u16(), headers: parts.headers, body }
}

async fn get(router: &Router, path: &str) -> Answer {
    ask(router, "GET", path).await
}

/// The text of an attribute, as a browser reads it.
fn unescaped(text: &str) -> String {
    let mut text = text.to_owned();
    for (code, c) in
        [("&#60;", "<"), ("&#62;", ">"), ("&#34;", "\""), ("&#39;", "'"), ("&#38;", "&")]
    {
        text = text.replace(code, c);
    }
    text.replace("&amp;", "&")
}

/// A store with these schedules, of which a node has run the ones that were due within a minute.
fn with_store(names: &[&str], test: impl AsyncFnOnce(Schedules)) {
    let sim = Sim::new(1);
    let store = Memory::new().with_history(HistoryLimits::default());
    let node = sim.node();
    let scheduler = Scheduler::builder(store.clone())
        .kind("report", async |run: Run| run.set_output("1,204 rows"))
        .runtime(node.clone())
        .build()
        .unwrap();
    let start = node.wall();
    sim.block_on(async {
        let schedules = Schedules::on(store.clone(), node.clone()).unwrap();
        for name in names {
            let stored = StoredSchedule::new(*name, "report", "@every 20s");
            schedules.add(&stored).await.unwrap();
        }
    });
    spawn(&node, scheduler);
    sim.run_until(start + allora::chrono::TimeDelta::seconds(61));
    sim.block_on(async {
        let schedules = Schedules::on(store, node).unwrap();
        test(schedules).await;
    });
}

/// A store with these schedules, of which three occurrences are due, and no node runs any.
fn with_idle_store(names: &[&str], test: impl AsyncFnOnce(Schedules)) {
    let sim = Sim::new(1);
    let store = Memory::new().with_history(HistoryLimits::default());
    let node = sim.node();
    let start = node.wall();
    let schedules = Schedules::on(store, node).unwrap();
    sim.block_on(async {
        for name in names {
            let stored = StoredSchedule::new(*name, "report", "@every 20s");
            schedules.add(&stored).await.unwrap();
        }
    });
    sim.run_until(start + allora::chrono::TimeDelta::seconds(61));
    sim.block_on(test(schedules));
}

fn spawn(node: &SimNode, scheduler: Scheduler) {
    node.spawn(Box::pin(async { _ = scheduler.run().await }));
}

/// The console of this store for a reader who may see everything.
fn console(schedules: Schedules) -> Router {
    let access = Access::reader("ann").with_data();
    Console::new(schedules).title("billing").access(move |_| Some(access.clone())).into_router()
}
