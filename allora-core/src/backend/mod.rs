//! What a store does for the scheduler: one required method, and what more it can do.
//!
//! Core decides, the backend compares and sets. A request carries plans that core has already
//! worked out, each with what it expects to find. The backend applies each one atomically if the
//! expectation holds, and answers, by position, with what was taken or with the unchanged truth.
//! Catch-up, overlap, delay, spread and windows are core's: a backend knows none of them.

mod history;
mod leases;
mod reschedule;
mod schedules;
mod state;
mod watch;

pub use history::{History, Outcome, Past};
pub use leases::{End, Ended, Ending, Leases, Settle, Settled};
pub use reschedule::{
    Act, Answer, Beside, Cursor, Deliver, Find, Mark, Now, Passed, Plan, Reschedule, Rescheduled,
    Skip, Take, Taken,
};
pub use schedules::{Change, NewSchedule, Page, Schedules};
pub use state::{Counters, Held, Next, Occurrence, Pause, State};
pub use watch::{Hint, Watch};

use crate::error::Result;
use async_trait::async_trait;
use std::{fmt, sync::Arc};

/// A store that every node of an installation shares.
///
/// `reschedule` alone is a complete at-most-once backend: about 24 lines by hand, or one line per
/// plan with the public [`Record`](crate::record::Record) and the pure
/// [`step`](crate::record::step) (see the example `custom_backend`). What more the store can do it
/// says by the other methods; asking for what it cannot do is an error when the scheduler is built.
///
/// # Promises
/// 1. *Atomic.* Each plan is one atomic, durable step of one record; the plans of one request are
///    independent of each other. Durable means: before the answer.
/// 2. *One winner.* A take wins only if the record still is of the expected edition, its head is
///    the expected occurrence, and that is due by the store's clock.
/// 3. *Fences grow*, with every take of a job, for as long as the name exists, through deletion
///    and re-creation.
/// 4. *Nothing moves back.* The cursor goes only to a later instant by takes, skips and finishes.
/// 5. *The truth is told.* What cannot be won is answered with the state as it is, unchanged.
/// 6. *Asked again, answered again.* A take whose claim is already in the record is answered with
///    the same grant.
#[async_trait]
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Carries out each plan whose expectation holds, one atomic, fenced step per job, and answers
    /// by position. Finds stored schedules if asked to.
    ///
    /// # Errors
    /// `Unavailable`: the store did not answer, or the outcome is unknown; the same request may be
    /// sent again. An error is for the request as a whole: a record that cannot be read is
    /// answered as a [parked](State::parked) state instead.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have been carried out; the claims tell when asked again.
    async fn reschedule(&self, request: Reschedule<'_>) -> Result<Rescheduled>;

    /// The name under which this store's jobs are known to the outside: the first part of
    /// [`Run::occurrence_key`](crate::Run::occurrence_key). Usually the key or table prefix.
    fn namespace(&self) -> &str {
        "allora"
    }

    /// At-least-once delivery, overlap policies, and runs that are seen to be lost.
    fn leases(&self) -> Option<&dyn Leases> {
        None
    }

    /// Schedules that live in the store.
    fn schedules(&self) -> Option<&dyn Schedules> {
        None
    }

    /// What happened to every occurrence.
    fn history(&self) -> Option<&dyn History> {
        None
    }

    /// Word when something became due earlier than thought.
    fn watch(&self) -> Option<&dyn Watch> {
        None
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<B: Backend + ?Sized> Backend for Arc<B> {
    async fn reschedule(&self, request: Reschedule<'_>) -> Result<Rescheduled> {
        (**self).reschedule(request).await
    }
    fn namespace(&self) -> &str {
        (**self).namespace()
    }
    fn leases(&self) -> Option<&dyn Leases> {
        (**self).leases()
    }
    fn schedules(&self) -> Option<&dyn Schedules> {
        (**self).schedules()
    }
    fn history(&self) -> Option<&dyn History> {
        (**self).history()
    }
    fn watch(&self) -> Option<&dyn Watch> {
        (**self).watch()
    }
}
