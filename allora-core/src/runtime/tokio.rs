//! The runtime on tokio.

use super::{Runtime, real};
use crate::{Error, Result, time::Time};
use futures::future::BoxFuture;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Instant,
};
use tokio::{runtime::Handle, time};

/// The runtime on [tokio](https://docs.rs/tokio): tasks and timers go to one tokio runtime,
/// whatever thread or executor this value is used from.
///
/// It follows that runtime's clock, so that a test which has paused tokio's time (`start_paused`)
/// pauses the monotonic clock here too; the wall clock is always the machine's.
///
/// When the tokio runtime shuts down it drops its tasks; one spawned later is dropped at once, and
/// a sleep that a foreign executor still awaits panics, as tokio's own does.
///
/// # Examples
/// ```
/// use allora_core::runtime::{Runtime, Tokio};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> allora_core::Result {
/// let runtime = Tokio::current()?;
/// runtime.sleep_until(runtime.now()).await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Tokio {
    handle: Handle,
}

impl Tokio {
    /// The tokio runtime that this thread is inside.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) outside a tokio runtime, and in one without timers: see
    /// [`from_handle`](Self::from_handle).
    pub fn current() -> Result<Self> {
        let handle = Handle::try_current().map_err(|cause| {
            Error::invalid(
                "not inside a tokio runtime: call this from one, or use `Tokio::from_handle`",
            )
            .op("Tokio::current")
            .source(cause)
        })?;
        Self::from_handle(handle)
    }

    /// The tokio runtime of this handle, from any thread.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if its timers are off: build the runtime with
    /// `enable_time()` or `enable_all()`. tokio has no question for that other than a sleep that
    /// panics, so the panic hook prints a line as well, and a program built with `panic = "abort"`
    /// ends here.
    pub fn from_handle(handle: Handle) -> Result<Self> {
        if has_timers(&handle) {
            Ok(Self { handle })
        } else {
            Err(Error::invalid(
                "this tokio runtime has no timers: build it with `enable_time()` or `enable_all()`",
            )
            .op("Tokio::from_handle"))
        }
    }
}

/// Checks for timers: a new timer reads the driver's clock, and panics if there is none.
fn has_timers(handle: &Handle) -> bool {
    let _inside = handle.enter();
    let soon = time::Instant::from_std(real::now());
    catch_unwind(AssertUnwindSafe(|| drop(time::sleep_until(soon)))).is_ok()
}

impl Runtime for Tokio {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.handle.spawn(task);
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        let runtime = self.clone();
        Box::pin(async move {
            while let Some(leg) = real::leg(runtime.now(), at) {
                runtime.timer(leg).await;
            }
        })
    }

    fn now(&self) -> Instant {
        let _inside = self.handle.enter();
        #[expect(clippy::disallowed_methods, reason = "this is where `Runtime::now` comes from")]
        time::Instant::now().into_std()
    }

    fn wall(&self) -> Time {
        real::wall()
    }

    fn random(&self) -> u64 {
        real::random()
    }
}

impl Tokio {
    /// A timer made inside the runtime. It keeps the runtime's handle, so that it may be polled
    /// anywhere.
    fn timer(&self, at: Instant) -> time::Sleep {
        let _inside = self.handle.enter();
        time::sleep_until(time::Instant::from_std(at))
    }
}

/// The tokio runtime that this thread is inside, if any.
pub(super) fn around() -> Option<Result<Arc<dyn Runtime>>> {
    let handle = Handle::try_current().ok()?;
    Some(Tokio::from_handle(handle).map(|tokio| Arc::new(tokio) as _))
}
