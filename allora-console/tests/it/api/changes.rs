//! Changes of jobs: each does what it says, once, and is in the record of changes.

use super::{Api, everything};
use crate::{actions::Outage, with_idle_store, with_store};
use allora::{
    Memory, Run, Scheduler, Schedules, StoredSchedule,
    backend::{DeadLetter, HistoryLimits, JobState},
    chrono::TimeDelta,
    runtime::Sim,
    stored::ChangeFilter,
};
use allora_conformance::faults::Wrapped;
use allora_console::{Access, Console, Scope};
use serde_json::json;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

fn report(name: &str) -> serde_json::Value {
    json!({ "name": name, "kind": "report", "schedule": "@every 1h", "data": { "to": "ann" } })
}

#[test]
fn a_job_is_added_once_with_its_place() {
    with_idle_store(&[], async |schedules| {
        let api = Api::new(&schedules, everything("ann"));
        let added = api.post("/jobs?note=for+the+audit", report("a b&c")).await.is(201);
        assert_eq!(added.header("location"), "job?name=a%20b%26c");
        assert_eq!(added.at("/data/to"), "ann");
        let definition = api.get("/job/definition?name=a%20b%26c").await.is(200);
        assert_eq!(definition.header("etag"), added.header("etag"));
        let again = api.post("/jobs", report("a b&c")).await;
        again.is_problem(409, "exists");
        assert_eq!(again.header("location"), "job?name=a%20b%26c");
        let audit = api.get("/audit?name=a%20b%26c&action=create").await.is(200);
        let said = ["actor", "via", "note"]
            .map(|field| audit.at(&format!("/items/0/{field}")).as_str().unwrap());
        assert_eq!(said, ["ann", "api", "for the audit"]);
    });
}

#[test]
fn a_deleted_job_comes_back_with_its_progress() {
    with_store(&["report"], async |schedules| {
        let api = Api::new(&schedules, everything("ann"));
        let before = schedules.get("report").await.unwrap();
        let deleted = api.send("DELETE", "/job?name=report&note=cleaning", &[], "").await.is(200);
        api.send("DELETE", "/job?name=report", &[], "").await.is_problem(404, "not-found");
        api.get("/job?name=report").await.is_problem(404, "not-found");
        let listed = api.get("/audit?action=delete").await.is(200);
        assert_eq!(
            (listed.names(), listed.at("/items/0/note")),
            (vec!["report"], &json!("cleaning"))
        );
        let sequence = deleted.at("/sequence").as_i64().unwrap();
        let undo = format!("/audit/undo?name=report&sequence={sequence}");
        api.post(&undo, json!({})).await.is(200);
        let after = schedules.get("report").await.unwrap();
        assert_eq!((after.next, &after.counters), (before.next, &before.counters));
        api.post(&undo, json!({})).await.is_problem(409, "conflict");
        api.post("/audit/undo?name=report&sequence=7", json!({}))
            .await
            .is_problem(404, "not-found");
    });
}

#[test]
fn actions_do_what_they_say_and_leave_their_note() {
    with_idle_store(&["report"], async |schedules| {
        let api = Api::new(&schedules, everything("ann"));
        let job = async || schedules.get("report").await.unwrap();
        let soon = schedules.store_now().await.unwrap() + TimeDelta::hours(1);
        let until = soon.to_rfc3339();
        let body = json!({ "note": "deploying", "until": until });
        let paused = api.post("/job/pause?name=report", body).await.is(200);
        assert_eq!(paused.at("/paused/note"), "ann: deploying");
        assert!(job().await.paused.unwrap().until.is_some());
        let resumed = api.post("/job/resume?name=report", json!({ "gap": "missed" })).await.is(200);
        assert_eq!(*resumed.at("/paused"), json!(null));
        let skipped = api.post("/job/skip?name=report", json!({ "count": 3 })).await.is(200);
        assert_eq!(skipped.at("/skipped"), 3);
        let before = job().await.incarnation;
        api.post("/job/reset?name=report", json!({})).await.is(200);
        assert_ne!(job().await.incarnation, before);
        api.post("/job/trigger?name=report", json!({ "id": "7" })).await.is(202);
        let cancelled = api.post("/job/cancel?name=report", json!({ "id": "7" })).await.is(200);
        assert_eq!(cancelled.at("/cancelled"), 1);
        let none = api.post("/job/cancel?name=report", json!({})).await.is(200);
        assert_eq!(none.at("/cancelled"), 0);
        let noted =
            schedules.changes(ChangeFilter::default().name("report"), None, 20).await.unwrap();
        assert!(noted.changes.iter().all(|change| change.author.via == "api"));
        assert_eq!(
            noted.changes.iter().filter(|change| change.author.note == "deploying").count(),
            1
        );
    });
}

#[test]
fn a_trigger_with_the_same_id_is_answered_as_the_first() {
    with_store(&["report"], async |schedules| {
        let api = Api::new(&schedules, everything("ann"));
        let key = [("idempotency-key", "\"ticket 7\"")];
        let trigger = "/job/trigger?name=report";
        let first = api.json("POST", trigger, &key, json!({})).await.is(202);
        assert_eq!((first.at("/id"), first.at("/status")), (&json!("ticket 7"), &json!("new")));
        let again = api.post(trigger, json!({ "id": "ticket 7" })).await.is(202);
        assert_eq!(
            (again.at("/status"), again.at("/scheduled_at")),
            (&json!("pending"), first.at("/scheduled_at"))
        );
        let wait = format!("{trigger}&wait=60s");
        let ended = api.json("POST", &wait, &key, json!({})).await.is(200);
        assert_eq!(
            (ended.at("/status"), ended.at("/outcome/outcome")),
            (&json!("ended"), &json!("succeeded"))
        );
        let late = api.json("POST", &wait, &key, json!({})).await.is(200);
        assert_eq!(late.json, ended.json);
        api.json("POST", trigger, &key, json!({ "id": "8" })).await.is_problem(400, "bad-header");
        let one = api.post(trigger, json!({})).await.is(202);
        let other = api.post(trigger, json!({})).await.is(202);
        assert_ne!(one.at("/id"), other.at("/id"));
    });
}

#[test]
fn a_trigger_has_data_of_its_own_and_its_run_a_value() {
    let (sim, store) = (Sim::new(1), Memory::new().with_history(HistoryLimits::default()));
    let node = sim.node();
    let echo = async |run: Run| run.set_value(String::from_utf8_lossy(run.data()).into_owned());
    let scheduler =
        Scheduler::builder(store.clone()).kind("echo", echo).runtime(node.clone()).build().unwrap();
    let schedules = Schedules::on(store, node.clone()).unwrap();
    crate::spawn(&node, scheduler);
    sim.block_on(async {
        let stored = StoredSchedule::new("echo", "echo", "@daily").data(&json!({ "n": 1 }));
        schedules.add(&stored).await.unwrap();
        let api = Api::new(&schedules, everything("ann"));
        let trigger = "/job/trigger?name=echo&wait=30s";
        let own = api.post(trigger, json!({ "id": "7", "data": { "n": 2 } })).await.is(200);
        assert_eq!(
            (own.at("/value/n"), own.at("/outcome/outcome")),
            (&json!(2), &json!("succeeded"))
        );
        let again = api.post(trigger, json!({ "id": "7", "data": { "n": 2 } })).await.is(200);
        assert_eq!(again.json, own.json);
        let other = api.post(trigger, json!({ "id": "7", "data": { "n": 3 } })).await;
        other.is_problem(409, "conflict");
        assert_eq!(other.at("/field"), "data");
        let bad = json!({ "id": "8", "data": { "$hex": "0" } });
        api.post(trigger, bad).await.is_problem(422, "rejected");
        let usual = api.post(trigger, json!({ "id": "9" })).await.is(200);
        assert_eq!(usual.at("/value/n"), 1);
        let runner = Api::new(&schedules, Access::reader("ben").with(Scope::Run));
        let hidden = runner.post(trigger, json!({ "id": "9" })).await.is(200);
        assert_eq!(*hidden.at("/value"), json!(null));
    });
}

#[test]
fn a_wait_for_a_run_that_no_node_makes_ends_with_202() {
    with_idle_store(&["report"], async |schedules| {
        let api = Api::new(&schedules, everything("ann"));
        let path = "/job/trigger?name=report&wait=10s";
        let answer = api.post(path, json!({ "id": "7" })).await.is(202);
        assert_eq!(answer.at("/status"), "new");
    });
}

#[test]
fn dead_letters_are_rerun_one_by_one_or_dismissed_together() {
    with_idle_store(&[], async |schedules| {
        let now = schedules.store_now().await.unwrap();
        let letter = |hours| DeadLetter {
            occurrence: (now - TimeDelta::hours(hours)).into(),
            attempts: 5,
            died_at: now,
            error: "refused".into(),
        };
        let mut state = JobState::empty("report");
        (state.kind, state.definition) = ("report".into(), "@daily; at-least-once 30s".into());
        state.dead = vec![letter(3), letter(2), letter(1)];
        schedules.import(&[state]).await.unwrap().remove(0).unwrap();
        let api = Api::new(&schedules, everything("ann"));
        let at = (now - TimeDelta::hours(3)).to_rfc3339();
        let one = json!({ "scheduled_at": at });
        let rerun = api.post("/job/rerun?name=report", one.clone()).await.is(200);
        assert_eq!(rerun.at("/items").as_array().unwrap().len(), 1);
        api.post("/job/rerun?name=report", one).await.is_problem(404, "not-found");
        let rest = api.post("/job/dismiss?name=report", json!({ "note": "old" })).await.is(200);
        assert_eq!(rest.at("/items").as_array().unwrap().len(), 2);
        assert!(schedules.get("report").await.unwrap().dead.is_empty());
        let odd = json!({ "trigger": "7" });
        api.post("/job/rerun?name=report", odd).await.is_problem(422, "rejected");
    });
}

#[test]
fn a_backfill_is_shown_before_it_is_made() {
    with_idle_store(&["report"], async |schedules| {
        let api = Api::new(&schedules, everything("ann"));
        let from = schedules.store_now().await.unwrap() - TimeDelta::minutes(1);
        let body = json!({ "from": from.to_rfc3339(), "note": "the disk was full" });
        let dry = api.post("/job/backfill?name=report&dry_run", body.clone()).await.is(200);
        assert_eq!(dry.at("/items").as_array().unwrap().len(), 3);
        assert!(
            schedules.changes(ChangeFilter::default(), None, 9).await.unwrap().changes.is_empty()
        );
        let done = api.post("/job/backfill?name=report", body).await.is(200);
        assert_eq!(done.json, dry.json);
        let long = json!({ "from": "2020-01-01T00:00:00Z" });
        for dry in ["", "&dry_run=true"] {
            let path = format!("/job/backfill?name=report{dry}");
            api.post(&path, long.clone()).await.is_problem(422, "rejected");
        }
        let future = json!({ "from": from.to_rfc3339(), "until": "2100-01-01T00:00:00Z" });
        api.post("/job/backfill?name=report", future).await.is_problem(422, "rejected");
    });
}

#[test]
fn many_jobs_are_changed_by_a_filter() {
    with_idle_store(&["acme/a", "acme/b", "beta/c"], async |schedules| {
        let api = Api::new(&schedules, everything("ann"));
        let pause = json!({ "filter": { "prefix": "acme/" }, "change": "pause", "note": "moving" });
        let dry = api.post("/bulk?dry_run", pause.clone()).await.is(200);
        assert_eq!(*dry.at("/names"), json!(["acme/a", "acme/b"]));
        assert!(schedules.get("acme/a").await.unwrap().paused.is_none());
        let done = api.post("/bulk", pause).await.is(200);
        assert_eq!((done.at("/count"), done.at("/failed")), (&json!(2), &json!(0)));
        assert_eq!(schedules.get("acme/a").await.unwrap().paused.unwrap().note, "ann: moving");
        let resume =
            json!({ "filter": { "state": "paused" }, "change": "resume", "gap": "missed" });
        assert_eq!(api.post("/bulk", resume).await.is(200).at("/count"), 2);
        let trigger = json!({ "change": "trigger", "id": "7" });
        assert_eq!(api.post("/bulk", trigger.clone()).await.is(200).at("/count"), 3);
        assert_eq!(api.post("/bulk", trigger).await.is(200).at("/triggered_before"), 3);
        let runner = Api::new(&schedules, Access::reader("ben").with(Scope::Run));
        let delete = json!({ "filter": { "kind": "report" }, "change": "delete" });
        runner.post("/bulk", delete.clone()).await.is_problem(403, "no-scope");
        assert_eq!(api.post("/bulk", delete).await.is(200).at("/count"), 3);
    });
}

#[test]
fn scopes_and_the_console_decide_who_changes_anything() {
    with_idle_store(&["report"], async |schedules| {
        let reader = Api::new(&schedules, Access::reader("ann"));
        let refused = reader.post("/job/pause?name=report", json!({})).await;
        refused.is_problem(403, "no-scope");
        assert!(refused.at("/detail").as_str().unwrap().contains("\"run\""));
        let runner = Api::new(&schedules, Access::reader("ann").with(Scope::Run));
        runner.send("DELETE", "/job?name=report", &[], "").await.is_problem(403, "no-scope");
        runner.post("/import", json!({})).await.is_problem(403, "no-scope");
        let access = everything("ann");
        let closed = Console::new(schedules.clone()).access(move |_| Some(access.clone()));
        let closed = Api(closed.into_router());
        closed.post("/job/pause?name=report", json!({})).await.is_problem(403, "read-only");
        closed.post("/explain", json!({ "schedule": "@daily" })).await.is(200);
        assert!(schedules.get("report").await.unwrap().paused.is_none());
    });
}

#[test]
fn a_store_that_does_not_answer_is_503_without_causes() {
    let (sim, is_down) = (Sim::new(1), Arc::new(AtomicBool::new(false)));
    let store = Wrapped::around(Memory::new(), Outage(is_down.clone()));
    let schedules = Schedules::on(store, sim.node()).unwrap();
    sim.block_on(async {
        schedules.add(&StoredSchedule::new("report", "mail", "@daily")).await.unwrap();
        is_down.store(true, Relaxed);
        let api = Api::new(&schedules, everything("ann"));
        let headers = [("x-request-id", "r-7")];
        let down =
            api.json("POST", "/job/trigger?name=report", &headers, json!({ "id": "7" })).await;
        down.is_problem(503, "unavailable");
        assert_eq!((down.header("retry-after"), down.header("x-request-id")), ("1", "r-7"));
        assert!(down.text.contains("same id") && !down.text.contains("hunter2"), "{}", down.text);
        is_down.store(false, Relaxed);
        api.post("/job/trigger?name=report", json!({ "id": "7" })).await.is(202);
    });
}
