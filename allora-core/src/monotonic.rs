//! Waits by the monotonic clock: sums that cannot overflow, and the time limit of a request.

use crate::{
    error::{Error, ErrorKind, Result},
    runtime::Runtime,
};
use futures::future::{Either, select};
use std::{
    pin::pin,
    time::{Duration, Instant},
};

/// `at + by`; a year after `at` if that is out of range.
pub(crate) fn later(at: Instant, by: Duration) -> Instant {
    at.checked_add(by).unwrap_or_else(|| at + Duration::from_secs(366 * 86_400))
}

/// Awaits a request to the store, for so long at most. `op`: its name in errors.
pub(crate) async fn within<T>(
    runtime: &dyn Runtime,
    op: &'static str,
    limit: Duration,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    match select(pin!(call), runtime.sleep_until(later(runtime.now(), limit))).await {
        Either::Left((answer, _)) => answer,
        Either::Right(_) => {
            let late = format!("the store did not answer within {limit:?}");
            Err(Error::new(ErrorKind::Unavailable, late).op(op))
        }
    }
}
