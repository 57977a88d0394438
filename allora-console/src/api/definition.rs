//! The definition of a job: a sub-resource with a tag of its own, because a run that ends must not break an edit.

use super::{
    call::{Answer, Call},
    changes::may_have,
    operate::{gap, noted},
    problem::{Problem, Type},
    schedule::{Object, schedule},
    tags::{Tags, changed, tag},
};
use crate::{
    actions::{Act, Effect, apply},
    links::link,
    reader::Reader,
};
use allora_core::{ErrorKind, StoredSchedule, backend::JobState};
use axum::http::{HeaderValue, StatusCode, header};
use serde_json::{Map, Value, to_value};

/// The attempts at a change that names no tag, while others change the same definition.
const ATTEMPTS: usize = 5;

pub(crate) async fn get(call: Call) -> Answer {
    let state = call.reader.unredacted(call.query.text("name")).await?;
    answer(&call, StatusCode::OK, &state)
}

/// The definition of this job, with its tag.
fn answer(call: &Call, status: StatusCode, state: &JobState) -> Answer {
    let mut answer = call.json_with(status, object(&call.reader, state)?)?;
    if let Ok(tag) = HeaderValue::try_from(tag(state)) {
        answer.headers_mut().insert(header::ETAG, tag);
    }
    Ok(answer)
}

/// Sets the definition of a job, which is added if there is none.
pub(crate) async fn put(call: Call) -> Answer {
    let Call { query, reader, headers, .. } = &call;
    let name = query.text("name");
    named(reader, name)?;
    let tags = Tags::read(headers)?;
    let Object(mut object) = call.object()?;
    of_name(&mut object, name)?;
    let has_data = object.contains_key("data");
    let wanted = schedule(object)?;
    may_have(&call, &wanted)?;
    for attempt in 1.. {
        let state = found(reader, name).await?;
        tags.check(state.as_ref())?;
        let Some(state) = state else { return add(&call, wanted).await };
        if tags == Tags::None {
            let detail = format!("there is a job named {name:?} already");
            let remedy =
                "send the tag of its definition as If-Match, or If-Match: * to replace any";
            return Err(Problem::new(Type::NoPrecondition, detail).remedy(remedy));
        }
        in_store(&state)?;
        let mut stored = wanted.clone();
        if !has_data && !shows_data(reader, &state) {
            // The caller could not see the data, so leaving it out does not remove it.
            stored = stored.data_bytes(state.data.clone());
        }
        let is_last = tags != Tags::Any || attempt == ATTEMPTS;
        if let Some(state) = edit(&call, stored, &state, is_last).await? {
            return answer(&call, StatusCode::OK, &state);
        }
    }
    Err(Problem::new(Type::Changed, "others change this definition all the time"))
}

/// Changes parts of a definition (RFC 7396): what is `null` is removed, and what is left out stays.
pub(crate) async fn patch(call: Call) -> Answer {
    let Call { query, reader, headers, .. } = &call;
    let name = query.text("name");
    named(reader, name)?;
    let tags = Tags::read(headers)?;
    let Object(patch) = call.object()?;
    let patch: Map<String, Value> =
        patch.into_iter().map(|(field, value)| (field.replace('-', "_"), value)).collect();
    for attempt in 1.. {
        let state = reader.unredacted(name).await?;
        tags.check(Some(&state))?;
        let mut object = whole(&state)?;
        let begins = patch.get("at_most_once") == Some(&Value::Bool(true));
        for (own, other) in [("at_most_once", "at_least_once"), ("at_most_once", "retry")] {
            // The former delivery, unless the patch says otherwise.
            if begins && !patch.contains_key(other) {
                object.remove(other);
            }
            if patch.contains_key("at_least_once") && !patch.contains_key(own) {
                object.remove(own);
            }
        }
        merge(&mut object, &patch);
        of_name(&mut object, name)?;
        let mut stored = schedule(object)?;
        may_have(&call, &stored)?;
        if !patch.contains_key("data") {
            stored = stored.data_bytes(state.data.clone());
        }
        let is_last = tags != Tags::None || attempt == ATTEMPTS;
        if let Some(state) = edit(&call, stored, &state, is_last).await? {
            return answer(&call, StatusCode::OK, &state);
        }
    }
    Err(Problem::new(Type::Changed, "others change this definition all the time"))
}

/// Refuses names that are outside of the caller's prefixes, as if there were no such job.
fn named(reader: &Reader, name: &str) -> Result<(), Problem> {
    if reader.access().may_name(name) { Ok(()) } else { Err(Problem::no_job(name)) }
}

async fn found(reader: &Reader, name: &str) -> allora_core::Result<Option<JobState>> {
    match reader.unredacted(name).await {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        state => state.map(Some),
    }
}

/// Adds the name to the object; another one than this is an error.
fn of_name(object: &mut Map<String, Value>, name: &str) -> Result<(), Problem> {
    match object.entry("name").or_insert_with(|| name.into()) {
        own if own == name => Ok(()),
        own => {
            let detail =
                format!("the body names {own}, and the query {name:?}; no job changes its name");
            Err(Problem::rejected("name", detail))
        }
    }
}

async fn add(call: &Call, stored: StoredSchedule) -> Answer {
    let note = call.query.text("note");
    noted(note)?;
    call.reader.admits_new(1).await.map_err(Problem::of_limit)?;
    let name = stored.name().to_owned();
    match apply(&call.reader, &name, &Act::Add(Box::new(stored)), note).await {
        Ok(Effect::Job(state)) => {
            let mut answer = answer(call, StatusCode::CREATED, &state)?;
            if let Ok(place) = HeaderValue::try_from(link("../job", &[("name", &name)])) {
                answer.headers_mut().insert(header::LOCATION, place);
            }
            Ok(answer)
        }
        Ok(_) => Err(Problem::new(Type::Internal, "the store has not answered the addition")),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            Err(changed("there is such a job by now", None))
        }
        Err(error) => Err(Problem::of_schedule(error)),
    }
}

/// Stores an edit of the job as it was read; `None` if it has changed since, unless this is the last attempt.
async fn edit(
    call: &Call,
    stored: StoredSchedule,
    seen: &JobState,
    is_last: bool,
) -> Result<Option<JobState>, Problem> {
    let note = call.query.text("note");
    noted(note)?;
    let stored = stored.gap(gap(call.query.given("gap"))?).read_at(seen.generation);
    match apply(&call.reader, &seen.name, &Act::Edit(Box::new(stored)), note).await {
        Ok(Effect::Job(state)) => Ok(Some(*state)),
        Ok(_) => Err(Problem::new(Type::Internal, "the store has not answered the edit")),
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(Problem::of_schedule(error)),
        Err(_) if !is_last => Ok(None),
        Err(_) => Err(changed("the definition has changed since it was read", None)),
    }
}

fn merge(object: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (field, value) in patch {
        match (object.get_mut(field), value) {
            (_, Value::Null) => _ = object.remove(field),
            (Some(Value::Object(own)), Value::Object(value)) => merge(own, value),
            (_, Value::Object(value)) => {
                let mut new = Map::new();
                merge(&mut new, value);
                object.insert(field.clone(), new.into());
            }
            _ => _ = object.insert(field.clone(), value.clone()),
        }
    }
}

/// `Ok` unless it is a job in code, whose definition its nodes have.
fn in_store(state: &JobState) -> Result<(), Problem> {
    if !state.kind.is_empty() {
        return Ok(());
    }
    let detail = format!("{:?} is a job in code", state.name);
    Err(Problem::new(Type::Conflict, detail).remedy("change its code, and deploy that"))
}

/// The definition as an object.
fn whole(state: &JobState) -> Result<Map<String, Value>, Problem> {
    in_store(state)?;
    let stored = StoredSchedule::of(state);
    let stored = stored.map_err(|error| Problem::new(Type::Conflict, error.to_string()))?;
    match to_value(stored) {
        Ok(Value::Object(object)) => Ok(object),
        _ => Err(Problem::new(Type::Internal, "the definition is no object")),
    }
}

/// As [`whole`], without the data if the reader may not see it as it is.
fn object(reader: &Reader, state: &JobState) -> Result<Map<String, Value>, Problem> {
    let mut object = whole(state)?;
    if !shows_data(reader, state) {
        object.remove("data");
    }
    Ok(object)
}

/// `true` if the reader sees the data as the store has it.
fn shows_data(reader: &Reader, state: &JobState) -> bool {
    let is_shown = |text: &str| reader.redacted(&state.name, text) == text;
    reader.access().sees_data() && std::str::from_utf8(&state.data).map_or(true, is_shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_patch_is_merged_as_the_examples_of_its_rfc() {
        for (one, patch, merged) in [
            (json!({ "a": "b" }), json!({ "a": "c" }), json!({ "a": "c" })),
            (json!({ "a": "b", "b": "c" }), json!({ "a": null }), json!({ "b": "c" })),
            (json!({ "a": ["b"] }), json!({ "a": "c" }), json!({ "a": "c" })),
            (
                json!({ "a": { "b": "c" } }),
                json!({ "a": { "b": "d", "c": null } }),
                json!({ "a": { "b": "d" } }),
            ),
            (json!({}), json!({ "a": { "bb": { "ccc": null } } }), json!({ "a": { "bb": {} } })),
        ] {
            let (Value::Object(mut one), Value::Object(patch)) = (one, patch) else { panic!() };
            merge(&mut one, &patch);
            assert_eq!(Value::Object(one), merged);
        }
    }
}
