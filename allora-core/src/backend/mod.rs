//! The interface between the scheduler and a store: one required method, and optional capabilities.
//!
//! Core decides, the backend compares and sets. An operation carries the result that core has
//! computed and the state that core expects. The backend applies each operation atomically if the
//! expectation holds, and replies by position. Policies (catch-up, overlap, delay, jitter, windows)
//! belong to core; a backend has none.

mod chain;
mod claim;
mod flags;
mod history;
mod history_limits;
mod key;
mod not_run;
mod notifier;
mod operation;
mod outcome;
mod queries;
mod reply;
mod state;
mod streak;

pub use chain::{
    After, Chain, FOLLOW_UP, FollowUp, Follower, MAX_CHAIN, MAX_FOLLOWERS, MAX_OUTBOX, On, followed,
};
pub use claim::{Claim, Claimed, Cursor, LeaseTerms};
pub use flags::{Count, Counts, Flag, Flagged, MOST_COUNTED, OVERDUE};
pub(crate) use flags::{INDEXED, MOST_TEXTS, has_failed, is_active};
pub use history::{Ended, History, HistoryCursor, HistoryEntry, HistoryQuery};
pub use history_limits::{HistoryLimits, HistoryTrim, Newest};
pub use key::{ClaimKey, Waiter};
pub use not_run::{NotRun, NotRunReason};
pub use notifier::{Notification, Notifier};
pub use operation::{
    Action, Advance, Author, Batch, CancelScope, Completion, Edit, NewSchedule, OPERATOR,
    Operation, Replan, RetryCause, TimeSource,
};
pub(crate) use operation::{MAX_BYTES, OPERATION_BYTES};
pub use outcome::Outcome;
pub use queries::{ClaimDue, ClaimedDue, Due, DueQuery, Page, Preferred, Queries};
pub(crate) use queries::{scan_counts, scan_flagged};
pub use reply::{Applied, Reply, TriggerStatus, Triggered};
pub(crate) use reply::{end_of_trigger, no_reply};
pub use state::{
    Checkpoint, Counters, DeadLetter, ImportedProgress, JobState, Lease, NextRun, Occurrence,
    OnExpiry, Pause, Sharing,
};
pub use streak::{Streak, StreakChange, StreakReport};

use crate::error::Result;
use async_trait::async_trait;
use std::{fmt, net::IpAddr, sync::Arc};

/// The [warning](Backend::security_warning) of a connection without TLS to a server on this host; `None` if
/// that is this machine: `localhost` or a loopback address. `server` names it without a password, and `remedy`
/// is what to write instead.
pub fn plain_text_warning(server: &str, host: &str, remedy: &str) -> Option<String> {
    (!is_this_machine(host)).then(|| {
        format!(
            "the connection to {server} is plain text: others on its way can read and change the \
             password and all jobs; {remedy}"
        )
    })
}

/// `true` for the name `localhost` and for loopback addresses, an IPv6 one with or without its brackets: what is
/// sent there leaves no machine.
pub fn is_this_machine(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a store",
    label = "not a store",
    note = "connect to one first, as with `Sql::connect(url).await?`; `Memory::new()` is one without a server",
    note = "a store of your own implements `allora::store::RecordStore`"
)]
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
///    means: before the reply. Cases: `claim::each_operation_of_a_batch_is_decided_alone`,
///    `claim::operations_on_one_job_are_applied_in_their_order`,
///    `lifecycle::jobs_do_not_disturb_each_other`,
///    `contention::eight_nodes_claim_each_occurrence_once`,
///    `durability::acknowledged_writes_outlive_every_process`.
/// 2. *One winner.* A claim succeeds only if the record's fence is the one that was read, the
///    expected occurrence is [offered](Claim), and it is due by the store's clock. So a claim that
///    arrives when its node no longer waits for it claims nothing. Cases:
///    `claim::one_of_two_nodes_claims_and_the_other_receives_the_current_state`,
///    `claim::a_claim_with_another_fence_is_refused`,
///    `claim::a_claim_of_another_occurrence_is_refused`,
///    `lease::a_claim_that_arrives_after_its_run_was_released_is_refused`,
///    `claim::nothing_is_claimed_before_it_is_due`, `claim::an_occurrence_due_exactly_now_is_claimed`.
/// 3. *Fences grow* with every claim of a job, for as long as the name exists, through deletion
///    and re-creation. Cases: `claim::fences_grow_with_every_claim`,
///    `lease::fences_grow_through_every_end_of_a_lease`,
///    `stored::a_name_that_comes_back_begins_anew_above_its_old_fences`,
///    `stored::fences_grow_after_the_tombstone_is_removed`.
/// 4. *The cursor never moves back.* Claims, advances and completions move it to a later time only,
///    and nothing moves it to a started occurrence. Cases:
///    `claim::the_cursor_moves_only_forward`,
///    `redefine::a_redefinition_does_not_repeat_a_started_occurrence`,
///    `lease::a_completion_that_does_not_move_forward_is_refused`,
///    `lease::an_active_occurrence_may_be_claimed_at_most_once_if_the_cursor_moves`.
/// 5. *A rejected operation returns the current state*, by position, and changes nothing. Cases:
///    `claim::one_of_two_nodes_claims_and_the_other_receives_the_current_state`,
///    `claim::an_advance_that_expects_another_cursor_changes_nothing`,
///    `lifecycle::reading_alters_nothing`, `names::a_large_batch_has_its_replies_by_position`.
/// 6. *A repeated claim gets the same reply.* A claim whose id is in the record already is answered
///    alike. Cases: `claim::a_claim_whose_reply_was_lost_has_the_same_reply_again`,
///    `claim::claim_ids_differ_to_the_last_bit`,
///    `at_most_once::a_claim_whose_reply_was_lost_is_granted_however_many_follow`,
///    `lease::a_leased_claim_whose_reply_was_lost_has_the_same_reply_again`,
///    `at_most_once::a_claim_at_most_once_whose_reply_was_lost_has_the_same_reply_again`.
/// 7. *Every occurrence is accounted for.* Occurrences that a claim or an advance leaves out are
///    recorded and counted, and so are those that another definition leaves out. Cases:
///    `claim::a_claim_names_every_occurrence_before_the_started_one`,
///    `claim::a_later_occurrence_starts_and_those_before_it_are_counted`,
///    `claim::an_advance_moves_the_cursor_and_counts`,
///    `redefine::a_due_occurrence_before_the_new_cursor_is_missed`,
///    `redefine::the_occurrences_before_the_new_cursor_are_counted`,
///    `redefine::a_plan_for_another_cursor_is_refused`.
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
///    `redefine::of_two_redefinitions_of_one_generation_one_succeeds`,
///    `redefine::a_lower_version_does_not_win_back`.
/// 10. *Namespaces are invisible to each other.* Cases:
///    `lifecycle::namespaces_are_invisible_to_each_other`.
/// 11. *The fence decides, the clock does not.* With the current fence the end of a run is accepted,
///    even after the lease's end. After another claim of its occurrence, or when an exclusive run was
///    recorded as lost, it is rejected. A run that shares the job and was recorded as lost can be
///    extended and ended, which replaces the loss. Cases: `lease::a_late_completion_is_accepted_if_the_run_was_not_taken_over`,
///    `lease::every_end_of_a_run_that_was_taken_over_is_refused`,
///    `lease::a_fence_that_was_never_given_is_refused`,
///    `at_most_once::a_late_completion_is_accepted_if_the_run_is_not_lost`,
///    `at_most_once::a_lost_run_that_shares_the_job_is_active_again_when_it_is_extended`,
///    `at_most_once::the_end_of_a_lost_run_that_shares_the_job_replaces_the_loss`,
///    `at_most_once::the_lost_runs_whose_ends_are_accepted_are_limited`,
///    `at_most_once::a_claim_is_granted_while_ends_of_lost_runs_are_accepted`.
/// 12. *An accepted end stays accepted.* It is accepted again when repeated, until another is; its
///    occurrence is not offered again. Cases:
///    `lease::a_completion_whose_reply_was_lost_has_the_same_reply_again`,
///    `lease::every_repeated_end_has_the_same_reply`, `lease::a_completed_occurrence_stays_completed`.
/// 13. *A lease never shrinks.* Cases: `lease::a_lease_never_shrinks`.
/// 14. *An at-least-once lease is alone* until it ends by the store's clock. Then the same occurrence
///    is offered again, as one more attempt. Cases:
///    `lease::no_other_node_claims_a_leased_occurrence`,
///    `lease::a_silent_nodes_run_expires_and_runs_again`,
///    `lease::an_active_occurrence_is_not_skipped`. Its holder may leave it out:
///    `due_claims::the_holder_of_a_lease_moves_it_past_what_is_not_run`,
///    `due_claims::the_holder_of_a_lease_ends_it_if_nothing_is_to_be_run`,
///    `due_claims::what_the_holder_of_a_lease_passes_over_is_one_entry`.
/// 15. *An at-most-once lease that ends is a lost run*, recorded once and not run again. Until then
///    it keeps exclusive runs away. Cases: `at_most_once::a_silent_run_is_lost_when_its_lease_ends`,
///    `at_most_once::an_exclusive_run_waits_for_the_one_before`,
///    `at_most_once::the_next_run_does_not_wait_for_a_lease_that_has_ended`.
/// 16. *A retry and a release offer the same occurrence again*; a release was not counted. Cases:
///    `lease::a_retry_is_the_same_occurrence_later`,
///    `lease::a_released_run_does_not_count_and_can_be_claimed_at_once`.
/// 17. *An edit is all or nothing.* A rejected edit changes nothing; of two edits of one generation
///    one is applied; in a batch each schedule is decided alone. Cases:
///    `stored::an_edit_changes_only_the_generation_that_was_read`,
///    `stored::an_edit_does_not_repeat_a_started_occurrence`,
///    `stored::an_edited_kind_routes_the_schedule_elsewhere`, `stored::a_name_that_is_taken_is_refused`,
///    `stored::many_creations_have_their_replies_by_position`.
/// 18. *A deleted job is deleted for its runs too*; its name is remembered, and starts again as a new
///    incarnation. Cases: `stored::a_deleted_job_is_deleted_for_every_operation`,
///    `stored::a_run_of_a_deleted_job_receives_that_and_moves_nothing`,
///    `stored::a_tombstone_outlives_every_late_writer`,
///    `lifecycle::a_record_is_pruned_only_as_it_was_read_and_if_nothing_waits_in_it`.
/// 19. *A trigger runs once beside the schedule*, never moves its cursor, and does not keep it
///    waiting: while a trigger is the head, the cursor's occurrence can be claimed, too. Cases:
///    `operators::a_trigger_never_moves_the_cursor`,
///    `operators::triggers_do_not_keep_the_schedule_waiting`,
///    `operators::the_same_trigger_counts_once_and_two_of_one_millisecond_twice`,
///    `operators::a_trigger_stands_for_the_instant_it_is_given`,
///    `operators::a_silent_trigger_at_a_nominal_instant_is_not_that_instant`.
///    Its id is accepted once for as long as it is remembered, by any number of clients at once. Cases:
///    `triggers::a_trigger_is_not_run_again_within_its_retention`,
///    `triggers::after_the_retention_a_trigger_is_a_new_one`,
///    `triggers::a_trigger_without_retention_is_a_new_one_when_it_has_ended`,
///    `triggers::two_clients_that_trigger_at_once_run_the_job_once`,
///    `triggers::the_oldest_triggers_are_forgotten_first`,
///    `triggers::a_trigger_is_remembered_beside_runs_and_dead_letters`,
///    `triggers::a_job_is_not_pruned_while_it_remembers_triggers`,
///    `triggers::a_deleted_job_forgets_its_triggers`.
/// 20. *A pause holds back the schedule*, started or not, but neither active runs nor triggers. What it
///    holds back is due at its end, if it has one. Cases: `operators::a_paused_schedule_offers_nothing`,
///    `operators::a_failed_run_is_not_retried_while_paused`,
///    `operators::a_run_continues_while_paused`, `operators::triggers_run_while_paused`,
///    `pauses::what_a_pause_holds_back_is_due_when_it_ends`,
///    `pauses::a_read_shows_that_a_pause_is_over_and_changes_nothing`,
///    `pauses::a_pause_that_was_followed_by_a_change_is_over_for_good`,
///    `pauses::a_pause_is_set_again_with_another_end`,
///    `pauses::a_silent_run_is_retried_when_lease_and_pause_are_over`,
///    `pauses::a_new_definition_keeps_the_end_of_the_pause`.
/// 21. *Dead letters are kept*, the last ones, until an operator reruns them as the same occurrences
///    or dismisses them. Cases:
///    `operators::a_dead_letter_is_kept_and_can_be_rerun`,
///    `operators::the_number_of_dead_letters_is_limited`,
///    `lease::an_occurrence_whose_lease_has_ended_can_be_given_up`,
///    `lease::a_live_run_is_not_given_up`.
/// 22. *Imported progress is kept*: a schedule from another store continues where it stopped. Cases:
///    `stored::a_schedule_is_created_with_its_progress`.
/// 23. *A reset job continues from now* under a new incarnation, whatever times its record has
///    reached. Cases: `operators::a_reset_job_continues_from_now_under_a_new_incarnation`.
/// 24. *The state machine is core's.* Every reply is that of [`apply`](crate::record::apply()). Cases:
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

    /// A warning about a connection that others could read or change on its way to the store, and the setting
    /// that prevents it; `None` if there is none.
    fn security_warning(&self) -> Option<&str> {
        None
    }

    /// The statements by which an operator gives a login of the server what nodes and clients need once the
    /// store exists, and no more; `None` if the store has no logins. Nothing is sent.
    fn grants(&self, _login: &str) -> Option<Vec<String>> {
        None
    }

    /// Removes old tombstones, and history beyond its [limits](HistoryLimits), after it has counted that
    /// by the [hour](crate::Schedules::hours). A scheduler sends it as
    /// a request of its own, every ten seconds while it writes and once an hour, so that it delays and
    /// loses no reply. [`Schedules`](crate::Schedules) sends it after some deletions: each call removes
    /// at least ten tombstones, if there are so many. Default: nothing is removed.
    ///
    /// # Errors
    /// `Unavailable`: a later call removes what is left.
    ///
    /// # Cancel safety
    /// A dropped call may have removed a part.
    async fn prune(&self, time: TimeSource) -> Result {
        let _ = time;
        Ok(())
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
    fn security_warning(&self) -> Option<&str> {
        (**self).security_warning()
    }
    fn grants(&self, login: &str) -> Option<Vec<String>> {
        (**self).grants(login)
    }
    async fn prune(&self, time: TimeSource) -> Result {
        (**self).prune(time).await
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

#[test]
fn plain_text_is_warned_of_unless_it_stays_on_this_machine() {
    for host in ["localhost", "127.0.0.1", "127.1.2.3", "::1", "[::1]"] {
        assert_eq!(plain_text_warning("redis", host, ""), None, "{host}");
    }
    for host in ["db", "10.0.0.1", "localhost.example", "0.0.0.0", "fd00::1", ""] {
        let warning = plain_text_warning("redis://db:1", host, "write rediss://").unwrap();
        assert!(warning.contains("redis://db:1") && warning.ends_with("; write rediss://"));
    }
}
