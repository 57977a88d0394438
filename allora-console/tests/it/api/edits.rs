//! Definitions: their tags, and edits that lose nothing.

use super::{Api, everything};
use crate::{with_idle_store, with_store};
use allora::StoredSchedule;
use allora_console::{Access, Console, Scope};
use serde_json::json;

const PATH: &str = "/job/definition?name=report";

#[test]
fn a_definition_is_created_and_replaced_by_its_tag() {
    with_idle_store(&[], async |schedules| {
        let api = Api::new(&schedules, everything("ann"));
        let body = json!({ "kind": "mail", "schedule": "@daily" });
        let new = [("if-none-match", "*")];
        let first = api.json("PUT", PATH, &new, body.clone()).await.is(201);
        assert_eq!(first.header("location"), "../job?name=report");
        api.json("PUT", PATH, &new, body.clone()).await.is_problem(412, "changed");
        api.json("PUT", PATH, &[], body).await.is_problem(428, "no-precondition");
        let hourly = json!({ "kind": "mail", "schedule": "@hourly", "name": "report" });
        let tag = [("if-match", first.header("etag"))];
        let second = api.json("PUT", PATH, &tag, hourly.clone()).await.is(200);
        assert_eq!(second.at("/schedule"), "@hourly");
        assert_ne!(second.header("etag"), first.header("etag"));
        let stale = api.json("PUT", PATH, &tag, hourly.clone()).await;
        stale.is_problem(412, "changed");
        assert_eq!(stale.header("etag"), second.header("etag"));
        api.json("PUT", PATH, &[("if-match", "*")], hourly.clone()).await.is(200);
        let none = "/job/definition?name=none";
        let other = api.json(
            "PUT",
            none,
            &[("if-match", "*")],
            json!({ "kind": "a", "schedule": "@daily" }),
        );
        other.await.is_problem(412, "changed");
        api.json("PUT", none, &[], hourly).await.is_problem(422, "rejected");
    });
}

#[test]
fn a_patch_changes_what_it_names_and_keeps_the_rest() {
    with_idle_store(&[], async |schedules| {
        let stored = StoredSchedule::new("report", "mail", "0 2 * * *")
            .in_zone("Europe/Rome")
            .owner("ann")
            .data_bytes("{ \"to\":  1 }");
        schedules.add(&stored).await.unwrap();
        let api = Api::new(&schedules, everything("ann"));
        let patched =
            api.json("PATCH", PATH, &[], json!({ "owner": null, "delay": "90s" })).await.is(200);
        assert_eq!((patched.at("/delay"), patched.json.get("owner")), (&json!("1m30s"), None));
        assert_eq!(patched.at("/zone"), "Europe/Rome");
        assert_eq!(
            schedules.get("report").await.unwrap().data,
            b"{ \"to\":  1 }",
            "the same bytes"
        );
        let merge = [
            ("content-type", "application/merge-patch+json"),
            ("if-match", patched.header("etag")),
        ];
        let data = json!({ "data": { "cc": "ben" } }).to_string();
        let more = api.send("PATCH", PATH, &merge, data.clone()).await.is(200);
        assert_eq!(*more.at("/data"), json!({ "to": 1, "cc": "ben" }));
        api.send("PATCH", PATH, &merge, data).await.is_problem(412, "changed");
        let once = api.json("PATCH", PATH, &[], json!({ "at_most_once": true })).await.is(200);
        assert_eq!((once.at("/at_most_once"), once.json.get("retry")), (&json!(true), None));
        let again = api.json("PATCH", PATH, &[], json!({ "at-least-once": "1m" })).await.is(200);
        assert_eq!(
            (again.at("/at_least_once"), again.json.get("at_most_once")),
            (&json!("1m"), None)
        );
        let wrong = api.json("PATCH", PATH, &[], json!({ "schedule": "61 * * * *" })).await;
        wrong.is_problem(422, "rejected");
        assert_eq!((wrong.at("/field"), wrong.at("/range")), (&json!("schedule"), &json!([0, 2])));
        api.json("PATCH", PATH, &[], json!({ "name": "other" })).await.is_problem(422, "rejected");
        let calendar = json!({ "schedule": "@daily; except calendar:none" });
        let missing = api.json("PATCH", PATH, &[], calendar).await;
        missing.is_problem(422, "rejected");
        assert_eq!(missing.at("/field"), "schedule");
    });
}

#[test]
fn a_run_that_ends_breaks_no_edit() {
    with_store(&["report"], async |schedules| {
        let api = Api::new(&schedules, everything("ann"));
        let definition = api.get(PATH).await.is(200);
        api.post("/job/trigger?name=report&wait=60s", json!({ "id": "7" })).await.is(200);
        let tag = [("if-match", definition.header("etag"))];
        api.json("PATCH", PATH, &tag, json!({ "delay": "1m" })).await.is(200);
        api.send("DELETE", "/job?name=report", &tag, "").await.is_problem(412, "changed");
        assert!(schedules.exists("report").await.unwrap());
    });
}

#[test]
fn data_that_was_not_shown_is_not_lost_by_leaving_it_out() {
    with_idle_store(&[], async |schedules| {
        let stored = StoredSchedule::new("report", "mail", "@daily").data_bytes("hush");
        schedules.add(&stored).await.unwrap();
        let data = async || schedules.get("report").await.unwrap().data;
        let body = json!({ "kind": "mail", "schedule": "@hourly" });
        let any = [("if-match", "*")];
        let editor = Api::new(&schedules, Access::reader("ann").with(Scope::Edit));
        let replaced = editor.json("PUT", PATH, &any, body.clone()).await.is(200);
        assert!(!replaced.text.contains("hush"));
        assert_eq!(data().await, b"hush");
        let access = everything("ann");
        let redacting = Console::new(schedules.clone()).allow_actions();
        let redacting = redacting.redact(|_, text| text.replace("hush", "***"));
        let redacting = Api(redacting.access(move |_| Some(access.clone())).into_router());
        let shown = redacting.get(PATH).await.is(200);
        assert!(shown.json.get("data").is_none(), "{}", shown.text);
        redacting.json("PUT", PATH, &any, body.clone()).await.is(200);
        assert_eq!(data().await, b"hush");
        let all = Api::new(&schedules, everything("ann"));
        all.json("PUT", PATH, &any, body).await.is(200);
        assert_eq!(data().await, b"");
    });
}

#[test]
fn a_job_in_code_has_no_definition_to_edit() {
    use allora::{
        Memory, Scheduler, Schedules,
        runtime::{Runtime, Sim},
    };
    let (sim, store) = (Sim::new(1), Memory::new());
    let node = sim.node();
    let start = node.wall();
    let scheduler = Scheduler::builder(store.clone())
        .job("code", allora::every(std::time::Duration::from_secs(20)), async |_: allora::Run| ())
        .runtime(node.clone())
        .build()
        .unwrap();
    crate::spawn(&node, scheduler);
    sim.run_until(start + allora::chrono::TimeDelta::seconds(30));
    sim.block_on(async {
        let schedules = Schedules::on(store, node).unwrap();
        let api = Api::new(&schedules, everything("ann"));
        let path = "/job/definition?name=code";
        api.get(path).await.is_problem(409, "conflict");
        api.get("/job/next?name=code").await.is(200);
        let body = json!({ "kind": "mail", "schedule": "@daily" });
        api.json("PUT", path, &[("if-match", "*")], body.clone()).await.is_problem(409, "conflict");
        api.json("PATCH", path, &[], body).await.is_problem(409, "conflict");
    });
}
