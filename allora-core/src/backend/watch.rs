//! Word from the store, so that nodes need not poll.

use crate::{
    error::Result,
    time::{Time, from_millis},
};
use async_trait::async_trait;
use futures::stream::BoxStream;
use std::fmt;

/// Word when something became due earlier than thought. Hints may be lost, doubled or wrong: the
/// safety poll and the compare-and-set make up for it.
///
/// # Promises
/// Each names the cases of the conformance suite that ask for it.
/// 1. *On a store that is well, hints come*: to every node, of what was added, changed, deleted,
///    triggered or given back. Cases: `watch::an_added_schedule_is_told`,
///    `watch::an_edit_a_resumption_and_a_deletion_are_told`, `watch::a_trigger_is_told`,
///    `watch::what_is_given_back_is_told`, `watch::every_node_is_told`.
#[async_trait]
pub trait Watch: Send + Sync {
    /// A stream of hints from now on. Subscribe before the first look; when the stream ends,
    /// subscribe again and look.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn subscribe(&self) -> Result<BoxStream<'static, Hint>>;
}

/// What may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hint {
    /// Something stored wants attention at this time.
    DueAt(Time),
    /// This job changed: look at it.
    Job(String),
    /// Something changed: look.
    Look,
}

impl Hint {
    /// Reads what [`Display`](fmt::Display) wrote, which is how a backend sends a hint as text.
    /// Whatever cannot be read says at least that something changed: [`Look`](Self::Look).
    ///
    /// ```
    /// use allora_core::backend::Hint;
    ///
    /// let sent = Hint::Job("send invoices".into()).to_string();
    /// assert_eq!(Hint::parse(&sent), Hint::Job("send invoices".into()));
    /// assert_eq!(Hint::parse("from another version"), Hint::Look);
    /// ```
    pub fn parse(text: &str) -> Self {
        match text.split_once(' ') {
            Some(("job", name)) => Self::Job(name.to_owned()),
            Some(("due", ms)) => {
                ms.parse().ok().and_then(from_millis).map_or(Self::Look, Self::DueAt)
            }
            _ => Self::Look,
        }
    }
}

/// `job NAME`, `due MILLISECONDS` since 1970, or `look`.
impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DueAt(at) => write!(f, "due {}", at.timestamp_millis()),
            Self::Job(name) => write!(f, "job {name}"),
            Self::Look => f.write_str("look"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_read_back() {
        let at = from_millis(5_000).unwrap();
        for hint in [Hint::DueAt(at), Hint::Job("a b".into()), Hint::Look] {
            assert_eq!(Hint::parse(&hint.to_string()), hint);
        }
        assert_eq!(Hint::parse("due soon"), Hint::Look);
    }
}
