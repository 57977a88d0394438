//! Word from the store, so that nodes need not poll.

use crate::{error::Result, time::Time};
use async_trait::async_trait;
use futures::stream::BoxStream;

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
