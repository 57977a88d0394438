//! Who asks: as the closure of the host decides, with the body of the request if the decision needs it.

use crate::{
    access::{Access, Decision},
    shared::Shared,
};
use axum::{
    body::{Body, to_bytes},
    extract::Request,
    http::StatusCode,
};
use std::fmt;

/// The longest body that is read for a decision, in bytes, unless an operation takes a longer one.
pub(crate) const LONGEST: usize = 1 << 20;

/// The reason why a request has no reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    /// The program that mounts the console has not said who may read it.
    Closed,
    /// The host lets somebody else read.
    Refused,
    /// Nobody has said who asks.
    Unknown,
    /// The proof is not accepted.
    Unproven(String),
    /// The body did not come, and the decision needs it.
    NoBody,
    /// It cannot be decided now.
    Busy,
}

/// The reader of a request, and the request, which has the reader among its extensions. The body, of up to so many
/// bytes, is read only if the decision needs it; otherwise it is still to come.
pub(crate) async fn identified(
    shared: &Shared,
    request: Request,
    longest: usize,
) -> Result<(Access, Request), Denial> {
    let (mut parts, mut body) = request.into_parts();
    let access = shared.access.as_ref().ok_or(Denial::Closed)?;
    let mut decision = access(&parts);
    if let Decision::ByBody(check) = decision {
        let whole = to_bytes(body, longest).await.map_err(|_| Denial::NoBody)?;
        decision = check.decide(&whole);
        body = Body::from(whole);
    }
    let reader = match decision {
        Decision::Reader(reader) => reader,
        Decision::Refused | Decision::ByBody(_) => return Err(Denial::Refused),
        Decision::Unknown => return Err(Denial::Unknown),
        Decision::Unproven(why) => return Err(Denial::Unproven(why)),
        Decision::Busy => return Err(Denial::Busy),
    };
    parts.extensions.insert(reader.clone());
    Ok((reader, Request::from_parts(parts, body)))
}

impl Denial {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Closed | Self::Refused => StatusCode::FORBIDDEN,
            Self::Unknown | Self::Unproven(_) => StatusCode::UNAUTHORIZED,
            Self::NoBody => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "The program that serves this console has not said who may read it.",
            Self::Refused => "",
            Self::Unknown => "No valid token came along.",
            Self::Unproven(why) => return write!(f, "The signature is not accepted: {why}."),
            Self::NoBody => "The body did not come as a whole, or is longer than is read here.",
            Self::Busy => "Too many signed requests came within five minutes. Send it again later.",
        })
    }
}
