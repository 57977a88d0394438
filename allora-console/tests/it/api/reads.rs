//! Reading: every list and every object, with their pages and their tags.

use super::{Api, everything, with_keys};
use crate::{with_idle_store, with_store};
use allora::{StoredSchedule, runtime::Runtime};
use allora_console::{Access, Console};
use serde_json::json;

#[test]
fn the_service_says_who_asks_and_what_may_be_done() {
    with_store(&["report"], async |schedules| {
        let api = Api::new(&schedules, Access::reader("ann").only_prefixes(["acme/"]));
        let about = api.get("").await.is(200);
        assert_eq!(about.at("/who"), "ann");
        assert_eq!(*about.at("/scopes"), json!(["read"]));
        assert_eq!(*about.at("/prefixes"), json!(["acme/"]));
        assert_eq!(api.get("/").await.is(200).at("/allows_changes"), true);
    });
}

#[test]
fn jobs_are_listed_page_by_page_and_by_their_states() {
    let names: Vec<String> = (0..12).map(|i| format!("acme/{i:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    with_idle_store(&names, async |schedules| {
        let api = Api::new(&schedules, everything("ann"));
        schedules.pause("acme/03", "moving").await.unwrap();
        let first = api.get("/jobs?limit=5").await.is(200);
        assert_eq!(first.names(), &names[..5]);
        assert!(first.at("/items/0").get("data").is_none(), "{}", first.text);
        let next = first.at("/next").as_str().unwrap().to_owned();
        let second = api.get(&format!("/jobs?limit=500&page={next}")).await.is(200);
        assert_eq!((second.names(), second.at("/next")), (names[5..].to_vec(), &json!(null)));
        let paused = api.get("/jobs?state=paused&prefix=acme%2F").await.is(200);
        assert_eq!(paused.names(), ["acme/03"]);
        assert!(paused.at("/items/0/states").as_array().unwrap().contains(&json!("paused")));
        assert_eq!(api.get("/jobs?kind=mail").await.is(200).names(), [""; 0]);
        assert_eq!(api.get("/jobs?sort=next&limit=3").await.is(200).names().len(), 3);
        let summary = api.get("/summary").await.is(200);
        assert_eq!(*summary.at("/jobs"), json!({ "number": 12, "is_exact": true }));
        assert_eq!(summary.at("/states/paused/number"), 1);
    });
}

#[test]
fn a_job_has_its_parts_its_times_and_its_reasons() {
    with_store(&["acme/report"], async |schedules| {
        let data = StoredSchedule::new("data", "mail", "0 2 * * *")
            .tag("nightly")
            .in_zone("Europe/Rome")
            .data(&json!({ "to": "ann" }));
        schedules.add(&data).await.unwrap();
        let api = Api::new(&schedules, everything("ann"));
        let job = api.get("/job?name=acme%2Freport").await.is(200);
        assert_eq!(
            (job.at("/name"), job.at("/counters/succeeded")),
            (&json!("acme/report"), &json!(3))
        );
        let definition = api.get("/job/definition?name=data").await.is(200);
        assert_eq!(*definition.at("/tags"), json!(["nightly"]));
        assert_eq!(definition.at("/data/to"), "ann");
        let (head, tail) = definition.header("etag").trim_matches('"').split_once('.').unwrap();
        assert!(head.parse::<i64>().is_ok() && tail.parse::<i64>().is_ok());
        let bytes = api.get("/job/data?name=data").await.is(200);
        assert_eq!(
            (bytes.text.as_str(), bytes.header("content-type")),
            (r#"{"to":"ann"}"#, "application/json")
        );
        let next = api.get("/job/next?name=data&count=3").await.is(200);
        assert_eq!(next.at("/items").as_array().unwrap().len(), 3);
        let second = next.at("/items/1/scheduled_at").as_str().unwrap();
        let after = api.get(&format!("/job/next?name=data&count=2&after={second}")).await.is(200);
        assert_eq!(after.at("/items/0"), next.at("/items/2"));
        let why = api.get("/job/why?name=acme%2Freport").await.is(200);
        assert!(!why.at("/sentence").as_str().unwrap().is_empty());
    });
}

#[test]
fn the_history_is_read_by_outcome_page_by_page_and_run_by_run() {
    with_store(&["a", "b"], async |schedules| {
        let api = Api::new(&schedules, everything("ann"));
        let all = api.get("/runs?limit=4").await.is(200);
        assert_eq!(all.at("/items").as_array().unwrap().len(), 4);
        let next = all.at("/next").as_str().unwrap();
        let rest = api.get(&format!("/runs?limit=4&page={next}")).await.is(200);
        assert_eq!(
            (rest.at("/items").as_array().unwrap().len(), rest.at("/next")),
            (2, &json!(null))
        );
        assert_eq!(api.get("/runs?outcome=failures").await.is(200).names(), [""; 0]);
        assert_eq!(api.get("/runs?owner=nobody").await.is(200).names(), [""; 0]);
        let of_a = api.get("/job/history?name=a&outcome=succeeded").await.is(200);
        assert_eq!(of_a.names(), ["a"; 3]);
        assert_eq!(of_a.at("/items/0/output"), "1,204 rows");
        let fence = of_a.at("/items/1/fence").as_i64().unwrap();
        let run = api.get(&format!("/run?name=a&fence={fence}")).await.is(200);
        assert_eq!(run.json, *of_a.at("/items/1"));
        api.get("/run?name=a&fence=7").await.is_problem(404, "not-found");
        api.get(&format!("/runs?page={}", "61")).await.is_problem(400, "bad-parameter");
        api.get("/job/history?name=none").await.is_problem(404, "not-found");
    });
}

#[test]
fn a_wait_ends_when_the_job_changes_and_not_before() {
    with_idle_store(&["report"], async |schedules| {
        let api = Api::new(&schedules, everything("ann"));
        let tag = api.get("/job?name=report").await.is(200).at("/tag").as_str().unwrap().to_owned();
        let runtime = schedules.runtime().clone();
        let begin = runtime.now();
        let path = format!("/job?name=report&wait=30s&tag={tag}");
        assert_eq!(*api.get(&path).await.is(200).at("/tag"), *tag, "nothing has changed");
        let waited = runtime.now() - begin;
        assert!((30..31).contains(&waited.as_secs()), "{waited:?}");
        let pause = async {
            let at = runtime.now() + std::time::Duration::from_secs(5);
            runtime.sleep_until(at).await;
            schedules.pause("report", "").await.unwrap();
        };
        let (job, ()) = futures::join!(api.get(&path), pause);
        assert!(job.is(200).at("/paused").is_object());
        let waited = runtime.now() - begin;
        assert!((35..38).contains(&waited.as_secs()), "{waited:?}");
    });
}

#[test]
fn a_schedule_is_explained_without_being_stored() {
    with_idle_store(&[], async |schedules| {
        let api = Api::new(&schedules, Access::reader("ann"));
        let body = json!({
            "schedule": "30 2 * * *", "zone": "Europe/Rome", "delay": "1m", "count": 2,
            "after": "2026-03-28T12:00:00Z",
        });
        let explained = api.post("/explain", body).await.is(200);
        assert_eq!(explained.at("/items/0/scheduled_at"), "2026-03-29T01:00:00Z");
        assert_eq!(explained.at("/items/0/due_at"), "2026-03-29T01:01:00Z");
        let reason = explained.at("/items/0/reasons/0").as_str().unwrap();
        assert!(reason.contains("does not exist"), "{reason}");
        let wrong = api.post("/explain", json!({ "schedule": "0 0 * * Mond" })).await;
        wrong.is_problem(422, "rejected");
        assert_eq!((wrong.at("/field"), wrong.at("/range")), (&json!("schedule"), &json!([8, 12])));
        let many = json!({ "schedule": "@daily", "count": 1_001 });
        api.post("/explain", many).await.is_problem(422, "rejected");
    });
}

#[test]
fn keys_have_their_holders_and_waiters() {
    with_keys(async |schedules| {
        let api = Api::new(&schedules, everything("ann"));
        api.get("/key?key=none").await.is_problem(404, "not-found");
        let keys = api.get("/keys").await.is(200);
        assert_eq!(keys.at("/items/0/key"), "tapes");
        assert_eq!(keys.at("/items/0/holders").as_array().unwrap().len(), 1);
        assert_eq!(keys.at("/items/0/waiters").as_array().unwrap().len(), 1);
        let key = api.get("/key?key=tapes").await.is(200);
        assert_eq!(key.json, *keys.at("/items/0"));
    });
}

#[test]
fn nodes_and_health_are_those_of_the_store_and_of_this_process() {
    with_store(&["a"], async |schedules| {
        let api = Api::new(&schedules, everything("ann"));
        let nodes = api.get("/nodes").await.is(200);
        assert_eq!(nodes.at("/items/0/is_live"), true);
        assert!(nodes.at("/items/0").get("concurrency").is_some());
        api.get("/health").await.is_problem(404, "not-found");
        let limited = Api::new(&schedules, Access::reader("ann").only_prefixes(["a"]));
        assert!(limited.get("/nodes").await.is(200).at("/items/0").get("jobs").is_none());
    });
}

#[test]
fn calendars_are_set_listed_and_deleted_unless_a_job_uses_them() {
    with_idle_store(&[], async |schedules| {
        let api = Api::new(&schedules, everything("ann"));
        let text = json!({ "text": "2026-12-25 # Christmas\n2026-12-26" });
        api.json("PUT", "/calendar?name=holidays", &[], text).await.is(200);
        let daily = "@daily; except calendar:holidays";
        schedules.add(&StoredSchedule::new("report", "mail", daily)).await.unwrap();
        assert_eq!(api.get("/calendars").await.is(200).names(), ["holidays"]);
        let one = api.get("/calendar?name=holidays").await.is(200);
        assert_eq!(*one.at("/users"), json!(["report"]));
        let used = api.send("DELETE", "/calendar?name=holidays", &[], "").await;
        used.is_problem(409, "conflict");
        schedules.delete("report").await.unwrap();
        api.send("DELETE", "/calendar?name=holidays", &[], "").await.is(204);
        api.get("/calendar?name=holidays").await.is_problem(404, "not-found");
        let bad =
            api.json("PUT", "/calendar?name=holidays", &[], json!({ "text": "26 of May" })).await;
        bad.is_problem(422, "rejected");
        assert_eq!(bad.at("/field"), "text");
    });
}

#[test]
fn hints_are_a_stream_of_events() {
    use axum::{body::Body, http::Request};
    use tower::ServiceExt;
    with_idle_store(&[], async |schedules| {
        let access = Access::reader("ann");
        let router = Console::new(schedules).access(move |_| Some(access.clone())).into_router();
        let request = Request::builder().uri("/v1/events").body(Body::empty()).unwrap();
        let answer = router.oneshot(request).await.unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
    });
}

#[test]
fn data_and_output_are_for_those_who_may_see_them() {
    with_store(&["report"], async |schedules| {
        let stored = StoredSchedule::new("data", "mail", "@daily").data(&json!({ "pin": "hush" }));
        schedules.add(&stored).await.unwrap();
        schedules
            .clone()
            .by("ben")
            .modify(
                &stored
                    .read_at(schedules.get("data").await.unwrap().generation)
                    .data(&json!({ "pin": "hush 2" })),
            )
            .await
            .unwrap();
        let may_not = Api::new(&schedules, Access::reader("ann"));
        for path in ["/job?name=data", "/jobs", "/job/definition?name=data", "/runs", "/audit"] {
            let answer = may_not.get(path).await.is(200);
            assert!(
                !answer.text.contains("hush") && !answer.text.contains("1,204"),
                "{path}: {}",
                answer.text
            );
        }
        may_not.get("/job/data?name=data").await.is_problem(403, "no-scope");
        let may = Api::new(&schedules, Access::reader("ann").with_data());
        for path in ["/job?name=data", "/job/definition?name=data", "/audit"] {
            assert!(may.get(path).await.is(200).text.contains("hush"), "{path}");
        }
        assert!(may.get("/runs").await.text.contains("1,204 rows"));
    });
}
