//! The schema of the objects, as `JSON_SCHEMA` has it, compared with the objects themselves.
//!
//! It is made of samples. `ALLORA_WRITE_SCHEMA=1 cargo test -p allora-core --all-features schema`
//! writes it again after a change.

use super::{at, health, hour, job, state};
use crate::{
    StoredSchedule,
    backend::{
        Action, Author, Chain, FollowUp, Follower, HistoryCursor, HistoryEntry, JobState,
        NewSchedule, NotRunReason, On, Operation, Outcome, Pause, Streak, Waiter,
    },
    health::{CapacityStatus, Health, JobStatus, NodesStatus, Notifications, StoreStatus},
    job::{AlertRule, Breaker, CatchUp, Overlap},
    record::{ChangeResult, HistoryBuffer, OpContext, apply},
    registry::{NodeInfo, RunProgress},
    stored::{ScheduleExport, Why, WhyCode},
};
use chrono::DateTime;
use serde_json::{Map, Value, json};
use std::{collections::BTreeSet, fs, time::Duration};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/json.schema.json");

/// Objects with all their parts, and with as few as possible; those that others refer to come first.
fn samples() -> Vec<(&'static str, Vec<Value>)> {
    let full = full_state();
    let bare = JobState { last: Some(Outcome::Succeeded), ..JobState::empty("b") };
    let next = || json!(full.next);
    let occurrence = || vec![json!(full.head), json!(full.leases[0].occurrence)];
    let mut lease = full.leases[0].clone();
    lease.replaced_by = Some(at(1));
    let pause = full.paused.clone().map(|pause| Pause { until: Some(at(2)), ..pause });
    let mut run = HistoryEntry::new("a", 9, at(0).into(), Outcome::Failed("boom".to_owned()));
    (run.due_at, run.started_at, run.ended_at) = (Some(at(0)), Some(at(0)), Some(at(1)));
    (run.last, run.output) = (Some(at(2)), Some("half".to_owned()));
    run.reason = Some(NotRunReason::Replaced { by: at(3) });
    let mut range = HistoryEntry::new("a", 9, at(0).into(), Outcome::Missed);
    range.count = None;
    vec![
        ("NextRun", vec![next()]),
        ("Occurrence", occurrence()),
        ("Lease", vec![json!(lease), json!(full.leases[0])]),
        ("Waiter", vec![json!(full.waiters[0])]),
        ("Pause", vec![json!(pause), json!(full.paused)]),
        (
            "Streak",
            vec![
                json!(Streak { alerted_at: Some(at(1)), ..Streak::default() }),
                json!(full.streak),
            ],
        ),
        ("DeadLetter", vec![json!(full.dead[0])]),
        ("Checkpoint", vec![json!(full.checkpoints[0])]),
        ("Outcome", vec![json!(full.last), json!(bare.last)]),
        ("Counters", vec![json!(full.counters)]),
        ("Follower", vec![json!(chain().followers[0])]),
        ("FollowUp", vec![json!(chain().outbox[0])]),
        ("Chain", vec![json!(chain()), json!(Chain { received: None, ..chain() })]),
        ("JobState", vec![json!(full), json!(JobState::empty("b"))]),
        ("HistoryEntry", vec![json!(run), json!(range)]),
        ("Spread", vec![json!(hour().lateness), json!(hour().duration)]),
        ("Hour", vec![json!(hour())]),
        ("HistoryCursor", vec![json!(HistoryCursor { fence: 9, name: "a".to_owned() })]),
        ("Change", changes()),
        ("StoredSchedule", stored()),
        ("ScheduleExport", vec![json!(exported(&full)), json!(exported(&least()))]),
        ("RunProgress", vec![json!(node("", None).progress[0])]),
        ("NodeInfo", vec![json!(node("v1", Some("n1"))), json!(node("", None))]),
        ("JobStatus", vec![json!(job()), json!(bare_job())]),
        ("Health", vec![json!(health()), json!(bare_health())]),
        ("Why", vec![json!(why()), json!(Why::new(WhyCode::Ended, "it has ended"))]),
    ]
}

fn full_state() -> JobState {
    JobState {
        definition: "@daily; at-least-once 30s".to_owned(),
        last_started: Some(at(0)),
        waiters: vec![Waiter::new("b", at(0), at(1), at(2))],
        unreadable: Some("cut".to_owned()),
        chain: Some(Box::new(chain())),
        ..state()
    }
}

fn chain() -> Chain {
    Chain {
        followers: vec![Follower::new("b", On::Success, at(0))],
        outbox: vec![FollowUp::new("b", "allora:after:1:a/7/x", 9, at(0))],
        number: 9,
        received: Some(("z".to_owned(), 7)),
    }
}

fn least() -> JobState {
    let (kind, definition) = ("mail".to_owned(), "@daily".to_owned());
    JobState { kind, definition, ..JobState::empty("b") }
}

fn exported(state: &JobState) -> ScheduleExport {
    ScheduleExport::of(&JobState { unreadable: None, ..state.clone() }).unwrap()
}

fn stored() -> Vec<Value> {
    let second = Duration::from_secs(1);
    let new = || StoredSchedule::new("a", "mail", "0 9 * * MON");
    let full = new().in_zone("Europe/Paris").catch_up(CatchUp::None).window(second).timeout(second);
    let full = full.delay(second).jitter(second).starting(at(0)).ending(at(1)).max_runs(3);
    let full = full.run_when_created().run_if_past();
    let full = full.concurrency_key("tapes", 2).max_key_wait(second).owner("sales").tag("eu");
    let full =
        full.breaker(Breaker::after(5)).alert(AlertRule::after(3)).history(50, 3_600 * second);
    let full = full.after("b", On::End);
    let once = new().at_most_once().overlap(Overlap::Skip);
    vec![json!(full.first_run(at(0)).data_bytes("{}")), json!(once)]
}

/// A creation and a refusal.
fn changes() -> Vec<Value> {
    let (mut slot, mut history) = (None, HistoryBuffer::off());
    let author = Author::new("ann").via("console").note("why");
    let context = OpContext::new("operator", at(0));
    for action in [Action::Create(NewSchedule::new("mail", "@daily", None)), Action::Delete] {
        let operation = Operation::new("a", action).by(Some(&author));
        apply(&mut slot, &operation, context, &mut history).unwrap();
    }
    let changes = history.take_changes();
    let mut refused = changes[0].clone();
    refused.result = ChangeResult::Refused("no".to_owned());
    changes.iter().chain([&refused]).map(|change| json!(change)).collect()
}

fn node(version: &str, unique_name: Option<&str>) -> NodeInfo {
    let mut info =
        crate::registry::decode("n1", "seen=1970-01-01T00:00:00Z heartbeat=15000").unwrap();
    info.version = Some(version.to_owned()).filter(|version| !version.is_empty());
    info.unique_name = unique_name.map(str::to_owned);
    info.settings.insert("zone".to_owned(), "UTC".to_owned());
    for list in [
        &mut info.labels,
        &mut info.needed_labels,
        &mut info.kept_prefixes,
        &mut info.problems,
        &mut info.orphan_examples,
    ] {
        list.push("x".to_owned());
    }
    info.kinds = vec!["mail".into()];
    let (name, text) = ("a".to_owned(), "40 %".to_owned());
    info.progress = vec![RunProgress { name, fence: 1, text }];
    info
}

fn why() -> Why {
    let paused = Why::new(WhyCode::Paused, "it is paused").with("since", at(1));
    Why {
        also: vec![Why::new(WhyCode::Dead, "it has a dead letter")],
        ..paused.remedy("resume it")
    }
}

fn bare_job() -> JobStatus {
    let mut job = JobStatus { next: None, last: None, last_success: None, ..job() };
    (job.running[0].since, job.running[0].progress) = (None, None);
    job
}

fn bare_health() -> Health {
    Health {
        conditions: Vec::new(),
        store: StoreStatus { last_reply: None, age: None },
        notifications: Notifications::On,
        clock_offset_ms: None,
        capacity: CapacityStatus { limit: 1, used: 0, reserved: 0 },
        nodes: NodesStatus { live: 1, idle: 0, dead: Vec::new() },
        ..health()
    }
}

/// The schema of values, of which each is an example. An object that is defined by itself is referred
/// to.
fn schema(values: &[&Value], defined: &[(&str, Vec<Value>)]) -> Value {
    let is_null = values.iter().any(|value| value.is_null());
    let some: Vec<&Value> = values.iter().copied().filter(|value| !value.is_null()).collect();
    let simple = |name: &str| match is_null {
        true => json!({ "type": [name, "null"] }),
        false => json!({ "type": name }),
    };
    match some.first() {
        None => json!({ "type": "null" }),
        Some(Value::Bool(_)) => simple("boolean"),
        Some(Value::Number(_)) => simple("integer"),
        Some(Value::String(_)) => {
            let mut schema = simple("string");
            let is_time = |value: &&&Value| {
                value.as_str().is_some_and(|text| DateTime::parse_from_rfc3339(text).is_ok())
            };
            if some.iter().filter(is_time).count() == some.len() {
                schema["format"] = "date-time".into();
            }
            schema
        }
        Some(Value::Array(_)) => {
            let items: Vec<&Value> = some.iter().filter_map(|v| v.as_array()).flatten().collect();
            json!({ "type": "array", "items": schema(&items, defined) })
        }
        Some(object @ Value::Object(_)) => {
            let keys = |value: &Value| -> Vec<String> {
                value.as_object().map(|object| object.keys().cloned().collect()).unwrap_or_default()
            };
            let is_it = |one: &&(&str, Vec<Value>)| keys(&one.1[0]) == keys(object);
            let schema = match defined.iter().find(is_it) {
                Some((name, _)) => json!({ "$ref": format!("#/$defs/{name}") }),
                None => object_schema(&some, defined),
            };
            if is_null { json!({ "anyOf": [schema, { "type": "null" }] }) } else { schema }
        }
        Some(Value::Null) => unreachable!("it was left out"),
    }
}

fn object_schema(values: &[&Value], defined: &[(&str, Vec<Value>)]) -> Value {
    let objects: Vec<&Map<String, Value>> = values.iter().filter_map(|v| v.as_object()).collect();
    let keys: BTreeSet<&String> = objects.iter().flat_map(|object| object.keys()).collect();
    let property = |key: &String| {
        let values: Vec<&Value> = objects.iter().filter_map(|object| object.get(key)).collect();
        let schema = match key.as_str() {
            "data" | "value" => {
                json!({ "description": "JSON; {\"$text\": …} or {\"$hex\": …}; null: none" })
            }
            "evidence" => json!({ "type": "object", "description": "values by name" }),
            "also" => json!({ "type": "array", "items": { "$ref": "#/$defs/Why" } }),
            "settings" => json!({ "type": "object", "additionalProperties": { "type": "string" } }),
            _ => schema(&values, defined),
        };
        (key.clone(), schema)
    };
    let required: Vec<&&String> =
        keys.iter().filter(|key| objects.iter().all(|object| object.contains_key(**key))).collect();
    json!({
        "type": "object",
        "required": required,
        "properties": keys.iter().map(|key| property(key)).collect::<Map<_, _>>(),
    })
}

/// All schemas, each property on a line of its own.
fn text() -> String {
    let samples = samples();
    let one = |i: usize| {
        let (name, values) = &samples[i];
        // An object may refer to those before it.
        let schema = object_schema(&values.iter().collect::<Vec<_>>(), &samples[..i]);
        let properties = schema["properties"].as_object().into_iter().flatten();
        let properties: Vec<String> =
            properties.map(|(key, schema)| format!("        \"{key}\": {schema}")).collect();
        format!(
            "    \"{name}\": {{\n      \"type\": \"object\",\n      \"required\": {},\n      \
             \"properties\": {{\n{}\n      }}\n    }}",
            schema["required"],
            properties.join(",\n")
        )
    };
    let all: Vec<String> = (0..samples.len()).map(one).collect();
    let dialect = "https://json-schema.org/draft/2020-12/schema";
    format!("{{\n  \"$schema\": \"{dialect}\",\n  \"$defs\": {{\n{}\n  }}\n}}\n", all.join(",\n"))
}

#[test]
fn the_schema_is_that_of_the_objects() {
    let text = text();
    serde_json::from_str::<Value>(&text).unwrap();
    if std::env::var_os("ALLORA_WRITE_SCHEMA").is_some() {
        fs::write(FILE, &text).unwrap();
    }
    let written = fs::read_to_string(FILE).unwrap_or_default();
    for (line, (is, said)) in text.lines().zip(written.lines()).enumerate() {
        assert_eq!(is, said, "line {} of {FILE}; ALLORA_WRITE_SCHEMA=1 writes it", line + 1);
    }
    assert_eq!(text.len(), written.len(), "ALLORA_WRITE_SCHEMA=1 writes it");
}
