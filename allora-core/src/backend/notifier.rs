//! Notifications from the store, so that nodes poll rarely.

use crate::{
    error::Result,
    time::{Time, from_millis},
};
use async_trait::async_trait;
use futures::stream::BoxStream;
use std::fmt;

/// Notifications that a job is due earlier than known. Notifications may be lost, doubled or wrong:
/// polling and compare-and-set compensate for it.
///
/// # Promises
/// Each names the cases of the conformance suite that check it.
/// 1. *A working store notifies every node* of each job that was added, changed, deleted,
///    triggered or released. Cases: `notifications::a_created_schedule_notifies`,
///    `notifications::an_edit_a_resumption_and_a_deletion_notify`, `notifications::a_trigger_notifies`,
///    `notifications::a_release_notifies`, `notifications::every_node_is_notified`.
#[async_trait]
pub trait Notifier: Send + Sync {
    /// A stream of notifications from now on. Subscribe before the first read. When the stream
    /// ends, subscribe again and read again.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn subscribe(&self) -> Result<BoxStream<'static, Notification>>;
}

/// A change in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notification {
    /// A stored record is due at this time.
    DueAt(Time),
    /// This job has changed. Read it.
    Job(String),
    /// As [`Job`](Self::Job), and the cancellation of its active runs was requested. Extend their
    /// leases: the replies say which.
    Cancel(String),
    /// Something has changed. Read all that is due.
    Changed,
}

impl Notification {
    /// Reads the text that [`Display`](fmt::Display) has written, the format in which a backend
    /// sends a notification. Any other text is read as [`Changed`](Self::Changed).
    ///
    /// ```
    /// use allora::backend::Notification;
    ///
    /// let sent = Notification::Job("send invoices".into()).to_string();
    /// assert_eq!(Notification::parse(&sent), Notification::Job("send invoices".into()));
    /// assert_eq!(Notification::parse("from another version"), Notification::Changed);
    /// ```
    pub fn parse(text: &str) -> Self {
        match text.split_once(' ') {
            Some(("job", name)) => Self::Job(name.to_owned()),
            Some(("cancel", name)) => Self::Cancel(name.to_owned()),
            Some(("due", ms)) => {
                ms.parse().ok().and_then(from_millis).map_or(Self::Changed, Self::DueAt)
            }
            _ => Self::Changed,
        }
    }
}

/// `job NAME`, `cancel NAME`, `due MILLISECONDS` since 1970, or `changed`.
impl fmt::Display for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DueAt(at) => write!(f, "due {}", at.timestamp_millis()),
            Self::Job(name) => write!(f, "job {name}"),
            Self::Cancel(name) => write!(f, "cancel {name}"),
            Self::Changed => f.write_str("changed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifications_are_read_back() {
        let at = from_millis(5_000).unwrap();
        for notification in [
            Notification::DueAt(at),
            Notification::Job("a b".into()),
            Notification::Cancel("a b".into()),
            Notification::Changed,
        ] {
            assert_eq!(Notification::parse(&notification.to_string()), notification);
        }
        assert_eq!(Notification::parse("due soon"), Notification::Changed);
    }
}
