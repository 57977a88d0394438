//! Errors of the API in the form of RFC 9457: one table of their types, and what the library's errors become.

use crate::access::Scope;
use allora_core::{Error, ErrorKind, schedule::ParseError};
use axum::{
    body::Body,
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::Response,
};
use serde_json::{Value, json};
use std::{error, ops::Range};

macro_rules! types {
    ($( $(#[doc = $doc:literal])+ $name:ident $status:literal $word:literal $title:literal; )*) => {
        /// The type of a problem.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Type {
            $( $(#[doc = $doc])+ $name, )*
        }

        impl Type {
            /// Every type.
            pub(crate) const ALL: &[Self] = &[$(Self::$name),*];

            fn row(self) -> (u16, &'static str, &'static str) {
                match self {
                    $( Self::$name => ($status, $word, $title), )*
                }
            }
        }
    };
}

types! {
    /// A parameter of the query cannot be read.
    BadParameter 400 "bad-parameter" "A parameter cannot be read";
    /// A header cannot be read.
    BadHeader 400 "bad-header" "A header cannot be read";
    /// The body cannot be read.
    BadBody 400 "bad-body" "The body cannot be read";
    /// Nobody has said who asks, or the token is not valid.
    Unauthorized 401 "unauthorized" "No valid token came along";
    /// The caller has no access, or access is closed.
    NoAccess 403 "no-access" "You have no access";
    /// The caller lacks a scope.
    NoScope 403 "no-scope" "Your access lacks a scope";
    /// Changes are not allowed here.
    ReadOnly 403 "read-only" "Changes are not allowed here";
    /// A page of another site has sent the request.
    ForeignPage 403 "foreign-page" "The request is from a foreign page";
    /// There is no such thing, or the caller may not see it.
    NotFound 404 "not-found" "Not found";
    /// The API has no such path.
    NoPath 404 "no-path" "There is no such path";
    /// The path has no such method.
    NoMethod 405 "no-method" "The path has no such method";
    /// The name is taken.
    Exists 409 "exists" "It exists already";
    /// The account has as many jobs as it may have.
    Limit 409 "limit" "The account is full";
    /// It contradicts the state of the job.
    Conflict 409 "conflict" "It contradicts the present state";
    /// The run is over, or another attempt has taken its place.
    Superseded 409 "superseded" "The run is not yours any more";
    /// The precondition does not hold.
    Changed 412 "changed" "It has changed since it was read";
    /// The body is too large.
    TooLarge 413 "too-large" "The body is too large";
    /// The body has another media type.
    Media 415 "media-type" "The media type is not supported";
    /// The request names a host that is not the API's.
    ForeignHost 421 "foreign-host" "The API does not answer under this name";
    /// A value was read, and is rejected.
    Rejected 422 "rejected" "A value is rejected";
    /// The change needs a precondition.
    NoPrecondition 428 "no-precondition" "The change needs a precondition";
    /// It failed for a reason that the log has.
    Internal 500 "internal" "The request failed";
    /// The store cannot do this.
    Unsupported 501 "unsupported" "The store cannot do this";
    /// The store did not answer.
    Unavailable 503 "unavailable" "The store did not answer";
    /// As many callers wait as may.
    Busy 503 "busy" "As many callers wait as may";
}

impl Type {
    pub(crate) fn status(self) -> u16 {
        self.row().0
    }

    /// Its URI.
    pub(crate) fn urn(self) -> String {
        format!("urn:allora:{}", self.row().1)
    }
}

/// An answer that says why there is no other.
#[derive(Debug)]
pub(crate) struct Problem(Box<Parts>);

#[derive(Debug)]
struct Parts {
    of: Type,
    detail: String,
    field: Option<String>,
    range: Option<Range<usize>>,
    remedy: Option<String>,
    header: Option<(HeaderName, HeaderValue)>,
    /// Those of the lines of the body.
    errors: Vec<Value>,
    /// For the log alone.
    cause: Option<String>,
}

impl Problem {
    /// `detail`: what happened, to what, for the one who reads it.
    pub(crate) fn new(of: Type, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        let (field, range, remedy, header, cause) = (None, None, None, None, None);
        let errors = Vec::new();
        Self(Box::new(Parts { of, detail, field, range, remedy, header, errors, cause }))
    }

    pub(crate) fn bad_parameter(name: &str, detail: impl Into<String>) -> Self {
        Self::new(Type::BadParameter, detail).field(name)
    }

    pub(crate) fn rejected(field: &str, detail: impl Into<String>) -> Self {
        Self::new(Type::Rejected, detail).field(field)
    }

    /// As of a job that does not exist.
    pub(crate) fn no_job(name: &str) -> Self {
        Self::new(Type::NotFound, format!("there is no job named {name:?}"))
    }

    /// The error of a store that was given a schedule, in which nothing else is wrong.
    pub(crate) fn of_schedule(error: Error) -> Self {
        let problem = Self::from(error);
        if problem.of() == Type::Rejected { problem.field("schedule") } else { problem }
    }

    /// The problem of a text that is no JSON of the wanted form.
    pub(crate) fn of_json(error: &serde_json::Error) -> Self {
        let text = error.to_string();
        let of_field = ["unknown field `", "missing field `", "duplicate field `"];
        let field = of_field.iter().find_map(|begin| text.strip_prefix(begin)?.split('`').next());
        let problem = Self::new(Type::BadBody, &*text);
        match field {
            Some(field) => problem.field(field),
            None => problem,
        }
    }

    /// The error of an account that has no place for a job.
    pub(crate) fn of_limit(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Invalid => Self::new(Type::Limit, error.to_string()),
            _ => error.into(),
        }
    }

    pub(crate) fn no_scope(scope: Scope) -> Self {
        let detail = format!("this needs the scope {:?}, which your access lacks", scope.word());
        Self::new(Type::NoScope, detail).remedy("ask the operator of this API for the scope")
    }

    /// The parameter, the header, or the part of the body that is wrong.
    pub(crate) fn field(mut self, field: impl Into<String>) -> Self {
        self.0.field = Some(field.into());
        self
    }

    /// The bytes of the field's value that are wrong.
    pub(crate) fn range(mut self, range: Option<Range<usize>>) -> Self {
        self.0.range = range;
        self
    }

    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.0.remedy = Some(remedy.into());
        self
    }

    pub(crate) fn errors(mut self, errors: Vec<Value>) -> Self {
        self.0.errors = errors;
        self
    }

    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.header = Some((name, value));
        self
    }

    pub(crate) fn of(&self) -> Type {
        self.0.of
    }

    pub(crate) fn detail(&self) -> &str {
        &self.0.detail
    }

    pub(crate) fn has_field(&self) -> bool {
        self.0.field.is_some()
    }

    /// The text for the log: an error of the server's with its causes; `None` for one of the caller's.
    pub(crate) fn for_log(&self) -> Option<&str> {
        let is_of_server = self.0.of.status() >= 500 && self.0.of != Type::Unsupported;
        is_of_server.then(|| self.0.cause.as_deref().unwrap_or(&self.0.detail))
    }

    /// As an object, without the id of the request.
    pub(crate) fn object(&self) -> Value {
        let Parts { of, detail, field, range, remedy, errors, .. } = &*self.0;
        let (status, _, title) = of.row();
        let mut object =
            json!({ "type": of.urn(), "title": title, "status": status, "detail": detail });
        if let Some(field) = field {
            object["field"] = field.as_str().into();
        }
        if let Some(range) = range {
            object["range"] = json!([range.start, range.end]);
        }
        if let Some(remedy) = remedy {
            object["remedy"] = remedy.as_str().into();
        }
        if !errors.is_empty() {
            object["errors"] = errors.as_slice().into();
        }
        object
    }

    /// As the error of this line of a body.
    pub(crate) fn of_line(&self, line: usize) -> Value {
        let mut object = self.object();
        object["line"] = line.into();
        object
    }

    pub(crate) fn response(self, request_id: &str) -> Response {
        let mut object = self.object();
        object["request_id"] = request_id.into();
        let of = self.0.of;
        let mut response = Response::new(Body::from(object.to_string()));
        *response.status_mut() = StatusCode::from_u16(of.status()).unwrap_or_default();
        let headers = response.headers_mut();
        let problem = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, problem);
        if of == Type::Unauthorized {
            let challenge = "Bearer realm=\"allora\", Basic realm=\"allora\", charset=\"UTF-8\"";
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        if of.status() == 503 {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        headers.extend(self.0.header);
        response
    }
}

/// One level of the error: its causes are for the log, and may name hosts and users. An error whose source has a place
/// in a text has it as its range.
impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let of = match error.kind() {
            ErrorKind::Invalid => Type::Rejected,
            ErrorKind::NotFound => Type::NotFound,
            ErrorKind::AlreadyExists => Type::Exists,
            ErrorKind::LeaseLost => Type::Conflict,
            ErrorKind::Unsupported => Type::Unsupported,
            ErrorKind::Unavailable => Type::Unavailable,
            _ => Type::Internal,
        };
        let detail = if of == Type::Internal { of.row().2.to_owned() } else { error.to_string() };
        let place =
            error::Error::source(&error).and_then(|cause| cause.downcast_ref::<ParseError>());
        let mut problem = Self::new(of, detail).range(place.map(range));
        problem.0.cause = Some(format!("{error:#}"));
        match of {
            Type::Unavailable => problem.remedy(
                "a change may have been applied: repeat it with the same id, name or generation",
            ),
            Type::Internal => problem.remedy("the log of the server has the reason"),
            _ => problem,
        }
    }
}

/// The bytes of a text at which it is wrong.
fn range(place: &ParseError) -> Range<usize> {
    place.position()..place.position() + place.found().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_a_word_of_its_own_and_a_status_of_an_error() {
        let mut words: Vec<String> = Type::ALL.iter().map(|of| of.urn()).collect();
        assert!(Type::ALL.iter().all(|of| (400..600).contains(&of.status())));
        words.sort();
        words.dedup();
        assert_eq!(words.len(), Type::ALL.len());
    }

    #[test]
    fn a_store_that_is_down_shows_no_causes_and_may_be_asked_again() {
        let error = Error::new(ErrorKind::Unavailable, "no answer within 10 s");
        let problem = Problem::from(error.source("connect to jobs:secret@db refused"));
        assert!(problem.for_log().unwrap().contains("secret"));
        let object = problem.object().to_string();
        assert!(object.contains("within 10 s") && !object.contains("secret"), "{object}");
        assert!(object.contains("same id"), "{object}");
        assert_eq!(problem.response("7").headers()[header::RETRY_AFTER], "1");
        let odd = Error::new(ErrorKind::Other, "jobs:secret@db is odd");
        assert!(!Problem::from(odd).object().to_string().contains("secret"));
    }

    #[test]
    fn a_text_that_cannot_be_read_has_the_place() {
        let error = allora_core::stored::Definition::parse("a", "61 * * * *").unwrap_err();
        let object = Problem::from(error).object();
        assert_eq!((&object["status"], &object["range"]), (&json!(422), &json!([0, 2])));
    }
}
