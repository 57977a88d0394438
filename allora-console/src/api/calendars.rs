//! Calendars of the store. With a limit, an account has those whose names begin with its prefix.

use super::{
    call::{Answer, Call},
    problem::{Problem, Type},
    shown, token,
};
use crate::reader::Reader;
use serde_json::{Value, json};

/// The most jobs that are named as users of a calendar.
const USERS: usize = 1_000;

pub(crate) async fn list(call: Call) -> Answer {
    let Call { query, reader, .. } = &call;
    let after = query.some("page").and_then(token::read);
    let (found, next) = reader.calendars(after.as_deref(), query.count("limit")).await?;
    let item = |(name, calendar): &(String, allora_core::Result<_>)| match calendar {
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

fn object(name: &str, calendar: &allora_core::schedule::Calendar) -> Value {
    json!({ "name": name, "text": calendar.to_string(), "unreadable": null })
}

/// `Ok` if the calendar may exist for this reader.
fn own(reader: &Reader, name: &str) -> Result<(), Problem> {
    match reader.access().may_name(name) {
        true => Ok(()),
        false => Err(Problem::new(Type::NotFound, format!("there is no calendar {name:?}"))),
    }
}
