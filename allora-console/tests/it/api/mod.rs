//! The HTTP API as a program sees it. Every answer is checked against the description.

mod bad;
mod changes;
mod description;
mod edits;
mod limits;
mod lines;
mod reads;
mod work;

use super::{ask, send, spawn};
use allora::{
    Memory, Run, Scheduler, Schedules, StoredSchedule,
    runtime::{Runtime, Sim},
};
use allora_console::{Access, Console, Scope};
use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Request},
};
use serde_json::{Value, json};
use std::sync::LazyLock;

/// The description, as the API serves it to everybody.
static DESCRIPTION: LazyLock<Value> = LazyLock::new(|| {
    let sim = Sim::new(1);
    let schedules = Schedules::on(Memory::new(), sim.node()).unwrap();
    let router = Console::new(schedules).pages(false).into_router();
    let answer = sim.block_on(ask(&router, "GET", "/v1/openapi.json"));
    assert_eq!((answer.status, answer.header("content-type")), (200, "application/json"));
    serde_json::from_str(&answer.body).unwrap()
});

/// The API for one caller.
pub(super) struct Api(pub(super) Router);

/// An answer that is as described.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
    /// `null` if it is no JSON.
    pub(super) json: Value,
}

impl Reply {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The value at this place.
    pub(super) fn at(&self, pointer: &str) -> &Value {
        self.json.pointer(pointer).unwrap_or_else(|| panic!("{pointer}: {}", self.text))
    }

    /// The names of the items.
    pub(super) fn names(&self) -> Vec<&str> {
        let items = self.at("/items").as_array().unwrap().iter();
        items.map(|item| item["name"].as_str().unwrap()).collect()
    }

    #[track_caller]
    pub(super) fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{:.2000}", self.text);
        self
    }

    /// A problem of this type.
    #[track_caller]
    pub(super) fn is_problem(&self, status: u16, of: &str) {
        let said = (self.status, self.json["type"].as_str().unwrap_or_default());
        assert_eq!(said, (status, &*format!("urn:allora:{of}")), "{:.2000}", self.text);
    }
}

/// Everything that a caller may do, but run jobs.
pub(super) fn everything(who: &str) -> Access {
    Access::reader(who).with(Scope::Admin)
}

/// A store with two jobs, of which one holds the key of both and the other waits for it.
pub(super) fn with_keys(test: impl AsyncFnOnce(Schedules)) {
    let (sim, store) = (Sim::new(1), Memory::new());
    let node = sim.node();
    let start = node.wall();
    let scheduler = Scheduler::builder(store.clone())
        .kind("tape", async |_: Run| std::future::pending::<()>().await)
        .runtime(node.clone())
        .build()
        .unwrap();
    let schedules = Schedules::on(store, node.clone()).unwrap();
    sim.block_on(async {
        for name in ["acme/backup", "beta/backup"] {
            let stored =
                StoredSchedule::new(name, "tape", "@every 20s").concurrency_key("tapes", 1);
            schedules.add(&stored).await.unwrap();
        }
    });
    spawn(&node, scheduler);
    sim.run_until(start + allora::chrono::TimeDelta::seconds(41));
    sim.block_on(test(schedules));
}

impl Api {
    pub(super) fn new(schedules: &Schedules, access: Access) -> Self {
        let console = Console::new(schedules.clone()).allow_actions();
        Self(console.access(move |_| Some(access.clone())).into_router())
    }

    pub(super) async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], "").await
    }

    pub(super) async fn post(&self, path: &str, body: Value) -> Reply {
        self.json("POST", path, &[], body).await
    }

    pub(super) async fn json(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Value,
    ) -> Reply {
        let headers = [&[("content-type", "application/json")], headers].concat();
        self.send(method, path, &headers, body.to_string()).await
    }

    /// Sends a request to a path below `/v1`, and checks the answer against the description.
    pub(super) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Reply {
        let mut request = Request::builder().method(method).uri(format!("/v1{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = send(&self.0, request.body(body.into()).unwrap()).await;
        let json = serde_json::from_str(&answer.body).unwrap_or_default();
        let (status, headers, text) = (answer.status, answer.headers, answer.body);
        let reply = Reply { status, headers, text, json };
        check(method, path, &reply);
        reply
    }
}

/// Checks that an answer has a form that the description has.
#[track_caller]
fn check(method: &str, path: &str, reply: &Reply) {
    assert!(!reply.header("x-request-id").is_empty(), "{method} {path}: {reply:?}");
    let media = reply.header("content-type");
    let problem = "application/problem+json";
    if reply.status >= 400 {
        assert_eq!(media, problem, "{method} {path}: {reply:?}");
        assert_eq!(reply.json["status"], reply.status, "{method} {path}");
        assert_eq!(reply.json["request_id"], reply.header("x-request-id"), "{method} {path}");
        return matches("Problem", &reply.json);
    }
    let path = path.split('?').next().unwrap().trim_end_matches('/');
    let operation = &DESCRIPTION["paths"][format!("/v1{path}")][method.to_lowercase()];
    let described = &operation["responses"][reply.status.to_string()];
    assert!(described.is_object(), "{method} {path} {}: not described", reply.status);
    let Some(contents) = described["content"].as_object() else {
        return assert!(reply.text.is_empty(), "{method} {path}: {reply:?}");
    };
    let content = contents.get(media);
    let content = content.unwrap_or_else(|| panic!("{method} {path}: {media} is not described"));
    let schema =
        |of: &Value| of["$ref"].as_str().map(|name| name.replace("#/components/schemas/", ""));
    if let Some(of_line) = schema(&content["x-lines"]) {
        reply.text.lines().for_each(|line| matches(&of_line, &serde_json::from_str(line).unwrap()));
    } else if let Some(schema) = schema(&content["schema"]) {
        matches(&schema, &reply.json);
    }
}

/// Checks that a value is as this schema of the description has it.
#[track_caller]
fn matches(schema: &str, value: &Value) {
    let schema = json!({
        "$ref": format!("#/components/schemas/{schema}"),
        "components": DESCRIPTION["components"],
    });
    let validator = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
    let errors: Vec<String> = validator.iter_errors(value).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}: {value}");
}
