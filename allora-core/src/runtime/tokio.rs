//! The runtime on tokio.
//!
//! tokio does not tell whether its time is paused. So the machine's clock is read before and after
//! tokio's: if tokio's is not between them, the wall clock follows tokio's from then on. That costs
//! production two clocks more for each request.

use super::{Runtime, real};
use crate::{
    Error, Result,
    time::{Time, saturating_add},
};
use chrono::TimeDelta;
use futures::future::BoxFuture;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, OnceLock},
    time::Instant,
};
use tokio::{runtime::Handle, time};

/// The runtime on [tokio](https://docs.rs/tokio): tasks and timers go to one tokio runtime,
/// whatever thread or executor this value is used from.
///
/// It follows that runtime's clock. In a test with paused time (`start_paused`, `tokio::time::pause`)
/// both clocks here are tokio's: the wall clock goes on from its last time by as much as tokio's clock.
/// So a test of a job that uses tokio's timers runs its schedule without waiting, on a store without a
/// clock of its own, such as `Memory`:
///
/// ```
/// use allora::{Run, Scheduler, every, runtime::Tokio};
/// use std::{sync::{Arc, atomic::{AtomicU32, Ordering}}, time::Duration};
///
/// // The same as `#[tokio::test(start_paused = true)]`.
/// # let paused = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
/// # paused.block_on(async {
/// let count = Arc::new(AtomicU32::new(0));
/// let counted = count.clone();
/// let job = async move |_: Run| {
///     tokio::time::sleep(Duration::from_secs(20 * 60)).await;
///     counted.fetch_add(1, Ordering::Relaxed);
/// };
/// let scheduler = Scheduler::builder(allora::Memory::new())
///     .runtime(Tokio::current()?.starting_at("2026-03-29T00:00:00Z".parse().unwrap()))
///     .job("hourly", every(Duration::from_secs(60 * 60)), job)
///     .build()?;
/// tokio::spawn(scheduler.run());
/// tokio::time::sleep(Duration::from_secs(6 * 60 * 60)).await;
/// assert_eq!(count.load(Ordering::Relaxed), 5);
/// # Ok::<(), allora::Error>(())
/// # }).unwrap();
/// ```
///
/// When the tokio runtime shuts down it drops its tasks; one spawned later is dropped at once, and
/// a sleep that a foreign executor still awaits panics, as tokio's own does.
///
/// # Examples
/// ```
/// use allora::runtime::{Runtime, Tokio};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> allora::Result {
/// let runtime = Tokio::current()?;
/// runtime.sleep_until(runtime.now()).await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Tokio {
    handle: Handle,
    /// Set once the wall clock does not follow the machine's: the time of the wall clock at a time of
    /// tokio's clock.
    anchor: Arc<OnceLock<(Time, Instant)>>,
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
            Ok(Self { handle, anchor: Arc::default() })
        } else {
            Err(Error::invalid(
                "this tokio runtime has no timers: build it with `enable_time()` or `enable_all()`",
            )
            .op("Tokio::from_handle"))
        }
    }

    /// With a wall clock that shows `time` now and goes on with tokio's clock: for tests. Only a store
    /// without a clock of its own, such as `Memory`, follows it. Clones share this clock, and
    /// [`detect`](super::detect) does not know it: give one clone to the scheduler, and another to
    /// [`Schedules::on`](crate::Schedules::on).
    #[must_use]
    pub fn starting_at(self, time: Time) -> Self {
        let anchor = OnceLock::from((time, self.now()));
        Self { anchor: Arc::new(anchor), ..self }
    }

    /// The wall clock of a test that has paused tokio's time; `None` while tokio's clock is the
    /// machine's.
    fn virtual_wall(&self) -> Option<Time> {
        let (time, at) = match self.anchor.get() {
            Some(anchor) => *anchor,
            None => {
                let (before, now, after) = (real::now(), self.now(), real::now());
                if (before..=after).contains(&now) {
                    return None;
                }
                *self.anchor.get_or_init(|| (real::wall(), now))
            }
        };
        let now = self.now();
        Some(match now.checked_duration_since(at) {
            Some(passed) => saturating_add(time, passed),
            None => time - TimeDelta::from_std(at - now).unwrap_or_default(),
        })
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
        self.virtual_wall().unwrap_or_else(real::wall)
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
