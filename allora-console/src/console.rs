//! The console: its settings, and the router that they make.

use crate::{access::Access, assets, failure::Failure, headers, pages, shared::Shared};
use allora_core::{Handle, Schedules};
use axum::{Router, http::request::Parts, middleware, routing::get};
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
        let title = "allora".to_owned();
        Self { shared: Shared { schedules, handle: None, access: None, title } }
    }

    /// Also shows what the scheduler of this process knows: the conditions that it sees now.
    #[must_use]
    pub fn handle(mut self, handle: Handle) -> Self {
        self.shared.handle = Some(handle);
        self
    }

    /// Sets who may read: the closure gets the head of each request, and returns `None` for one that is
    /// refused with 403. The style sheet, the script and the icon are open to all. Authentication is the
    /// service's: here it says what came of it.
    #[must_use]
    pub fn access(
        mut self,
        access: impl Fn(&Parts) -> Option<Access> + Send + Sync + 'static,
    ) -> Self {
        self.shared.access = Some(Arc::new(access));
        self
    }

    /// Sets the name in the head of the pages and in the titles of their windows. Default: `allora`.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.shared.title = title.into();
        self
    }

    /// The router with all pages. Mount it with `nest_service`, or serve it.
    pub fn into_router(self) -> Router {
        let shared = Arc::new(self.shared);
        let pages = Router::new()
            .route("/", get(pages::now::page))
            .route("/jobs", get(pages::jobs::page))
            .route("/job", get(pages::job::page))
            .route("/runs", get(pages::runs::page))
            .route("/run", get(pages::run::page))
            .route("/nodes", get(pages::nodes::page))
            .route("/schedule", get(pages::schedule::page))
            .method_not_allowed_fallback(async || Failure::no_method())
            .fallback(async || Failure::no_page())
            .layer(middleware::from_fn_with_state(shared.clone(), headers::readers_only))
            .layer(middleware::from_fn(headers::with_slash))
            .with_state(shared);
        Router::new()
            .route("/console.css", get(assets::style))
            .route("/console.js", get(assets::script))
            .route("/icon.svg", get(assets::icon))
            .route("/robots.txt", get(assets::robots))
            .merge(pages)
            .layer(middleware::from_fn(headers::strict))
    }
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { title, access, handle, .. } = &self.shared;
        f.debug_struct("Console")
            .field("title", title)
            .field("access", &access.is_some())
            .field("handle", &handle.is_some())
            .finish_non_exhaustive()
    }
}
