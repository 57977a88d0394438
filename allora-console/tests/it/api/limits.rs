//! Accounts: a caller with a prefix learns nothing of other names, and changes nothing of theirs.

use super::{Api, everything, with_keys};
use crate::with_store;
use allora::{chrono::TimeDelta, schedule::Calendar};
use allora_console::{Access, Scope};
use serde_json::{Value, json};
use std::time::Duration;

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

#[test]
fn no_answer_names_or_counts_what_is_foreign() {
    with_store(&["acme/a", "beta/b"], async |schedules| {
        schedules.clone().by("ben").pause("beta/b", "secret plans").await.unwrap();
        schedules.clone().by("ben").pause("acme/a", "").await.unwrap();
        schedules.clone().by("ben").resume("acme/a", allora::stored::Gap::Missed).await.unwrap();
        let holidays = Calendar::parse("2026-12-25").unwrap();
        schedules.upsert_calendar("beta/holidays", &holidays).await.unwrap();
        schedules.upsert_calendar("acme/holidays", &holidays).await.unwrap();
        let access = Access::reader("ann").with(Scope::Admin).only_prefixes(["acme/"]);
        let api = Api::new(&schedules, access);
        let paths = [
            "",
            "/summary",
            "/jobs",
            "/jobs?sort=next",
            "/jobs?state=paused",
            "/jobs?prefix=beta",
            "/jobs?prefix=b&limit=1",
            "/runs",
            "/runs?prefix=beta%2F",
            "/audit",
            "/deleted",
            "/audit?actor=ben",
            "/audit?prefix=beta",
            "/nodes",
            "/keys",
            "/calendars",
            "/export",
            "/job?name=acme%2Fa",
            "/job/why?name=acme%2Fa",
            "/job/history?name=acme%2Fa",
            "/audit?name=beta%2Fb",
        ];
        for path in paths {
            let answer = api.get(path).await.is(200);
            assert!(
                !answer.text.contains("beta") && !answer.text.contains("secret"),
                "{path}: {}",
                answer.text
            );
        }
        assert_eq!(api.get("/jobs").await.names(), ["acme/a"]);
        assert_eq!(api.get("/calendars").await.names(), ["acme/holidays"]);
        assert_eq!(api.get("/audit").await.names(), ["acme/a"; 2]);
        let summary = api.get("/summary").await;
        assert_eq!(
            (summary.at("/jobs/number"), summary.at("/states/paused/number")),
            (&json!(1), &json!(0))
        );
        assert_eq!(api.get("/runs").await.names(), ["acme/a"; 3]);
    });
}

#[test]
fn a_foreign_name_is_not_found_like_one_that_does_not_exist() {
    with_store(&["acme/a", "beta/b"], async |schedules| {
        let all = Api::new(&schedules, everything("root"));
        let fence = all.get("/runs?prefix=beta").await.at("/items/0/fence").as_i64().unwrap();
        all.post("/job/pause?name=beta%2Fb", json!({ "note": "x" })).await.is(200);
        let sequence = all.get("/audit").await.at("/items/0/sequence").as_i64().unwrap();
        let before = schedules.get("beta/b").await.unwrap();
        let access = Access::reader("ann").with(Scope::Admin).only_prefixes(["acme/"]);
        let api = Api::new(&schedules, access);
        let schedule = json!({ "kind": "report", "schedule": "@daily" });
        let range = json!({ "from": (schedules.store_now().await.unwrap() - TimeDelta::minutes(1)).to_rfc3339() });
        let none = json!({});
        let requests: [(&str, String, &Value); 22] = [
            ("GET", "/job?name=NAME".into(), &none),
            ("GET", "/job/definition?name=NAME".into(), &none),
            ("GET", "/job/data?name=NAME".into(), &none),
            ("GET", "/job/next?name=NAME".into(), &none),
            ("GET", "/job/why?name=NAME".into(), &none),
            ("GET", "/job/history?name=NAME".into(), &none),
            ("GET", format!("/run?name=NAME&fence={fence}"), &none),
            ("GET", "/calendar?name=NAME".into(), &none),
            ("DELETE", "/job?name=NAME".into(), &none),
            ("DELETE", "/calendar?name=NAME".into(), &none),
            ("PUT", "/job/definition?name=NAME".into(), &schedule),
            ("PATCH", "/job/definition?name=NAME".into(), &schedule),
            ("POST", "/job/trigger?name=NAME".into(), &none),
            ("POST", "/job/pause?name=NAME".into(), &none),
            ("POST", "/job/resume?name=NAME".into(), &none),
            ("POST", "/job/skip?name=NAME".into(), &none),
            ("POST", "/job/cancel?name=NAME".into(), &none),
            ("POST", "/job/reset?name=NAME".into(), &none),
            ("POST", "/job/rerun?name=NAME".into(), &none),
            ("POST", "/job/dismiss?name=NAME".into(), &none),
            ("POST", "/job/backfill?name=NAME".into(), &range),
            ("POST", format!("/audit/undo?name=NAME&sequence={sequence}"), &none),
        ];
        for (method, path, body) in requests {
            let mut details = Vec::new();
            for name in ["beta/b", "beta/c"] {
                let path = path.replace("NAME", &name.replace('/', "%2F"));
                let has_body = !["GET", "DELETE"].contains(&method);
                let (headers, body) =
                    if has_body { (&JSON[..], body.to_string()) } else { (&[][..], String::new()) };
                let answer = api.send(method, &path, headers, body).await;
                answer.is_problem(404, "not-found");
                details.push(answer.at("/detail").as_str().unwrap().replace(name, ""));
            }
            assert_eq!(details[0], details[1], "{method} {path}");
        }
        api.get("/key?key=tapes").await.is_problem(404, "not-found");
        let add = json!({ "name": "beta/new", "kind": "report", "schedule": "@daily" });
        let refused = api.post("/jobs", add).await;
        refused.is_problem(422, "rejected");
        assert_eq!(refused.at("/field"), "name");
        let bulk = json!({ "change": "pause", "note": "mine" });
        assert_eq!(*api.post("/bulk", bulk).await.is(200).at("/names"), json!(["acme/a"]));
        let after = schedules.get("beta/b").await.unwrap();
        assert_eq!((after.version, after.paused), (before.version, before.paused));
    });
}

#[test]
fn an_account_has_so_many_jobs_and_none_that_runs_too_often() {
    with_store(&["acme/a", "beta/b"], async |schedules| {
        let access = Access::reader("acme").with(Scope::Admin).only_prefixes(["acme/"]);
        let access = access.with_max_jobs(2).with_shortest_period(Duration::from_secs(300));
        let api = Api::new(&schedules, access);
        assert_eq!(api.get("").await.is(200).at("/max_jobs"), 2);
        let job = |name: &str, schedule: &str| json!({ "name": name, "kind": "report", "schedule": schedule });
        let often = api.post("/jobs", job("acme/b", "* * * * *")).await;
        often.is_problem(422, "rejected");
        assert_eq!(often.at("/field"), "schedule");
        api.post("/jobs", job("acme/b", "*/5 * * * *")).await.is(201);
        let full = api.post("/jobs", job("acme/c", "@daily")).await;
        full.is_problem(409, "limit");
        assert!(full.at("/detail").as_str().unwrap().contains("at most 2"), "{}", full.text);
        let put = "/job/definition?name=acme%2Fc";
        api.json("PUT", put, &[], job("acme/c", "@daily")).await.is_problem(409, "limit");
        let lines = [("content-type", "application/x-ndjson")];
        let line = job("acme/c", "@daily").to_string();
        api.send("POST", "/sync", &lines, line).await.is_problem(409, "limit");
        let exported = api.get("/export").await.is(200).text;
        let again = api.send("POST", "/import?skip_existing", &lines, exported.clone()).await;
        assert_eq!(again.is(200).at("/kept"), 1, "the other runs too often");
        let renamed = exported.replace("acme/b", "acme/c");
        api.send("POST", "/import", &lines, renamed).await.is_problem(409, "limit");
        let patch = "/job/definition?name=acme%2Fb";
        let faster = json!({ "schedule": "@every 1m" });
        api.json("PATCH", patch, &[], faster).await.is_problem(422, "rejected");
        let deleted = api.send("DELETE", "/job?name=acme%2Fb", &[], "").await.is(200);
        assert_eq!(api.get("/deleted").await.is(200).names(), ["acme/b"]);
        api.post("/jobs", job("acme/c", "@daily")).await.is(201);
        let undo = format!("/audit/undo?name=acme%2Fb&sequence={}", deleted.at("/sequence"));
        api.post(&undo, json!({})).await.is_problem(409, "limit");
        api.send("DELETE", "/job?name=acme%2Fc", &[], "").await.is(200);
        api.post(&undo, json!({})).await.is(200);
    });
}

#[test]
fn of_a_shared_key_only_own_jobs_are_shown() {
    with_keys(async |schedules| {
        for name in ["acme/", "beta/", "gamma/"] {
            let api = Api::new(&schedules, Access::reader("ann").only_prefixes([name]));
            let keys = api.get("/keys").await.is(200);
            let shown = keys.at("/items").as_array().unwrap().len();
            assert_eq!(shown, usize::from(name != "gamma/"), "{name}");
            for other in ["acme/", "beta/"].into_iter().filter(|other| *other != name) {
                assert!(!keys.text.contains(other), "{name}: {}", keys.text);
            }
            let status = if name == "gamma/" { 404 } else { 200 };
            api.get("/key?key=tapes").await.is(status);
        }
    });
}

#[test]
fn the_records_of_the_scheduler_are_no_jobs() {
    with_keys(async |schedules| {
        let api = Api::new(&schedules, everything("ann"));
        let name = "/job?name=allora%3Akey%3Atapes";
        api.get(name).await.is_problem(404, "not-found");
        api.send("DELETE", name, &[], "").await.is_problem(404, "not-found");
        api.get("/jobs?prefix=allora%3Akey%3A").await.is_problem(400, "bad-parameter");
        let bulk = json!({ "filter": { "prefix": "allora:node:" }, "change": "pause" });
        api.post("/bulk", bulk).await.is_problem(422, "rejected");
        let add = json!({ "name": "allora:key:x", "kind": "report", "schedule": "@daily" });
        api.post("/jobs", add).await.is_problem(422, "rejected");
    });
}
