//! A request to the API, from its head to its operation.

use super::{
    call::{Answer, Call},
    operation::Operation,
    operations::OPERATIONS,
    params::Query,
    problem::{Problem, Type},
};
use crate::{
    access::Access,
    denial::Denial,
    identify::{LONGEST, identified},
    origin::{is_of_program, is_own},
    shared::Shared,
};
use allora_core::{Runtime, is_internal};
use axum::{
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header},
    response::Response,
};
use std::sync::{Arc, atomic::Ordering};
use tracing::warn;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id of a request, in bytes.
const LONGEST_ID: usize = 128;

/// Answers a request.
pub(crate) async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let id = request_id(&**shared.runtime(), request.headers());
    let mut response = run(shared, request).await.unwrap_or_else(|problem| {
        if let Some(error) = problem.for_log() {
            warn!(target: "allora", request_id = id, error, "a request to the API has failed");
        }
        problem.response(&id)
    });
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// The id that the caller has given, or a new one.
fn request_id(runtime: &dyn Runtime, headers: &HeaderMap) -> String {
    let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
    let is_id = |id: &&str| {
        (1..=LONGEST_ID).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
    };
    given.filter(is_id).map_or_else(|| format!("{:016x}", runtime.random()), str::to_owned)
}

async fn run(shared: Arc<Shared>, request: Request) -> Answer {
    let (uri, headers) = (request.uri(), request.headers());
    if shared.hosts.as_ref().is_some_and(|hosts| !hosts.allow(uri, headers)) {
        let detail = "the request names a host by which this API is not called";
        let remedy = "use the name of the host, or allow this one with --host or Console::hosts";
        return Err(Problem::new(Type::ForeignHost, detail).remedy(remedy));
    }
    let operation = operation(request.method(), uri)?;
    if !is_own(request.method(), uri, headers) && !is_of_program(request.method(), headers) {
        let detail = "a browser has sent this for the page of another site, or may have";
        let remedy = "send the token as `Authorization: Bearer`, or a body as application/json";
        return Err(Problem::new(Type::ForeignPage, detail).remedy(remedy));
    }
    let (access, request) = match operation.scope {
        None => (Access::new(""), request),
        Some(scope) => {
            let most = operation.body.map_or(0, |form| form.most).max(LONGEST);
            let (access, request) = identified(&shared, request, most).await?;
            if !access.may(scope) {
                return Err(Problem::no_scope(scope));
            }
            (access, request)
        }
    };
    let (parts, body) = request.into_parts();
    if operation.changes && !shared.allows_actions {
        let remedy =
            "its operator allows changes with --allow-actions, or with Console::allow_actions";
        return Err(Problem::new(Type::ReadOnly, "this API changes nothing").remedy(remedy));
    }
    let query = Query::read(parts.uri.query().unwrap_or_default(), operation.params)?;
    // The scheduler's own records are no jobs.
    if let Some(name) = query.given("name").filter(|name| is_internal(name)) {
        return Err(Problem::no_job(name));
    }
    if query.given("prefix").is_some_and(is_internal) {
        let detail = "this prefix is that of the scheduler's own records";
        return Err(Problem::bad_parameter("prefix", detail));
    }
    let body = read(operation, &parts.headers, body).await?;
    let reader = shared.reader(access).via("api");
    let call = Call { shared: shared.clone(), reader, query, headers: parts.headers, body };
    let answer = (operation.run)(call).await;
    if operation.changes {
        // Its author sees it on the next page.
        shared.changes.fetch_add(1, Ordering::SeqCst);
    }
    answer
}

/// The operation of this path and this method.
fn operation(method: &Method, uri: &Uri) -> Result<&'static Operation, Problem> {
    let path = uri.path();
    let below = path.strip_prefix("/v1").map(|below| if below == "/" { "" } else { below });
    let here = || OPERATIONS.iter().filter(|operation| Some(operation.path) == below);
    let as_get = if method == Method::HEAD { "GET" } else { method.as_str() };
    if let Some(found) = here().find(|operation| operation.method == as_get) {
        return Ok(found);
    }
    let mut methods: Vec<&str> = here().map(|operation| operation.method).collect();
    if methods.is_empty() {
        let remedy = "/v1/openapi.json has all paths; names of jobs stand in the query";
        let detail = format!("the API has no path {path:?}");
        return Err(Problem::new(Type::NoPath, detail).remedy(remedy));
    }
    if methods.contains(&"GET") {
        methods.push("HEAD");
    }
    let allow = methods.join(", ");
    let detail = format!("{path} has {allow}, and no {method}");
    let problem = Problem::new(Type::NoMethod, detail);
    match HeaderValue::from_str(&allow) {
        Ok(allow) => Err(problem.header(header::ALLOW, allow)),
        Err(_) => Err(problem),
    }
}

impl From<Denial> for Problem {
    fn from(denial: Denial) -> Self {
        let (of, remedy) = match denial {
            Denial::Closed => {
                (Type::NoAccess, "set a closure with Console::access that returns Some(Access)")
            }
            Denial::Refused => (Type::NoAccess, "ask the operator of this API for access"),
            Denial::Unknown => (
                Type::Unauthorized,
                "send a valid token as `Authorization: Bearer`, or sign the request",
            ),
            Denial::Unproven(_) => (Type::Unauthorized, "sign the request anew"),
            Denial::NoBody => (Type::TooLarge, "send a shorter body"),
            Denial::Busy => (Type::Busy, "send it again later"),
        };
        let detail = match denial {
            Denial::Refused => "you may not use this API".to_owned(),
            denial => denial.to_string(),
        };
        Self::new(of, detail).remedy(remedy)
    }
}

/// The body of a request, in the form that the operation takes.
async fn read(operation: &Operation, headers: &HeaderMap, body: Body) -> Result<Bytes, Problem> {
    let most = operation.body.map_or(0, |form| form.most);
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    let is_longer =
        declared.and_then(|length| length.parse().ok()).is_some_and(|length: usize| length > most);
    let too_large = || match operation.body {
        None => Problem::new(Type::BadBody, "this operation takes no body"),
        Some(_) => {
            let detail = format!("the body has more than {most} bytes, or did not come as a whole");
            Problem::new(Type::TooLarge, detail)
        }
    };
    if is_longer {
        return Err(too_large());
    }
    let body = to_bytes(body, most).await.map_err(|_| too_large())?;
    let Some(form) = operation.body else { return Ok(body) };
    if body.is_empty() && form.is_optional {
        return Ok(body);
    }
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let media = text(header::CONTENT_TYPE).and_then(|media| media.split(';').next());
    let media = media.unwrap_or_default().trim();
    let is_plain = text(header::CONTENT_ENCODING).is_none_or(|coding| coding == "identity");
    if !is_plain || !form.media.iter().any(|one| one.eq_ignore_ascii_case(media)) {
        let detail =
            format!("the body is sent as {}, without an encoding", form.media.join(" or "));
        return Err(Problem::new(Type::Media, detail).field("content-type"));
    }
    if body.is_empty() && !form.is_lines() {
        return Err(Problem::new(Type::BadBody, "this operation needs a body"));
    }
    Ok(body)
}
