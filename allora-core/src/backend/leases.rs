//! Runs that the store knows about while they live: extended, finished, retried, released.

use super::{Cursor, Now};
use crate::{error::Result, time::Time};
use async_trait::async_trait;
use std::time::Duration;

/// At-least-once delivery, overlap policies, and runs that are seen to be lost.
///
/// # Promises
/// Each names the cases of the conformance suite that ask for it.
/// 1. *The fence decides, the clock does not.* With the current fence an ending is accepted,
///    even after the lease's end; once somebody else has taken the occurrence, or the run was
///    given up as lost, it is refused. Cases: `lease::late_but_not_taken_over_is_accepted`,
///    `lease::once_taken_over_every_ending_is_refused`,
///    `lease::a_fence_that_was_never_given_is_refused`,
///    `marks::late_but_not_given_up_is_accepted`.
/// 2. *Finished is finished.* An ending that was accepted is answered alike when repeated, until
///    another is; its occurrence is not offered again. Cases:
///    `lease::a_finish_whose_answer_was_lost_is_answered_alike`,
///    `lease::every_ending_is_answered_alike_when_repeated`, `lease::finished_is_finished`.
/// 3. *A lease never shrinks.* Cases: `lease::a_lease_never_shrinks`.
/// 4. *A lease is alone*, until it ends by the store's clock; then its occurrence is offered
///    again, the same one, and counted as one more attempt. Cases:
///    `lease::nobody_else_takes_what_is_leased`,
///    `lease::a_silent_nodes_occurrence_is_run_again_when_its_lease_ends`,
///    `lease::a_begun_occurrence_is_not_passed_over`.
/// 5. *A mark that ends is a lost run*, recorded once and not run again; until then it keeps
///    away those that must be alone. Cases: `marks::a_silent_run_is_lost_when_its_mark_ends`,
///    `marks::a_run_that_must_be_alone_waits_for_the_one_before`,
///    `marks::the_next_run_does_not_wait_for_a_mark_that_has_ended`.
/// 6. *A retry and a release are the same occurrence again*; a release did not count. Cases:
///    `lease::a_retry_is_the_same_occurrence_later`,
///    `lease::what_is_released_can_be_taken_at_once_and_did_not_count`.
/// 7. *A cursor is never stuck.* What would leave it on an occurrence that nobody offers is
///    refused. Cases: `lease::a_finish_that_would_not_go_forward_is_refused`,
///    `lease::a_begun_occurrence_may_be_taken_at_most_once_if_the_cursor_moves`.
#[async_trait]
pub trait Leases: Send + Sync {
    /// Carries out each ending whose fence is current, one atomic step per job; answers by position.
    ///
    /// # Errors
    /// As [`Backend::reschedule`](super::Backend::reschedule); sending it again does no harm.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have been carried out; send it again.
    async fn settle(&self, request: Settle<'_>) -> Result<Vec<Settled>>;
}

/// A batch of endings and extensions of one node.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Settle<'a> {
    /// The node that asks.
    pub node: &'a str,
    /// Whose clock decides.
    pub now: Now,
    /// What became of its runs.
    pub endings: &'a [Ending<'a>],
}

impl<'a> Settle<'a> {
    /// Settles these.
    pub fn new(node: &'a str, now: Now, endings: &'a [Ending<'a>]) -> Self {
        Self { node, now, endings }
    }
}

/// What became of one run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ending<'a> {
    /// The job.
    pub name: &'a str,
    /// The fence of the run's take.
    pub fence: i64,
    /// What became of it.
    pub end: End<'a>,
}

impl<'a> Ending<'a> {
    /// The run of `name` under `fence` ended so.
    pub fn new(name: &'a str, fence: i64, end: End<'a>) -> Self {
        Self { name, fence, end }
    }
}

/// What became of a run. Exhaustive on purpose: there is no harmless answer to an unknown one.
#[derive(Clone, Debug)]
pub enum End<'a> {
    /// It lives: its lease or mark lasts so long from now.
    Extend {
        /// From the store's now.
        lasts: Duration,
    },
    /// It ended.
    Finish {
        /// Where the cursor goes, if it still is on the run's occurrence; `Keep` at-most-once,
        /// where it has gone already, and for a trigger.
        then: Cursor,
        /// How it ended.
        outcome: Ended<'a>,
    },
    /// It failed and is to be tried again, as the same occurrence.
    Retry {
        /// Not before.
        at: Time,
        /// What failed.
        error: &'a str,
    },
    /// It is given back, as if it had not been taken: the attempt is not counted, and it is due
    /// since its own instant, so that it runs before what comes after it.
    Release,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended<'a> {
    /// Well.
    Ran,
    /// With this error.
    Failed(&'a str),
    /// With this error, and all attempts are used up: a dead letter.
    Dead(&'a str),
    /// By a stopping node.
    Cancelled,
}

/// What came of one ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The lease or mark lasts until then.
    Until(Time),
    /// It is so.
    Done,
    /// Somebody else has taken the occurrence, or the run was given up as lost.
    Lost,
    /// The job is gone.
    Removed,
    /// The ending makes no sense, and nothing was changed: the cursor would not go forward.
    Refused,
}
