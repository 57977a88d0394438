//! Stored schedules in bodies: the objects of the library, and the place of an error in them.

use super::problem::{Problem, Type};
use crate::actions::{Draft, Wrong};
use allora_core::{StoredSchedule, check_name, is_internal, record::MAX_DATA};
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor},
};
use serde_json::{Map, Value};
use std::fmt;

/// An object, with each of its fields once.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Object(pub(crate) Map<String, Value>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut fields = Map::new();
                while let Some((field, value)) = map.next_entry::<String, Value>()? {
                    if fields.contains_key(&field) {
                        return Err(de::Error::custom(format!("duplicate field `{field}`")));
                    }
                    fields.insert(field, value);
                }
                Ok(Object(fields))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

/// The stored schedule of an object.
///
/// # Errors
/// `BadBody` if it is no object of a schedule; `Rejected` with the field that is wrong, and its place there.
pub(crate) fn schedule(object: Map<String, Value>) -> Result<StoredSchedule, Problem> {
    for field in ["name", "kind"] {
        if let Some(Value::String(name)) = object.get(field) {
            check_name(name).map_err(|error| Problem::rejected(field, error.to_string()))?;
        }
    }
    if let Some(name) = object.get("name").and_then(Value::as_str).filter(|name| is_internal(name))
    {
        let detail = format!("the name {name:?} is reserved for the scheduler's own records");
        return Err(Problem::rejected("name", detail));
    }
    serde_json::from_value(Value::Object(object.clone())).map_err(|error| wrong(&object, &error))
}

fn wrong(object: &Map<String, Value>, error: &serde_json::Error) -> Problem {
    let unreadable = Problem::of_json(error);
    if unreadable.has_field() {
        return unreadable;
    }
    let has_type = |(field, value): (&String, &Value)| match &*field.replace('-', "_") {
        "data" => true,
        "at_most_once" => value.is_boolean(),
        "tags" => {
            value.is_string()
                || value.as_array().is_some_and(|tags| tags.iter().all(Value::is_string))
        }
        "name" | "kind" | "schedule" | "zone" | "first_run" => value.is_string(),
        _ => value.is_string() || value.is_u64(),
    };
    if let Some((field, value)) = object.iter().find(|pair| !has_type(*pair)) {
        return Problem::new(Type::BadBody, format!("{field}: {value} has the wrong type"))
            .field(field);
    }
    let draft = Draft::of_object(object);
    if let Err(Wrong { key, message, marked }) = draft.definition() {
        let range = marked.map(|[before, at, _]| before.len()..before.len() + at.len());
        return Problem::rejected(&key.replace('-', "_"), message).range(range);
    }
    let size = object.get("data").map_or(0, |data| data.to_string().len());
    let text = error.to_string();
    match ["first_run", "first-run"].into_iter().find(|field| object.contains_key(*field)) {
        Some(field) if size <= MAX_DATA && !text.contains("$hex") => Problem::rejected(field, text),
        _ if object.contains_key("data") => Problem::rejected("data", text),
        _ => Problem::new(Type::Rejected, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Checks the status, the field and the range of a schedule that has these fields besides the least ones.
    #[track_caller]
    fn check(fields: &Value, status: u16, field: &str, range: Value) {
        let mut object = json!({ "name": "a", "kind": "t", "schedule": "@daily" });
        for (name, value) in fields.as_object().unwrap() {
            object[name] = value.clone();
        }
        let Value::Object(object) = object else { panic!() };
        let problem = schedule(object).unwrap_err().object();
        assert_eq!(
            (&problem["status"], &problem["field"]),
            (&json!(status), &json!(field)),
            "{problem}"
        );
        assert_eq!(problem.get("range").cloned().unwrap_or_default(), range, "{problem}");
    }

    #[test]
    fn an_error_has_its_field_and_its_place() {
        check(&json!({ "schedule": "61 * * * *" }), 422, "schedule", json!([0, 2]));
        check(&json!({ "schedule": "0 0 * * Mond" }), 422, "schedule", json!([8, 12]));
        check(&json!({ "zone": "Mars/X", "schedule": "0 2 * * *" }), 422, "zone", json!([0, 6]));
        check(&json!({ "delay": "30" }), 422, "delay", json!([0, 2]));
        check(&json!({ "retry": "5 10 1h" }), 422, "retry", json!([2, 4]));
        check(&json!({ "at_most_once": true, "retry": "5 10s 1h" }), 422, "retry", json!(null));
        check(&json!({ "first_run": "tomorrow" }), 422, "first_run", json!(null));
        check(&json!({ "data": { "$hex": "0" } }), 422, "data", json!(null));
        check(&json!({ "data": "x".repeat(MAX_DATA) }), 422, "data", json!(null));
        check(&json!({ "name": "a\nb" }), 422, "name", json!(null));
        check(&json!({ "name": "allora:key:x" }), 422, "name", json!(null));
        check(&json!({ "dealy": "30s" }), 400, "dealy", json!(null));
        check(&json!({ "schedule": 5 }), 400, "schedule", json!(null));
        check(&json!({ "delay": [] }), 400, "delay", json!(null));
        check(&json!({ "tags": [5] }), 400, "tags", json!(null));
    }

    #[test]
    fn an_object_has_each_field_once() {
        assert!(serde_json::from_str::<Object>(r#"{"a":1,"a":2}"#).is_err());
        assert!(serde_json::from_str::<Object>("[]").is_err());
    }
}
