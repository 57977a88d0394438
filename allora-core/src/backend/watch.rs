//! Word from the store, so that nodes need not poll.

use crate::{error::Result, time::Time};
use async_trait::async_trait;
use futures::stream::BoxStream;

/// Word when something became due earlier than thought. Hints may be lost, doubled or wrong: the
/// safety poll and the compare-and-set make up for it.
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
