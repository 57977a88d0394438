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
pub use schedules::{Carried, Change, NewSchedule, Page, Schedules};
pub use state::{Counters, DeadLetter, Held, Next, Occurrence, Pause, State};
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
/// Each names the cases of the conformance suite that ask for it.
/// 1. *Atomic.* Each plan is one atomic, durable step of one record; the plans of one request
///    are independent of each other. Durable means: before the answer. Cases:
///    `claim::each_plan_of_a_batch_is_decided_alone`,
///    `lifecycle::jobs_do_not_disturb_each_other`,
///    `contention::eight_nodes_take_each_occurrence_once`.
/// 2. *One winner.* A take wins only if the record's fence still is the one that was read, its head
///    is the expected occurrence, and that is due by the store's clock. So a take that arrives when
///    nobody waits for it any more wins nothing. Cases:
///    `claim::one_of_two_nodes_wins_and_the_other_is_told_the_truth`,
///    `claim::a_take_that_read_another_fence_is_refused`,
///    `claim::a_take_of_another_occurrence_is_refused`,
///    `lease::a_take_that_arrives_after_its_run_was_given_back_is_refused`,
///    `claim::nothing_is_taken_before_it_is_due`, `claim::what_is_due_exactly_now_is_taken`.
/// 3. *Fences grow*, with every take of a job, for as long as the name exists, through deletion
///    and re-creation. Cases: `claim::fences_grow_with_every_take`,
///    `lease::fences_grow_through_every_end_of_a_lease`,
///    `stored::a_name_that_comes_back_begins_anew_above_its_old_fences`,
///    `stored::fences_grow_when_even_the_tombstone_is_gone`.
/// 4. *Nothing moves back.* The cursor goes only to a later instant by takes, skips and
///    finishes, and by nothing to what was started. Cases:
///    `claim::the_cursor_does_not_go_back_or_stay`,
///    `redefine::a_redefinition_does_not_go_back_to_what_was_started`,
///    `lease::a_finish_that_would_not_go_forward_is_refused`.
/// 5. *The truth is told*, by position. What cannot be won is answered with the state as it is,
///    unchanged. Cases: `claim::one_of_two_nodes_wins_and_the_other_is_told_the_truth`,
///    `claim::a_skip_that_expects_something_else_changes_nothing`,
///    `lifecycle::looking_alters_nothing`, `names::a_large_batch_is_answered_by_position`.
/// 6. *Asked again, answered again.* A take whose claim is already in the record is answered
///    with the same grant. Cases: `claim::a_take_whose_answer_was_lost_is_answered_again`,
///    `claim::claims_are_told_apart_to_the_last_bit`,
///    `lease::a_leased_take_whose_answer_was_lost_is_answered_again`,
///    `marks::a_marked_take_whose_answer_was_lost_is_answered_again`.
/// 7. *Nothing is passed over in silence.* Instants that a take or a skip passes over are said,
///    and counted; a due one that a redefinition passes over is counted as missed. Cases:
///    `claim::no_instant_is_passed_over_in_silence`,
///    `claim::a_later_occurrence_starts_and_those_before_it_are_counted`,
///    `claim::a_skip_moves_the_cursor_and_counts`,
///    `redefine::a_due_occurrence_that_is_passed_over_is_missed`.
/// 8. *As it was given.* Names are compared as bytes; instants are exact to the millisecond;
///    nothing is cut, folded or guessed. Cases: `names::no_two_names_are_the_same`,
///    `names::definitions_come_back_as_they_were_given`,
///    `names::instants_are_exact_to_the_millisecond_up_to_the_year_9999`.
/// 9. *Registering is neutral.* A job that is there is not altered by it; another definition
///    comes by a redefinition of the edition that was read, and not from a lower version. Cases:
///    `lifecycle::registering_again_alters_nothing`,
///    `redefine::of_two_redefinitions_of_one_edition_one_wins`,
///    `redefine::a_lower_version_does_not_win_back`.
/// 10. *Namespaces are invisible to each other.* Cases:
///    `lifecycle::namespaces_are_invisible_to_each_other`.
/// 11. *All the pure functions say.* Whatever is asked, the answers are those of
///    [`step`](crate::record::step()) and its like. Cases:
///    `model::a_random_walk_agrees_with_the_pure_functions`,
///    `model::a_random_walk_at_most_once_agrees_with_the_pure_functions`.
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

    /// What the store, as it is set up, may forget of what it has answered, and what to do about
    /// it; `None` if nothing. A scheduler with jobs that run at most once says so when it is built.
    fn caveat(&self) -> Option<&str> {
        None
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
    fn caveat(&self) -> Option<&str> {
        (**self).caveat()
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
