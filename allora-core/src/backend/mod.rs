//! The interface between the scheduler and a store: one required method, and optional capabilities.
//!
//! Core decides, the backend compares and sets. An operation carries the result that core has
//! computed and the state that core expects. The backend applies each operation atomically if the
//! expectation holds, and replies by position. Policies (catch-up, overlap, delay, jitter, windows)
//! belong to core; a backend has none.

mod claim;
mod history;
mod notifier;
mod operation;
mod queries;
mod reply;
mod state;

pub use claim::{Claim, Claimed, Cursor, LeaseTerms, NotRun, NotRunReason, OnExpiry, Sharing};
pub use history::{History, HistoryEntry, Outcome};
pub use notifier::{Notification, Notifier};
pub use operation::{
    Action, Advance, Batch, Completion, Edit, NewSchedule, OPERATOR, Operation, TimeSource,
};
pub use queries::{Due, DueQuery, Page, Queries};
pub use reply::{Applied, Reply};
pub use state::{
    Counters, DeadLetter, ImportedProgress, JobState, Lease, NextRun, Occurrence, Pause,
};

use crate::error::Result;
use async_trait::async_trait;
use std::{fmt, sync::Arc};

/// A store that every node of an installation shares.
///
/// Most stores implement [`RecordStore`](crate::store::RecordStore) instead, and are a complete
/// backend by it. A type that implements `Backend` itself applies
/// [`record::apply`](crate::record::apply) to its records, or wraps another backend.
///
/// `reschedule` alone runs jobs in code with leases and every policy. [`queries`](Self::queries) add
/// stored schedules and triggers by name.
///
/// # Promises
/// Each names the cases of the conformance suite that check it.
/// 1. *Atomic.* Each operation is one atomic, durable step of one record, and independent of the
///    others in its batch, except that those with the same name are applied in their order. Durable
///    means: before the reply. Cases: `claim::each_plan_of_a_batch_is_decided_alone`,
///    `claim::operations_on_one_job_are_applied_in_their_order`,
///    `lifecycle::jobs_do_not_disturb_each_other`,
///    `contention::eight_nodes_take_each_occurrence_once`,
///    `durability::what_was_acknowledged_outlives_every_process`.
/// 2. *One winner.* A claim succeeds only if the record's fence is the one that was read, its head
///    is the expected occurrence, and that is due by the store's clock. So a claim that arrives when
///    its node no longer waits for it claims nothing. Cases:
///    `claim::one_of_two_nodes_wins_and_the_other_is_told_the_truth`,
///    `claim::a_take_that_read_another_fence_is_refused`,
///    `claim::a_take_of_another_occurrence_is_refused`,
///    `lease::a_take_that_arrives_after_its_run_was_given_back_is_refused`,
///    `claim::nothing_is_taken_before_it_is_due`, `claim::what_is_due_exactly_now_is_taken`.
/// 3. *Fences grow* with every claim of a job, for as long as the name exists, through deletion
///    and re-creation. Cases: `claim::fences_grow_with_every_take`,
///    `lease::fences_grow_through_every_end_of_a_lease`,
///    `stored::a_name_that_comes_back_begins_anew_above_its_old_fences`,
///    `stored::fences_grow_when_even_the_tombstone_is_gone`.
/// 4. *The cursor never moves back.* Claims, advances and completions move it to a later time only,
///    and nothing moves it to a started occurrence. Cases:
///    `claim::the_cursor_does_not_go_back_or_stay`,
///    `redefine::a_redefinition_does_not_go_back_to_what_was_started`,
///    `lease::a_finish_that_would_not_go_forward_is_refused`,
///    `lease::a_begun_occurrence_may_be_taken_at_most_once_if_the_cursor_moves`.
/// 5. *A rejected operation returns the current state*, by position, and changes nothing. Cases:
///    `claim::one_of_two_nodes_wins_and_the_other_is_told_the_truth`,
///    `claim::a_skip_that_expects_something_else_changes_nothing`,
///    `lifecycle::looking_alters_nothing`, `names::a_large_batch_is_answered_by_position`.
/// 6. *A repeated claim gets the same reply.* A claim whose id is in the record already is answered
///    alike. Cases: `claim::a_take_whose_answer_was_lost_is_answered_again`,
///    `claim::claims_are_told_apart_to_the_last_bit`,
///    `lease::a_leased_take_whose_answer_was_lost_is_answered_again`,
///    `marks::a_marked_take_whose_answer_was_lost_is_answered_again`.
/// 7. *Every occurrence is accounted for.* Occurrences that a claim or an advance leaves out are
///    recorded and counted; a due one that a redefinition leaves out is counted as missed. Cases:
///    `claim::no_instant_is_passed_over_in_silence`,
///    `claim::a_later_occurrence_starts_and_those_before_it_are_counted`,
///    `claim::a_skip_moves_the_cursor_and_counts`,
///    `redefine::a_due_occurrence_that_is_passed_over_is_missed`.
/// 8. *Stored unchanged.* Names are compared as bytes; times are exact to the millisecond; data of
///    up to 1 MiB comes back byte for byte; more is rejected, and so is a bad name. Cases:
///    `names::no_two_names_are_the_same`,
///    `names::definitions_come_back_as_they_were_given`,
///    `names::instants_are_exact_to_the_millisecond_up_to_the_year_9999`,
///    `names::data_of_any_bytes_comes_back_whole`,
///    `names::too_much_data_is_refused`, `names::a_bad_name_or_kind_is_refused`.
/// 9. *Registering is neutral.* An existing job stays as it is. Another definition comes by a
///    redefinition of the generation that was read, and not from a lower version. Cases:
///    `lifecycle::registering_again_alters_nothing`,
///    `redefine::of_two_redefinitions_of_one_edition_one_wins`,
///    `redefine::a_lower_version_does_not_win_back`.
/// 10. *Namespaces are invisible to each other.* Cases:
///    `lifecycle::namespaces_are_invisible_to_each_other`.
/// 11. *The fence decides, the clock does not.* With the current fence the end of a run is accepted,
///    even after the lease's end. After another claim, or when the run was recorded as lost, it is
///    rejected. Cases: `lease::late_but_not_taken_over_is_accepted`,
///    `lease::once_taken_over_every_ending_is_refused`,
///    `lease::a_fence_that_was_never_given_is_refused`,
///    `marks::late_but_not_given_up_is_accepted`.
/// 12. *An accepted end stays accepted.* It is accepted again when repeated, until another is; its
///    occurrence is not offered again. Cases:
///    `lease::a_finish_whose_answer_was_lost_is_answered_alike`,
///    `lease::every_ending_is_answered_alike_when_repeated`, `lease::finished_is_finished`.
/// 13. *A lease never shrinks.* Cases: `lease::a_lease_never_shrinks`.
/// 14. *An at-least-once lease is alone* until it ends by the store's clock. Then the same occurrence
///    is offered again, as one more attempt. Cases:
///    `lease::nobody_else_takes_what_is_leased`,
///    `lease::a_silent_nodes_occurrence_is_run_again_when_its_lease_ends`,
///    `lease::a_begun_occurrence_is_not_passed_over`.
/// 15. *An at-most-once lease that ends is a lost run*, recorded once and not run again. Until then
///    it keeps exclusive runs away. Cases: `marks::a_silent_run_is_lost_when_its_mark_ends`,
///    `marks::a_run_that_must_be_alone_waits_for_the_one_before`,
///    `marks::the_next_run_does_not_wait_for_a_mark_that_has_ended`.
/// 16. *A retry and a release offer the same occurrence again*; a release was not counted. Cases:
///    `lease::a_retry_is_the_same_occurrence_later`,
///    `lease::what_is_released_can_be_taken_at_once_and_did_not_count`.
/// 17. *An edit is all or nothing.* A rejected edit changes nothing; of two edits of one generation
///    one is applied; in a batch each schedule is decided alone. Cases:
///    `stored::an_edit_changes_what_was_read_and_nothing_else`,
///    `stored::an_edit_does_not_go_back_to_what_was_started`,
///    `stored::an_edited_kind_routes_it_elsewhere`, `stored::a_name_that_is_taken_is_refused`,
///    `stored::of_many_that_are_added_each_is_answered_by_position`.
/// 18. *A deleted job is deleted for its runs too*; its name is remembered, and starts again as a new
///    incarnation. Cases: `stored::a_deleted_job_is_gone_to_every_plan`,
///    `stored::a_run_of_a_deleted_job_is_told_so_and_moves_nothing`,
///    `stored::a_tombstone_outlives_every_late_writer`.
/// 19. *A trigger runs once beside the schedule*, and never moves its cursor. Cases:
///    `operators::a_trigger_never_moves_the_cursor`,
///    `operators::the_same_trigger_counts_once_and_two_of_one_millisecond_twice`,
///    `operators::a_trigger_stands_for_the_instant_it_is_given`,
///    `operators::a_silent_trigger_at_a_nominal_instant_is_not_that_instant`.
/// 20. *A pause holds back the schedule*, started or not, but neither active runs nor triggers.
///    Cases: `operators::a_paused_schedule_offers_nothing`,
///    `operators::what_failed_is_not_tried_again_while_paused`,
///    `operators::what_runs_goes_on_while_paused`, `operators::triggers_run_while_paused`.
/// 21. *Dead letters are kept*, the last ones, until an operator reruns them as the same occurrences
///    or dismisses them. Cases:
///    `operators::what_failed_for_good_is_kept_and_can_be_run_again`,
///    `operators::only_so_many_dead_letters_are_kept`.
/// 22. *Imported progress is kept*: a schedule from another store continues where it stopped. Cases:
///    `stored::a_schedule_brings_its_past_along`.
/// 23. *The state machine is core's.* Every reply is that of [`apply`](crate::record::apply()). Cases:
///    `model::a_random_walk_agrees_with_the_pure_functions`,
///    `model::a_random_walk_at_most_once_agrees_with_the_pure_functions`.
#[async_trait]
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Applies a batch of operations, each as one atomic and durable step of one record, and returns
    /// the replies by position.
    ///
    /// # Errors
    /// `Unavailable`: the store did not answer, or the outcome is unknown; the same batch may be
    /// sent again. The error of one operation is in its reply. A record that cannot be read is no
    /// error of the batch: its reply is an [unreadable](JobState::unreadable) state.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have been applied. Claims resolve it by their ids, ends by
    /// their fences.
    async fn reschedule(&self, batch: Batch<'_>) -> Result<Applied>;

    /// The first part of [`Run::occurrence_key`](crate::Run::occurrence_key): the name under which
    /// this store's jobs are known outside. Usually the key or table prefix. Default: `allora`.
    fn namespace(&self) -> &str {
        "allora"
    }

    /// A warning about acknowledged writes that the store, as it is configured, may lose, and the
    /// setting that prevents it; `None` if there is none. A scheduler with at-most-once jobs emits
    /// it as an event when it is built.
    fn durability_warning(&self) -> Option<&str> {
        None
    }

    /// Queries over all jobs. Default: none.
    fn queries(&self) -> Option<&dyn Queries> {
        None
    }

    /// The history of all runs. Default: none.
    fn history(&self) -> Option<&dyn History> {
        None
    }

    /// Wake-ups when something became due earlier than known. Default: none.
    fn notifier(&self) -> Option<&dyn Notifier> {
        None
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<B: Backend + ?Sized> Backend for Arc<B> {
    async fn reschedule(&self, batch: Batch<'_>) -> Result<Applied> {
        (**self).reschedule(batch).await
    }
    fn namespace(&self) -> &str {
        (**self).namespace()
    }
    fn durability_warning(&self) -> Option<&str> {
        (**self).durability_warning()
    }
    fn queries(&self) -> Option<&dyn Queries> {
        (**self).queries()
    }
    fn history(&self) -> Option<&dyn History> {
        (**self).history()
    }
    fn notifier(&self) -> Option<&dyn Notifier> {
        (**self).notifier()
    }
}
