//! A runtime whose clocks run fast: any executor and any clock can be a [`Runtime`].

use allora::{Runtime, Time, runtime::Tokio};
use futures::future::BoxFuture;
use std::time::Instant;

/// Tokio, with clocks that began at `from` and run `speed` times as fast as the wall's.
#[derive(Clone, Debug)]
pub(crate) struct Fast {
    pub(crate) tokio: Tokio,
    pub(crate) from: Time,
    pub(crate) began: Instant,
    pub(crate) speed: u32,
}

impl Runtime for Fast {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.tokio.spawn(task);
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        let wait = at.saturating_duration_since(self.began) / self.speed;
        self.tokio.sleep_until(self.began + wait)
    }

    fn now(&self) -> Instant {
        self.began + self.tokio.now().saturating_duration_since(self.began) * self.speed
    }

    fn wall(&self) -> Time {
        self.from + self.now().saturating_duration_since(self.began)
    }

    fn random(&self) -> u64 {
        self.tokio.random()
    }
}
