//! The guards around every page: who may read it, and what a browser may do with it.

use crate::{
    access::Scope,
    failure::Failure,
    identify::{LONGEST, identified},
    origin::is_own,
    shared::Shared,
};
use axum::{
    extract::{OriginalUri, Request, State},
    http::{HeaderName, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use std::sync::{Arc, atomic::Ordering};

/// Nothing is loaded from elsewhere, nothing inline runs, no text becomes a script, and no other page
/// may frame this one.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; form-action 'self'; base-uri 'none'; \
                      frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// The headers of every response, pages and files alike.
const HEADERS: &[(&str, &str)] = &[
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("x-robots-tag", "noindex"),
];

/// Puts the headers on every response. A page is never stored: it may hold what its reader alone may see.
pub(crate) async fn strict(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in HEADERS {
        let (name, value) = (HeaderName::from_static(name), HeaderValue::from_static(value));
        response.headers_mut().insert(name, value);
    }
    let cache = response.headers_mut().entry(header::CACHE_CONTROL);
    cache.or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Lets readers through, and the page know who they are.
pub(crate) async fn readers_only(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    let (reader, request) = match identified(&shared, request, LONGEST).await {
        Ok(known) => known,
        Err(denial) => return Failure::from(denial).into_response(),
    };
    if !reader.may(Scope::Read) {
        return Failure::no_scope(Scope::Read).into_response();
    }
    let is_change = !request.method().is_safe();
    let answer = next.run(request).await;
    if is_change {
        // Its author sees it on the next page.
        shared.changes.fetch_add(1, Ordering::SeqCst);
    }
    answer
}

/// Refuses requests under a foreign name, and those of foreign pages that would change something.
pub(crate) async fn own_only(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    let (uri, headers) = (request.uri(), request.headers());
    if shared.hosts.as_ref().is_some_and(|hosts| !hosts.allow(uri, headers)) {
        return Failure::foreign_host().into_response();
    }
    if !is_own(request.method(), uri, headers) {
        return Failure::foreign_page().into_response();
    }
    next.run(request).await
}

/// Sends a browser from `/ops/allora` to `/ops/allora/`: relative links count from the last slash.
pub(crate) async fn with_slash(request: Request, next: Next) -> Response {
    let whole = request.extensions().get::<OriginalUri>().map(|uri| uri.0.clone());
    let target = whole.as_ref().and_then(|uri| with_slash_of(uri.path(), uri.query()));
    match target.filter(|_| request.uri().path() == "/") {
        Some(target) => {
            (StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, target)]).into_response()
        }
        None => next.run(request).await,
    }
}

/// The address of the same page with a slash at its end, relative to the address without it.
fn with_slash_of(path: &str, query: Option<&str>) -> Option<String> {
    let last = path.rsplit('/').next().filter(|last| !last.is_empty())?;
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    // The dot keeps a segment such as `https:` from being read as a scheme.
    Some(format!("./{last}/{query}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_without_its_slash_is_completed_and_never_leads_elsewhere() {
        let target = |path, query| with_slash_of(path, query);
        assert_eq!(target("/ops/allora", None).as_deref(), Some("./allora/"));
        assert_eq!(target("/ops/allora", Some("zone=UTC")).as_deref(), Some("./allora/?zone=UTC"));
        assert_eq!(target("/ops/allora/", None), None);
        assert_eq!(target("/", None), None);
        assert_eq!(target("//evil.example", None).as_deref(), Some("./evil.example/"));
        assert_eq!(target("/https:", None).as_deref(), Some("./https:/"));
    }

    #[test]
    fn the_policy_allows_no_inline_code_and_no_foreign_frame() {
        assert!(!POLICY.contains("unsafe") && !POLICY.contains('*'));
        assert!(
            POLICY.contains("frame-ancestors 'none'") && POLICY.contains("trusted-types 'none'")
        );
    }
}
