//! The settings of a node.

use std::{sync::Arc, time::Duration};

/// The settings of a node.
pub(crate) struct Config {
    /// The largest number of simultaneous runs.
    pub(crate) concurrency: usize,
    /// The interval at which the store is read without a notification.
    pub(crate) poll_interval: Duration,
    /// The longest duration of one request to the store.
    pub(crate) store_timeout: Duration,
    /// The time for which runs may continue when the scheduler stops.
    pub(crate) grace: Duration,
    /// The lease of at-most-once runs.
    pub(crate) lost_after: Duration,
    /// The longest random wait before a claim.
    pub(crate) claim_jitter: Duration,
    /// The payload of jobs in code.
    pub(crate) no_data: Arc<[u8]>,
}
