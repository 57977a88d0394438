//! A wake-up for one task, from any task.

use crate::sync::{AtomicBool, AtomicWaker};
use std::{future::poll_fn, sync::atomic::Ordering, task::Poll};

/// A notification is stored until it is received; several are received as one.
#[derive(Debug, Default)]
pub(crate) struct Notify {
    notified: AtomicBool,
    waker: AtomicWaker,
}

/// Yields once to all other tasks that are ready.
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

impl Notify {
    pub(crate) fn notify(&self) {
        if !self.notified.swap(true, Ordering::AcqRel) {
            self.waker.wake();
        }
    }

    /// Waits for a notification, or returns at once if one is stored.
    pub(crate) fn notified(&self) -> impl Future<Output = ()> + '_ {
        poll_fn(|cx| {
            if self.notified.swap(false, Ordering::AcqRel) {
                return Poll::Ready(());
            }
            self.waker.register(cx.waker());
            // A notification may have come before the waker was registered.
            if self.notified.swap(false, Ordering::AcqRel) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
    }
}
