//! Errors of calls to etcd, with the next step for the caller.

use allora_core::{Error, ErrorKind};

/// The gRPC codes that matter here; their numbers are the protocol's.
mod code {
    pub(super) const CANCELLED: i32 = 1;
    pub(super) const UNKNOWN: i32 = 2;
    pub(super) const INVALID_ARGUMENT: i32 = 3;
    pub(super) const DEADLINE_EXCEEDED: i32 = 4;
    pub(super) const NOT_FOUND: i32 = 5;
    pub(super) const PERMISSION_DENIED: i32 = 7;
    pub(super) const RESOURCE_EXHAUSTED: i32 = 8;
    pub(super) const INTERNAL: i32 = 13;
    pub(super) const UNAVAILABLE: i32 = 14;
    pub(super) const UNAUTHENTICATED: i32 = 16;
}

const NO_PERMISSION: &str = "the etcd user lacks permission; grant it readwrite on every key under \
                             the prefix and a slash";

/// The error of a call, for its caller.
pub(crate) fn failed(op: &'static str, cause: etcd_client::Error) -> Error {
    let (kind, text) = match &cause {
        etcd_client::Error::GRpcStatus(status) => match status.code() as i32 {
            code::PERMISSION_DENIED => (ErrorKind::Invalid, NO_PERMISSION),
            code::UNAUTHENTICATED => (ErrorKind::Invalid, "etcd rejected the login"),
            code::INVALID_ARGUMENT if status.message().contains("user name is empty") => {
                (ErrorKind::Invalid, "etcd requires a login; give a user and a password")
            }
            code::INVALID_ARGUMENT if status.message().contains("authentication failed") => {
                (ErrorKind::Invalid, "etcd rejected the user and the password of the login")
            }
            code::INVALID_ARGUMENT | code::RESOURCE_EXHAUSTED
                if status.message().contains("too large")
                    || status.message().contains("larger than max") =>
            {
                (ErrorKind::Invalid, "the request is too large for etcd")
            }
            code::INVALID_ARGUMENT => (ErrorKind::Invalid, "etcd rejected the request"),
            code::RESOURCE_EXHAUSTED if status.message().contains("space exceeded") => (
                ErrorKind::Unavailable,
                "etcd has used up its space; compact and defragment it, then disarm the alarm",
            ),
            _ => (ErrorKind::Unavailable, "etcd did not answer, or has no leader"),
        },
        etcd_client::Error::WatchError(reason) if reason.contains("permission denied") => {
            (ErrorKind::Invalid, NO_PERMISSION)
        }
        etcd_client::Error::TransportError(_) | etcd_client::Error::IoError(_) => {
            (ErrorKind::Unavailable, "etcd cannot be reached")
        }
        etcd_client::Error::InvalidArgs(_) | etcd_client::Error::InvalidUri(_) => {
            (ErrorKind::Invalid, "the address or an option is invalid")
        }
        _ => (ErrorKind::Unavailable, "the connection to etcd failed during the call"),
    };
    Error::new(kind, text).op(op).source(DriverError(text_of(&cause)))
}

/// The error of a call without a reply in time.
pub(crate) fn timed_out(op: &'static str, timeout: std::time::Duration) -> Error {
    Error::new(ErrorKind::Unavailable, format!("etcd did not answer within {timeout:?}")).op(op)
}

/// The error of a reply that does not fit the request.
pub(crate) fn unexpected_response(op: &'static str) -> Error {
    Error::new(ErrorKind::Unavailable, "etcd's reply does not fit the request").op(op)
}

/// True if another member may answer the same request.
pub(crate) fn may_succeed_elsewhere(cause: &etcd_client::Error) -> bool {
    match cause {
        etcd_client::Error::GRpcStatus(status) => matches!(
            status.code() as i32,
            code::CANCELLED
                | code::UNKNOWN
                | code::DEADLINE_EXCEEDED
                | code::INTERNAL
                | code::UNAVAILABLE
        ),
        etcd_client::Error::TransportError(_) | etcd_client::Error::IoError(_) => true,
        _ => false,
    }
}

/// True if a new login may let the same request succeed.
pub(crate) fn is_token_outdated(cause: &etcd_client::Error) -> bool {
    match cause {
        etcd_client::Error::GRpcStatus(status) => {
            status.code() as i32 == code::UNAUTHENTICATED
                || status.message().contains("revision of auth store is old")
                || status.message().contains("invalid auth token")
        }
        _ => false,
    }
}

/// True if the etcd lease of a call does not exist any more.
pub(crate) fn is_lease_not_found(cause: &etcd_client::Error) -> bool {
    match cause {
        etcd_client::Error::GRpcStatus(status) => status.code() as i32 == code::NOT_FOUND,
        etcd_client::Error::LeaseKeepAliveError(_) => true,
        _ => false,
    }
}

/// The driver's error text with its causes, which the driver's error does not return. It contains
/// no secret: the driver's own `Debug`, which has the password, is not used.
#[derive(Debug)]
struct DriverError(String);

impl std::fmt::Display for DriverError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DriverError {}

fn text_of(cause: &etcd_client::Error) -> String {
    let mut text = match cause {
        etcd_client::Error::GRpcStatus(status) => status.message().to_owned(),
        other => other.to_string(),
    };
    let mut source: Option<&dyn std::error::Error> = match cause {
        etcd_client::Error::GRpcStatus(status) => std::error::Error::source(status),
        etcd_client::Error::TransportError(transport) => std::error::Error::source(transport),
        _ => None,
    };
    while let Some(cause) = source {
        let next = cause.to_string();
        if !text.contains(&next) {
            text += ": ";
            text += &next;
        }
        source = cause.source();
    }
    text
}
