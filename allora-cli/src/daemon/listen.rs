//! `--listen`: probes and metrics over HTTP, the console, and its API.
//!
//! Everybody who reaches the address can read the probes and the metrics. The console needs `--console`, the API that or
//! `--api` or `--workers`, and both need tokens unless the address is a loopback one.

use super::metrics::Metrics;
use crate::{
    console_access::{AccessArgs, Guard},
    failure::Outcome,
    server::Server,
    store::Store,
};
use allora_console::{Console, Gateway};
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
    /// Access to the console or to its API, if there is one.
    pub(crate) guard: Option<Guard>,
    /// The pages of the console are served, and not the API alone.
    has_pages: bool,
    pub(crate) metrics: Metrics,
}

impl Pages {
    /// Shows this scheduler, and the store that it has reached.
    ///
    /// # Errors
    /// The settings of the client are invalid.
    pub(crate) fn open(
        &self,
        store: &Store,
        handle: &Handle,
        gateway: Option<Gateway>,
        runtime: &Tokio,
    ) -> Outcome {
        if let Some(guard) = &self.guard {
            let router = if store.queries().is_none() {
                Router::new().fallback(async || {
                    let why =
                        "this store has no list of jobs and no history, so it has no console\n";
                    (StatusCode::NOT_IMPLEMENTED, why)
                })
            } else {
                let schedules = Schedules::on(store.clone(), runtime.clone())?;
                let console = Console::new(schedules).handle(handle.clone()).pages(self.has_pages);
                guard.guard(match gateway {
                    Some(gateway) => console.gateway(gateway),
                    None => console,
                })
            };
            self.console.get_or_init(|| router);
        }
        self.scheduler.get_or_init(|| handle.clone());
        Ok(())
    }

    /// Reads the file of tokens again, if there is one.
    pub(crate) fn reload(&self) {
        if let Some(guard) = &self.guard {
            guard.reload();
        }
    }
}

/// The console, or its API alone, and access to it.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) access: AccessArgs,
    pub(crate) has_pages: bool,
}

/// Serves the pages until the process ends.
///
/// # Errors
/// The address cannot be listened on; other machines reach it, and the console has no tokens; their file is bad.
pub(crate) fn listen(
    address: &str,
    served: Option<&Served>,
    runtime: &Tokio,
) -> Outcome<Arc<Pages>> {
    let server = Server::bind(address)?;
    let local = server.address().to_string();
    let guard = served.map(|served| served.access.checked(&server, address)).transpose()?;
    info!(target: "allora", address = local, "listening for /healthz, /readyz and /metrics");
    let has_pages = served.is_some_and(|served| served.has_pages);
    if let Some(Served { access, .. }) = served {
        let what = if has_pages { "console is at" } else { "API is below" };
        let path = if has_pages { "/" } else { "/v1" };
        info!(target: "allora", "the {what} http://{local}{path}, {}", access.shown());
    }
    let pages = Pages { guard, has_pages, metrics: Metrics::install()?, ..Pages::default() };
    let pages = Arc::new(pages);
    let (router, of_server) = (router(pages.clone()), runtime.clone());
    runtime.spawn(Box::pin(async move {
        if let Err(failure) = server.serve(router, of_server).await {
            error!(target: "allora", "{}", failure.what().unwrap_or_default());
        }
    }));
    Ok(pages)
}

fn router(pages: Arc<Pages>) -> Router {
    let probes = Router::new()
        .route("/healthz", get(async || text(StatusCode::OK, "ok\n")))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .method_not_allowed_fallback(async || text(StatusCode::METHOD_NOT_ALLOWED, "use GET\n"));
    let router = match pages.guard.is_some() {
        true => probes.fallback(ask_console),
        false => probes.fallback(async || {
            let why = "here are /healthz, /readyz and /metrics alone; `allora run --console` adds the console, and --api or \
                       --workers its API: for this machine, or with --tokens for those who have one\n";
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
        let guard = has_console.then(Guard::of_test);
        let router = router(Arc::new(Pages { guard, ..Pages::default() }));
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
