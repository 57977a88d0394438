//! What the scheduler needs of an executor and a clock: four methods and a number.

use crate::time::Time;
use futures::future::BoxFuture;
use std::{fmt, sync::Arc, time::Instant};

/// An executor, its timers, its clocks and its random numbers: all that the library knows of
/// the world beside the store.
pub trait Runtime: fmt::Debug + Send + Sync + 'static {
    /// Runs a task in the background to its end.
    fn spawn(&self, task: BoxFuture<'static, ()>);

    /// Waits until the monotonic clock shows `at`; ready at once if it has passed.
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait, nothing else.
    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()>;

    /// The monotonic clock.
    fn now(&self) -> Instant;

    /// The wall clock.
    fn wall(&self) -> Time;

    /// A random number, uniform over all of `u64`.
    fn random(&self) -> u64;
}

impl<R: Runtime + ?Sized> Runtime for Arc<R> {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        (**self).spawn(task);
    }
    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        (**self).sleep_until(at)
    }
    fn now(&self) -> Instant {
        (**self).now()
    }
    fn wall(&self) -> Time {
        (**self).wall()
    }
    fn random(&self) -> u64 {
        (**self).random()
    }
}
