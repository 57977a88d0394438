//! Pages that say in words why there is no other page.

use crate::{access::Scope, denial::Denial};
use allora_core::{Error, ErrorKind};
use askama::Template;
use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{Html, IntoResponse, Response},
};
use tracing::warn;

/// The reason why a page cannot be shown, and what to do.
#[derive(Debug, Template)]
#[template(path = "failure.html")]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    heading: String,
    text: String,
    remedy: String,
}

impl Failure {
    fn new(status: StatusCode, heading: &str, text: impl Into<String>, remedy: &str) -> Self {
        Self { status, heading: heading.into(), text: text.into(), remedy: remedy.into() }
    }

    /// The address has a parameter that means nothing.
    pub(crate) fn bad_address(text: String) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "This address cannot be read", text, "")
    }

    /// The form cannot be read.
    pub(crate) fn bad_form(status: StatusCode, text: impl Into<String>) -> Self {
        let remedy = "Nothing was changed. Go back, and send the form anew.";
        Self::new(status, "This form cannot be read", text, remedy)
    }

    /// The reader lacks this scope.
    pub(crate) fn no_scope(scope: Scope) -> Self {
        let text =
            format!("This needs the scope {:?}, which your access does not have.", scope.word());
        let remedy = "Ask the operator of this console for it.";
        Self::new(StatusCode::FORBIDDEN, "You may not do this", text, remedy)
    }

    /// A change cannot be taken back.
    pub(crate) fn not_undone(text: impl Into<String>) -> Self {
        let remedy = "Nothing was changed. Look at the job, and at its changes on the page Audit.";
        Self::new(StatusCode::CONFLICT, "This change cannot be undone", text, remedy)
    }

    /// The definition of a job is not in the store.
    pub(crate) fn not_edited(text: &str) -> Self {
        Self::new(StatusCode::CONFLICT, "This job cannot be edited here", text, "")
    }

    /// Actions are not allowed here.
    pub(crate) fn read_only() -> Self {
        let text = "This console only shows pages, and nothing can be changed from it.";
        let remedy =
            "Whoever runs it allows actions with --allow-actions, or with Console::allow_actions.";
        Self::new(StatusCode::FORBIDDEN, "This console is read-only", text, remedy)
    }

    /// The form is not from a page of the console.
    pub(crate) fn foreign_page() -> Self {
        let text = "This does not come from a page of this console, so nothing was changed.";
        let remedy = "Open the console itself, and act there. A program sends its token as \
                      `Authorization: Bearer`, or signs its request.";
        Self::new(StatusCode::FORBIDDEN, "Not from this console", text, remedy)
    }

    /// The request names a host that is not the console's.
    pub(crate) fn foreign_host() -> Self {
        let text = "The console does not answer under this name.";
        let remedy =
            "Open it as localhost or 127.0.0.1 on its own machine, or allow the name with --host.";
        Self::new(StatusCode::MISDIRECTED_REQUEST, "Wrong host", text, remedy)
    }

    /// As many pages wait for changes as may.
    pub(crate) fn too_many_streams() -> Self {
        let text =
            "As many pages wait for changes as may. This one asks every 5 s whether there are any.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "Too many open pages", text, "")
    }

    pub(crate) fn no_page() -> Self {
        let text = "The console has no page at this address.";
        Self::new(StatusCode::NOT_FOUND, "No such page", text, "")
    }

    pub(crate) fn no_method() -> Self {
        let text = "Only GET and HEAD have an answer at this address.";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "This cannot be done here", text, "")
    }

    /// The job of this name, and its history, do not exist.
    pub(crate) fn no_job(name: &str) -> Self {
        let text = format!("There is no job named {name:?}, and the history has none.");
        let remedy = "Names are exact: look for it in the list by the first letters of its name.";
        Self::new(StatusCode::NOT_FOUND, "No such job", text, remedy)
    }

    pub(crate) fn no_run(name: &str, fence: &str) -> Self {
        let text = format!("The history has no run of {name:?} with the fence {fence:?}.");
        let remedy = "It may be older than the history, whose limits the store's settings have.";
        Self::new(StatusCode::NOT_FOUND, "No such run", text, remedy)
    }
}

impl From<Denial> for Failure {
    fn from(denial: Denial) -> Self {
        let status = denial.status();
        let (heading, remedy) = match denial {
            Denial::Closed => (
                "This console is closed",
                "Set a closure with Console::access that returns Some(Access) for each reader.",
            ),
            Denial::Refused => (
                "You may not read this console",
                "Sign in where this console is mounted, or ask its operator for access.",
            ),
            Denial::Unknown => {
                ("Who are you?", "Load the page again, and give your name and your token.")
            }
            Denial::Unproven(_) => ("This signature is not accepted", "Sign the request anew."),
            Denial::NoBody | Denial::Busy => ("This request cannot be checked", ""),
        };
        Self::new(status, heading, denial.to_string(), remedy)
    }
}

impl From<Error> for Failure {
    /// One level of the error: its causes are for the log, and may name hosts and users.
    fn from(error: Error) -> Self {
        let (status, heading, remedy) = match error.kind() {
            ErrorKind::NotFound => (StatusCode::NOT_FOUND, "Not found", ""),
            ErrorKind::Invalid => (StatusCode::BAD_REQUEST, "This cannot be read", ""),
            ErrorKind::Unsupported => {
                (StatusCode::NOT_IMPLEMENTED, "This store cannot do that", "")
            }
            ErrorKind::Unavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "The store does not answer",
                "Jobs whose nodes reach the store go on. Look at the store and the network, and load \
                 the page again.",
            ),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "The page could not be made", ""),
        };
        log(&error);
        Self::new(status, heading, error.to_string(), remedy)
    }
}

/// Tells the log why the store, or the console, has failed: a page shows none of the causes.
pub(crate) fn log(error: &Error) {
    let is_of_reader = [ErrorKind::NotFound, ErrorKind::Invalid, ErrorKind::Unsupported];
    if !is_of_reader.contains(&error.kind()) {
        warn!(target: "allora", error = %format_args!("{error:#}"), "a page of the console could not be made");
    }
}

impl From<askama::Error> for Failure {
    fn from(error: askama::Error) -> Self {
        let text = format!("The template failed: {error}.");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "The page could not be made", text, "")
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let text = self.render().unwrap_or_else(|_| "The page could not be made.".into());
        let mut response = (self.status, Html(text)).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Basic realm=\"allora\", charset=\"UTF-8\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_a_page_that_escapes_what_it_repeats() {
        let page = Failure::no_job("<script>alert(1)</script>").render().unwrap();
        assert!(page.contains("No such job") && !page.contains("<script>alert"), "{page}");
    }

    #[test]
    fn a_store_that_is_down_shows_no_causes_and_may_be_asked_again() {
        let error = Error::new(ErrorKind::Unavailable, "the store did not answer within 10 s");
        let failure = Failure::from(error.source("connect to jobs:secret@db refused"));
        let page = failure.render().unwrap();
        assert!(page.contains("within 10 s") && !page.contains("secret"), "{page}");
        assert_eq!(failure.into_response().headers()[header::RETRY_AFTER], "1");
    }
}
