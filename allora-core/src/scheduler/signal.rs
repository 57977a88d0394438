//! A bell: rung by anybody, heard by one.

use futures::task::AtomicWaker;
use std::{
    future::poll_fn,
    sync::atomic::{AtomicBool, Ordering},
    task::Poll,
};

/// Rings are remembered until they are heard; several rings are heard as one.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    rung: AtomicBool,
    waker: AtomicWaker,
}

/// Lets everything else that is ready go first, once.
pub(crate) fn yield_now() -> impl Future<Output = ()> {
    let mut yielded = false;
    poll_fn(move |cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
}

impl Signal {
    pub(crate) fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            self.waker.wake();
        }
    }

    /// Waits for a ring, or for one that nobody has heard.
    pub(crate) fn heard(&self) -> impl Future<Output = ()> + '_ {
        poll_fn(|cx| {
            if self.rung.swap(false, Ordering::AcqRel) {
                return Poll::Ready(());
            }
            self.waker.register(cx.waker());
            // It may have been rung before the waker was there.
            if self.rung.swap(false, Ordering::AcqRel) { Poll::Ready(()) } else { Poll::Pending }
        })
    }
}
