//! Jobs made of a schedule and an async closure.

use super::{Job, JobSpec, Token};
use crate::{
    error::{BoxError, Result},
    run::Run,
    schedule::{Excluded, Schedule, Warning},
    time::Time,
};
use async_trait::async_trait;
use std::time::Duration;

/// A job from a schedule and an async closure.
///
/// The closure is called once for each run, on a clone of its own, so that it may move what it
/// captured into its future. It returns `()` or a `Result` whose error becomes a [`BoxError`].
///
/// **A captured variable that the closure changes begins anew at each run**, because each run has its own
/// clone: with `let mut n = 0`, a run that does `n += 1` finds 0 each time. Capture what the runs share
/// in an `Arc`:
///
/// ```
/// use allora::{Run, every, job};
/// use std::{sync::{Arc, atomic::{AtomicU64, Ordering}}, time::Duration};
///
/// let count = Arc::new(AtomicU64::new(0));
/// let entry = job(every(Duration::from_secs(60)), async move |_: Run| {
///     println!("run {}", 1 + count.fetch_add(1, Ordering::Relaxed));
/// });
/// # let _ = entry;
/// ```
///
/// ```
/// use allora::{BoxError, Run, every, job};
/// use std::time::Duration;
///
/// let entry = job(every(Duration::from_secs(60)), async |run: Run| -> Result<(), BoxError> {
///     let text = std::fs::read_to_string("/etc/hostname")?;
///     println!("{} on {text}", run.name());
///     Ok(())
/// });
/// # let _ = entry;
/// ```
pub fn job<S, F, Fut>(schedule: S, work: F) -> JobSpec
where
    S: Schedule,
    F: FnOnce(Run) -> Fut + Clone + Send + Sync + 'static,
    Fut: JobFuture<Out: IntoOutcome> + Send + 'static,
{
    JobSpec::from(Closure { schedule, work })
}

/// The future that the closure of a job returns. The name exists for the compiler's message.
#[diagnostic::on_unimplemented(
    message = "the closure of a job is async, and this one returns `{Self}`",
    label = "not an async closure",
    note = "write `async |run: Run| {{ .. }}`, or `async move |run: Run| {{ .. }}` if it captures values"
)]
pub trait JobFuture: Future<Output = <Self as JobFuture>::Out> {
    /// The result of the run.
    type Out;
}

#[diagnostic::do_not_recommend]
impl<F: Future> JobFuture for F {
    type Out = F::Output;
}

/// The result types of a job: `()`, or a `Result` with any error that can be boxed.
#[diagnostic::on_unimplemented(
    message = "a job returns `()` or `Result<(), E>`, not `{Self}`",
    label = "this is what the closure's future returns",
    note = "with `?` inside, say what the closure returns: `async move |run: Run| -> Result<(), BoxError> {{ .. }}`",
    note = "and end it with `Ok(())`; to throw a value away, end the expression with `;`"
)]
pub trait IntoOutcome {
    /// The outcome of the run.
    fn into_outcome(self) -> Result<(), BoxError>;
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Result<(), BoxError> {
        Ok(())
    }
}

impl<E: Into<BoxError>> IntoOutcome for Result<(), E> {
    fn into_outcome(self) -> Result<(), BoxError> {
        self.map_err(Into::into)
    }
}

/// Names the type `!`, which has no name in stable Rust: the return type of a closure that never
/// returns, such as `loop {}`.
#[doc(hidden)]
pub trait Returns {
    /// The return type of a function pointer.
    type Out;
}

impl<T> Returns for fn() -> T {
    type Out = T;
}

impl IntoOutcome for <fn() -> ! as Returns>::Out {
    fn into_outcome(self) -> Result<(), BoxError> {
        self
    }
}

struct Closure<S, F> {
    schedule: S,
    work: F,
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S, F, Fut> Job for Closure<S, F>
where
    S: Schedule,
    F: FnOnce(Run) -> Fut + Clone + Send + Sync + 'static,
    Fut: JobFuture<Out: IntoOutcome> + Send + 'static,
{
    fn next_at(&self, after: Time) -> Option<Time> {
        self.schedule.next_at(after)
    }

    async fn run(&self, run: Run) -> Result<(), BoxError> {
        (self.work.clone())(run).await.into_outcome()
    }

    fn latest_at(&self, from: Time, until: Time) -> Option<Time> {
        self.schedule.latest_at(from, until)
    }

    fn count(&self, from: Time, until: Time) -> Option<u64> {
        self.schedule.count(from, until)
    }

    fn excluded(&self, after: Time, until: Time) -> Option<Excluded> {
        self.schedule.excluded(after, until)
    }

    fn is_excluded(&self, at: Time) -> bool {
        self.schedule.is_excluded(at)
    }

    fn moved(&self, at: Time) -> Option<Time> {
        self.schedule.moved(at)
    }

    fn after_end(&self, _: Token) -> Option<Duration> {
        allora_schedule::delay_after_end(&self.schedule)
    }

    fn definition(&self) -> Option<String> {
        self.schedule.definition()
    }

    fn is_built_in(&self, _: Token) -> bool {
        allora_schedule::is_built_in(&self.schedule)
    }

    fn check(&self) -> Result {
        Ok(self.schedule.check()?)
    }

    fn warnings(&self) -> &[Warning] {
        self.schedule.warnings()
    }
}
