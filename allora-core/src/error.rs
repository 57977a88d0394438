//! The error type of the library: the failure, its place, and a kind that tells the caller how to
//! proceed.

use allora_schedule::{ParseError, ScheduleError, crontab::BadCrontab};
use std::{borrow::Cow, error, fmt, iter, sync::Arc};

/// Any error, as a job may return it.
pub type BoxError = Box<dyn error::Error + Send + Sync + 'static>;

/// `Result` with the library's [`Error`].
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// The action that an error asks of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input is wrong. Correct it; the same request fails again.
    Invalid,
    /// There is no such job.
    NotFound,
    /// The name is taken, or the record changed since it was read.
    AlreadyExists,
    /// Another node has claimed the occurrence. Stop working on it.
    LeaseLost,
    /// The backend cannot do this at all.
    Unsupported,
    /// The store did not answer, or the outcome is unknown. Try again.
    Unavailable,
    /// Any other failure. Read the message.
    Other,
}

/// An error with its [`ErrorKind`], the operation it happened in, and its cause.
///
/// `Display` prints one level; the cause is the [`source`](error::Error::source). The alternate form
/// (`{:#}`) adds the causes, and repeats none that the message contains already.
///
/// ```
/// use allora::{Error, ErrorKind};
///
/// let error = Error::new(ErrorKind::Unavailable, "the store did not answer within 1 s").op("reschedule");
/// assert_eq!(error.kind(), ErrorKind::Unavailable);
/// assert_eq!(error.to_string(), "reschedule: the store did not answer within 1 s");
///
/// let error = error.source("connection reset");
/// assert_eq!(format!("{error:#}"), "reschedule: the store did not answer within 1 s: connection reset");
/// ```
///
/// A clone has the same cause.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    op: Option<&'static str>,
    message: Cow<'static, str>,
    source: Option<Arc<dyn error::Error + Send + Sync>>,
}

impl Error {
    /// An error of this kind. `message` states the failure, its place, and the remedy.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, op: None, message: message.into(), source: None }
    }

    /// Shorthand for [`ErrorKind::Invalid`].
    pub fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// Sets the operation that failed, such as `reschedule` or `build`.
    #[must_use]
    pub fn op(mut self, op: &'static str) -> Self {
        self.op = Some(op);
        self
    }

    /// Sets the cause.
    #[must_use]
    pub fn source(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(Arc::from(source.into()));
        self
    }

    /// Sets the kind.
    #[must_use]
    pub fn with_kind(mut self, kind: ErrorKind) -> Self {
        self.kind = kind;
        self
    }

    /// Puts the place of the error before its message; kind and cause stay.
    pub(crate) fn within(mut self, place: impl fmt::Display) -> Self {
        let text = format!("{place}: {self}");
        (self.op, self.message) = (None, text.into());
        self
    }

    /// The message with those of its causes.
    pub(crate) fn chain(&self) -> String {
        chain(self)
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

/// The most causes that are read: an error may be its own source.
const MAX_CAUSES: usize = 32;

/// The message of an error with those of its causes, each once: many errors repeat their cause.
pub(crate) fn chain(error: &dyn error::Error) -> String {
    let mut text = error.to_string();
    let causes = iter::successors(error.source(), |cause| cause.source());
    for cause in causes.take(MAX_CAUSES) {
        let part = cause.to_string();
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
    }
    text
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            return f.write_str(&self.chain());
        }
        match self.op {
            Some(op) => write!(f, "{op}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl From<ParseError> for Error {
    /// [`ErrorKind::Invalid`], with the whole message. The place in the text is that of its
    /// [source](error::Error::source), the `ParseError`.
    fn from(error: ParseError) -> Self {
        Self::invalid(error.to_string()).source(error)
    }
}

impl From<ScheduleError> for Error {
    /// [`ErrorKind::Invalid`], with the message.
    fn from(error: ScheduleError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<BadCrontab> for Error {
    /// [`ErrorKind::Invalid`], with all lines in the message.
    fn from(bad: BadCrontab) -> Self {
        Self::invalid(bad.to_string())
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alternate_form_prints_every_message_once() {
        let io = std::io::Error::other("no route");
        let inner = Error::new(ErrorKind::Unavailable, "the store did not answer").source(io);
        let named = inner.op("connect").within("the job \"a\"");
        assert_eq!(named.to_string(), "the job \"a\": connect: the store did not answer");
        let causes = ": no route";
        assert_eq!(format!("{named:#}"), format!("{named}{causes}"));
        assert_eq!(named.kind(), ErrorKind::Unavailable);
        let repeated = Error::new(ErrorKind::Other, format!("outside: {named}")).source(named);
        assert_eq!(format!("{repeated:#}"), format!("{repeated}{causes}"));
    }

    #[test]
    fn an_error_that_is_its_own_cause_has_an_end() {
        #[derive(Debug)]
        struct Ring(std::cell::Cell<u32>);
        impl fmt::Display for Ring {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.set(self.0.get() + 1);
                write!(f, "<{}>", self.0.get())
            }
        }
        impl error::Error for Ring {
            fn source(&self) -> Option<&(dyn error::Error + 'static)> {
                Some(self)
            }
        }
        assert_eq!(chain(&Ring(0.into())).matches(':').count(), MAX_CAUSES);
    }
}
