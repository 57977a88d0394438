//! Actions on one job, each with an optional body: a note for the record of changes, and the values of the action.

use super::{
    call::{Answer, Call},
    problem::{Problem, Type},
    schedule::schedule,
};
use crate::actions::{Act, Effect, Verb, apply, check_note};
use allora_core::{
    Occurrence, Time,
    backend::{TriggerStatus, Triggered},
    check_name,
    schedule::{between, parse_instant},
    stored::{Gap, MAX_BACKFILL, MAX_SKIP},
};
use axum::http::{HeaderName, StatusCode};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pause {
    #[serde(default)]
    note: String,
    until: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Resume {
    #[serde(default)]
    note: String,
    gap: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Skip {
    #[serde(default)]
    note: String,
    count: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Trigger {
    #[serde(default)]
    note: String,
    id: Option<String>,
    data: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WithId {
    #[serde(default)]
    note: String,
    id: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Letter {
    #[serde(default)]
    note: String,
    scheduled_at: Option<String>,
    trigger: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Backfill {
    #[serde(default)]
    note: String,
    from: String,
    until: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Note {
    #[serde(default)]
    pub(super) note: String,
}

pub(crate) async fn pause(call: Call) -> Answer {
    let Pause { note, until } = body(&call).await?;
    let until = until.map(|until| instant("until", &until)).transpose()?;
    job(&call, &Act::Pause(until), &note).await
}

pub(crate) async fn resume(call: Call) -> Answer {
    let Resume { note, gap } = body(&call).await?;
    job(&call, &Act::Resume(self::gap(gap.as_deref())?), &note).await
}

pub(crate) async fn skip(call: Call) -> Answer {
    let Skip { note, count } = body(&call).await?;
    let count = usize::try_from(count.unwrap_or(1)).unwrap_or(usize::MAX);
    if !(1..=MAX_SKIP).contains(&count) {
        let detail = format!("{count} occurrences cannot be left out; use 1 to {MAX_SKIP}");
        return Err(Problem::rejected("count", detail));
    }
    let done = act(&call, &Act::Skip(count), &note).await?;
    call.json(json!({ "skipped": done.runs() }))
}

pub(crate) async fn cancel(call: Call) -> Answer {
    let WithId { note, id } = body(&call).await?;
    let done = act(&call, &Act::Cancel(id), &note).await?;
    call.json(json!({ "cancelled": done.runs() }))
}

pub(crate) async fn reset(call: Call) -> Answer {
    let Note { note } = body(&call).await?;
    job(&call, &Act::Reset, &note).await
}

pub(crate) async fn rerun(call: Call) -> Answer {
    letters(&call, Act::Rerun).await
}

pub(crate) async fn dismiss(call: Call) -> Answer {
    letters(&call, Act::Dismiss).await
}

/// An occurrence whose work is done, or all dead letters.
pub(crate) async fn mark(call: Call) -> Answer {
    letters(&call, Act::Mark).await
}

/// One dead letter, or all of them.
async fn letters(call: &Call, action: fn(Occurrence) -> Act) -> Answer {
    let Letter { note, scheduled_at, trigger } = body(call).await?;
    let occurrences = match scheduled_at {
        Some(at) => vec![Occurrence { scheduled_at: instant("scheduled_at", &at)?, trigger }],
        None if trigger.is_some() => {
            let detail = "the trigger alone names no dead letter; give its scheduled_at";
            return Err(Problem::rejected("trigger", detail));
        }
        None => {
            let state = call.reader.unredacted(call.query.text("name")).await?;
            state.dead.into_iter().map(|letter| letter.occurrence).collect()
        }
    };
    for occurrence in &occurrences {
        act(call, &action(occurrence.clone()), &note).await?;
    }
    call.json(json!({ "items": occurrences }))
}

/// One run for each scheduled time of a range; with `dry_run`, only its times.
pub(crate) async fn backfill(call: Call) -> Answer {
    let Call { query, reader, .. } = &call;
    let Backfill { note, from, until } = body(&call).await?;
    let from = instant("from", &from)?;
    let now = reader.store_now().await?;
    let until = until.map_or(Ok(now), |until| instant("until", &until))?;
    if until > now || until <= from {
        let detail = "the range ends after its beginning, and not in the future";
        return Err(Problem::rejected("until", detail));
    }
    if !query.is_set("dry_run") {
        let done = act(&call, &Act::Backfill(from, until), &note).await?;
        let Effect::Filled(items) = done else { return call.json(json!({ "items": [] })) };
        return call.json(json!({ "items": items }));
    }
    let state = reader.unredacted(query.text("name")).await?;
    let definition = reader.definition(&state).await?;
    let times: Vec<Time> =
        between(definition.schedule(), from, until).take(MAX_BACKFILL + 1).collect();
    if times.len() > MAX_BACKFILL {
        let detail = format!("the range has more than {MAX_BACKFILL} scheduled times");
        return Err(Problem::rejected("from", detail).remedy("backfill it in parts"));
    }
    let of_backfill = |scheduled_at| Occurrence { scheduled_at, trigger: Some("backfill".into()) };
    call.json(json!({ "items": times.into_iter().map(of_backfill).collect::<Vec<_>>() }))
}

/// One run now. The id makes it safe to send the request again; with `wait`, the answer is its end.
pub(crate) async fn trigger(call: Call) -> Answer {
    let Call { query, reader, headers, shared, .. } = &call;
    let Trigger { note, id, data } = body(&call).await?;
    let data = data.map(self::data).transpose()?;
    let key = headers.get(IDEMPOTENCY_KEY).map(|key| key.to_str().unwrap_or_default());
    // As a string of structured fields, it has quotes.
    let key = key.map(|key| key.trim_matches('"').to_owned());
    let (id, place) = match (id, key) {
        (Some(id), Some(key)) if id != key => {
            let detail = "the id and Idempotency-Key are different; give one of them";
            return Err(Problem::new(Type::BadHeader, detail).field("idempotency-key"));
        }
        (Some(id), _) => (id, "id"),
        (None, Some(key)) => (key, "idempotency-key"),
        (None, None) => (format!("{:032x}", u128::from(shared.runtime().random())), "id"),
    };
    check_name(&id).map_err(|error| Problem::rejected(place, error.to_string()))?;
    let wait = query.period("wait");
    if wait.is_some() {
        // A store without a history is known before anything is triggered.
        reader.has_history()?;
    }
    let triggered = act(&call, &Act::Trigger(id.clone(), data), &note).await;
    let triggered = triggered.map_err(|problem| match problem.of() {
        Type::Exists => Problem::new(Type::Conflict, problem.detail()).field("data"),
        _ => problem,
    });
    let Effect::Triggered(triggered) = triggered? else {
        return Err(Problem::new(Type::Internal, "the store has not answered the trigger"));
    };
    let name = query.text("name");
    let ended = match wait {
        None => None,
        Some(wait) => reader.end_of(name, &id, &triggered, wait).await?,
    };
    let mut object = told(name, &id, &triggered);
    let Some(end) = ended else { return call.json_with(StatusCode::ACCEPTED, object) };
    object["status"] = "ended".into();
    object["outcome"] = json!(end.outcome);
    object["output"] = json!(end.output);
    object["value"] = json!(end.value.map(|value| match serde_json::from_str(&value) {
        Ok(value) => value,
        Err(_) => Value::String(value),
    }));
    call.json(object)
}

fn told(name: &str, id: &str, triggered: &Triggered) -> Value {
    let status = match triggered.status {
        TriggerStatus::New => "new",
        TriggerStatus::Pending => "pending",
        _ => "ended",
    };
    let at = triggered.occurrence.scheduled_at;
    json!({
        "name": name,
        "id": id,
        "status": status,
        "scheduled_at": at,
        "outcome": null,
        "output": null,
        "value": null,
    })
}

/// The bytes of data in a body, as of a stored schedule.
fn data(data: Value) -> Result<Vec<u8>, Problem> {
    let object = json!({ "name": "a", "kind": "a", "schedule": "@daily", "data": data });
    let Value::Object(object) = object else { return Ok(Vec::new()) };
    Ok(schedule(object)?.bytes()?.to_vec())
}

/// The body of an action, on a job that exists for the caller.
pub(super) async fn body<T: DeserializeOwned>(call: &Call) -> Result<T, Problem> {
    call.reader.check(call.query.text("name")).await?;
    call.object()
}

/// Does it, and answers the job after it.
async fn job(call: &Call, action: &Act, note: &str) -> Answer {
    match act(call, action, note).await? {
        Effect::Job(state) => call.json(call.reader.shown(*state)),
        _ => Err(Problem::new(Type::Internal, "the action has no job")),
    }
}

async fn act(call: &Call, action: &Act, note: &str) -> Result<Effect, Problem> {
    noted(note)?;
    Ok(apply(&call.reader, call.query.text("name"), action, note).await?)
}

/// `Ok` if the record of changes can have this note, which may be empty.
pub(super) fn noted(note: &str) -> Result<(), Problem> {
    check_note(Verb::Resume, note).map_err(|wrong| Problem::rejected("note", wrong))
}

/// The time of a field.
pub(super) fn instant(field: &str, text: &str) -> Result<Time, Problem> {
    parse_instant(text).map_err(|error| {
        let range = error.position()..error.position() + error.found().len();
        Problem::rejected(field, error.to_string()).range(Some(range))
    })
}

/// The handling of the occurrences of a pause.
pub(super) fn gap(word: Option<&str>) -> Result<Gap, Problem> {
    match word {
        None | Some("catch-up") => Ok(Gap::CatchUp),
        Some("missed") => Ok(Gap::Missed),
        Some(other) => {
            Err(Problem::rejected("gap", format!("{other:?} is no gap; use catch-up or missed")))
        }
    }
}
