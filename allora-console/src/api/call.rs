//! A call of an operation: all that a request says, and the answer to it.

use super::{
    params::Query,
    problem::{Problem, Type},
};
use crate::{access::Scope, context::without_output, reader::Reader, shared::Shared};
use axum::{
    body::Bytes,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::sync::Arc;

/// The answer of an operation.
pub(crate) type Answer = Result<Response, Problem>;

/// A request whose head is read, by a caller who may make it.
pub(crate) struct Call {
    pub(crate) shared: Arc<Shared>,
    /// The store, as the caller may see it.
    pub(crate) reader: Reader,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Call {
    /// The body, as an object of this type; without one, as an empty object.
    pub(crate) fn object<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        let body = if self.body.is_empty() { &b"{}"[..] } else { &self.body };
        serde_json::from_slice(body).map_err(|error| Problem::of_json(&error))
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// `Ok` if the caller has the scope, which depends on the body.
    pub(crate) fn needs(&self, scope: Scope) -> Result<(), Problem> {
        match self.reader.access().may(scope) {
            true => Ok(()),
            false => Err(Problem::no_scope(scope)),
        }
    }

    /// An answer with this value, without what the caller may not see.
    pub(crate) fn json(&self, value: impl Serialize) -> Answer {
        self.json_with(StatusCode::OK, value)
    }

    /// An answer with this value as it is, for a worker.
    pub(crate) fn whole_json(&self, value: &Value) -> Answer {
        Ok(([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response())
    }

    pub(crate) fn json_with(&self, status: StatusCode, value: impl Serialize) -> Answer {
        let mut value = serde_json::to_value(value)
            .map_err(|error| Problem::new(Type::Internal, error.to_string()))?;
        if !self.reader.access().sees_data() {
            hide_data(&mut value);
        }
        let json = [(header::CONTENT_TYPE, "application/json")];
        Ok((status, json, value.to_string()).into_response())
    }
}

/// Removes the data of schedules, and the checkpoints and the output of runs, wherever they stand.
fn hide_data(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.remove("data");
            if object.contains_key("saved_at") {
                object.remove("value");
            }
            // The output of an entry that an operator made is the operator's note.
            let is_note = object.get("attempt") == Some(&json!(0))
                && object.get("reason") == Some(&json!("operator"));
            let is_end = object.contains_key("outcome") && !is_note;
            for hidden in ["output", "value"] {
                if let Some(of_run) = object.get_mut(hidden).filter(|_| is_end) {
                    *of_run = Value::Null;
                }
            }
            object.values_mut().for_each(hide_data);
        }
        Value::Array(values) => values.iter_mut().for_each(hide_data),
        Value::String(text) => text.truncate(without_output(text).len()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_and_output_are_hidden_wherever_they_stand() {
        let error = "exit status: 3; its output ends: hush";
        let mut value = json!({
            "items": [{ "data": { "a": 1 }, "outcome": "failed", "output": "hush", "value": "1", "error": error }],
            "evidence": [{ "name": "a", "value": "b" }],
            "checkpoints": [{ "saved_at": "2026-01-01T00:00:00Z", "size": 1, "value": 7 }],
        });
        hide_data(&mut value);
        assert_eq!(
            value,
            json!({
                "items": [{ "outcome": "failed", "output": null, "value": null, "error": "exit status: 3" }],
                "evidence": [{ "name": "a", "value": "b" }],
                "checkpoints": [{ "saved_at": "2026-01-01T00:00:00Z", "size": 1 }],
            })
        );
    }
}
