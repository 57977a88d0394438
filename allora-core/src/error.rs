//! The one error of the library: what went wrong, where, and, by its kind, what the caller does next.

use std::{borrow::Cow, error, fmt};

/// Any error, as a job may return it.
pub type BoxError = Box<dyn error::Error + Send + Sync + 'static>;

/// `Result` with the library's [`Error`].
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// What the caller does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The input is wrong: correct it; asking again changes nothing.
    Invalid,
    /// There is no such job.
    NotFound,
    /// The name is taken, or the record changed since it was read.
    AlreadyExists,
    /// Somebody else has taken the occurrence over: stop working on it.
    LeaseLost,
    /// The backend cannot do this at all.
    Unsupported,
    /// The store did not answer, or the outcome is unknown: ask again.
    Unavailable,
    /// Anything else: read the message.
    Other,
}

/// An error with its [`Kind`], the operation it happened in, and its cause.
///
/// `Display` prints one level; the cause is the [`source`](error::Error::source).
///
/// ```
/// use allora_core::{Error, Kind};
///
/// let error = Error::new(Kind::Unavailable, "the store did not answer within 1 s").op("reschedule");
/// assert_eq!(error.kind(), Kind::Unavailable);
/// assert_eq!(error.to_string(), "reschedule: the store did not answer within 1 s");
/// ```
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    op: Option<&'static str>,
    message: Cow<'static, str>,
    source: Option<BoxError>,
}

impl Error {
    /// An error of this kind; `message` says what, where, and what to do next.
    pub fn new(kind: Kind, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, op: None, message: message.into(), source: None }
    }

    /// Shorthand for [`Kind::Invalid`].
    pub fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Invalid, message)
    }

    /// Names the operation that failed, as `reschedule` or `build`.
    #[must_use]
    pub fn op(mut self, op: &'static str) -> Self {
        self.op = Some(op);
        self
    }

    /// Keeps the cause.
    #[must_use]
    pub fn source(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What the caller does next.
    pub fn kind(&self) -> Kind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.op {
            Some(op) => write!(f, "{op}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
