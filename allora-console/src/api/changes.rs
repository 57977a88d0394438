//! Jobs that come and go, and changes that are taken back.

use super::{
    call::{Answer, Call},
    operate::{Note, noted},
    problem::{Problem, Type},
    schedule::{Object, schedule},
    tags::{Tags, tag},
};
use crate::{
    actions::{Act, Effect, apply, last_change},
    links::link,
    pages::audit::scope,
};
use allora_core::{ErrorKind, StoredSchedule, record::ChangeAction};
use axum::http::{HeaderValue, StatusCode, header};
use serde_json::json;

/// Adds a job.
pub(crate) async fn add(call: Call) -> Answer {
    let Call { query, reader, .. } = &call;
    let Object(object) = call.object()?;
    let stored = schedule(object)?;
    let note = query.text("note");
    noted(note)?;
    may_have(&call, &stored)?;
    reader.admits_new(1).await.map_err(Problem::of_limit)?;
    let name = stored.name().to_owned();
    let place = HeaderValue::try_from(link("job", &[("name", &name)])).ok();
    let added = apply(reader, &name, &Act::Add(Box::new(stored)), note).await.map_err(|error| {
        let taken = error.kind() == ErrorKind::AlreadyExists;
        match (Problem::of_schedule(error), &place) {
            (problem, Some(place)) if taken => problem.header(header::LOCATION, place.clone()),
            (problem, _) => problem,
        }
    })?;
    let Effect::Job(state) = added else {
        return Err(Problem::new(Type::Internal, "the store has not answered the addition"));
    };
    let mut answer = call.json_with(StatusCode::CREATED, reader.shown((*state).clone()))?;
    let headers = answer.headers_mut();
    if let (Some(place), Ok(tag)) = (place, HeaderValue::try_from(tag(&state))) {
        headers.insert(header::LOCATION, place);
        headers.insert(header::ETAG, tag);
    }
    Ok(answer)
}

/// `Ok` if the caller may have this job.
pub(super) fn may_have(call: &Call, stored: &StoredSchedule) -> Result<(), Problem> {
    let (name, kind) = (stored.name(), stored.kind());
    let access = call.reader.access();
    if !access.may_name(name) {
        let detail = format!("your access has no jobs of the name {name:?}");
        return Err(Problem::rejected("name", detail).remedy("use a prefix of yours"));
    }
    if !access.may_see(name, kind) {
        let detail = format!("your access has no jobs of the kind {kind:?}");
        return Err(Problem::rejected("kind", detail).remedy("use a kind of yours"));
    }
    Ok(())
}

/// Deletes a job; the answer has what its undoing needs.
pub(crate) async fn delete(call: Call) -> Answer {
    let Call { query, reader, headers, .. } = &call;
    let (name, note) = (query.text("name"), query.text("note"));
    noted(note)?;
    reader.check(name).await?;
    let tags = Tags::read(headers)?;
    if tags != Tags::None {
        tags.check(Some(&reader.unredacted(name).await?))?;
    }
    apply(reader, name, &Act::Delete, note).await?;
    let change = last_change(reader, name, &[ChangeAction::Delete]).await;
    call.json(json!({ "name": name, "sequence": change.map(|change| change.sequence) }))
}

/// Takes back a change, by the job and the sequence that the record of changes has of it.
pub(crate) async fn undo(call: Call) -> Answer {
    let Call { query, reader, .. } = &call;
    let (name, sequence) = (query.text("name"), query.number("sequence").unwrap_or_default());
    let Note { note } = call.object()?;
    noted(&note)?;
    let change = reader.change(name, sequence).await?.ok_or_else(|| {
        let detail = format!("there is no change {sequence} of {name:?}, or not any more");
        Problem::new(Type::NotFound, detail)
    })?;
    let scope = scope(change.action).ok_or_else(|| {
        let detail = format!("a {} cannot be taken back", change.action.word());
        Problem::new(Type::Conflict, detail)
    })?;
    call.needs(scope)?;
    if change.action == ChangeAction::Delete {
        reader.admits_new(1).await.map_err(Problem::of_limit)?;
    }
    match apply(reader, name, &Act::Undo(Box::new(change)), &note).await {
        Ok(Effect::Job(state)) => call.json(reader.shown(*state)),
        Ok(_) => Err(Problem::new(Type::Internal, "the undoing has no job")),
        Err(error) => Err(match error.kind() {
            ErrorKind::Unavailable | ErrorKind::Other => error.into(),
            _ => Problem::new(Type::Conflict, error.to_string()),
        }),
    }
}
