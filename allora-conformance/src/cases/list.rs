//! The list of all cases: what the tests are stamped from, and the only place that knows them all.

/// Gives the list to `$then!`, after `$args`. What stands in brackets is what a case needs.
#[doc(hidden)]
#[macro_export]
macro_rules! __cases {
    ($then:ident $($args:tt)*) => {
        $crate::$then! {
            [$($args)*]
            lifecycle {
                an_empty_store_remembers_no_job: [];
                a_registered_job_is_seen_by_every_node: [];
                registering_again_alters_nothing: [];
                looking_alters_nothing: [];
                jobs_do_not_disturb_each_other: [];
                a_job_without_a_first_occurrence_offers_nothing: [];
                namespaces_are_invisible_to_each_other: [];
                what_is_lacking_is_denied_and_what_is_not_is_there: [];
                the_namespace_is_the_same_on_every_node: [];
                a_request_without_plans_tells_the_time: [];
                nodes_that_register_at_once_see_one_job: [];
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
                a_large_batch_is_answered_by_position: [];
            }
            claim {
                nothing_is_taken_before_it_is_due: [];
                what_is_due_exactly_now_is_taken: [];
                a_delayed_occurrence_is_taken_when_its_delay_is_over: [];
                one_of_two_nodes_wins_and_the_other_is_told_the_truth: [];
                nodes_that_ask_at_once_have_one_winner: [];
                a_take_of_another_occurrence_is_refused: [];
                a_take_that_read_another_fence_is_refused: [];
                an_old_expectation_is_never_met_again: [];
                the_cursor_does_not_go_back_or_stay: [];
                the_end_of_a_schedule_offers_nothing: [];
                nothing_starts_after_it_is_too_late: [];
                a_later_occurrence_starts_and_those_before_it_are_counted: [];
                nothing_starts_before_its_nominal_time: [];
                an_earlier_occurrence_is_not_started: [];
                no_instant_is_passed_over_in_silence: [];
                a_skip_moves_the_cursor_and_counts: [];
                a_skip_that_expects_something_else_changes_nothing: [];
                a_take_whose_answer_was_lost_is_answered_again: [];
                claims_are_told_apart_to_the_last_bit: [];
                fences_grow_with_every_take: [];
                each_plan_of_a_batch_is_decided_alone: [];
                operations_on_one_job_are_applied_in_their_order: [];
                a_batch_is_asked_again_as_a_whole: [];
                a_take_is_not_a_trigger_of_the_same_instant: [];
            }
            redefine {
                another_definition_has_another_edition_and_cursor: [];
                a_node_with_the_old_definition_takes_nothing: [];
                of_two_redefinitions_of_one_edition_one_wins: [];
                a_lower_version_does_not_win_back: [];
                a_redefinition_does_not_go_back_to_what_was_started: [];
                a_due_occurrence_that_is_passed_over_is_missed: [];
                what_runs_goes_on_under_another_definition: [Expiry];
            }
            lease {
                a_leased_occurrence_stays_until_it_is_finished: [Expiry];
                nobody_else_takes_what_is_leased: [Expiry];
                a_silent_nodes_occurrence_is_run_again_when_its_lease_ends: [Expiry];
                once_taken_over_every_ending_is_refused: [Expiry];
                a_fence_that_was_never_given_is_refused: [];
                late_but_not_taken_over_is_accepted: [Expiry];
                an_extended_lease_keeps_others_away: [Expiry];
                a_lease_never_shrinks: [Expiry];
                a_finish_whose_answer_was_lost_is_answered_alike: [];
                every_ending_is_answered_alike_when_repeated: [];
                a_take_that_arrives_after_its_run_was_given_back_is_refused: [];
                finished_is_finished: [];
                a_finish_that_would_not_go_forward_is_refused: [];
                the_last_finish_ends_the_schedule: [];
                outcomes_are_counted_and_remembered: [];
                a_retry_is_the_same_occurrence_later: [];
                what_is_released_can_be_taken_at_once_and_did_not_count: [];
                a_begun_occurrence_is_not_passed_over: [Expiry];
                a_begun_occurrence_may_be_taken_at_most_once_if_the_cursor_moves: [Expiry];
                a_leased_take_whose_answer_was_lost_is_answered_again: [Expiry];
                a_batch_of_endings_is_settled_one_by_one: [Expiry];
                a_lease_outlasts_no_clock: [Expiry];
                a_lease_ends_by_the_millisecond: [Expiry];
                fences_grow_through_every_end_of_a_lease: [Expiry];
            }
            marks {
                a_mark_stays_while_the_run_lives_and_the_cursor_moves_on: [Expiry];
                runs_that_may_overlap_do: [Expiry];
                a_run_that_must_be_alone_waits_for_the_one_before: [Expiry];
                a_silent_run_is_lost_when_its_mark_ends: [Expiry];
                the_next_run_does_not_wait_for_a_mark_that_has_ended: [Expiry];
                an_extended_mark_keeps_the_run: [Expiry];
                late_but_not_given_up_is_accepted: [Expiry];
                only_the_silent_are_lost: [Expiry];
                a_marked_take_whose_answer_was_lost_is_answered_again: [Expiry];
                what_is_released_runs_again_beside_the_cursor: [];
                there_is_an_end_to_overlapping: [Expiry];
            }
            stored {
                what_is_added_is_there: [];
                a_name_that_is_taken_is_refused: [];
                of_many_that_are_added_each_is_answered_by_position: [Queries];
                a_schedule_brings_its_past_along: [Queries];
                registering_a_stored_name_alters_nothing: [];
                what_is_not_there_is_not_found: [Queries];
                stored_jobs_and_jobs_in_code_are_listed_page_by_page: [Queries];
                an_edit_changes_what_was_read_and_nothing_else: [];
                an_edited_kind_routes_it_elsewhere: [Queries];
                an_edit_does_not_go_back_to_what_was_started: [];
                a_due_occurrence_that_an_edit_passes_over_is_missed: [];
                a_deleted_job_is_gone_to_every_plan: [Queries];
                a_name_that_comes_back_begins_anew_above_its_old_fences: [];
                a_run_of_a_deleted_job_is_told_so_and_moves_nothing: [];
                a_tombstone_outlives_every_late_writer: [];
                fences_grow_when_even_the_tombstone_is_gone: [];
                what_is_due_is_found_by_kind_the_earliest_first: [Queries];
                the_kinds_of_what_can_be_found_are_known: [Queries];
                what_is_found_is_told_in_full_and_is_kept_up_to_date: [Queries];
                no_more_is_passed_over_than_asked_for: [Queries];
                what_is_leased_is_found_again_at_the_leases_end: [Queries, Expiry];
                a_mark_that_ends_is_found_to_be_reaped: [Queries, Expiry];
            }
            operators {
                a_paused_schedule_offers_nothing: [Queries];
                pausing_again_changes_the_note_only: [];
                a_resumed_schedule_goes_on_where_it_was: [Queries];
                a_resumed_schedule_can_skip_what_was_missed: [];
                what_runs_goes_on_while_paused: [Expiry];
                what_failed_is_not_tried_again_while_paused: [Queries, Expiry];
                a_silent_run_does_not_keep_a_paused_schedules_triggers: [Expiry];
                a_trigger_runs_beside_the_schedule: [];
                a_trigger_never_moves_the_cursor: [];
                a_finished_trigger_leaves_the_cursor: [];
                a_silent_trigger_at_a_nominal_instant_is_not_that_instant: [Expiry];
                the_same_trigger_counts_once_and_two_of_one_millisecond_twice: [];
                a_trigger_stands_for_the_instant_it_is_given: [];
                a_running_trigger_is_not_pulled_again: [];
                triggers_run_while_paused: [Queries];
                a_released_trigger_runs_while_paused: [Queries];
                what_is_due_first_runs_first: [];
                a_trigger_of_a_job_in_code_is_found: [Queries];
                a_bad_trigger_id_is_refused: [];
                only_so_many_triggers_wait: [];
                what_failed_for_good_is_kept_and_can_be_run_again: [Queries];
                only_so_many_dead_letters_are_kept: [];
            }
            history {
                a_run_is_told_from_its_start_to_its_end: [History];
                every_outcome_is_told: [History];
                an_abandoned_run_and_its_successor_are_two_entries: [History, Expiry];
                a_lost_run_is_told: [History, Expiry];
                what_is_passed_over_is_told_as_a_range: [History];
                a_redefinition_that_passes_over_is_told: [History];
                triggers_are_told_by_their_ids: [History];
                the_newest_come_first_page_by_page: [History];
            }
            durability {
                what_was_acknowledged_outlives_every_process: [Durability];
            }
            watch {
                an_added_schedule_is_told: [Notifications];
                a_trigger_is_told: [Notifications];
                an_edit_a_resumption_and_a_deletion_are_told: [Notifications];
                what_is_given_back_is_told: [Notifications];
                every_node_is_told: [Notifications];
            }
            model {
                a_random_walk_agrees_with_the_pure_functions: [Queries, Expiry];
                a_random_walk_at_most_once_agrees_with_the_pure_functions: [];
            }
            contention {
                two_nodes_take_each_occurrence_once: [];
                four_nodes_take_each_occurrence_once: [];
                eight_nodes_take_each_occurrence_once: [];
                two_nodes_finish_each_leased_occurrence_once: [];
                eight_nodes_finish_each_leased_occurrence_once: [];
            }
        }
    };
}
