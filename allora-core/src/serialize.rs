//! The values of the status API as serde objects; the guide `json` has them all.
//!
//! Fields have the names of the values' own. Times are texts in the form of RFC 3339. Durations are
//! whole milliseconds, and their fields end in `_ms`. Claim ids are hexadecimal texts, and reasons are
//! words.

use crate::{
    backend::{
        Chain, Checkpoint, FollowUp, Follower, HistoryCursor, HistoryEntry, JobState, Lease,
        NotRunReason, OnExpiry, Outcome, Sharing, Waiter,
    },
    condition::{ActiveCondition, Evidence, FailingPart, KeyHolder},
    event::millis,
    health::{CapacityStatus, Health, JobStatus, KindCapacity, NodesStatus, Place, StoreStatus},
    hours::{Hour, Spread},
    json::data,
    pattern::Pattern,
    record::Change,
    registry::{NodeInfo, RunProgress},
    stored::{Fact, Why},
};
use serde::{Serialize, Serializer, ser::SerializeMap};

/// The schema of the values that are `Serialize`, by their names: JSON Schema, draft 2020-12.
///
/// ```json
#[doc = include_str!("json.schema.json")]
/// ```
pub const JSON_SCHEMA: &str = include_str!("json.schema.json");

/// Implements `Serialize` as an object of all fields, in this order: a field that is not named does not
/// compile. `=>`: the entries in the place of a field.
macro_rules! object {
    (@ $map:ident $field:ident) => {
        $map.serialize_entry(stringify!($field), $field)?;
    };
    (@ $map:ident $field:ident { $($name:ident: $value:expr),* $(,)? }) => {
        let _ = $field;
        $($map.serialize_entry(stringify!($name), &$value)?;)*
    };
    ($type:ident as $value:ident { $($field:ident $(=> $as:tt)?),+ $(,)? }) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let $value = self;
                let $type { $($field),+ } = $value;
                let mut map = serializer.serialize_map(None)?;
                $(object!(@ map $field $($as)?);)+
                map.end()
            }
        }
    };
    ($type:ident $fields:tt) => {
        object!($type as value $fields);
    };
}

object!(JobState {
    name,
    kind,
    definition,
    due_lease => { due_lease_ms: due_lease.map(millis) },
    version,
    incarnation,
    generation,
    data => { data: data::value(data) },
    head,
    due_at,
    attempts,
    next,
    last_started,
    fence,
    leases,
    waiters,
    paused,
    dead,
    checkpoints,
    unreadable,
    last,
    streak,
    counters,
    chain,
});

object!(Checkpoint {
    occurrence,
    saved_at,
    value => { size: value.len(), value: data::value(value) },
});

object!(Chain {
    followers,
    outbox,
    number,
    received => { received: received.as_ref().map(|(job, number)| Received { job, number: *number }) },
});

/// The last follow-up that a job has received.
#[derive(Serialize)]
struct Received<'a> {
    job: &'a str,
    number: i64,
}

object!(Follower { job, on => { on: on.word() }, since });

object!(FollowUp { job, id, number, ended_at });

object!(Lease {
    node,
    claim_id => { claim_id: format!("{claim_id:032x}") },
    fence,
    occurrence,
    attempt,
    due_at,
    started_at,
    until,
    on_expiry => {
        on_expiry: match on_expiry {
            OnExpiry::Lost => "lost",
            OnExpiry::Retry => "retry",
        },
    },
    sharing => {
        sharing: match sharing {
            Sharing::Shared => "shared",
            Sharing::Exclusive => "exclusive",
        },
    },
    cancel_requested,
    replaced_by,
    completed,
});

object!(Waiter { job, due_at, since, until });

object!(HistoryEntry as entry {
    name,
    kind,
    fence,
    occurrence,
    last,
    count,
    due_at,
    attempt,
    node,
    started_at,
    ended_at,
    outcome => {
        outcome: outcome.word(),
        error: error_of(outcome),
        is_final: entry.is_final(),
    },
    reason => {
        reason: reason.map(NotRunReason::word),
        replaced_by: reason.and_then(NotRunReason::replaced_by),
    },
    output,
    value => { value: value.as_deref().map(|value| data::value(value.as_bytes())) },
});

object!(HistoryCursor { fence, name });

object!(Hour {
    from,
    started,
    succeeded,
    failed,
    retried,
    cancelled,
    skipped,
    missed,
    lost,
    expired,
    lateness,
    duration,
});

object!(Spread as spread {
    buckets => {
        count: spread.count(),
        p50_ms: spread.percentile(50).map(millis),
        p99_ms: spread.percentile(99).map(millis),
    },
});

object!(Change as change {
    name,
    sequence,
    at,
    author => { actor: author.actor, via: author.via, note: author.note },
    action => { action: action.word() },
    detail,
    before => { before: change.state_before() },
    after => { after: change.state_after() },
    lacks_data,
    result => { result: result.word(), error: Some(result.error()).filter(|why| !why.is_empty()) },
});

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

object!(NodeInfo as info {
    node,
    is_live => { is_live: is_live, is_stopping: is_stopping, is_idle: info.is_idle() },
    is_stopping => {},
    version,
    format => {},
    kinds => { kinds: kinds.iter().map(Pattern::to_string).collect::<Vec<_>>() },
    kinds_change => {},
    labels,
    needed_labels,
    is_complete,
    concurrency,
    running,
    progress,
    jobs,
    jobs_hash => { jobs_hash: format!("{jobs_hash:016x}") },
    // The lists of names are hashes, for this library alone.
    job_names => {},
    kept_names => {},
    left_jobs => {},
    kept_prefixes,
    settings,
    unique_name,
    problems,
    orphans,
    orphan_examples,
    started_at,
    heartbeat => { heartbeat_ms: millis(*heartbeat) },
    last_seen,
});

object!(Health as health {
    node,
    at,
    is_stopping => { is_healthy: health.is_healthy(), is_stopping: is_stopping },
    conditions,
    store,
    notifications => { notifications: notifications.word() },
    clock_offset_ms,
    capacity,
    kind_capacity,
    unresolved_claims,
    jobs,
    paused,
    nodes,
});

object!(ActiveCondition as active {
    condition => { code: condition.code() },
    since => {
        since: since,
        stops_jobs: active.condition.stops_jobs(),
        text: active.condition.to_string(),
        evidence: Entries(active.condition.evidence()),
        remedy: active.condition.remedy(),
    },
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
            Evidence::Time(at) => at.serialize(serializer),
            Evidence::Names(names) => names.serialize(serializer),
            Evidence::Parts(parts) => parts.serialize(serializer),
            Evidence::Holders(holders) => holders.serialize(serializer),
        }
    }
}

object!(Why {
    code => { code: code.word() },
    sentence,
    evidence => { evidence: Named(evidence) },
    remedy,
    also,
});

/// The evidence of a reason as an object.
struct Named<'a>(&'a [(&'static str, Fact)]);

impl Serialize for Named<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, fact)| (name, fact)))
    }
}

impl Serialize for Fact {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Fact::Text(text) => text.serialize(serializer),
            Fact::Number(number) => number.serialize(serializer),
            Fact::Time(at) => at.serialize(serializer),
            Fact::Names(names) => names.serialize(serializer),
            Fact::Holders(holders) => holders.serialize(serializer),
        }
    }
}

object!(KindCapacity { kinds, limit, used });
object!(NodesStatus { live, idle, dead });
object!(StoreStatus { last_reply, age => { age_ms: age.map(millis) } });
object!(FailingPart { part => { part: part.word() }, since, error });
object!(CapacityStatus { limit, used, reserved });
object!(KeyHolder { job, node, since });
object!(JobStatus { name, kind, next, is_paused, running, last, last_success });
object!(Place { node, is_here, scheduled_at, since, progress });
object!(RunProgress { name, fence, text });

#[cfg(test)]
mod tests {
    mod schema;

    use super::*;
    use crate::{
        backend::{Counters, DeadLetter, NextRun, Occurrence, Pause, Streak},
        condition::{Condition, StorePart},
        health::Notifications,
        time::{Time, from_millis},
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

    fn state() -> JobState {
        let occurrence = Occurrence { scheduled_at: at(60_000), trigger: Some("now".to_owned()) };
        let lease = Lease::new("n1", 255, 7, Occurrence::from(at(0)), at(30_000), OnExpiry::Retry);
        JobState {
            kind: "mail".to_owned(),
            due_lease: Some(Duration::from_secs(30)),
            data: br#"{"to":"ann"}"#.to_vec(),
            head: Some(occurrence),
            due_at: Some(at(60_500)),
            next: Some(NextRun { scheduled_at: at(120_000), due_at: at(120_250) }),
            leases: vec![lease],
            paused: Some(Pause { since: at(1), until: None, note: "rest".to_owned() }),
            streak: Some(Streak { failures: 5, alerted_at: None, has_paused: true }),
            dead: vec![DeadLetter {
                occurrence: at(5_000).into(),
                attempts: 3,
                died_at: at(6_000),
                error: "boom".to_owned(),
            }],
            checkpoints: vec![Checkpoint {
                occurrence: at(5_000).into(),
                saved_at: at(4_000),
                value: br#"{"row": 70}"#.to_vec(),
            }],
            last: Some(Outcome::Dead("boom".to_owned())),
            counters: Counters { started: 4, failed: 3, ..Counters::default() },
            ..JobState::empty("a")
        }
    }

    #[test]
    fn a_record_has_its_times_as_texts() {
        check(
            state(),
            json!({
                "name": "a",
                "kind": "mail",
                "definition": "",
                "due_lease_ms": 30_000,
                "version": 0,
                "incarnation": 0,
                "generation": 0,
                "data": { "to": "ann" },
                "head": { "scheduled_at": "2026-01-01T00:01:00Z", "trigger": "now" },
                "due_at": "2026-01-01T00:01:00.500Z",
                "attempts": 0,
                "next": {
                    "scheduled_at": "2026-01-01T00:02:00Z",
                    "due_at": "2026-01-01T00:02:00.250Z",
                },
                "last_started": null,
                "fence": 0,
                "leases": [{
                    "node": "n1",
                    "claim_id": "000000000000000000000000000000ff",
                    "fence": 7,
                    "occurrence": { "scheduled_at": "2026-01-01T00:00:00Z", "trigger": null },
                    "attempt": 1,
                    "due_at": "2026-01-01T00:00:00Z",
                    "started_at": "2026-01-01T00:00:00Z",
                    "until": "2026-01-01T00:00:30Z",
                    "on_expiry": "retry",
                    "sharing": "exclusive",
                    "cancel_requested": false,
                    "replaced_by": null,
                    "completed": false,
                }],
                "waiters": [],
                "paused": { "since": "2026-01-01T00:00:00.001Z", "until": null, "note": "rest" },
                "dead": [{
                    "occurrence": { "scheduled_at": "2026-01-01T00:00:05Z", "trigger": null },
                    "attempts": 3,
                    "died_at": "2026-01-01T00:00:06Z",
                    "error": "boom",
                }],
                "checkpoints": [{
                    "occurrence": { "scheduled_at": "2026-01-01T00:00:05Z", "trigger": null },
                    "saved_at": "2026-01-01T00:00:04Z",
                    "size": 11,
                    "value": { "row": 70 },
                }],
                "unreadable": null,
                "last": { "outcome": "dead", "error": "boom" },
                "streak": { "failures": 5, "alerted_at": null, "has_paused": true },
                "chain": null,
                "counters": {
                    "started": 4, "succeeded": 0, "failed": 3, "cancelled": 0,
                    "skipped": 0, "missed": 0, "lost": 0, "expired": 0,
                },
            }),
        );
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
                "occurrence": { "scheduled_at": "2026-01-01T00:00:00Z", "trigger": null },
                "last": "2026-01-01T00:01:00Z",
                "count": 7,
                "due_at": null,
                "attempt": 0,
                "node": "n1",
                "started_at": null,
                "ended_at": "2026-01-01T00:01:01Z",
                "outcome": "missed",
                "error": null,
                "is_final": true,
                "reason": NotRunReason::CatchUp.word(),
                "replaced_by": null,
                "output": null,
                "value": null,
            }),
        );
        let failed = HistoryEntry::new("a", 9, at(0).into(), Outcome::Failed("boom".to_owned()));
        assert_eq!(to_value(failed).unwrap()["error"], "boom");
    }

    fn hour() -> Hour {
        let mut hour = Hour::new(at(0));
        (hour.started, hour.succeeded, hour.missed) = (2, 2, 7);
        [9, 11].into_iter().for_each(|ms| hour.lateness.add(Duration::from_millis(ms)));
        hour
    }

    #[test]
    fn an_hour_has_its_numbers_and_the_percentiles_of_its_durations() {
        check(
            hour(),
            json!({
                "from": "2026-01-01T00:00:00Z",
                "started": 2,
                "succeeded": 2,
                "failed": 0,
                "retried": 0,
                "cancelled": 0,
                "skipped": 0,
                "missed": 7,
                "lost": 0,
                "expired": 0,
                "lateness": { "count": 2, "p50_ms": 9, "p99_ms": 11 },
                "duration": { "count": 0, "p50_ms": null, "p99_ms": null },
            }),
        );
    }

    fn health() -> Health {
        Health {
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
        }
    }

    #[test]
    fn health_has_its_conditions_as_objects() {
        check(
            health(),
            json!({
                "node": "n1",
                "at": "2026-01-01T00:01:30Z",
                "is_healthy": false,
                "is_stopping": false,
                "conditions": [
                    {
                        "code": "store-down",
                        "since": "2026-01-01T00:01:28Z",
                        "stops_jobs": true,
                        "text": "requests to the store fail; trying again: claims: no reply",
                        "evidence": {
                            "parts": [{
                                "part": "claims",
                                "since": "2026-01-01T00:01:28Z",
                                "error": "no reply",
                            }],
                        },
                        "remedy": "look at the store and the network; the node tries again by itself",
                    },
                    {
                        "code": "key-busy",
                        "since": "2026-01-01T00:00:00Z",
                        "stops_jobs": false,
                        "text": "job \"c\" waits for the concurrency key \"k\", held by d on n2",
                        "evidence": {
                            "job": "c",
                            "key": "k",
                            "limit": 2,
                            "since": "2026-01-01T00:00:00Z",
                            "holders": [{
                                "job": "d", "node": "n2", "since": "2026-01-01T00:00:01Z",
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

    fn job() -> JobStatus {
        JobStatus {
            name: "a".to_owned(),
            kind: String::new(),
            next: Some(at(60_000).into()),
            is_paused: false,
            running: vec![Place {
                node: "n1".to_owned(),
                is_here: true,
                scheduled_at: at(0),
                since: Some(at(3)),
                progress: Some("40 %".to_owned()),
            }],
            last: Some(Outcome::Succeeded),
            last_success: Some(at(10)),
        }
    }

    #[test]
    fn a_job_has_its_next_occurrence_its_last_outcome_and_its_places() {
        check(
            job(),
            json!({
                "name": "a",
                "kind": "",
                "next": {
                    "scheduled_at": "2026-01-01T00:01:00Z",
                    "due_at": "2026-01-01T00:01:00Z",
                },
                "is_paused": false,
                "running": [{
                    "node": "n1",
                    "is_here": true,
                    "scheduled_at": "2026-01-01T00:00:00Z",
                    "since": "2026-01-01T00:00:00.003Z",
                    "progress": "40 %",
                }],
                "last": { "outcome": "succeeded", "error": null },
                "last_success": "2026-01-01T00:00:00.010Z",
            }),
        );
    }
}
