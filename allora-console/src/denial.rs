//! The reason why a request has no reader.

use axum::http::StatusCode;
use std::fmt;

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
