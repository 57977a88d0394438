//! The values of the status API as serde objects.
//!
//! Fields have the names of the values' own. Times are texts in the form of RFC 3339 with
//! milliseconds. Durations are whole milliseconds, and their fields end in `_ms`. Claim ids are hexadecimal
//! texts, and reasons are words.

use crate::{
    backend::{
        Counters, DeadLetter, HistoryCursor, HistoryEntry, JobState, Lease, NextRun, NotRunReason,
        Occurrence, OnExpiry, Outcome, Pause, Waiter,
    },
    condition::{ActiveCondition, Evidence, FailingPart, KeyHolder},
    event::millis,
    health::{CapacityStatus, Health, JobStatus, KindCapacity, NodesStatus, Place, StoreStatus},
    pattern::Pattern,
    registry::NodeInfo,
    stored::{DataRepr, written as time},
    time::Time,
};
use serde::{Serialize, Serializer, ser::SerializeMap};

/// Implements `Serialize` as an object with these fields.
macro_rules! object {
    ($type:ty, $value:ident, { $($name:ident: $field:expr),+ $(,)? }) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let $value = self;
                let mut map = serializer.serialize_map(None)?;
                $(map.serialize_entry(stringify!($name), &$field)?;)+
                map.end()
            }
        }
    };
}

fn times(at: Option<Time>) -> Option<String> {
    at.map(time)
}

object!(Health, health, {
    node: health.node,
    at: time(health.at),
    is_healthy: health.is_healthy(),
    is_stopping: health.is_stopping,
    conditions: health.conditions,
    store: health.store,
    notifications: health.notifications.word(),
    clock_offset_ms: health.clock_offset_ms,
    capacity: health.capacity,
    kind_capacity: health.kind_capacity,
    unresolved_claims: health.unresolved_claims,
    jobs: health.jobs,
    paused: health.paused,
    nodes: health.nodes,
});

object!(ActiveCondition, active, {
    code: active.condition.code(),
    since: time(active.since),
    stops_jobs: active.condition.stops_jobs(),
    text: active.condition.to_string(),
    evidence: Entries(active.condition.evidence()),
    remedy: active.condition.remedy(),
});

/// The evidence of a condition as an object.
struct Entries<'a>(Vec<(&'static str, Evidence<'a>)>);

impl Serialize for Entries<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

impl Serialize for Evidence<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Evidence::Text(text) => text.serialize(serializer),
            Evidence::Number(number) => number.serialize(serializer),
            Evidence::Time(at) => time(*at).serialize(serializer),
            Evidence::Names(names) => names.serialize(serializer),
            Evidence::Parts(parts) => parts.serialize(serializer),
            Evidence::Holders(holders) => holders.serialize(serializer),
        }
    }
}

object!(KindCapacity, capacity, {
    kinds: capacity.kinds,
    limit: capacity.limit,
    used: capacity.used,
});

object!(NodesStatus, nodes, {
    live: nodes.live,
    idle: nodes.idle,
    dead: nodes.dead,
});

object!(NodeInfo, node, {
    node: node.node,
    is_live: node.is_live,
    is_stopping: node.is_stopping,
    is_idle: node.is_idle(),
    version: node.version,
    kinds: node.kinds.iter().map(Pattern::to_string).collect::<Vec<_>>(),
    labels: node.labels,
    needed_labels: node.needed_labels,
    is_complete: node.is_complete,
    concurrency: node.concurrency,
    running: node.running,
    jobs: node.jobs,
    jobs_hash: format!("{:016x}", node.jobs_hash),
    kept_prefixes: node.kept_prefixes,
    settings: node.settings,
    unique_name: node.unique_name,
    problems: node.problems,
    orphans: node.orphans,
    orphan_examples: node.orphan_examples,
    started_at: time(node.started_at),
    heartbeat_ms: millis(node.heartbeat),
    last_seen: time(node.last_seen),
});

object!(StoreStatus, store, {
    last_reply: times(store.last_reply),
    age_ms: store.age.map(millis),
});

object!(FailingPart, failing, {
    part: failing.part.word(),
    since: time(failing.since),
    error: failing.error,
});

object!(CapacityStatus, capacity, {
    limit: capacity.limit,
    used: capacity.used,
    reserved: capacity.reserved,
});

object!(KeyHolder, holder, {
    job: holder.job,
    node: holder.node,
    since: time(holder.since),
});

object!(Waiter, waiter, {
    job: waiter.job,
    due_at: time(waiter.due_at),
    since: time(waiter.since),
    until: time(waiter.until),
});

object!(JobStatus, job, {
    name: job.name,
    kind: job.kind,
    next: job.next,
    is_paused: job.is_paused,
    running: job.running,
    last: job.last,
    last_success: times(job.last_success),
});

object!(Place, place, {
    node: place.node,
    is_here: place.is_here,
    scheduled_at: time(place.scheduled_at),
    since: times(place.since),
});

object!(NextRun, next, {
    scheduled_at: time(next.scheduled_at),
    due_at: time(next.due_at),
});

object!(Occurrence, occurrence, {
    scheduled_at: time(occurrence.scheduled_at),
    trigger: occurrence.trigger,
});

impl Serialize for Counters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.each())
    }
}

/// An object with the word and the error, which is `null` if the outcome has none.
impl Serialize for Outcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("outcome", self.word())?;
        map.serialize_entry("error", &error_of(self))?;
        map.end()
    }
}

fn error_of(outcome: &Outcome) -> Option<&str> {
    Some(outcome.error()).filter(|error| !error.is_empty())
}

object!(HistoryEntry, entry, {
    name: entry.name,
    kind: entry.kind,
    fence: entry.fence,
    occurrence: entry.occurrence,
    last: times(entry.last),
    count: entry.count,
    due_at: times(entry.due_at),
    attempt: entry.attempt,
    node: entry.node,
    started_at: times(entry.started_at),
    ended_at: times(entry.ended_at),
    outcome: entry.outcome.word(),
    error: error_of(&entry.outcome),
    is_final: entry.is_final(),
    reason: entry.reason.map(|reason| reason.word()),
    replaced_by: times(entry.reason.and_then(NotRunReason::replaced_by)),
    output: entry.output,
});

object!(HistoryCursor, cursor, { fence: cursor.fence, name: cursor.name });

object!(JobState, state, {
    name: state.name,
    kind: state.kind,
    definition: state.definition,
    version: state.version,
    incarnation: state.incarnation,
    generation: state.generation,
    data: Data(&state.data),
    head: state.head,
    due_at: times(state.due_at),
    attempts: state.attempts,
    cursor: state.cursor,
    last_started: times(state.last_started),
    fence: state.fence,
    leases: state.leases,
    waiters: state.waiters,
    paused: state.paused,
    dead: state.dead,
    unreadable: state.unreadable,
    last: state.last,
    counters: state.counters,
});

object!(Lease, lease, {
    node: lease.node,
    claim_id: format!("{:032x}", lease.claim_id),
    fence: lease.fence,
    occurrence: lease.occurrence,
    attempt: lease.attempt,
    due_at: time(lease.due_at),
    started_at: time(lease.started_at),
    until: time(lease.until),
    on_expiry: match lease.on_expiry {
        OnExpiry::Lost => "lost",
        OnExpiry::Retry => "retry",
    },
});

object!(DeadLetter, letter, {
    occurrence: letter.occurrence,
    attempts: letter.attempts,
    died_at: time(letter.died_at),
    error: letter.error,
});

object!(Pause, pause, { since: time(pause.since), note: pause.note });

/// The data of a stored schedule: `null` if there is none, otherwise an object with one of the
/// fields `json`, `text` and `hex`, the first that fits.
struct Data<'a>(&'a [u8]);

impl Serialize for Data<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (field, value) = match DataRepr::of(self.0) {
            DataRepr::None => return serializer.serialize_none(),
            DataRepr::Json(value) => ("json", value),
            DataRepr::Text(text) => ("text", text.into()),
            DataRepr::Hex(hex) => ("hex", hex.into()),
        };
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(field, &value)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        backend::NotRunReason,
        condition::{Condition, StorePart},
        health::Notifications,
        time::from_millis,
    };
    use serde_json::{Value, json, to_value};
    use std::time::Duration;

    fn at(ms: i64) -> Time {
        from_millis(1_767_225_600_000 + ms).unwrap()
    }

    #[track_caller]
    fn check(value: impl Serialize, expected: Value) {
        assert_eq!(to_value(value).unwrap(), expected);
    }

    #[test]
    fn a_record_has_its_times_as_texts() {
        let occurrence = Occurrence { scheduled_at: at(60_000), trigger: Some("now".to_owned()) };
        let lease = Lease::new("n1", 255, 7, Occurrence::from(at(0)), at(30_000), OnExpiry::Retry);
        let state = JobState {
            kind: "mail".to_owned(),
            data: br#"{"to":"ann"}"#.to_vec(),
            head: Some(occurrence),
            due_at: Some(at(60_500)),
            cursor: Some(NextRun { scheduled_at: at(120_000), due_at: at(120_250) }),
            leases: vec![lease],
            paused: Some(Pause { since: at(1), note: "rest".to_owned() }),
            dead: vec![DeadLetter {
                occurrence: at(5_000).into(),
                attempts: 3,
                died_at: at(6_000),
                error: "boom".to_owned(),
            }],
            last: Some(Outcome::Dead("boom".to_owned())),
            counters: Counters { started: 4, failed: 3, ..Counters::default() },
            ..JobState::empty("a")
        };
        check(
            state,
            json!({
                "name": "a",
                "kind": "mail",
                "definition": "",
                "version": 0,
                "incarnation": 0,
                "generation": 0,
                "data": { "json": { "to": "ann" } },
                "head": { "scheduled_at": "2026-01-01T00:01:00.000Z", "trigger": "now" },
                "due_at": "2026-01-01T00:01:00.500Z",
                "attempts": 0,
                "cursor": {
                    "scheduled_at": "2026-01-01T00:02:00.000Z",
                    "due_at": "2026-01-01T00:02:00.250Z",
                },
                "last_started": null,
                "fence": 0,
                "leases": [{
                    "node": "n1",
                    "claim_id": "000000000000000000000000000000ff",
                    "fence": 7,
                    "occurrence": { "scheduled_at": "2026-01-01T00:00:00.000Z", "trigger": null },
                    "attempt": 1,
                    "due_at": "2026-01-01T00:00:00.000Z",
                    "started_at": "2026-01-01T00:00:00.000Z",
                    "until": "2026-01-01T00:00:30.000Z",
                    "on_expiry": "retry",
                }],
                "waiters": [],
                "paused": { "since": "2026-01-01T00:00:00.001Z", "note": "rest" },
                "dead": [{
                    "occurrence": { "scheduled_at": "2026-01-01T00:00:05.000Z", "trigger": null },
                    "attempts": 3,
                    "died_at": "2026-01-01T00:00:06.000Z",
                    "error": "boom",
                }],
                "unreadable": null,
                "last": { "outcome": "dead", "error": "boom" },
                "counters": {
                    "started": 4, "succeeded": 0, "failed": 3, "cancelled": 0,
                    "skipped": 0, "missed": 0, "lost": 0, "expired": 0,
                },
            }),
        );
        check(Data(b""), json!(null));
        check(Data(b"plain"), json!({ "text": "plain" }));
        check(Data(&[0xFF, 1]), json!({ "hex": "ff01" }));
    }

    #[test]
    fn an_entry_has_the_words_of_its_outcome_and_its_reason() {
        let mut entry = HistoryEntry::new("a", 9, at(0).into(), Outcome::Missed);
        (entry.last, entry.count, entry.attempt) = (Some(at(60_000)), Some(7), 0);
        (entry.node, entry.ended_at) = ("n1".to_owned(), Some(at(61_000)));
        entry.reason = Some(NotRunReason::CatchUp);
        check(
            entry,
            json!({
                "name": "a",
                "kind": "",
                "fence": 9,
                "occurrence": { "scheduled_at": "2026-01-01T00:00:00.000Z", "trigger": null },
                "last": "2026-01-01T00:01:00.000Z",
                "count": 7,
                "due_at": null,
                "attempt": 0,
                "node": "n1",
                "started_at": null,
                "ended_at": "2026-01-01T00:01:01.000Z",
                "outcome": "missed",
                "error": null,
                "is_final": true,
                "reason": NotRunReason::CatchUp.word(),
                "replaced_by": null,
                "output": null,
            }),
        );
        let failed = HistoryEntry::new("a", 9, at(0).into(), Outcome::Failed("boom".to_owned()));
        assert_eq!(to_value(failed).unwrap()["error"], "boom");
    }

    #[test]
    fn health_has_its_conditions_as_objects() {
        let health = Health {
            node: "n1".to_owned(),
            at: at(90_000),
            is_stopping: false,
            conditions: vec![
                ActiveCondition {
                    condition: Condition::StoreDown {
                        parts: vec![FailingPart {
                            part: StorePart::Claims,
                            since: at(88_000),
                            error: "no reply".to_owned(),
                        }],
                    },
                    since: at(88_000),
                },
                ActiveCondition {
                    condition: Condition::KeyBusy {
                        job: "c".into(),
                        key: "k".into(),
                        limit: 2,
                        since: at(0),
                        holders: vec![KeyHolder {
                            job: "d".to_owned(),
                            node: "n2".to_owned(),
                            since: at(1_000),
                        }],
                    },
                    since: at(0),
                },
            ],
            store: StoreStatus {
                last_reply: Some(at(87_500)),
                age: Some(Duration::from_millis(2_500)),
            },
            notifications: Notifications::Connecting,
            clock_offset_ms: Some(-12),
            capacity: CapacityStatus { limit: 10, used: 3, reserved: 1 },
            kind_capacity: vec![KindCapacity { kinds: "mail.*".to_owned(), limit: 2, used: 1 }],
            unresolved_claims: 1,
            jobs: 4,
            paused: 2,
            nodes: NodesStatus { live: 2, idle: 1, dead: vec!["n2".to_owned()] },
        };
        check(
            health,
            json!({
                "node": "n1",
                "at": "2026-01-01T00:01:30.000Z",
                "is_healthy": false,
                "is_stopping": false,
                "conditions": [
                    {
                        "code": "store-down",
                        "since": "2026-01-01T00:01:28.000Z",
                        "stops_jobs": true,
                        "text": "requests to the store fail; trying again: claims: no reply",
                        "evidence": {
                            "parts": [{
                                "part": "claims",
                                "since": "2026-01-01T00:01:28.000Z",
                                "error": "no reply",
                            }],
                        },
                        "remedy": "look at the store and the network; the node tries again by itself",
                    },
                    {
                        "code": "key-busy",
                        "since": "2026-01-01T00:00:00.000Z",
                        "stops_jobs": false,
                        "text": "job \"c\" waits for the concurrency key \"k\", held by d on n2",
                        "evidence": {
                            "job": "c",
                            "key": "k",
                            "limit": 2,
                            "since": "2026-01-01T00:00:00.000Z",
                            "holders": [{
                                "job": "d", "node": "n2", "since": "2026-01-01T00:00:01.000Z",
                            }],
                        },
                        "remedy": "wait, end the run of a holder with `allora cancel JOB`, or set a \
                                   larger limit",
                    },
                ],
                "store": { "last_reply": "2026-01-01T00:01:27.500Z", "age_ms": 2_500 },
                "notifications": "connecting",
                "clock_offset_ms": -12,
                "capacity": { "limit": 10, "used": 3, "reserved": 1 },
                "kind_capacity": [{ "kinds": "mail.*", "limit": 2, "used": 1 }],
                "unresolved_claims": 1,
                "jobs": 4,
                "paused": 2,
                "nodes": { "live": 2, "idle": 1, "dead": ["n2"] },
            }),
        );
    }

    #[test]
    fn a_job_has_its_next_occurrence_its_last_outcome_and_its_places() {
        let job = JobStatus {
            name: "a".to_owned(),
            kind: String::new(),
            next: Some(at(60_000).into()),
            is_paused: false,
            running: vec![Place {
                node: "n1".to_owned(),
                is_here: true,
                scheduled_at: at(0),
                since: Some(at(3)),
            }],
            last: Some(Outcome::Succeeded),
            last_success: Some(at(10)),
        };
        check(
            job,
            json!({
                "name": "a",
                "kind": "",
                "next": {
                    "scheduled_at": "2026-01-01T00:01:00.000Z",
                    "due_at": "2026-01-01T00:01:00.000Z",
                },
                "is_paused": false,
                "running": [{
                    "node": "n1",
                    "is_here": true,
                    "scheduled_at": "2026-01-01T00:00:00.000Z",
                    "since": "2026-01-01T00:00:00.003Z",
                }],
                "last": { "outcome": "succeeded", "error": null },
                "last_success": "2026-01-01T00:00:00.010Z",
            }),
        );
    }
}
