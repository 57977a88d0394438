//! A request that is on its way while its sender does something else.

use futures::{
    FutureExt,
    future::{BoxFuture, MaybeDone, maybe_done},
    task::noop_waker_ref,
};
use std::{
    pin::Pin,
    task::{Context, Poll},
};

/// At most one request. Its sender polls it whenever it waits for anything.
pub(super) struct SideRequest<T>(Option<MaybeDone<BoxFuture<'static, T>>>);

impl<T> Default for SideRequest<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> SideRequest<T> {
    /// Sends a request. One that is on its way is dropped.
    pub(super) fn begin(&mut self, request: impl Future<Output = T> + Send + 'static) {
        self.0 = Some(maybe_done(request.boxed()));
        // It is on its way before the sender's next request.
        let _ = self.poll(&mut Context::from_waker(noop_waker_ref()));
    }

    /// `true` from the request until its reply is taken.
    pub(super) fn has_begun(&self) -> bool {
        self.0.is_some()
    }

    /// Ready if there is a reply to take.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.0 {
            Some(request) => Pin::new(request).poll(cx),
            None => Poll::Pending,
        }
    }

    /// The reply, if it has come.
    pub(super) fn take(&mut self) -> Option<T> {
        let reply = Pin::new(self.0.as_mut()?).take_output();
        if reply.is_some() {
            self.0 = None;
        }
        reply
    }
}
