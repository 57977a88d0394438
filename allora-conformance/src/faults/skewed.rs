//! The runtime of a machine whose clock is wrong.

use allora_core::{Runtime, Time};
use chrono::TimeDelta;
use futures::future::BoxFuture;
use std::time::Instant;

/// A runtime whose wall clock is ahead by this span, or behind by a negative one.
#[derive(Clone, Debug)]
pub struct Skewed<R>(pub R, pub TimeDelta);

impl<R: Runtime> Runtime for Skewed<R> {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.spawn(task);
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        self.0.sleep_until(at)
    }

    fn now(&self) -> Instant {
        self.0.now()
    }

    fn wall(&self) -> Time {
        self.0.wall() + self.1
    }

    fn random(&self) -> u64 {
        self.0.random()
    }
}
