//! What went wrong with etcd, in the words of the caller: what to do next.

use allora_core::{Error, Kind};

/// The codes of gRPC that matter here; their numbers are the protocol's.
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

/// The error of a call, for its caller.
pub(crate) fn failed(op: &'static str, cause: etcd_client::Error) -> Error {
    let (kind, what) = match &cause {
        etcd_client::Error::GRpcStatus(status) => match status.code() as i32 {
            code::PERMISSION_DENIED => (
                Kind::Invalid,
                "etcd permits this user too little; it needs to read and write every key under \
                 the prefix and a slash",
            ),
            code::UNAUTHENTICATED => (Kind::Invalid, "etcd does not accept the login"),
            code::INVALID_ARGUMENT if status.message().contains("user name is empty") => {
                (Kind::Invalid, "etcd asks for a login; give a user and a password")
            }
            code::INVALID_ARGUMENT if status.message().contains("authentication failed") => {
                (Kind::Invalid, "etcd does not accept the user and the password")
            }
            code::INVALID_ARGUMENT => (Kind::Invalid, "etcd refused the request"),
            code::RESOURCE_EXHAUSTED if status.message().contains("space exceeded") => (
                Kind::Unavailable,
                "etcd has used up its space; compact and defragment it, then disarm the alarm",
            ),
            _ => (Kind::Unavailable, "etcd did not answer, or has no leader"),
        },
        etcd_client::Error::TransportError(_) | etcd_client::Error::IoError(_) => {
            (Kind::Unavailable, "etcd cannot be reached")
        }
        etcd_client::Error::InvalidArgs(_) | etcd_client::Error::InvalidUri(_) => {
            (Kind::Invalid, "the address or an option is wrong")
        }
        _ => (Kind::Unavailable, "the exchange with etcd was broken off"),
    };
    Error::new(kind, what).op(op).source(Said(text(&cause)))
}

/// Nobody answered in time.
pub(crate) fn late(op: &'static str, timeout: std::time::Duration) -> Error {
    Error::new(Kind::Unavailable, format!("etcd did not answer within {timeout:?}")).op(op)
}

/// The answer is not one to what was asked.
pub(crate) fn strange(op: &'static str) -> Error {
    Error::new(Kind::Unavailable, "etcd's answer does not fit what it was asked").op(op)
}

/// Whether another member may answer better.
pub(crate) fn is_elsewhere(cause: &etcd_client::Error) -> bool {
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

/// Whether a lease is gone.
pub(crate) fn is_no_lease(cause: &etcd_client::Error) -> bool {
    match cause {
        etcd_client::Error::GRpcStatus(status) => status.code() as i32 == code::NOT_FOUND,
        etcd_client::Error::LeaseKeepAliveError(_) => true,
        _ => false,
    }
}

/// What the driver said, with its causes, which it does not hand on. There is no secret in it:
/// the driver's own `Debug`, which has the password, is not used.
#[derive(Debug)]
struct Said(String);

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Said {}

fn text(cause: &etcd_client::Error) -> String {
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
        let said = cause.to_string();
        if !text.contains(&said) {
            text += ": ";
            text += &said;
        }
        source = cause.source();
    }
    text
}
