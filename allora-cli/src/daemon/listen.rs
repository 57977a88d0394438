//! `--listen`: probes and metrics over HTTP, and the console for browsers on this machine.
//!
//! No request changes anything. Everybody who reaches the address can read the probes and the metrics.
//! The console needs `--console` and a loopback address.

use super::metrics::Metrics;
use crate::{
    console_access::{self, NOT_LOCAL},
    failure::{Failure, Outcome},
    server::Server,
    store::Store,
};
use allora_console::{Access, Console};
use allora_core::{
    ActiveCondition, Condition, Handle, Schedules,
    runtime::{Runtime, Tokio},
};
use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderName, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use std::sync::{Arc, OnceLock};
use tower::ServiceExt;
use tracing::{error, info};

/// The contents of the pages.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// Set when the store was reached, as is the console.
    scheduler: OnceLock<Handle>,
    console: OnceLock<Router>,
    /// The console is among the pages.
    pub(crate) has_console: bool,
    pub(crate) metrics: Metrics,
}

impl Pages {
    /// Shows this scheduler, and the store that it has reached.
    ///
    /// # Errors
    /// The settings of the client are invalid.
    pub(crate) fn open(&self, store: &Store, handle: &Handle, runtime: &Tokio) -> Outcome {
        if self.has_console {
            let console = console(store, handle, runtime)?;
            self.console.get_or_init(|| console);
        }
        self.scheduler.get_or_init(|| handle.clone());
        Ok(())
    }
}

fn console(store: &Store, handle: &Handle, runtime: &Tokio) -> Outcome<Router> {
    if store.queries().is_none() {
        return Ok(Router::new().fallback(async || {
            let why = "this store has no list of jobs and no history, so it has no console\n";
            (StatusCode::NOT_IMPLEMENTED, why)
        }));
    }
    let schedules = Schedules::on(store.clone(), runtime.clone())?;
    let console = Console::new(schedules).handle(handle.clone());
    Ok(console_access::local(console, Access::reader("")))
}

/// Serves the pages until the process ends.
///
/// # Errors
/// The address cannot be listened on, or other machines reach it and the console is to be there.
pub(crate) fn listen(address: &str, pages: Arc<Pages>, runtime: &Tokio) -> Outcome {
    let has_console = pages.has_console;
    let server = Server::bind(address)?;
    let local = server.address().to_string();
    if has_console && !server.is_local() {
        return Err(Failure::wrong(format!("--console with --listen {address}: {NOT_LOCAL}")));
    }
    info!(target: "allora", address = local, "listening for /healthz, /readyz and /metrics");
    if has_console {
        info!(target: "allora", "the console is at http://{local}/, for browsers on this machine");
    }
    let (router, of_server) = (router(pages), runtime.clone());
    runtime.spawn(Box::pin(async move {
        if let Err(failure) = server.serve(router, of_server).await {
            error!(target: "allora", "{}", failure.what().unwrap_or_default());
        }
    }));
    Ok(())
}

fn router(pages: Arc<Pages>) -> Router {
    let probes = Router::new()
        .route("/healthz", get(async || text(StatusCode::OK, "ok\n")))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .method_not_allowed_fallback(async || text(StatusCode::METHOD_NOT_ALLOWED, "use GET\n"));
    let router = match pages.has_console {
        true => probes.fallback(ask_console),
        false => probes.fallback(async || {
            let why = "here are /healthz, /readyz and /metrics alone; `allora run --console` adds the \
                       console for browsers on this machine\n";
            text(StatusCode::FORBIDDEN, why)
        }),
    };
    router.with_state(pages)
}

/// An answer to a program, which asks on a connection of its own.
fn text(status: StatusCode, text: impl Into<String>) -> Response {
    (status, ONCE, text.into()).into_response()
}

const ONCE: [(HeaderName, &str); 2] =
    [(header::CACHE_CONTROL, "no-store"), (header::CONNECTION, "close")];

async fn ready(State(pages): State<Arc<Pages>>) -> Response {
    let Some(scheduler) = pages.scheduler.get() else { return waiting() };
    let health = scheduler.health();
    let is_of_store = |one: &ActiveCondition| {
        matches!(one.condition, Condition::StoreDown { .. } | Condition::StoreRejects { .. })
    };
    let is_ready = !health.conditions.iter().any(is_of_store)
        && health.store.last_reply.is_some()
        && !health.is_stopping;
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    text(status, format!("{health}\n"))
}

async fn metrics(State(pages): State<Arc<Pages>>) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (ONCE, kind, pages.metrics.text(pages.scheduler.get())).into_response()
}

async fn ask_console(State(pages): State<Arc<Pages>>, request: Request) -> Response {
    match pages.console.get() {
        Some(console) => console.clone().oneshot(request).await.into_response(),
        None => waiting(),
    }
}

fn waiting() -> Response {
    text(StatusCode::SERVICE_UNAVAILABLE, "waiting for the store\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::{Body, to_bytes};
    use futures::{FutureExt, executor::block_on};

    /// The status, and the body.
    fn ask(has_console: bool, method: &str, path: &str) -> (u16, String) {
        let router = router(Arc::new(Pages { has_console, ..Pages::default() }));
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let answer = router.oneshot(request).now_or_never().expect("nothing waits").unwrap();
        let status = answer.status().as_u16();
        let body = block_on(to_bytes(answer.into_body(), 1 << 20)).unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[test]
    fn requests_are_answered_by_method_and_path() {
        for (method, path, is) in [
            ("GET", "/healthz", (200, "ok\n")),
            ("HEAD", "/healthz", (200, "")),
            ("GET", "/healthz?a=b", (200, "ok\n")),
            ("GET", "/readyz", (503, "waiting for the store\n")),
            ("GET", "/metrics", (200, "")),
            ("POST", "/healthz", (405, "use GET\n")),
            ("GET", "/", (503, "waiting for the store\n")),
        ] {
            let answer = ask(true, method, path);
            assert_eq!((answer.0, &*answer.1), is, "{method} {path}");
        }
    }

    #[test]
    fn without_the_console_there_are_the_probes_alone_and_the_answer_says_why() {
        for path in ["/healthz", "/metrics"] {
            assert_eq!(ask(false, "GET", path).0, 200, "{path}");
        }
        for path in ["/", "/jobs", "/console.css", "/healthz/"] {
            let (status, why) = ask(false, "GET", path);
            assert!(status == 403 && why.contains("--console"), "{path}: {why}");
        }
    }
}
