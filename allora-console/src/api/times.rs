//! The times of a schedule, each with the reasons why it is not the one that its text seems to say.

use super::{
    call::{Answer, Call},
    problem::{Problem, Type},
    schedule::{Object, schedule},
};
use allora_core::{
    Error, ErrorKind, Explained, Schedule, Time,
    backend::{JobState, NextRun},
    schedule::parse_instant,
};
use chrono::TimeDelta;
use serde_json::{Value, json};

/// The times of an explanation, unless another number is asked for, and the most.
const COUNT: u64 = 10;
const MOST: u64 = 1_000;

/// The next times of a job.
pub(crate) async fn next(call: Call) -> Answer {
    let Call { query, reader, .. } = &call;
    let state = reader.get(query.text("name")).await?;
    let times = coming(&call, &state, query.count("count")).await?;
    call.json(json!({ "items": times }))
}

async fn coming(call: &Call, state: &JobState, count: usize) -> Result<Vec<Value>, Problem> {
    let Some(cursor) = state.next else { return Ok(Vec::new()) };
    // The caller asked well, but the stored schedule cannot be read: a later build wrote it, or only the code of the
    // job knows its times.
    let unreadable = |error: Error| match error.kind() {
        ErrorKind::Invalid => Problem::new(Type::Conflict, error.to_string()),
        _ => error.into(),
    };
    let definition = call.reader.definition(state).await.map_err(unreadable)?;
    let (schedule, settings) = (definition.schedule(), definition.settings());
    let explained = |after: Time, n| settings.explain(&state.name, schedule, after, n);
    let first = cursor.scheduled_at;
    if let Some(after) = call.query.time("after").filter(|after| *after >= first) {
        // The times of a period are counted from the cursor.
        let last = schedule.latest_at(first, after).unwrap_or(first);
        let times = explained(last, count.saturating_add(1)).into_iter();
        return Ok(times.filter(|time| time.nominal > after).take(count).map(time).collect());
    }
    let runs = call.reader.next(state, count).await.map_err(unreadable)?;
    let mut reasons = explained(first - TimeDelta::milliseconds(1), 1);
    reasons.extend(explained(first, count));
    let with_reasons = |run: &NextRun| {
        let own = reasons.iter().find(|one| one.nominal == run.scheduled_at);
        let reasons = own.map(|one| one.reasons.clone()).unwrap_or_default();
        json!({ "scheduled_at": run.scheduled_at, "due_at": run.due_at, "reasons": reasons })
    };
    Ok(runs.iter().map(with_reasons).collect())
}

fn time(explained: Explained) -> Value {
    let Explained { nominal, due, reasons, .. } = explained;
    json!({ "scheduled_at": nominal, "due_at": due, "reasons": reasons })
}

/// A schedule that need not be stored: in words, with warnings and times.
pub(crate) async fn explain(call: Call) -> Answer {
    let Object(mut object) = call.object()?;
    let count = match object.remove("count") {
        None => COUNT,
        Some(count) => count.as_u64().filter(|n| (1..=MOST).contains(n)).ok_or_else(|| {
            Problem::rejected("count", format!("{count} times cannot be listed; use 1 to {MOST}"))
        })?,
    };
    let after = match object.remove("after") {
        None => call.shared.runtime().wall(),
        Some(after) => parse_instant(after.as_str().unwrap_or_default())
            .map_err(|error| Problem::rejected("after", error.to_string()))?,
    };
    for (field, default) in [("name", "job"), ("kind", "job")] {
        object.entry(field).or_insert_with(|| default.into());
    }
    let stored = schedule(object)?;
    let definition = stored.definition()?;
    let schedule = definition.schedule();
    let count = usize::try_from(count).unwrap_or_default();
    let times = definition.settings().explain(stored.name(), schedule, after, count);
    let warnings: Vec<&str> =
        schedule.warnings().iter().map(|warning| warning.message.as_str()).collect();
    call.json(json!({
        "words": schedule.describe(),
        "definition": definition.to_string(),
        "zone": definition.zone().or(schedule.zone()),
        "warnings": warnings,
        // Without these, the schedule has no times here.
        "calendars": definition.calendars(),
        "items": times.into_iter().map(time).collect::<Vec<_>>(),
    }))
}
