//! The description: it has each operation of the router, and the router has each of its own.

use super::{Api, DESCRIPTION, everything};
use crate::{get, with_store};
use allora_console::{Access, Console, Scope};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Each operation of the description: its method, its path below `/v1`, and itself.
fn operations() -> impl Iterator<Item = (String, &'static str, &'static Value)> {
    let paths = DESCRIPTION["paths"].as_object().unwrap().iter();
    paths.flat_map(|(path, item)| {
        let below = path.strip_prefix("/v1").unwrap();
        let all = item.as_object().unwrap().iter();
        all.map(move |(method, operation)| (method.to_uppercase(), below, operation))
    })
}

#[test]
fn the_router_answers_what_is_described_and_refuses_what_is_not() {
    with_store(&[], async |schedules| {
        let api = Api::new(&schedules, everything("ann").with(Scope::Work));
        let described: BTreeSet<(String, &str)> =
            operations().map(|(method, path, _)| (method, path)).collect();
        assert!(described.len() >= 40, "{}", described.len());
        let paths: BTreeSet<&str> = described.iter().map(|(_, path)| *path).collect();
        for path in paths {
            let mut allowed = BTreeSet::new();
            for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
                if path == "/events" && method == "GET" {
                    allowed.insert(method);
                    continue;
                }
                // Without its parameters, no operation does anything.
                let query = "?there-is-no-such-parameter";
                let answer = api.json(method, &format!("{path}{query}"), &[], json!({})).await;
                if answer.status != 405 {
                    assert_eq!(answer.status, 400, "{method} {path}: {}", answer.text);
                    allowed.insert(method);
                }
            }
            let of_path = described.iter().filter(|(_, other)| *other == path);
            assert_eq!(allowed, of_path.map(|(method, _)| method.as_str()).collect(), "{path}");
            let other = api.send("TRACE", path, &[("authorization", "Bearer x")], "").await;
            other.is_problem(405, "no-method");
            let allow: BTreeSet<&str> =
                other.header("allow").split(", ").filter(|one| *one != "HEAD").collect();
            assert_eq!(allow, allowed, "{path}");
        }
    });
}

#[test]
fn every_name_of_the_description_leads_somewhere() {
    let text = DESCRIPTION.to_string();
    let names = text.split("#/components/").skip(1).map(|rest| rest.split('"').next().unwrap());
    for name in names {
        let found = DESCRIPTION.pointer(&format!("/components/{name}"));
        assert!(found.is_some(), "{name}");
    }
    let ids: BTreeSet<&str> =
        operations().map(|(.., one)| one["operationId"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), operations().count());
    for (method, path, operation) in operations() {
        assert!(!operation["summary"].as_str().unwrap().is_empty(), "{method} {path}");
        assert_eq!(operation["responses"]["default"]["$ref"], "#/components/responses/Problem");
        for parameter in operation["parameters"].as_array().unwrap() {
            assert!(!parameter["description"].as_str().unwrap().is_empty(), "{method} {path}");
        }
    }
    let used = |schema: &&String| text.contains(&format!("#/components/schemas/{schema}\""));
    let unused: Vec<&String> = DESCRIPTION["components"]["schemas"]
        .as_object()
        .unwrap()
        .keys()
        .filter(|schema| !used(schema))
        .collect();
    // The status of jobs in code and the hours are no part of the API.
    assert_eq!(unused, ["HistoryCursor", "Hour", "JobStatus"]);
}

#[test]
fn without_its_pages_the_console_is_the_api_alone() {
    with_store(&["report"], async |schedules| {
        let access = Access::reader("ann");
        let router = Console::new(schedules)
            .pages(false)
            .access(move |_| Some(access.clone()))
            .into_router();
        for (path, status) in
            [("/v1/jobs", 200), ("/v1/", 200), ("/jobs", 404), ("/", 404), ("/console.css", 404)]
        {
            let answer = get(&router, path).await;
            assert_eq!(answer.status, status, "{path}");
            assert!(answer.header("content-type").starts_with("application/"), "{path}");
            assert_eq!(answer.header("cache-control"), "no-store", "{path}");
        }
        let mounted = axum::Router::new().nest_service("/ops/allora", router);
        assert_eq!(get(&mounted, "/ops/allora/v1/jobs").await.status, 200);
        assert_eq!(get(&mounted, "/ops/allora/v1").await.status, 200);
    });
}
