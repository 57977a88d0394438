//! The scheduler's interface to an executor and its clocks: four methods and a number.
//!
//! `Tokio`, `AsyncStd` and `Smol` are the production runtimes, each behind the feature of its name;
//! [`detect`] finds the current one. [`Sim`] is for tests: it has virtual time, and a seed
//! determines every event.

#[cfg(feature = "async-std")]
mod async_std;
mod detect;
#[cfg(any(feature = "tokio", feature = "async-std", feature = "smol"))]
mod real;
pub mod sim;
#[cfg(feature = "smol")]
mod smol;
#[cfg(feature = "tokio")]
mod tokio;

#[cfg(feature = "async-std")]
pub use self::async_std::AsyncStd;
pub use self::sim::{Sim, SimNode};
#[cfg(feature = "smol")]
pub use self::smol::Smol;
#[cfg(feature = "tokio")]
pub use self::tokio::Tokio;

use crate::{Result, time::Time};
use futures::future::BoxFuture;
use std::{fmt, sync::Arc, time::Instant};

/// An executor, its timers, its clocks and its random numbers: the library's only access to its
/// environment apart from the store.
pub trait Runtime: fmt::Debug + Send + Sync + 'static {
    /// Runs a task in the background to its end.
    fn spawn(&self, task: BoxFuture<'static, ()>);

    /// Waits until the monotonic clock shows `at`; ready at once if that is past.
    ///
    /// # Cancel safety
    /// Dropping the future only ends the wait.
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

/// The runtime that is used unless one is given: the tokio runtime of this thread, else the one of
/// async-std and smol that is compiled in.
///
/// # Errors
/// [`Invalid`](crate::ErrorKind::Invalid), with the remedy, in three cases: there is no runtime;
/// both async-std and smol are compiled in; or the tokio runtime of this thread has no timers and
/// no other runtime is compiled in.
///
/// # Examples
///
/// # Examples
/// ```
/// use allora::{Runtime, runtime};
///
/// match runtime::detect() {
///     Ok(runtime) => println!("it is {} o'clock", runtime.wall().format("%H")),
///     Err(error) => println!("{error}"),
/// }
/// ```
pub fn detect() -> Result<Arc<dyn Runtime>> {
    type Detect = fn() -> Option<Result<Arc<dyn Runtime>>>;
    let around: &[Detect] = &[
        #[cfg(feature = "tokio")]
        tokio::around,
    ];
    let anywhere: &[Arc<dyn Runtime>] = &[
        #[cfg(feature = "async-std")]
        Arc::new(AsyncStd),
        #[cfg(feature = "smol")]
        Arc::new(Smol),
    ];
    detect::choose(around.iter().find_map(|found| found()), anywhere)
}
