//! Lines of JSON: export, import and sync.

use super::{Api, everything};
use crate::with_idle_store;
use allora::StoredSchedule;
use allora_console::{Access, Scope};
use serde_json::{Value, json};

const LINES: [(&str, &str); 1] = [("content-type", "application/x-ndjson")];

#[test]
fn an_export_is_imported_with_calendars_and_progress() {
    with_idle_store(&[], async |from| {
        from.upsert_calendar("holidays", &allora::schedule::Calendar::parse("2026-12-25").unwrap())
            .await
            .unwrap();
        for i in 0..3 {
            let daily = "@daily; except calendar:holidays";
            from.add(&StoredSchedule::new(format!("job {i}"), "mail", daily)).await.unwrap();
        }
        from.pause("job 1", "moving").await.unwrap();
        let exported = Api::new(&from, everything("ann")).get("/export").await.is(200).text;
        assert_eq!(exported.lines().count(), 4);
        with_idle_store(&[], async |to| {
            let api = Api::new(&to, everything("ann"));
            let dry = api.send("POST", "/import?dry_run", &LINES, exported.clone()).await.is(200);
            assert_eq!((dry.at("/imported"), api.get("/jobs").await.names().len()), (&json!(4), 0));
            let done = api.send("POST", "/import", &LINES, exported.clone()).await.is(200);
            assert_eq!((done.at("/imported"), done.at("/refused")), (&json!(4), &json!(0)));
            assert_eq!(to.get("job 1").await.unwrap().paused.unwrap().note, "moving");
            let again = api.send("POST", "/import", &LINES, exported.clone()).await.is(200);
            assert_eq!((again.at("/refused"), again.at("/errors/0/line")), (&json!(3), &json!(2)));
            let kept =
                api.send("POST", "/import?skip_existing", &LINES, exported.clone()).await.is(200);
            assert_eq!((kept.at("/kept"), kept.at("/refused")), (&json!(3), &json!(0)));
        });
    });
}

#[test]
fn of_ten_thousand_lines_the_bad_ones_are_named_and_the_others_imported() {
    with_idle_store(&[], async |schedules| {
        let line = |i: usize| match i {
            17 => "{".to_owned(),
            5_000 => json!({ "name": "a", "kind": "mail" }).to_string(),
            9_999 => "\u{fffd}".repeat(3),
            _ => json!({
                "name": format!("job {i}"), "kind": "mail", "definition": "@daily", "next": null,
                "paused": null,
            })
            .to_string(),
        };
        let body: String = (1..=10_000).map(|i| line(i) + "\n").collect();
        let api = Api::new(&schedules, everything("ann"));
        let report = api.send("POST", "/import", &LINES, body).await.is(200);
        assert_eq!((report.at("/imported"), report.at("/refused")), (&json!(9_997), &json!(3)));
        let errors = report.at("/errors").as_array().unwrap().iter();
        assert_eq!(
            errors.map(|error| error["line"].as_u64().unwrap()).collect::<Vec<_>>(),
            [17, 5_000, 9_999]
        );
        assert!(schedules.exists("job 10000").await.unwrap());
    });
}

fn lines(all: &[Value]) -> String {
    all.iter().map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_store_is_made_to_have_the_declared_set() {
    with_idle_store(&["acme/old", "beta/old"], async |schedules| {
        let api = Api::new(&schedules, everything("ann"));
        let new = json!({ "name": "acme/new", "kind": "mail", "schedule": "@daily" });
        let path = "/sync?complete=acme%2F&grace=1h";
        let dry = api
            .send("POST", &format!("{path}&dry_run"), &LINES, lines(std::slice::from_ref(&new)))
            .await
            .is(200);
        let steps =
            dry.at("/items").as_array().unwrap().iter().map(|item| item["step"].as_str().unwrap());
        let mut steps: Vec<&str> = steps.collect();
        steps.sort_unstable();
        assert_eq!(steps, ["add", "orphan"]);
        assert!(!schedules.exists("acme/new").await.unwrap());
        let done = api.send("POST", path, &LINES, lines(std::slice::from_ref(&new))).await.is(200);
        assert_eq!(done.at("/items").as_array().unwrap().len(), 2);
        assert!(schedules.exists("acme/new").await.unwrap());
        let again = api.send("POST", path, &LINES, lines(std::slice::from_ref(&new))).await.is(200);
        assert_eq!(*again.at("/items"), json!([]));
        let bad = json!({ "name": "acme/bad", "kind": "mail", "schedule": "61 * * * *" });
        let more = json!({ "name": "acme/more", "kind": "mail", "schedule": "@daily" });
        let refused = api.send("POST", path, &LINES, lines(&[more, bad])).await;
        refused.is_problem(422, "rejected");
        assert_eq!(
            (refused.at("/errors/0/line"), refused.at("/errors/0/field")),
            (&json!(2), &json!("schedule"))
        );
        assert!(!schedules.exists("acme/more").await.unwrap());
    });
}

#[test]
fn an_account_imports_exports_and_syncs_only_its_own() {
    with_idle_store(&["acme/a", "beta/b"], async |schedules| {
        let access = Access::reader("ann").with(Scope::Admin).only_prefixes(["acme/"]);
        let api = Api::new(&schedules, access);
        let exported = api.get("/export").await.is(200).text;
        assert!(exported.contains("acme/a") && !exported.contains("beta"), "{exported}");
        let foreign = exported.replace("acme/a", "beta/c");
        let report = api.send("POST", "/import", &LINES, foreign).await.is(200);
        assert_eq!((report.at("/imported"), report.at("/refused")), (&json!(0), &json!(1)));
        let new = json!({ "name": "acme/a", "kind": "report", "schedule": "@daily" });
        for prefix in ["", "beta%2F"] {
            let path = format!("/sync?complete={prefix}");
            api.send("POST", &path, &LINES, lines(std::slice::from_ref(&new)))
                .await
                .is_problem(400, "bad-parameter");
        }
        assert!(schedules.get("beta/b").await.unwrap().paused.is_none());
    });
}
