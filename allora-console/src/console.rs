//! The console and the HTTP API: their settings, and the router that they make.

use crate::{
    access::Decision,
    actions, api, assets,
    failure::Failure,
    gateway::{Gateway, Node},
    headers,
    origin::Hosts,
    pages,
    shared::Shared,
};
use allora_core::{Handle, Schedules};
use axum::{
    Extension, Router,
    extract::State,
    http::{HeaderMap, request::Parts},
    middleware,
    response::Response,
    routing::{any, get},
};
use std::{fmt, sync::Arc};

/// The pages of a store, to be mounted in a service or served by a program.
///
/// See the [crate](crate) for an example.
#[derive(Clone)]
pub struct Console {
    shared: Shared,
}

impl Console {
    /// The console of the store of these schedules. Until [`access`](Self::access) is set, all of its
    /// pages answer 403.
    pub fn new(schedules: Schedules) -> Self {
        Self { shared: Shared::new(schedules) }
    }

    /// Also shows what the scheduler of this process knows: the conditions that it sees now.
    #[must_use]
    pub fn handle(mut self, handle: Handle) -> Self {
        self.shared.handle = Some(handle);
        self
    }

    /// Lets workers ask for runs over HTTP, which a handler of the scheduler gives them: its
    /// [`handle`](Self::handle) is needed.
    #[must_use]
    pub fn gateway(mut self, gateway: Gateway) -> Self {
        self.shared.gateway = Some(gateway);
        self
    }

    /// Sets who may read: the closure gets the head of each request, and returns `None` for one that is
    /// refused with 403, or a [`Decision`]. The style sheet, the script and the icon are open to all.
    /// Authentication is the service's: here it says what came of it.
    #[must_use]
    pub fn access<D: Into<Decision>>(
        mut self,
        access: impl Fn(&Parts) -> D + Send + Sync + 'static,
    ) -> Self {
        self.shared.access = Some(Arc::new(move |parts| access(parts).into()));
        self
    }

    /// Lets readers act who have the [scope](crate::Scope) for it. Default: the console only shows pages.
    ///
    /// A change must come from a page of the console, as the browser says in `Sec-Fetch-Site` or `Origin`,
    /// or with `Authorization: Bearer`; to the API also with a body that is none of a form, such as JSON. A proxy in front must pass `Host` on as the browser has sent it,
    /// unless it offers TLS.
    #[must_use]
    pub fn allow_actions(mut self) -> Self {
        self.shared.allows_actions = true;
        self
    }

    /// Answers only requests whose `Host` is one of these names, with any port, `localhost` or a loopback
    /// address; all others get 421. Default: any name, since the service around the console knows its own.
    #[must_use]
    pub fn hosts(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.shared.hosts = Some(Hosts::new(names));
        self
    }

    /// Removes secrets from what the pages and the API show of a job: its data, notes, errors, outputs and the answers
    /// why it ran or did not. The closure gets the name of the job and a text, and returns the text to
    /// show. Default: texts are shown as they are, data and output only with [`Scope::Data`]. An export, which
    /// needs [`Scope::Admin`], has the data as it is.
    ///
    /// [`Scope::Data`]: crate::Scope::Data
    /// [`Scope::Admin`]: crate::Scope::Admin
    #[must_use]
    pub fn redact(mut self, redact: impl Fn(&str, &str) -> String + Send + Sync + 'static) -> Self {
        self.shared.redact = Some(Arc::new(redact));
        self
    }

    /// Sets the name in the head of the pages and in the titles of their windows. Default: `allora`.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.shared.title = title.into();
        self
    }

    /// With `false`, the router has the HTTP API alone, below `/v1`. Default: `true`, pages as well.
    #[must_use]
    pub fn pages(mut self, pages: bool) -> Self {
        self.shared.has_pages = pages;
        self
    }

    /// The router with all pages, and the HTTP API below `/v1`. Mount it with `nest_service`, or serve it.
    pub fn into_router(self) -> Router {
        let shared = Arc::new(self.shared);
        if let (Some(gateway), Some(handle)) = (&shared.gateway, &shared.handle) {
            let (handle, runtime) = (handle.clone(), shared.runtime().clone());
            gateway.pool.connect(Node { handle, runtime });
        }
        let api = Router::new()
            .route("/v1", any(api::answer))
            .route("/v1/", any(api::answer))
            .route("/v1/{*path}", any(api::answer));
        let all = match shared.has_pages {
            true => pages_of(&shared).merge(api.with_state(shared)),
            false => api.fallback(api::answer).with_state(shared),
        };
        all.layer(middleware::from_fn(headers::strict))
    }
}

/// The pages, and the files that they load.
fn pages_of(shared: &Arc<Shared>) -> Router {
    let pages = Router::new()
        .route("/", get(pages::now::page).layer(Extension(pages::now::Viewers::default())))
        .route("/jobs", get(pages::jobs::page))
        .route("/job", get(pages::job::page))
        .route("/runs", get(pages::runs::page))
        .route("/run", get(pages::run::page))
        .route("/nodes", get(pages::nodes::page))
        .route("/schedule", get(pages::schedule::page))
        .route("/many", get(actions::ask_many).post(actions::act_on_many))
        .route("/audit", get(pages::audit::page))
        .route("/undo", get(actions::ask_undo).post(actions::undo))
        .route("/edit", get(actions::ask_edit).post(actions::edit))
        .route("/act", get(actions::ask_first).post(actions::act))
        .route("/events", get(events))
        .method_not_allowed_fallback(async || Failure::no_method())
        .fallback(async || Failure::no_page())
        .layer(middleware::from_fn_with_state(shared.clone(), headers::readers_only))
        .layer(middleware::from_fn(headers::with_slash))
        .with_state(shared.clone());
    Router::new()
        .route("/console.css", get(assets::style))
        .route("/console.js", get(assets::script))
        .route("/icon.svg", get(assets::icon))
        .route("/robots.txt", get(assets::robots))
        .merge(pages)
        .layer(middleware::from_fn_with_state(shared.clone(), headers::own_only))
}

async fn events(State(shared): State<Arc<Shared>>, asked: HeaderMap) -> Result<Response, Failure> {
    let stream = shared.events.answer(shared.handle.as_ref(), &asked);
    stream.ok_or_else(Failure::too_many_streams)
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { title, access, handle, allows_actions, .. } = &self.shared;
        f.debug_struct("Console")
            .field("title", title)
            .field("access", &access.is_some())
            .field("handle", &handle.is_some())
            .field("allows_actions", allows_actions)
            .finish_non_exhaustive()
    }
}
