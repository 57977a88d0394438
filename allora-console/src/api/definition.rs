//! The definition of a job: a sub-resource with a tag of its own, because a run that ends must not break an edit.

use super::{
    call::{Answer, Call},
    problem::{Problem, Type},
};
use crate::reader::Reader;
use allora_core::{StoredSchedule, backend::JobState};
use axum::http::{HeaderValue, header};
use serde_json::{Map, Value, to_value};

pub(crate) async fn get(call: Call) -> Answer {
    let Call { query, reader, .. } = &call;
    let state = reader.unredacted(query.text("name")).await?;
    let object = object(reader, &state)?;
    tagged(&state, call.json(object)?)
}

/// The answer with the tag of this definition.
fn tagged(state: &JobState, mut answer: axum::response::Response) -> Answer {
    if let Ok(tag) = HeaderValue::from_str(&tag(state)) {
        answer.headers_mut().insert(header::ETAG, tag);
    }
    Ok(answer)
}

fn tag(state: &JobState) -> String {
    format!("\"{}.{}\"", state.incarnation, state.generation)
}

/// The stored schedule of this job.
fn stored(state: &JobState) -> Result<StoredSchedule, Problem> {
    StoredSchedule::of(state).map_err(|error| Problem::new(Type::Conflict, error.to_string()))
}

/// As an object; without the data if the reader may not see it as it is.
fn object(reader: &Reader, state: &JobState) -> Result<Map<String, Value>, Problem> {
    let Ok(Value::Object(mut object)) = to_value(stored(state)?) else {
        return Err(Problem::new(Type::Internal, "the definition is no object"));
    };
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
