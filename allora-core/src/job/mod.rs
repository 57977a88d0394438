//! Jobs: the trait [`Job`], closures as jobs, and the settings of a job.

mod ahead;
mod checked_schedule;
mod closure;
mod concurrency_key;
mod explain;
mod failures;
mod history;
mod redefinition;
mod setters;
mod settings;
mod spec;
mod text;
mod words;

pub(crate) use ahead::{ahead_unless, ahead_until};
pub(crate) use checked_schedule::{CheckedSchedule, InvalidNextAt, panic_text, warnings};
pub use closure::{IntoOutcome, JobFuture, Returns, job};
pub use concurrency_key::ConcurrencyKey;
use concurrency_key::is_number;
pub use explain::Explained;
pub(crate) use failures::FailureRules;
pub use failures::{AlertRule, Breaker};
pub use history::JobHistory;
pub(crate) use redefinition::{Progress, Redefinition};
pub(crate) use setters::setters;
pub use settings::{CatchUp, Delivery, Overlap, Placement, Retry, Settings};
pub(crate) use spec::is_code;
pub use spec::{IntoJob, JobSpec};
#[cfg(feature = "json")]
pub(crate) use text::SettingsReader;
pub(crate) use text::{
    DefinitionText, after_in, due_lease, failure_rules, history_of, next_after_end, owner_and_tags,
    window_in,
};

use crate::{
    error::{BoxError, Result},
    run::Run,
    schedule::{Excluded, Warning},
    time::Time,
};
use async_trait::async_trait;
use std::time::Duration;

/// The argument of a method that only this crate can override.
#[derive(Clone, Copy, Debug)]
pub struct Token(());

/// A job with a schedule and a body.
///
/// Most jobs are a schedule and a closure, made by [`job`] or
/// [`SchedulerBuilder::job`](crate::SchedulerBuilder::job). Implement the trait for a job that computes its own
/// times.
///
/// ```
/// use allora::{BoxError, Job, Run, Time, async_trait};
///
/// /// Runs an hour after each full day.
/// #[derive(Debug)]
/// struct HistoryBuffer;
///
/// #[async_trait]
/// impl Job for HistoryBuffer {
///     fn next_at(&self, after: Time) -> Option<Time> {
///         let day = 24 * 60 * 60;
///         let days = (after.timestamp() - 3_600).div_euclid(day) + 1;
///         Time::from_timestamp(days * day + 3_600, 0)
///     }
///
///     async fn run(&self, run: Run) -> Result<(), BoxError> {
///         println!("closing the books of {}", run.scheduled_at());
///         Ok(())
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a job",
    label = "neither a job with settings nor a type that implements `Job`",
    note = "a job from a schedule and an async closure is `job(every(Duration::from_secs(60)), async |run: Run| {{ .. }})`"
)]
#[async_trait]
pub trait Job: Send + Sync + 'static {
    /// The next nominal time, strictly after `after`; `None` is never again.
    ///
    /// The function must be pure: it reads no clock and returns the same result on every node. The
    /// result is cut to whole milliseconds. If it is then not later than `after`, or if the
    /// function panics, this node reports [`Condition::JobInvalid`](crate::Condition::JobInvalid) and
    /// ignores the job.
    fn next_at(&self, after: Time) -> Option<Time>;

    /// Runs one occurrence.
    ///
    /// # Errors
    /// Any error is a failed run. It is recorded, and tried again if the job has a [retry
    /// policy](JobSpec::retry).
    ///
    /// # Cancel safety
    /// The future is dropped at the end of its [time-out](JobSpec::timeout), its lease or the grace
    /// period of a stopping scheduler. [`Run::cancelled`] returns shortly before.
    async fn run(&self, run: Run) -> Result<(), BoxError>;

    /// As [`Schedule::latest_at`](crate::Schedule::latest_at).
    fn latest_at(&self, from: Time, until: Time) -> Option<Time> {
        let _ = (from, until);
        None
    }

    /// As [`Schedule::count`](crate::Schedule::count).
    fn count(&self, from: Time, until: Time) -> Option<u64> {
        let _ = (from, until);
        None
    }

    /// As [`Schedule::excluded`](crate::Schedule::excluded).
    fn excluded(&self, after: Time, until: Time) -> Option<Excluded> {
        let _ = (after, until);
        None
    }

    /// As [`Schedule::is_excluded`](crate::Schedule::is_excluded).
    fn is_excluded(&self, at: Time) -> bool {
        let _ = at;
        false
    }

    /// As [`Schedule::moved`](crate::Schedule::moved).
    fn moved(&self, at: Time) -> Option<Time> {
        let _ = at;
        None
    }

    /// As [`Schedule`](crate::Schedule): the delay of a schedule by [`after_end`](crate::after_end()). Other
    /// code cannot name [`Token`].
    #[doc(hidden)]
    fn after_end(&self, _: Token) -> Option<Duration> {
        None
    }

    /// As [`Schedule::definition`](crate::Schedule::definition). The store keeps the text of a type
    /// of yours as `@code` and the text: other nodes compare it and never parse it.
    fn definition(&self) -> Option<String> {
        None
    }

    /// `true` if the definition is the text of a schedule of this library. Other code cannot name
    /// [`Token`].
    #[doc(hidden)]
    fn is_built_in(&self, _: Token) -> bool {
        false
    }

    /// As [`Schedule::check`](crate::Schedule::check).
    fn check(&self) -> Result {
        Ok(())
    }

    /// As [`Schedule::warnings`](crate::Schedule::warnings).
    fn warnings(&self) -> &[Warning] {
        &[]
    }
}
