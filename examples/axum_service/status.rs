//! The status pages: the health of this node as text, and its jobs as JSON.

use allora::{Handle, JobStatus};
use axum::{Json, Router, extract::State as Shared, http::StatusCode, routing::get};

pub(crate) fn router(handle: Handle) -> Router {
    Router::new().route("/health", get(health)).route("/jobs", get(jobs)).with_state(handle)
}

/// A page for operators: 503 if something is wrong. No probe that restarts the service should use
/// it, because a restart repairs no store.
async fn health(Shared(handle): Shared<Handle>) -> (StatusCode, String) {
    let health = handle.health();
    let status = match health.is_healthy() {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, health.to_string())
}

async fn jobs(Shared(handle): Shared<Handle>) -> Json<Vec<JobStatus>> {
    Json(handle.jobs())
}
