//! The thread on which all connections of a store live, with a small runtime of its own.
//!
//! So an attempt to connect outlives the call that needed it, and the primary is checked while no
//! call is under way, whichever runtime the application has.
//!
//! `allora-etcd` starts its thread in the same few lines; a mechanism shared in core would be longer
//! than both, because the errors, the names and the clock of each driver are its own.

use allora_core::{Error, ErrorKind, Result};
use redis::{RedisError, RedisResult};
use std::{
    io,
    time::{Duration, Instant},
};
use tokio::{runtime::Handle, sync::oneshot, task::JoinHandle};

pub(crate) struct Driver {
    handle: Handle,
    /// Dropping it ends the thread.
    _stop: oneshot::Sender<()>,
}

impl Driver {
    /// Starts the thread.
    ///
    /// # Errors
    /// `Other` if it cannot be started.
    pub(crate) fn start() -> Result<Self> {
        let failed = |cause: io::Error| {
            let text = "the thread that talks to Redis cannot be started";
            Error::new(ErrorKind::Other, text).op("connect").source(cause)
        };
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        // The runtime ends on its own thread: elsewhere its end might block an executor.
        std::thread::Builder::new()
            .name("allora-redis".into())
            .spawn(move || drop(runtime.block_on(stopped)))
            .map_err(failed)?;
        Ok(Self { handle, _stop: stop })
    }

    /// Does this on the thread, also if the result is dropped.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.handle.spawn(work)
    }
}

/// Does this on the thread, on which the caller is.
#[expect(clippy::disallowed_methods, reason = "the connections live on the driver's own thread")]
pub(crate) fn spawn<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    tokio::spawn(work)
}

/// The monotonic clock of the thread.
#[expect(clippy::disallowed_methods, reason = "the connections live on the driver's own thread")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Waits on the thread.
#[expect(clippy::disallowed_methods, reason = "the connections live on the driver's own thread")]
pub(crate) async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Does this up to a time on the thread.
///
/// # Errors
/// A time-out.
pub(crate) async fn until<T>(
    end: Instant,
    work: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    match tokio::time::timeout_at(end.into(), work).await {
        Ok(result) => result,
        Err(_) => Err(timed_out()),
    }
}

pub(crate) fn timed_out() -> RedisError {
    io::Error::from(io::ErrorKind::TimedOut).into()
}
