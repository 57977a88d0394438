//! Sums of times of the monotonic clock that cannot overflow.

use std::time::{Duration, Instant};

/// `at + by`; a year after `at` if that is out of range.
pub(crate) fn later(at: Instant, by: Duration) -> Instant {
    at.checked_add(by).unwrap_or_else(|| at + Duration::from_secs(366 * 86_400))
}
