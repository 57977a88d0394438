//! The waits before a request that failed is repeated.

use std::time::Duration;

/// The first wait after a failure of the store; doubled each time up to [`MAX_BACKOFF`].
pub(crate) const MIN_BACKOFF: Duration = Duration::from_millis(50);
/// The longest wait between two tries to reach the store.
pub(crate) const MAX_BACKOFF: Duration = Duration::from_millis(800);

/// The wait after this number of failures in a row.
pub(crate) fn after(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(31);
    MIN_BACKOFF.saturating_mul(1 << doublings).min(MAX_BACKOFF)
}
