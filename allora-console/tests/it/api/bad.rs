//! Bad input: each malformed request gets the documented problem, and changes nothing.

use super::{Api, Reply, everything};
use crate::{send, with_idle_store};
use allora::Schedules;
use allora_console::{Access, Console, Decision, Scope};
use axum::{body::Body, http::Request};
use serde_json::json;

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];
const LINES: &[(&str, &str)] = &[("content-type", "application/x-ndjson")];
const BEARER: &[(&str, &str)] = &[("authorization", "Bearer x")];
const JOB: &str = r#"{"name":"new","kind":"mail","schedule":"@daily"}"#;

/// A request: method, path, headers, body; the status, the type and the field of the problem.
type Bad = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static str,
    u16,
    &'static str,
    &'static str,
);

const ALL: &[Bad] = &[
    // Paths and methods.
    ("GET", "/job/acme%2Freport", &[], "", 404, "no-path", ""),
    ("GET", "/jobs/", &[], "", 404, "no-path", ""),
    ("GET", "/Jobs", &[], "", 404, "no-path", ""),
    ("GET", "/../jobs", &[], "", 404, "no-path", ""),
    ("GET", "/%6Aobs", &[], "", 404, "no-path", ""),
    ("DELETE", "/jobs", &[], "", 405, "no-method", ""),
    ("GET", "/job/pause?name=report", &[], "", 405, "no-method", ""),
    ("OPTIONS", "/jobs", BEARER, "", 405, "no-method", ""),
    ("BREW", "/jobs", BEARER, "", 405, "no-method", ""),
    // Parameters.
    ("GET", "/job", &[], "", 400, "bad-parameter", "name"),
    ("GET", "/job?name=", &[], "", 400, "bad-parameter", "name"),
    ("GET", "/job?name=a&name=a", &[], "", 400, "bad-parameter", "name"),
    ("GET", "/job?name=report&verbose=1", &[], "", 400, "bad-parameter", "verbose"),
    ("GET", "/job?name=%FF", &[], "", 400, "bad-parameter", "name"),
    ("GET", "/job?name=%C3%28", &[], "", 400, "bad-parameter", "name"),
    ("GET", "/job?name=100%25%", &[], "", 400, "bad-parameter", "name"),
    ("GET", "/job?name=%u0041", &[], "", 400, "bad-parameter", "name"),
    ("GET", "/job?%=a", &[], "", 400, "bad-parameter", "%"),
    ("GET", "/job?name=report&wait=forever", &[], "", 400, "bad-parameter", "wait"),
    ("GET", "/job?name=report&wait=1h", &[], "", 400, "bad-parameter", "wait"),
    ("GET", "/jobs?limit=0", &[], "", 400, "bad-parameter", "limit"),
    ("GET", "/jobs?limit=501", &[], "", 400, "bad-parameter", "limit"),
    ("GET", "/jobs?limit=-1", &[], "", 400, "bad-parameter", "limit"),
    ("GET", "/jobs?limit=99999999999999999999", &[], "", 400, "bad-parameter", "limit"),
    ("GET", "/jobs?limit=1e2", &[], "", 400, "bad-parameter", "limit"),
    ("GET", "/jobs?state=broken", &[], "", 400, "bad-parameter", "state"),
    ("GET", "/jobs?sort=colour", &[], "", 400, "bad-parameter", "sort"),
    ("GET", "/jobs?page=nonsense", &[], "", 400, "bad-parameter", "page"),
    ("GET", "/jobs?page=ff", &[], "", 400, "bad-parameter", "page"),
    ("GET", "/jobs?sort=next&page=61", &[], "", 400, "bad-parameter", "page"),
    ("GET", "/runs?page=61", &[], "", 400, "bad-parameter", "page"),
    ("GET", "/runs?outcome=good", &[], "", 400, "bad-parameter", "outcome"),
    ("GET", "/runs?from=yesterday", &[], "", 400, "bad-parameter", "from"),
    ("GET", "/run?name=report&fence=first", &[], "", 400, "bad-parameter", "fence"),
    ("GET", "/run?name=report&fence=-1", &[], "", 400, "bad-parameter", "fence"),
    ("GET", "/run?name=report", &[], "", 400, "bad-parameter", "fence"),
    ("GET", "/job/next?name=report&count=1001", &[], "", 400, "bad-parameter", "count"),
    ("GET", "/job/why?name=report&at=2026-13-01T00:00:00Z", &[], "", 400, "bad-parameter", "at"),
    ("GET", "/audit?action=explode", &[], "", 400, "bad-parameter", "action"),
    ("POST", "/bulk?dry_run=perhaps", JSON, "{}", 400, "bad-parameter", "dry_run"),
    // Bodies.
    ("POST", "/jobs", JSON, "", 400, "bad-body", ""),
    ("POST", "/jobs", JSON, "{", 400, "bad-body", ""),
    ("POST", "/jobs", JSON, "[]", 400, "bad-body", ""),
    ("POST", "/jobs", JSON, "null", 400, "bad-body", ""),
    ("POST", "/jobs", JSON, r#"{"name":"a"} {"name":"b"}"#, 400, "bad-body", ""),
    ("POST", "/jobs", JSON, r#"{"name":"a","kind":"mail"}"#, 400, "bad-body", "schedule"),
    (
        "POST",
        "/jobs",
        JSON,
        r#"{"name":"a","name":"b","kind":"mail","schedule":"@daily"}"#,
        400,
        "bad-body",
        "name",
    ),
    (
        "POST",
        "/jobs",
        JSON,
        r#"{"name":"a","kind":"mail","schedule":"@daily","delya":"1m"}"#,
        400,
        "bad-body",
        "delya",
    ),
    (
        "POST",
        "/jobs",
        JSON,
        r#"{"name":7,"kind":"mail","schedule":"@daily"}"#,
        400,
        "bad-body",
        "name",
    ),
    (
        "POST",
        "/jobs",
        JSON,
        r#"{"name":"a","kind":"mail","schedule":["@daily"]}"#,
        400,
        "bad-body",
        "schedule",
    ),
    ("POST", "/jobs", &[], JOB, 403, "foreign-page", ""),
    ("POST", "/jobs", BEARER, JOB, 415, "media-type", "content-type"),
    (
        "POST",
        "/jobs",
        &[("content-type", "text/plain"), ("authorization", "Bearer x")],
        JOB,
        415,
        "media-type",
        "content-type",
    ),
    ("POST", "/jobs", LINES, JOB, 415, "media-type", "content-type"),
    (
        "POST",
        "/jobs",
        &[("content-type", "application/json"), ("content-encoding", "gzip")],
        JOB,
        415,
        "media-type",
        "content-type",
    ),
    ("POST", "/import", JSON, "{}", 415, "media-type", "content-type"),
    ("DELETE", "/job?name=report", JSON, "{}", 400, "bad-body", ""),
    ("POST", "/job/pause?name=report", JSON, r#"{"untill":"x"}"#, 400, "bad-body", "untill"),
    ("POST", "/job/pause?name=report", JSON, r#"{"until":7}"#, 400, "bad-body", ""),
    ("POST", "/job/trigger?name=report", JSON, r#"{"id":{}}"#, 400, "bad-body", ""),
    (
        "POST",
        "/jobs",
        &[("content-type", "application/json"), ("content-length", "4194305")],
        JOB,
        413,
        "too-large",
        "",
    ),
    // Values that were read, and are rejected.
    (
        "POST",
        "/jobs",
        JSON,
        r#"{"name":"a","kind":"mail","schedule":"61 * * * *"}"#,
        422,
        "rejected",
        "schedule",
    ),
    (
        "POST",
        "/jobs",
        JSON,
        r#"{"name":"a","kind":"mail","schedule":"@daily","delay":"30"}"#,
        422,
        "rejected",
        "delay",
    ),
    (
        "POST",
        "/jobs",
        JSON,
        r#"{"name":"a","kind":"mail","schedule":"0 2 * * *","zone":"Mars/X"}"#,
        422,
        "rejected",
        "zone",
    ),
    (
        "POST",
        "/jobs",
        JSON,
        r#"{"name":" a","kind":"mail","schedule":"@daily"}"#,
        422,
        "rejected",
        "name",
    ),
    (
        "POST",
        "/jobs",
        JSON,
        r#"{"name":"a","kind":"","schedule":"@daily"}"#,
        422,
        "rejected",
        "kind",
    ),
    ("POST", "/jobs?note=a%0Ab", JSON, JOB, 422, "rejected", "note"),
    ("POST", "/job/pause?name=report", JSON, r#"{"until":"soon"}"#, 422, "rejected", "until"),
    ("POST", "/job/resume?name=report", JSON, r#"{"gap":"all"}"#, 422, "rejected", "gap"),
    ("POST", "/job/skip?name=report", JSON, r#"{"count":0}"#, 422, "rejected", "count"),
    ("POST", "/job/trigger?name=report", JSON, r#"{"id":"a\nb"}"#, 422, "rejected", "id"),
    ("POST", "/job/backfill?name=report", JSON, "{}", 400, "bad-body", "from"),
    ("POST", "/bulk", JSON, r#"{"change":"explode"}"#, 422, "rejected", "change"),
    ("POST", "/bulk", JSON, r#"{"change":"trigger"}"#, 422, "rejected", "id"),
    ("POST", "/bulk", JSON, r#"{"change":"pause","gap":"missed"}"#, 422, "rejected", "gap"),
    (
        "POST",
        "/bulk",
        JSON,
        r#"{"change":"pause","filter":{"state":"due"}}"#,
        422,
        "rejected",
        "filter/state",
    ),
    // Preconditions.
    (
        "PUT",
        "/job/definition?name=report",
        JSON,
        r#"{"kind":"mail","schedule":"@daily"}"#,
        428,
        "no-precondition",
        "",
    ),
    (
        "PUT",
        "/job/definition?name=report",
        &[("content-type", "application/json"), ("if-match", "7")],
        JOB,
        400,
        "bad-header",
        "if-match",
    ),
    (
        "PATCH",
        "/job/definition?name=report",
        &[("content-type", "application/json"), ("if-match", "\"7.7\"")],
        "{}",
        412,
        "changed",
        "",
    ),
    ("DELETE", "/job?name=report", &[("if-match", "\"7.7\"")], "", 412, "changed", ""),
];

#[test]
fn a_malformed_request_gets_its_problem_and_changes_nothing() {
    assert!(ALL.len() >= 60);
    with_idle_store(&["report"], async |schedules| {
        let api = Api::new(&schedules, everything("ann"));
        let before = schedules.list(Default::default(), None, 9).await.unwrap();
        for (method, path, headers, body, status, of, field) in ALL {
            let answer = api.send(method, path, headers, *body).await;
            answer.is_problem(*status, of);
            let said =
                answer.json.get("field").and_then(|field| field.as_str()).unwrap_or_default();
            assert_eq!(said, *field, "{method} {path}: {}", answer.text);
        }
        assert_eq!(schedules.list(Default::default(), None, 9).await.unwrap(), before);
    });
}

#[test]
fn a_body_or_a_query_that_is_too_long_is_refused() {
    with_idle_store(&["report"], async |schedules| {
        let api = Api::new(&schedules, everything("ann"));
        let long = format!("{{\"name\":\"{}\"}}", "a".repeat(1 << 22));
        api.send("POST", "/jobs", JSON, long).await.is_problem(413, "too-large");
        let query = format!("/jobs?prefix={}", "a".repeat(9_000));
        api.get(&query).await.is_problem(400, "bad-parameter");
        let broken = [b'"', 0xff, b'"'];
        api.send("POST", "/jobs", JSON, broken.to_vec()).await.is_problem(400, "bad-body");
        let data = json!({ "name": "a", "kind": "mail", "schedule": "@daily", "data": "x".repeat(1 << 20) });
        let large = api.post("/jobs", data).await;
        large.is_problem(422, "rejected");
        assert_eq!(large.at("/field"), "data");
    });
}

#[test]
fn a_request_without_a_valid_caller_or_under_a_foreign_name_is_refused() {
    with_idle_store(&["report"], async |schedules| {
        let ask = async |console: Console, host: &str| {
            let request = Request::builder().uri("/v1/jobs").header("host", host);
            let answer = send(&console.into_router(), request.body(Body::empty()).unwrap()).await;
            let json = serde_json::from_str(&answer.body).unwrap();
            Reply { status: answer.status, headers: answer.headers, text: answer.body, json }
        };
        let new = || Console::new(schedules.clone());
        ask(new(), "a").await.is_problem(403, "no-access");
        let unknown = ask(new().access(|_| Decision::Unknown), "a").await;
        unknown.is_problem(401, "unauthorized");
        assert!(unknown.header("www-authenticate").starts_with("Bearer "));
        ask(new().access(|_| Decision::Refused), "a").await.is_problem(403, "no-access");
        let worker = |_: &axum::http::request::Parts| Some(Access::new("w").with(Scope::Work));
        ask(new().access(worker), "a").await.is_problem(403, "no-scope");
        ask(new().hosts(["ops.example"]), "evil.example").await.is_problem(421, "foreign-host");
    });
}

#[test]
fn a_page_of_another_site_changes_nothing() {
    with_idle_store(&["report"], async |schedules| {
        let api = Api::new(&schedules, everything("ann"));
        let pause = "/job/pause?name=report";
        for (name, value) in [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("origin", "https://evil.example"),
            ("origin", "null"),
        ] {
            for headers in
                [&[(name, value)][..], &[(name, value), JSON[0]], &[(name, value), BEARER[0]]]
            {
                api.send("POST", pause, headers, "").await.is_problem(403, "foreign-page");
            }
        }
        api.send("POST", pause, &[("content-type", "text/plain")], "{}")
            .await
            .is_problem(403, "foreign-page");
        assert!(paused(&schedules).await.is_none());
        for headers in [JSON, BEARER, &[("sec-fetch-site", "same-origin")]] {
            api.send("POST", pause, headers, "").await.is(200);
            api.send("POST", "/job/resume?name=report", headers, "").await.is(200);
        }
    });
}

async fn paused(schedules: &Schedules) -> Option<allora::backend::Pause> {
    schedules.get("report").await.unwrap().paused
}

#[test]
fn the_id_of_a_request_is_the_callers_if_it_is_one() {
    with_idle_store(&[], async |schedules| {
        let api = Api::new(&schedules, everything("ann"));
        let id = async |given: &str| {
            let answer = api.send("GET", "", &[("x-request-id", given)], "").await;
            answer.header("x-request-id").to_owned()
        };
        assert_eq!(id("r-7/a").await, "r-7/a");
        let long = "a".repeat(129);
        for bad in ["", "a b", "é", &*long] {
            let made = id(bad).await;
            assert!(made.len() == 16 && made != bad, "{bad}: {made}");
        }
        assert_ne!(id("").await, id("").await);
    });
}
