//! Calendars of the store. With a limit, an account has those whose names begin with its prefix.

use super::{
    call::{Answer, Call},
    operate::noted,
    problem::{Problem, Type},
    shown, token,
};
use crate::{actions::log_action, reader::Reader};
use allora_core::{Error, ErrorKind, Result, schedule::Calendar};
use axum::{http::StatusCode, response::IntoResponse};
use serde::Deserialize;
use serde_json::{Value, json};

/// The most jobs that are named as users of a calendar.
const USERS: usize = 1_000;

pub(crate) async fn list(call: Call) -> Answer {
    let Call { query, reader, .. } = &call;
    let after = query.some("page").and_then(token::read);
    let (found, next) = reader.calendars(after.as_deref(), query.count("limit")).await?;
    let item = |(name, calendar): &(String, Result<_>)| match calendar {
        Ok(calendar) => object(name, calendar),
        Err(error) => json!({ "name": name, "text": null, "unreadable": error.to_string() }),
    };
    let items: Vec<Value> = found.iter().map(item).collect();
    call.json(shown::page(items, next.as_deref().map(token::of)))
}

pub(crate) async fn one(call: Call) -> Answer {
    let Call { query, reader, .. } = &call;
    let name = query.text("name");
    own(reader, name)?;
    let calendar = reader.calendar(name).await?;
    let mut object = object(name, &calendar);
    object["users"] = json!(reader.calendar_users(name, USERS).await?);
    call.json(object)
}

fn object(name: &str, calendar: &Calendar) -> Value {
    json!({ "name": name, "text": calendar.to_string(), "unreadable": null })
}

/// `Ok` if the calendar may exist for this reader.
fn own(reader: &Reader, name: &str) -> Result<(), Problem> {
    match reader.access().may_name(name) {
        true => Ok(()),
        false => Err(Problem::new(Type::NotFound, format!("there is no calendar {name:?}"))),
    }
}

/// `Ok` if the reader may change the calendar, by which jobs of all kinds run.
fn may_change(reader: &Reader, name: &str) -> Result<(), Problem> {
    own(reader, name)?;
    match reader.access().has_kinds() {
        false => Ok(()),
        true => {
            let detail = "your access is limited to some kinds, and calendars are for all of them";
            Err(Problem::new(Type::NoAccess, detail))
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    text: String,
}

/// Sets a calendar. Jobs that it excludes no more run earlier.
pub(crate) async fn put(call: Call) -> Answer {
    let Call { query, reader, .. } = &call;
    let (name, note) = (query.text("name"), query.text("note"));
    may_change(reader, name)?;
    noted(note)?;
    let Body { text } = call.object()?;
    let calendar =
        Calendar::parse(&text).map_err(|error| Problem::from(Error::from(error)).field("text"))?;
    let moved = reader.whole_store(note).upsert_calendar(name, &calendar).await;
    log_action("set calendar", name, (reader, note), moved.as_ref().err());
    let mut moved = moved.map_err(|error| match error.kind() {
        ErrorKind::Invalid => Problem::from(error).field("name"),
        _ => error.into(),
    })?;
    moved.retain(|job| reader.may_name_any_kind(job));
    let mut object = object(name, &calendar);
    object["moved"] = json!(moved);
    call.json(object)
}

/// Deletes a calendar that no job uses.
pub(crate) async fn delete(call: Call) -> Answer {
    let Call { query, reader, .. } = &call;
    let (name, note) = (query.text("name"), query.text("note"));
    may_change(reader, name)?;
    noted(note)?;
    let deleted = reader.whole_store(note).delete_calendar(name).await;
    log_action("delete calendar", name, (reader, note), deleted.as_ref().err());
    match deleted {
        Ok(()) => Ok(StatusCode::NO_CONTENT.into_response()),
        Err(error) if error.kind() == ErrorKind::Invalid => {
            // The error names the jobs, of which the caller may not know.
            let detail = match reader.access().is_limited() {
                true => format!("jobs use the calendar {name:?}"),
                false => error.to_string(),
            };
            Err(Problem::new(Type::Conflict, detail))
        }
        Err(error) => Err(error.into()),
    }
}
