//! Workers over HTTP, by virtual time: the gateway gives runs to those who ask, and follows the rules of leases.

use super::{Api, spawn};
use allora::{
    Memory, Retry, Runtime, Scheduler, Schedules, StoredSchedule,
    backend::{HistoryLimits, HistoryQuery},
    runtime::{Sim, SimNode},
};
use allora_console::{Access, Console, Gateway, Scope};
use futures::future::join;
use serde_json::{Value, json};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(30);

/// A process with a node, a gateway and the API.
struct Process {
    api: Api,
    node: SimNode,
}

/// A world with one store and two processes.
struct World {
    schedules: Schedules,
    processes: Vec<Process>,
    clock: SimNode,
}

fn process(sim: &Sim, store: &Memory, access: &Access) -> Process {
    let node = sim.node();
    let gateway = Gateway::new(&[7; 32]).unwrap();
    let builder = Scheduler::builder(store.clone()).runtime(node.clone());
    let scheduler = gateway.handle_on(builder).build().unwrap();
    let schedules = Schedules::on(store.clone(), node.clone()).unwrap();
    let access = access.clone();
    let router = Console::new(schedules)
        .handle(scheduler.handle())
        .gateway(gateway)
        .access(move |_| Some(access.clone()))
        .into_router();
    spawn(&node, scheduler);
    Process { api: Api(router), node }
}

fn with_workers(access: Access, processes: usize, test: impl AsyncFnOnce(World)) {
    let sim = Sim::new(1);
    let store = Memory::new().with_history(HistoryLimits::default());
    let processes = (0..processes).map(|_| process(&sim, &store, &access)).collect();
    let clock = sim.node();
    let schedules = Schedules::on(store, clock.clone()).unwrap();
    sim.block_on(test(World { schedules, processes, clock }));
}

fn with_worker(test: impl AsyncFnOnce(World)) {
    with_workers(Access::new("worker").with(Scope::Work), 1, test);
}

impl World {
    /// Adds a job that is due once, now.
    async fn add(&self, name: &str, kind: &str) {
        self.add_as(name, kind, |stored| stored.at_least_once(LEASE)).await;
    }

    async fn add_as(
        &self,
        name: &str,
        kind: &str,
        settings: impl FnOnce(StoredSchedule) -> StoredSchedule,
    ) {
        let stored = StoredSchedule::once(name, kind, self.clock.wall());
        let stored = stored.data_bytes(br#"{"to":"acme"}"#.to_vec());
        self.schedules.add(&settings(stored)).await.unwrap();
    }

    async fn post(&self, process: usize, path: &str, body: Value) -> (u16, Value) {
        let answer = self.processes[process].api.post(path, body).await;
        (answer.status, answer.json)
    }

    /// One run of these kinds, for which the request waits at most 20 s.
    async fn claim(&self, kinds: &[&str]) -> Option<Value> {
        let id = format!("{}", self.clock.random());
        self.claim_as(0, kinds, &id).await.into_iter().next()
    }

    async fn claim_as(&self, process: usize, kinds: &[&str], id: &str) -> Vec<Value> {
        let body = json!({
            "worker": "web-7", "kinds": kinds, "max": 2, "wait_ms": 20_000, "claim_id": id,
        });
        let (status, mut answer) = self.post(process, "/claims", body).await;
        match status {
            204 => Vec::new(),
            _ => {
                assert_eq!(status, 200, "{answer}");
                serde_json::from_value(answer["runs"].take()).unwrap()
            }
        }
    }

    async fn state_of(&self, run: &Value) -> String {
        let body = json!({ "tokens": [run["token"]] });
        let (status, answer) = self.post(0, "/claim/heartbeat", body).await;
        assert_eq!(status, 200, "{answer}");
        answer["runs"][0]["state"].as_str().unwrap().to_owned()
    }

    async fn sleep(&self, time: Duration) {
        self.clock.sleep_until(self.clock.now() + time).await;
    }

    /// The outcomes of a job, the newest first, each with its error and its output.
    async fn outcomes(&self, name: &str) -> Vec<String> {
        let entries = self.schedules.history(HistoryQuery::new(10).name(name)).await.unwrap();
        let text = |entry: &allora::HistoryEntry| {
            let error = entry.outcome.error();
            let output = entry.output.as_deref().unwrap_or_default();
            format!("{} {error}{output}", entry.outcome.word()).trim_end().to_owned()
        };
        entries.iter().map(text).collect()
    }
}

#[test]
fn a_worker_takes_a_run_and_completes_it() {
    with_worker(async |world| {
        world.add("acme/report", "report").await;
        let run = world.claim(&["report"]).await.unwrap();
        assert_eq!((&run["name"], &run["attempt"]), (&json!("acme/report"), &json!(1)));
        assert_eq!((&run["data"], &run["lease_ms"]), (&json!({ "to": "acme" }), &json!(30_000)));
        assert_eq!(world.state_of(&run).await, "ok");
        let end =
            json!({ "token": run["token"], "output": "1,204 rows", "value": { "rows": 1204 } });
        for _ in 0..2 {
            let (status, answer) = world.post(0, "/claim/complete", end.clone()).await;
            assert_eq!((status, answer), (200, json!({ "outcome": "succeeded" })));
        }
        assert_eq!(world.outcomes("acme/report").await, ["succeeded 1,204 rows"]);
        let query = HistoryQuery::new(1).name("acme/report");
        let value = world.schedules.history(query).await.unwrap().remove(0).value;
        assert_eq!(value.as_deref(), Some(r#"{"rows":1204}"#));
        assert_eq!(world.state_of(&run).await, "lost");
        assert_eq!(world.claim(&["report"]).await, None);
    });
}

#[test]
fn nothing_is_claimed_until_a_worker_asks() {
    with_worker(async |world| {
        world.add("a", "report").await;
        world.sleep(Duration::from_secs(300)).await;
        let state = world.schedules.get("a").await.unwrap();
        assert!(state.leases.is_empty() && world.outcomes("a").await.is_empty());
        assert!(world.claim(&["other", "rep*"]).await.is_some());
    });
}

#[test]
fn a_worker_with_labels_gets_the_runs_whose_selectors_include_it() {
    with_worker(async |world| {
        for (name, kind) in [("a", "report@gpu"), ("b", "report@gpu,big"), ("c", "report@!gpu")] {
            world.add(name, kind).await;
        }
        let ask = |labels: &[&str], id: &str| {
            json!({
                "worker": "w", "kinds": ["report"], "labels": labels, "max": 9, "wait_ms": 1_000,
                "claim_id": id,
            })
        };
        let names = async |labels: &[&str], id: &str| -> Vec<Value> {
            let (_, answer) = world.post(0, "/claims", ask(labels, id)).await;
            let runs = answer["runs"].as_array().cloned().unwrap_or_default();
            runs.iter().map(|run| run["name"].clone()).collect()
        };
        assert_eq!(world.claim(&["report"]).await, None);
        assert_eq!(names(&["gpu"], "1").await, ["a"]);
        assert_eq!(names(&[], "2").await, ["c"]);
        assert_eq!(names(&["big", "gpu"], "3").await, ["b"]);
    });
}

#[test]
fn a_request_waits_for_what_comes_due() {
    with_worker(async |world| {
        let later = async {
            world.sleep(Duration::from_secs(5)).await;
            world.add("a", "report").await;
        };
        let (run, ()) = join(world.claim(&["report"]), later).await;
        assert!(run.is_some());
    });
}

#[test]
fn the_same_claim_gets_the_same_runs_and_another_one_others() {
    with_worker(async |world| {
        for name in ["a", "b", "c"] {
            world.add(name, "report").await;
        }
        let tokens = |runs: &[Value]| -> Vec<Value> {
            runs.iter().map(|run| run["token"].clone()).collect()
        };
        let first = tokens(&world.claim_as(0, &["report"], "1").await);
        assert_eq!(first.len(), 2);
        assert_eq!(tokens(&world.claim_as(0, &["report"], "1").await), first);
        let second = tokens(&world.claim_as(0, &["report"], "2").await);
        assert!(second.len() == 1 && !first.contains(&second[0]));
    });
}

#[test]
fn a_run_whose_worker_is_silent_is_run_again_and_the_late_worker_is_refused() {
    with_worker(async |world| {
        world.add("a", "report").await;
        let first = world.claim(&["report"]).await.unwrap();
        world.sleep(LEASE / 2).await;
        assert_eq!(world.state_of(&first).await, "ok");
        world.sleep(LEASE - Duration::from_secs(1)).await;
        assert_eq!(world.claim(&["report"]).await.unwrap()["attempt"], 2);
        assert_eq!(world.state_of(&first).await, "lost");
        let (status, answer) =
            world.post(0, "/claim/complete", json!({ "token": first["token"] })).await;
        assert_eq!((status, &answer["type"]), (409, &json!("urn:allora:superseded")));
        let said = &world.outcomes("a").await[1];
        assert_eq!(said, "retried the worker \"web-7\" did not send a heartbeat for 30s");
    });
}

#[test]
fn a_job_whose_workers_stop_answering_again_and_again_is_given_up() {
    with_worker(async |world| {
        world.add("a", "report").await;
        for attempt in 1..=5 {
            let run = loop {
                if let Some(run) = world.claim(&["report"]).await {
                    break run;
                }
            };
            assert_eq!(run["attempt"], attempt);
        }
        world.sleep(2 * LEASE).await;
        assert_eq!(world.schedules.get("a").await.unwrap().dead.len(), 1);
    });
}

#[test]
fn a_failure_follows_the_policy_of_the_job_or_what_the_worker_says() {
    with_worker(async |world| {
        let once_more = |stored: StoredSchedule| {
            stored.at_least_once(LEASE).retry(Retry::up_to(2, Duration::from_secs(5)))
        };
        world.add_as("a", "report", once_more).await;
        for (attempt, more, outcome) in
            [(1, json!({ "retry_after_ms": 1_000 }), "retried"), (2, json!({}), "dead")]
        {
            let run = world.claim(&["report"]).await.unwrap();
            assert_eq!(run["attempt"], attempt);
            let mut end = json!({ "token": run["token"], "error": "no paper" });
            for (field, value) in more.as_object().unwrap() {
                end[field] = value.clone();
            }
            let answer = world.post(0, "/claim/fail", end).await;
            assert_eq!(answer, (200, json!({ "outcome": outcome })));
        }
        world.add_as("b", "report", once_more).await;
        let run = world.claim(&["report"]).await.unwrap();
        let end = json!({ "token": run["token"], "error": "no such customer", "final": true });
        let answer = world.post(0, "/claim/fail", end).await;
        assert_eq!(answer, (200, json!({ "outcome": "dead" })));
    });
}

#[test]
fn a_run_that_is_released_is_given_to_the_next_worker_at_the_same_attempt() {
    with_worker(async |world| {
        world.add("a", "report").await;
        let run = world.claim(&["report"]).await.unwrap();
        let answer = world.post(0, "/claim/release", json!({ "token": run["token"] })).await;
        assert_eq!(answer, (200, json!({ "outcome": "released" })));
        assert_eq!(world.claim(&["report"]).await.unwrap()["attempt"], 1);
        world.add_as("once", "mail", StoredSchedule::at_most_once).await;
        let run = world.claim(&["mail"]).await.unwrap();
        let (status, answer) =
            world.post(0, "/claim/release", json!({ "token": run["token"] })).await;
        assert_eq!((status, &answer["type"]), (409, &json!("urn:allora:conflict")), "{answer}");
    });
}

#[test]
fn a_worker_learns_of_a_cancellation_by_its_heartbeat() {
    with_worker(async |world| {
        world.add("a", "report").await;
        let run = world.claim(&["report"]).await.unwrap();
        world.schedules.cancel("a").await.unwrap();
        let mut state = world.state_of(&run).await;
        while state == "ok" {
            world.sleep(Duration::from_secs(1)).await;
            state = world.state_of(&run).await;
        }
        assert_eq!(state, "cancel");
        let (status, answer) =
            world.post(0, "/claim/complete", json!({ "token": run["token"] })).await;
        assert_eq!((status, answer), (200, json!({ "outcome": "cancelled" })));
    });
}

#[test]
fn a_run_of_a_gateway_that_died_is_completed_by_another_one() {
    with_workers(Access::new("worker").with(Scope::Work), 2, async |world| {
        world.add("a", "report").await;
        let run = world.claim(&["report"]).await.unwrap();
        world.processes[0].node.crash();
        let (_, answer) =
            world.post(1, "/claim/heartbeat", json!({ "tokens": [run["token"]] })).await;
        assert_eq!(answer["runs"][0]["state"], "elsewhere");
        let (status, _) = world
            .post(1, "/claim/fail", json!({ "token": run["token"], "error": "no paper" }))
            .await;
        assert_eq!(status, 409);
        let end = json!({ "token": run["token"], "output": "late" });
        for _ in 0..2 {
            let answer = world.post(1, "/claim/complete", end.clone()).await;
            assert_eq!(answer, (200, json!({ "outcome": "succeeded" })));
        }
        world.sleep(2 * LEASE).await;
        assert_eq!(world.outcomes("a").await, ["succeeded late"]);
        assert!(world.claim_as(1, &["report"], "1").await.is_empty());
    });
}

#[test]
fn a_run_that_another_gateway_completed_is_no_longer_the_first_ones() {
    with_workers(Access::new("worker").with(Scope::Work), 2, async |world| {
        world.add("a", "report").await;
        let run = world.claim(&["report"]).await.unwrap();
        let end = json!({ "token": run["token"] });
        assert_eq!(world.post(1, "/claim/complete", end).await.0, 200);
        world.sleep(LEASE / 2).await;
        assert_eq!(world.state_of(&run).await, "lost");
        assert_eq!(world.outcomes("a").await, ["succeeded"]);
    });
}

/// Otherwise the node would claim the run and give it back again and again.
#[test]
fn a_kind_for_which_nobody_waits_is_claimed_at_most_once() {
    with_worker(async |world| {
        assert_eq!(world.claim(&["mail"]).await, None);
        world.add("m", "mail").await;
        assert_eq!(world.claim(&["report"]).await, None);
        let released = world.outcomes("m").await;
        assert!(released.len() <= 1, "{released:?}");
        assert_eq!(world.claim(&["mail"]).await.unwrap()["attempt"], 1);
    });
}

#[test]
fn a_worker_is_limited_by_kinds_and_not_by_prefixes() {
    let ask = json!({ "worker": "w", "kinds": ["mail"], "claim_id": "1" });
    let access = Access::new("worker").with(Scope::Work);
    for (access, status) in [
        (access.clone().only_kinds(["mail"]), 204),
        (access.clone().only_kinds(["report"]), 403),
        (access.only_prefixes(["acme/"]), 403),
        (Access::reader("ann"), 403),
    ] {
        let ask = ask.clone();
        with_workers(access, 1, async move |world| {
            let (said, answer) = world.post(0, "/claims", ask).await;
            assert_eq!(said, status, "{answer}");
        });
    }
}

#[test]
fn malformed_requests_of_workers_are_refused() {
    fn prefix_with_labels(ask: &mut Value) {
        (ask["kinds"], ask["labels"]) = (json!(["mail.*"]), json!(["gpu"]));
    }
    with_worker(async |world| {
        let claim = |change: fn(&mut Value)| {
            let mut ask = json!({ "worker": "w", "kinds": ["mail"], "claim_id": "1" });
            change(&mut ask);
            ask
        };
        for (path, body, status, field) in [
            ("/claims", json!({}), 400, "worker"),
            ("/claims", claim(|ask| ask["label"] = json!("gpu")), 400, "label"),
            ("/claims", claim(|ask| ask["max"] = json!(0)), 422, "max"),
            ("/claims", claim(|ask| ask["max"] = json!(1_001)), 422, "max"),
            ("/claims", claim(|ask| ask["kinds"] = json!([])), 422, "kinds"),
            ("/claims", claim(|ask| ask["kinds"] = json!(["a\nb"])), 422, "kinds"),
            ("/claims", claim(|ask| ask["labels"] = json!(["!spot"])), 422, "labels"),
            ("/claims", claim(|ask| ask["labels"] = json!(["a@b"])), 422, "labels"),
            ("/claims", claim(prefix_with_labels), 422, "labels"),
            ("/claims", claim(|ask| ask["wait_ms"] = json!(60_001)), 422, "wait_ms"),
            ("/claims", claim(|ask| ask["claim_id"] = json!("")), 422, "claim_id"),
            ("/claims", claim(|ask| ask["worker"] = json!("w".repeat(201))), 422, "worker"),
            ("/claim/heartbeat", json!({ "tokens": [] }), 422, "tokens"),
            ("/claim/complete", json!({}), 400, "token"),
            ("/claim/complete", json!({ "token": "a", "value": "v".repeat(65_535) }), 422, "value"),
            ("/claim/fail", json!({ "token": "a" }), 400, "error"),
            (
                "/claim/fail",
                json!({ "token": "a", "error": "", "final": true, "retry_after_ms": 1 }),
                422,
                "retry_after_ms",
            ),
        ] {
            let (said, answer) = world.post(0, path, body.clone()).await;
            assert_eq!((said, answer["field"].as_str()), (status, Some(field)), "{body}: {answer}");
        }
        for path in ["complete", "release"] {
            let path = format!("/claim/{path}");
            let (status, _) = world.post(0, &path, json!({ "token": "never" })).await;
            assert_eq!(status, 409);
        }
    });
}

#[test]
fn the_checkpoint_of_a_worker_is_handed_to_the_next_attempt() {
    with_worker(async |world| {
        world.add("a", "report").await;
        let run = world.claim(&["report"]).await.unwrap();
        assert_eq!(run["checkpoint"], Value::Null);
        let save = async |checkpoint: Value| {
            let body = json!({ "tokens": [run["token"]], "checkpoint": checkpoint });
            world.post(0, "/claim/heartbeat", body).await.0
        };
        assert_eq!(save(json!({ "page": 7 })).await, 200);
        assert_eq!(save(json!("x".repeat(70_000))).await, 422);
        let fail = json!({ "token": run["token"], "error": "x", "retry_after_ms": 0 });
        assert_eq!(world.post(0, "/claim/fail", fail).await.0, 200);
        let again = world.claim(&["report"]).await.unwrap();
        let seen = (&again["attempt"], &again["checkpoint"]);
        assert_eq!(seen, (&json!(2), &json!({ "page": 7 })));
        assert_eq!(save(json!(8)).await, 200, "the state of the old run says that it is lost");
        assert_eq!(world.state_of(&run).await, "lost");
        let release = json!({ "token": again["token"], "after_ms": 5_000 });
        assert_eq!(world.post(0, "/claim/release", release).await.0, 200);
        let third = world.claim(&["report"]).await.unwrap();
        let seen = (&third["attempt"], &third["checkpoint"]);
        assert_eq!(seen, (&json!(2), &json!({ "page": 7 })));
    });
}
