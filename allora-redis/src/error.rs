//! The errors of calls and of connecting.

use crate::{cluster::is_half_moved, server::Failure, store::Store};
use allora_core::{Error, ErrorKind};
use redis::{ErrorKind as RedisErrorKind, RedisError, ServerErrorKind};

impl Store {
    /// The error of a call that failed, or whose outcome is unknown.
    pub(crate) fn failed(&self, op: &'static str, failure: Failure) -> Error {
        let Failure { place, cause } = failure;
        let place = place.as_deref().unwrap_or(&self.place);
        let (kind, what) = match cause.kind() {
            RedisErrorKind::AuthenticationFailed
            | RedisErrorKind::Server(ServerErrorKind::NoPerm) => {
                (ErrorKind::Other, format!("{place} does not permit the command to this user"))
            }
            _ if is_half_moved(&cause) => (
                ErrorKind::Unavailable,
                format!("{place} has only some of the keys: their slot is moving to another node"),
            ),
            RedisErrorKind::Server(_) | RedisErrorKind::Extension => {
                (ErrorKind::Unavailable, format!("{place} refused the command"))
            }
            _ => (ErrorKind::Unavailable, format!("{place} did not answer")),
        };
        Error::new(kind, what).op(op).source(cause)
    }

    /// The error of a reply that no script of allora returns.
    pub(crate) fn unexpected_response(&self, op: &'static str) -> Error {
        let what = format!("{} returned a reply that no script of allora returns", self.place);
        Error::new(ErrorKind::Other, what).op(op)
    }
}

/// The same error for another part of a batch.
pub(crate) fn copy(error: &Error) -> Error {
    Error::new(error.kind(), error.to_string())
}

/// True if one of the causes contains this text: TLS reports its errors as text.
fn mentions(cause: &RedisError, what: &str) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(cause);
    while let Some(error) = cause {
        if error.to_string().contains(what) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The error of a connection that failed, to the server that failed if one is known.
pub(crate) fn refused_at(place: &str, failure: Failure) -> Error {
    refused(failure.place.as_deref().unwrap_or(place), failure.cause)
}

/// The error of a connection that failed: its reason, and what to do about it.
pub fn refused(place: &str, cause: RedisError) -> Error {
    let detail = cause.detail().unwrap_or_default().to_ascii_lowercase();
    let (kind, why) = match (cause.kind(), cause.code()) {
        (RedisErrorKind::AuthenticationFailed, _) | (_, Some("WRONGPASS" | "NOAUTH")) => {
            (ErrorKind::Invalid, format!("{place} refused the user or the password"))
        }
        (_, Some("NOPERM")) => {
            (ErrorKind::Invalid, format!("{place} does not permit this user what allora needs"))
        }
        (_, Some("READONLY")) => (ErrorKind::Invalid, format!("{place} is read-only")),
        (_, Some("WRONGTYPE")) => {
            (ErrorKind::Invalid, format!("{place} has keys of another type under allora's names"))
        }
        (RedisErrorKind::MasterNameNotFoundBySentinel, _) => (
            ErrorKind::Invalid,
            format!("{place}: no sentinel that replies has a primary of this name"),
        ),
        (RedisErrorKind::InvalidClientConfig, _) => {
            (ErrorKind::Invalid, format!("{place}: the address or its settings are wrong"))
        }
        (RedisErrorKind::Parse, _) => {
            (ErrorKind::Invalid, format!("{place} does not reply as a Redis does: is it a Redis?"))
        }
        (RedisErrorKind::Server(_), _) if detail.contains("cluster support disabled") => (
            ErrorKind::Invalid,
            format!("{place} is not a node of a cluster; connect with `RedisBuilder::connect`"),
        ),
        (RedisErrorKind::Server(_), _) if detail.contains("db index") => {
            (ErrorKind::Invalid, format!("{place}: there is no such database"))
        }
        (RedisErrorKind::Server(_) | RedisErrorKind::Extension, _) => {
            (ErrorKind::Unavailable, format!("{place} refused a command"))
        }
        _ if mentions(&cause, "peer certificate") => (
            ErrorKind::Invalid,
            format!(
                "{place} shows a certificate that is not trusted, or of another host; give its \
                 authority to `RedisBuilder::certificates`"
            ),
        ),
        _ if mentions(&cause, "fatal alert") => (
            ErrorKind::Invalid,
            format!("{place} refused the TLS handshake: it may require another certificate"),
        ),
        _ if cause.is_timeout() => {
            (ErrorKind::Unavailable, format!("{place} did not answer within the time-out"))
        }
        _ => (ErrorKind::Unavailable, format!("{place} cannot be reached")),
    };
    Error::new(kind, why).op("connect").source(cause)
}
