//! The time limit of requests to the store.

use super::node::{Node, later};
use crate::error::{Error, ErrorKind, Result};
use futures::future::{Either, select};
use std::pin::pin;

/// Awaits a request to the store, up to its time limit.
pub(super) async fn within<T>(
    node: &Node,
    op: &'static str,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    let deadline = node.config.store_timeout;
    let limit = node.runtime.sleep_until(later(node.runtime.now(), deadline));
    match select(pin!(call), limit).await {
        Either::Left((answer, _)) => answer,
        Either::Right(_) => {
            let late = format!("the store did not answer within {deadline:?}");
            Err(Error::new(ErrorKind::Unavailable, late).op(op))
        }
    }
}
