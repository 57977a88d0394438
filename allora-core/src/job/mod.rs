//! What runs: [`Job`], closures as jobs, and the settings of a job.

mod closure;
mod entry;
mod settings;
mod timetable;

pub use closure::{IntoOutcome, Returns, job};
pub use entry::Entry;
pub(crate) use entry::Payload;
pub use settings::{CatchUp, Delivery, Overlap, Placement, Retry, Settings};
pub(crate) use timetable::{Fault, Timetable, panic_text};

use crate::{
    error::{BoxError, Result},
    run::Run,
    schedule,
    time::Time,
};
use async_trait::async_trait;

/// A thing that runs at times it chooses itself.
///
/// Most jobs are a schedule and a closure, made by [`job`] or
/// [`Builder::job`](crate::Builder::job). Implement the trait for a job that decides both.
///
/// ```
/// use allora_core::{BoxError, Job, Run, Time};
/// use std::time::Duration;
///
/// /// Runs an hour after each full day.
/// #[derive(Debug)]
/// struct Ledger;
///
/// #[async_trait::async_trait]
/// impl Job for Ledger {
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
#[async_trait]
pub trait Job: Send + Sync + 'static {
    /// When to run next, strictly after `after`; `None` is never again.
    ///
    /// Pure: reads no clock, answers alike on every node. The answer is cut to whole milliseconds;
    /// one that then is not later than `after`, or a panic, is reported as
    /// [`Event::Unplannable`](crate::Event::Unplannable) and this node leaves the job alone.
    fn next_at(&self, after: Time) -> Option<Time>;

    /// Does the work of one occurrence.
    ///
    /// # Errors
    /// Any error is a failed run: recorded, and tried again if the job has a
    /// [retry policy](Entry::retry).
    ///
    /// # Cancel safety
    /// The future is dropped when its [time-out](Entry::timeout), its lease or the grace of a
    /// stopping scheduler is over; [`Run::cancelled`] tells before.
    async fn run(&self, run: Run) -> Result<(), BoxError>;

    /// As [`Schedule::latest_at`](crate::Schedule::latest_at).
    fn latest_at(&self, from: Time, until: Time) -> Option<Time> {
        schedule::walk(from, until, |at| self.next_at(at))
    }

    /// As [`Schedule::count`](crate::Schedule::count).
    fn count(&self, from: Time, until: Time) -> Option<u64> {
        schedule::count(from, until, |at| self.next_at(at))
    }

    /// As [`Schedule::definition`](crate::Schedule::definition).
    fn definition(&self) -> Option<String> {
        None
    }

    /// As [`Schedule::check`](crate::Schedule::check).
    fn check(&self) -> Result {
        Ok(())
    }
}
