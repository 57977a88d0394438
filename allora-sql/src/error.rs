//! Errors of the database as errors of the store: the kind, and what to do.

use crate::{client::Client, url::Url};
use allora_core::{Error, ErrorKind};
use std::io;

impl Client {
    /// The error of an operation that failed, or whose outcome is unknown.
    pub(crate) fn failed(&self, op: &'static str, cause: sqlx::Error) -> Error {
        let place = &self.place;
        let text = match &cause {
            // SQLite's code for a lock that did not become free within the busy timeout.
            sqlx::Error::Database(error) if error.code().is_some_and(|code| code == "5") => {
                locked(place)
            }
            _ if self.driver.is_other(&cause) => format!(
                "{place} was deleted or replaced while this node had it open: the node goes on with the \
                 file that is there now, and with an empty one if there is none for a while"
            ),
            _ if is_forbidden(&cause) => format!(
                "this user may not run the statement in {place}: grant SELECT, INSERT, UPDATE and \
                 DELETE on the tables {}_*",
                self.dialect.prefix
            ),
            sqlx::Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                format!("{place} refuses connections")
            }
            sqlx::Error::Database(_) => format!("{place} refused the statement"),
            sqlx::Error::PoolTimedOut => format!("no connection to {place} became free in time"),
            sqlx::Error::PoolClosed => format!("the pool of {place} is closed"),
            _ => format!("{place} did not answer"),
        };
        Error::new(ErrorKind::Unavailable, text).op(op).source(cause)
    }
}

fn locked(place: &Url) -> String {
    format!(
        "another process keeps the write lock of {place}: if it is stopped (state T in `ps`), \
         continue or kill it; if it writes for long, shorten its transactions"
    )
}

/// Makes an error `Invalid` that another attempt does not change: a table is missing, or this user
/// may not use it.
pub(crate) fn permanent(error: Error) -> Error {
    let code =
        cause_of(&error).and_then(|cause| cause.as_database_error()).and_then(|error| error.code());
    // The class of the SQL standard, and SQLite's code for every fault of a statement.
    if code.is_some_and(|code| code.starts_with("42") || code == "1") {
        return error.with_kind(ErrorKind::Invalid);
    }
    error
}

/// The error of the database behind that of the store.
pub(crate) fn cause_of(error: &Error) -> Option<&sqlx::Error> {
    std::error::Error::source(error)?.downcast_ref()
}

/// True if the user lacks a privilege.
pub(crate) fn is_forbidden(cause: &sqlx::Error) -> bool {
    let Some(error) = cause.as_database_error() else { return false };
    #[cfg(feature = "mysql")]
    if let Some(error) = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        // Of a database, a table, a column, a routine; of the whole server.
        return matches!(error.number(), 1044 | 1142 | 1143 | 1227 | 1370);
    }
    error.code().is_some_and(|code| code == "42501")
}

/// The error of a connection that could not be made: the reason, and what to do.
pub(crate) fn refused(url: &Url, cause: sqlx::Error) -> Error {
    let code = cause.as_database_error().and_then(|error| error.code().map(|c| c.into_owned()));
    let (kind, text) = match (&cause, code.as_deref()) {
        (_, Some("28P01" | "28000")) => {
            (ErrorKind::Invalid, format!("{url} refused the user or the password"))
        }
        (_, Some("3D000" | "42000")) => {
            (ErrorKind::Invalid, format!("{url} has no such database, or not for this user"))
        }
        _ if is_tls(&cause) => (
            ErrorKind::Invalid,
            format!(
                "{url} could not be verified by TLS: is the name the certificate's, and its \
                 authority known, or named by ca=FILE? tls=require in the URL encrypts without \
                 verifying, and tls=off is plain text"
            ),
        ),
        (sqlx::Error::Configuration(why), _) => (ErrorKind::Invalid, format!("{url}: {why}")),
        (sqlx::Error::PoolTimedOut, _) => {
            (ErrorKind::Unavailable, format!("{url} did not answer within the connect timeout"))
        }
        (sqlx::Error::Io(error), _) if error.kind() == io::ErrorKind::ConnectionRefused => (
            ErrorKind::Unavailable,
            format!("{url} cannot be reached: it refuses connections; is the server running?"),
        ),
        (sqlx::Error::Io(_), _) => (ErrorKind::Unavailable, format!("{url} cannot be reached")),
        (_, Some("8" | "1032" | "1288")) => {
            (ErrorKind::Invalid, format!("{url} may only be read; a store must be written"))
        }
        (_, Some("5")) => (ErrorKind::Unavailable, locked(url)),
        (_, Some("14")) => {
            (ErrorKind::Invalid, format!("{url} cannot be opened or created; is its folder there?"))
        }
        (_, Some("26")) => (ErrorKind::Invalid, format!("{url} is not an SQLite database")),
        _ => (ErrorKind::Unavailable, format!("{url} could not be opened")),
    };
    Error::new(kind, text).op("connect").source(cause)
}

/// True if client and server could not agree on TLS. A fault that the TLS library finds in a
/// certificate is an I/O error of invalid data.
fn is_tls(cause: &sqlx::Error) -> bool {
    match cause {
        sqlx::Error::Tls(_) => true,
        sqlx::Error::Io(error) => error.kind() == std::io::ErrorKind::InvalidData,
        _ => false,
    }
}
