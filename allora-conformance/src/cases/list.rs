//! The list of all cases: what the tests are stamped from, and the only place that knows them all.

/// Gives the list to `$then!`, after `$args`. What stands in brackets is what a case needs.
#[doc(hidden)]
#[macro_export]
macro_rules! __cases {
    ($then:ident $($args:tt)*) => {
        $crate::$then! {
            [$($args)*]
            lifecycle {
                an_empty_store_has_no_job: [];
                a_registered_job_is_seen_by_every_node: [];
                registering_again_alters_nothing: [];
                reading_alters_nothing: [];
                jobs_do_not_disturb_each_other: [];
                a_job_without_a_first_occurrence_offers_nothing: [];
                namespaces_are_invisible_to_each_other: [];
                unsupported_capabilities_are_denied_and_the_others_work: [];
                the_namespace_is_the_same_on_every_node: [];
                an_empty_batch_returns_the_time: [];
                nodes_that_register_at_once_see_one_job: [];
                a_record_is_pruned_only_as_it_was_read_and_if_nothing_waits_in_it: [];
                the_records_of_nodes_are_in_no_list_and_no_search: [Queries];
                the_record_of_a_calendar_is_kept_whole_and_is_in_no_list_and_no_search: [Queries];
            }
            names {
                no_two_names_are_the_same: [];
                names_are_listed_in_the_order_of_their_bytes: [Queries];
                kinds_are_compared_as_bytes: [Queries];
                a_bad_name_or_kind_is_refused: [Queries];
                data_of_any_bytes_comes_back_whole: [];
                too_much_data_is_refused: [];
                definitions_come_back_as_they_were_given: [];
                instants_are_exact_to_the_millisecond_up_to_the_year_9999: [];
                a_large_batch_has_its_replies_by_position: [];
            }
            claim {
                nothing_is_claimed_before_it_is_due: [];
                an_occurrence_due_exactly_now_is_claimed: [];
                a_delayed_occurrence_is_claimed_when_its_delay_is_over: [];
                one_of_two_nodes_claims_and_the_other_receives_the_current_state: [];
                one_of_many_claims_at_once_succeeds: [];
                a_claim_of_another_occurrence_is_refused: [];
                a_claim_with_another_fence_is_refused: [];
                a_claim_with_an_old_state_never_succeeds: [];
                the_cursor_moves_only_forward: [];
                an_ended_schedule_offers_nothing: [];
                nothing_starts_after_not_after: [];
                a_later_occurrence_starts_and_those_before_it_are_counted: [];
                nothing_starts_before_its_scheduled_time: [];
                an_earlier_occurrence_is_not_started: [];
                a_claim_names_every_occurrence_before_the_started_one: [];
                an_advance_moves_the_cursor_and_counts: [];
                an_advance_that_expects_another_cursor_changes_nothing: [];
                a_claim_whose_reply_was_lost_has_the_same_reply_again: [];
                claim_ids_differ_to_the_last_bit: [];
                fences_grow_with_every_claim: [];
                each_operation_of_a_batch_is_decided_alone: [];
                operations_on_one_job_are_applied_in_their_order: [];
                a_repeated_batch_has_the_same_replies: [];
                a_claim_is_not_a_trigger_of_the_same_instant: [];
            }
            redefine {
                another_definition_has_another_generation_and_cursor: [];
                a_node_with_the_old_definition_claims_nothing: [];
                of_two_redefinitions_of_one_generation_one_succeeds: [];
                a_lower_version_does_not_win_back: [];
                a_redefinition_does_not_repeat_a_started_occurrence: [];
                a_due_occurrence_before_the_new_cursor_is_missed: [];
                a_run_continues_under_another_definition: [Expiry];
                the_occurrences_before_the_new_cursor_are_counted: [Expiry];
                a_plan_for_another_cursor_is_refused: [];
                what_had_passed_before_the_registration_is_missed_once: [];
            }
            lease {
                a_leased_occurrence_stays_until_it_is_completed: [Expiry];
                no_other_node_claims_a_leased_occurrence: [Expiry];
                a_silent_nodes_run_expires_and_runs_again: [Expiry];
                every_end_of_a_run_that_was_taken_over_is_refused: [Expiry];
                a_fence_that_was_never_given_is_refused: [];
                a_late_completion_is_accepted_if_the_run_was_not_taken_over: [Expiry];
                an_extended_lease_keeps_other_nodes_away: [Expiry];
                a_lease_never_shrinks: [Expiry];
                a_completion_whose_reply_was_lost_has_the_same_reply_again: [];
                an_occurrence_whose_lease_has_ended_can_be_given_up: [Expiry];
                a_live_run_is_not_given_up: [];
                an_interrupted_run_is_retried_and_counts_as_cancelled: [];
                an_occurrence_that_waits_for_another_attempt_can_be_given_up: [];
                every_repeated_end_has_the_same_reply: [];
                a_claim_that_arrives_after_its_run_was_released_is_refused: [];
                a_completed_occurrence_stays_completed: [];
                a_completion_that_does_not_move_forward_is_refused: [];
                the_last_completion_ends_the_schedule: [];
                outcomes_are_counted_and_the_last_is_kept: [];
                a_retry_is_the_same_occurrence_later: [];
                a_released_run_does_not_count_and_can_be_claimed_at_once: [];
                a_run_that_is_released_for_a_while_does_not_count: [];
                a_checkpoint_is_handed_to_the_next_attempt: [];
                a_checkpoint_of_a_run_that_was_taken_over_is_refused: [Expiry];
                an_active_occurrence_is_not_skipped: [Expiry];
                an_active_occurrence_may_be_claimed_at_most_once_if_the_cursor_moves: [Expiry];
                a_leased_claim_whose_reply_was_lost_has_the_same_reply_again: [Expiry];
                each_end_of_a_batch_is_applied_alone: [Expiry];
                a_lease_ends_with_the_last_instant_at_the_latest: [Expiry];
                a_lease_ends_by_the_millisecond: [Expiry];
                fences_grow_through_every_end_of_a_lease: [Expiry];
            }
            works_on {
                a_run_that_has_completed_itself_keeps_others_waiting_until_it_returns: [Expiry];
                whatever_a_completed_run_returns_its_result_stays: [];
                a_completed_run_whose_node_dies_is_over_with_its_lease: [Expiry];
                runs_that_may_overlap_start_beside_a_completed_one: [];
                a_completed_run_can_be_cancelled_and_its_job_deleted: [];
                a_trigger_has_ended_while_its_completed_run_works_on: [];
            }
            at_most_once {
                a_lease_stays_while_the_run_is_active_and_the_cursor_moves_on: [Expiry];
                shared_runs_overlap: [Expiry];
                an_exclusive_run_waits_for_the_one_before: [Expiry];
                a_silent_run_is_lost_when_its_lease_ends: [Expiry];
                the_next_run_does_not_wait_for_a_lease_that_has_ended: [Expiry];
                what_follows_an_end_is_due_the_delay_after_it_was_recorded: [Expiry];
                what_follows_an_end_is_due_the_delay_after_a_loss: [Expiry];
                an_extended_lease_keeps_the_run: [Expiry];
                a_late_completion_is_accepted_if_the_run_is_not_lost: [Expiry];
                only_silent_runs_are_lost: [Expiry];
                a_lost_run_that_shares_the_job_is_active_again_when_it_is_extended: [Expiry];
                the_end_of_a_lost_run_that_shares_the_job_replaces_the_loss: [Expiry];
                the_lost_runs_whose_ends_are_accepted_are_limited: [Expiry];
                a_claim_is_granted_while_ends_of_lost_runs_are_accepted: [Expiry];
                a_claim_at_most_once_whose_reply_was_lost_has_the_same_reply_again: [Expiry];
                a_claim_whose_reply_was_lost_is_granted_however_many_follow: [Expiry];
                a_released_occurrence_runs_again_beside_the_cursor: [];
                the_number_of_overlapping_runs_is_limited: [Expiry];
            }
            stored {
                a_created_schedule_is_there: [];
                a_name_that_is_taken_is_refused: [];
                many_creations_have_their_replies_by_position: [Queries];
                a_schedule_is_created_with_its_progress: [Queries];
                registering_a_stored_name_alters_nothing: [];
                a_missing_schedule_is_not_found: [Queries];
                stored_jobs_and_jobs_in_code_are_listed_page_by_page: [Queries];
                an_edit_changes_only_the_generation_that_was_read: [];
                an_edited_kind_routes_the_schedule_elsewhere: [Queries];
                an_edit_does_not_repeat_a_started_occurrence: [];
                a_due_occurrence_before_an_edited_cursor_is_missed: [];
                a_deleted_job_is_deleted_for_every_operation: [Queries];
                a_name_that_comes_back_begins_anew_above_its_old_fences: [];
                a_run_of_a_deleted_job_receives_that_and_moves_nothing: [];
                a_tombstone_outlives_every_late_writer: [];
                fences_grow_after_the_tombstone_is_removed: [];
                due_schedules_are_found_by_kind_the_earliest_first: [Queries];
                the_kinds_of_stored_schedules_are_listed: [Queries];
                due_schedules_are_found_whole_and_up_to_date: [Queries];
                no_more_due_schedules_are_left_out_than_asked_for: [Queries];
                a_query_that_prefers_some_schedules_hides_no_other: [Queries];
                a_leased_schedule_is_found_again_when_its_lease_ends: [Queries, Expiry];
                an_ended_lease_is_found_to_be_reaped: [Queries, Expiry];
            }
            due_claims {
                a_query_claims_as_a_claim_of_the_head_does: [Queries];
                a_query_claims_only_what_needs_no_plan: [Queries, Expiry];
                of_what_is_due_the_earliest_is_claimed_first: [Queries];
                two_nodes_never_claim_the_same_schedule: [Queries];
                a_query_whose_reply_was_lost_finds_its_claims_again: [Queries];
                a_query_claims_nothing_after_not_after: [Queries];
                a_claimed_schedule_that_is_silent_is_found_again: [Queries, Expiry];
                the_holder_of_a_lease_moves_it_past_what_is_not_run: [Expiry];
                the_holder_of_a_lease_ends_it_if_nothing_is_to_be_run: [Expiry];
                what_the_holder_of_a_lease_passes_over_is_one_entry: [History, Expiry];
            }
            flags {
                a_job_is_found_by_the_flags_of_its_state: [Queries];
                kind_owner_and_tags_are_found_until_an_edit_or_a_deletion: [Queries];
                the_history_of_an_owner_is_that_of_its_schedules: [Queries, History];
                flagged_jobs_come_page_by_page: [Queries];
                what_runs_and_what_is_overdue_is_found: [Queries, Expiry];
                numbers_agree_with_the_pages: [Queries];
            }
            operators {
                a_paused_schedule_offers_nothing: [Queries];
                pausing_again_changes_the_note_only: [];
                a_resumed_schedule_continues_at_its_cursor: [Queries];
                what_passed_during_a_pause_can_be_skipped: [];
                coming_occurrences_can_be_skipped: [Queries];
                a_run_continues_while_paused: [Expiry];
                a_failed_run_is_not_retried_while_paused: [Queries, Expiry];
                a_failed_trigger_is_not_retried_while_paused: [Queries, Expiry];
                a_silent_run_does_not_block_a_paused_schedules_triggers: [Expiry];
                a_trigger_runs_beside_the_schedule: [];
                a_trigger_never_moves_the_cursor: [];
                triggers_do_not_keep_the_schedule_waiting: [];
                a_completed_trigger_leaves_the_cursor: [];
                a_silent_trigger_at_a_nominal_instant_is_not_that_instant: [Expiry];
                the_same_trigger_counts_once_and_two_of_one_millisecond_twice: [];
                a_trigger_stands_for_the_instant_it_is_given: [];
                an_active_trigger_is_not_added_again: [];
                triggers_run_while_paused: [Queries];
                a_released_trigger_runs_while_paused: [Queries];
                the_occurrence_that_is_due_first_runs_first: [];
                a_trigger_of_a_job_in_code_is_found: [Queries];
                a_bad_trigger_id_is_refused: [];
                the_number_of_waiting_triggers_is_limited: [];
                a_dead_letter_is_kept_and_can_be_rerun: [Queries];
                the_number_of_dead_letters_is_limited: [];
                a_dead_letter_can_be_marked_as_succeeded: [];
                a_reset_job_continues_from_now_under_a_new_incarnation: [];
            }
            pauses {
                what_a_pause_holds_back_is_due_when_it_ends: [Queries, Expiry];
                a_read_shows_that_a_pause_is_over_and_changes_nothing: [];
                a_pause_that_was_followed_by_a_change_is_over_for_good: [];
                a_pause_is_set_again_with_another_end: [];
                a_pause_cannot_end_before_it_begins: [];
                a_pause_with_an_end_can_be_ended_before: [];
                triggers_run_before_the_end_of_a_pause_and_failed_ones_after_it: [Expiry];
                a_trigger_that_outlasts_the_pause_keeps_nothing_waiting: [];
                a_silent_run_is_retried_when_lease_and_pause_are_over: [Queries, Expiry];
                a_run_goes_on_beyond_the_end_of_a_pause: [Expiry];
                a_new_definition_keeps_the_end_of_the_pause: [];
                a_paused_job_is_pruned_only_after_the_end_of_its_pause: [];
            }
            breaker {
                a_job_pauses_itself_until_its_probe_succeeds: [Queries, Expiry];
                a_trigger_that_succeeds_resumes_a_job_that_has_paused_itself: [Queries, Expiry];
                an_operators_pause_and_resumption_are_no_ones_own: [Queries, Expiry];
                a_lost_run_counts_until_it_is_heard_of_again: [Expiry];
            }
            triggers {
                a_trigger_is_not_run_again_within_its_retention: [];
                after_the_retention_a_trigger_is_a_new_one: [];
                a_trigger_without_retention_is_a_new_one_when_it_has_ended: [];
                two_clients_that_trigger_at_once_run_the_job_once: [];
                the_oldest_triggers_are_forgotten_first: [];
                a_trigger_is_remembered_beside_runs_and_dead_letters: [];
                the_data_of_a_trigger_is_that_of_its_runs: [];
                a_job_is_not_pruned_while_it_remembers_triggers: [];
                a_deleted_job_forgets_its_triggers: [];
            }
            chains {
                an_end_and_what_follows_it_are_written_together: [];
                a_lost_run_is_followed: [Expiry];
                what_follows_is_received_once: [];
                a_job_that_is_created_later_knows_its_followers: [];
                a_job_with_an_outbox_is_found: [Queries];
            }
            cancel {
                a_run_learns_of_its_cancellation_when_it_is_extended: [Expiry];
                a_run_that_is_cancelled_is_neither_retried_nor_released: [Expiry];
                a_cancelled_run_whose_node_has_died_does_not_run_again: [Expiry];
                a_cancelled_run_at_most_once_is_not_recorded_as_lost: [Expiry];
                only_the_named_run_is_cancelled: [Expiry];
                a_cancellation_without_an_active_run_changes_nothing: [Expiry];
                triggers_that_wait_end_as_cancelled: [];
                the_triggers_of_one_id_are_cancelled: [];
                a_trigger_that_waits_for_another_attempt_ends_as_cancelled: [Expiry];
                an_occurrence_that_waits_for_another_attempt_is_given_up_as_cancelled: [Queries, Expiry];
                a_cancelled_run_of_a_paused_schedule_is_found_when_its_lease_ends: [Queries, Expiry];
                a_due_occurrence_replaces_the_active_runs: [Expiry];
                only_what_is_due_replaces_runs: [Expiry];
                what_is_created_again_waits_for_the_run_of_the_deleted_job: [Expiry];
                what_is_created_again_waits_until_a_silent_lease_ends: [Expiry];
                a_run_that_may_overlap_starts_beside_that_of_the_deleted_job: [Expiry];
            }
            keys {
                a_key_of_one_has_one_holder_and_is_free_when_it_is_released: [];
                a_key_of_three_has_three_holders_on_all_nodes: [];
                each_claim_compares_the_holders_with_its_own_limit: [];
                a_renewed_place_is_kept: [Expiry];
                a_silent_holder_has_its_place_until_its_lease_ends: [Expiry];
                a_late_renewal_is_accepted_if_no_other_job_has_the_place: [Expiry];
                a_place_is_released_once: [];
                a_claim_of_a_key_whose_reply_was_lost_has_the_same_reply_again: [];
                one_occurrence_has_one_place_of_a_key: [];
                waiters_have_their_turn_by_due_time_and_name: [];
                a_waiter_that_does_not_ask_again_loses_its_turn: [];
                the_time_of_a_wait_survives_the_place_in_the_queue: [];
                no_place_of_a_key_is_given_after_not_after: [];
                claims_of_one_batch_are_decided_in_their_order: [];
                keys_and_jobs_have_names_of_any_text: [];
                a_long_queue_is_kept_whole: [];
                the_records_of_keys_are_in_no_list_and_no_search: [Queries];
                a_deleted_key_is_free_and_its_fences_continue: [Expiry];
                eight_nodes_have_no_more_places_than_the_key: [];
                a_key_that_no_job_uses_is_pruned_and_its_fences_continue: [];
            }
            changes {
                each_change_by_an_author_is_noted_once: [Changes];
                a_change_without_an_author_is_not_noted: [Changes];
                a_refused_change_is_noted_and_changes_nothing: [Changes];
                of_two_edits_at_once_each_is_noted_as_it_ended: [Changes];
                the_newest_changes_come_first_page_by_page: [Changes];
                the_changes_of_a_deleted_job_are_kept: [Changes];
                a_deletion_keeps_what_is_needed_to_undo_it: [Changes];
                what_a_change_keeps_comes_back_whole: [Changes];
                changes_older_than_a_year_are_removed: [Changes, History];
                the_newest_changes_are_kept: [Changes, History];
            }
            history {
                a_run_is_a_lease_until_its_end_which_is_one_entry: [History];
                every_outcome_has_an_entry: [History];
                an_expired_run_and_its_successor_are_two_entries: [History, Expiry];
                a_lost_run_has_an_entry: [History, Expiry];
                a_lost_run_that_ends_later_has_one_final_entry: [History, Expiry];
                occurrences_that_did_not_run_are_one_entry_with_their_range: [History];
                occurrences_missed_by_a_redefinition_have_an_entry: [History];
                runs_of_triggers_have_entries_with_their_ids: [History];
                the_newest_come_first_page_by_page: [History];
                pages_are_whole_where_many_jobs_have_equal_fences: [History];
                a_query_has_whole_pages_of_what_it_asks_for: [History];
                an_entry_has_the_times_of_its_run: [History];
                an_ended_lease_has_an_entry_with_its_times: [History, Expiry];
                of_the_attempts_of_an_occurrence_only_the_last_is_final: [History];
                a_run_of_a_deleted_job_ends_as_cancelled: [History];
                a_cancelled_run_has_an_entry_with_the_reason: [History, Expiry];
                what_was_cancelled_while_it_waited_has_an_entry: [History, Expiry];
                what_a_calendar_excludes_has_an_entry_with_its_range: [History];
                a_busy_job_evicts_no_entry_of_another: [History];
                failures_and_the_rest_have_limits_of_their_own: [History];
                a_lost_run_that_succeeds_is_a_failure_no_more: [History, Expiry];
                entries_older_than_the_age_are_removed: [History];
                successes_have_no_entries_where_they_are_left_out: [History, Expiry];
                pruning_leaves_an_active_run_and_its_end_is_an_entry: [History];
                entries_are_counted_by_the_hour_before_they_are_removed: [Queries, History];
            }
            results {
                the_output_of_a_run_is_in_its_entry: [History];
                the_outputs_of_runs_that_end_together_are_in_their_own_entries: [History];
                the_value_of_a_run_is_in_its_entry: [History];
            }
            durability {
                acknowledged_writes_outlive_every_process: [Durability];
            }
            emptied {
                a_record_of_an_emptied_store_is_absent_and_not_deleted: [];
                what_is_registered_in_an_emptied_store_is_above_what_was: [];
                the_records_of_nodes_that_left_do_not_make_a_job_look_deleted: [];
            }
            notifications {
                a_created_schedule_notifies: [Notifications];
                a_trigger_notifies: [Notifications];
                an_edit_a_resumption_and_a_deletion_notify: [Notifications];
                a_release_notifies: [Notifications];
                every_node_is_notified: [Notifications];
                a_cancellation_notifies: [Notifications];
            }
            model {
                a_random_walk_agrees_with_the_pure_functions: [Queries, Expiry];
                a_random_walk_at_most_once_agrees_with_the_pure_functions: [];
            }
            contention {
                two_nodes_claim_each_occurrence_once: [];
                four_nodes_claim_each_occurrence_once: [];
                eight_nodes_claim_each_occurrence_once: [];
                two_nodes_complete_each_leased_occurrence_once: [];
                eight_nodes_complete_each_leased_occurrence_once: [];
            }
        }
    };
}
