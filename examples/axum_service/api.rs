//! The API: what is asked over HTTP is asked of the stored schedules.

use allora::{Error, ErrorKind, Schedules, StoredSchedule, backend::JobState, stored::Filter};
use axum::{
    Json, Router,
    extract::{Path, State as Shared},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde_json::json;

pub(crate) fn router(schedules: Schedules) -> Router {
    Router::new()
        .route("/schedules", post(add).get(list))
        .route("/schedules/{*name}", get(show).delete(delete))
        .route("/trigger/{*name}", post(trigger))
        .with_state(schedules)
}

/// The body is the schedule; an error names its place, and nothing is added.
async fn add(
    Shared(schedules): Shared<Schedules>,
    Json(stored): Json<StoredSchedule>,
) -> Result<(StatusCode, Json<JobState>), Refused> {
    let state = schedules.add(&stored).await?;
    Ok((StatusCode::CREATED, Json(state)))
}

async fn list(Shared(schedules): Shared<Schedules>) -> Result<Json<Vec<JobState>>, Refused> {
    let states = schedules.list(Filter::default(), None, 1_000).await?;
    Ok(Json(states))
}

async fn show(
    Shared(schedules): Shared<Schedules>,
    Path(name): Path<String>,
) -> Result<Json<JobState>, Refused> {
    Ok(Json(schedules.get(&name).await?))
}

async fn delete(
    Shared(schedules): Shared<Schedules>,
    Path(name): Path<String>,
) -> Result<StatusCode, Refused> {
    schedules.delete(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A client that repeats its request with the same key runs the schedule once.
async fn trigger(
    Shared(schedules): Shared<Schedules>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, Refused> {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
    let key = key.ok_or_else(|| {
        let what = "the header idempotency-key is missing; send one text for each run";
        Error::new(ErrorKind::Invalid, what)
    })?;
    match schedules.trigger(&name, key).await?.is_new() {
        true => Ok(StatusCode::ACCEPTED),
        false => Ok(StatusCode::OK),
    }
}

/// An error of the store, as a status.
pub(crate) struct Refused(Error);

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = match self.0.kind() {
            ErrorKind::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::AlreadyExists => StatusCode::CONFLICT,
            ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, Json(json!({ "error": self.0.to_string() }))).into_response()
    }
}
