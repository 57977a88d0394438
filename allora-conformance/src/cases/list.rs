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
                names_are_listed_in_the_order_of_their_bytes: [Schedules];
                kinds_are_compared_as_bytes: [Schedules];
                a_bad_name_or_kind_is_refused: [Schedules];
                data_of_any_bytes_comes_back_whole: [Schedules];
                too_much_data_is_refused: [Schedules];
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
                what_runs_goes_on_under_another_definition: [Leases, Expiry];
            }
            lease {
                a_leased_occurrence_stays_until_it_is_finished: [Leases, Expiry];
                nobody_else_takes_what_is_leased: [Leases, Expiry];
                a_silent_nodes_occurrence_is_run_again_when_its_lease_ends: [Leases, Expiry];
                once_taken_over_every_ending_is_refused: [Leases, Expiry];
                a_fence_that_was_never_given_is_refused: [Leases];
                late_but_not_taken_over_is_accepted: [Leases, Expiry];
                an_extended_lease_keeps_others_away: [Leases, Expiry];
                a_lease_never_shrinks: [Leases, Expiry];
                a_finish_whose_answer_was_lost_is_answered_alike: [Leases];
                every_ending_is_answered_alike_when_repeated: [Leases];
                a_take_that_arrives_after_its_run_was_given_back_is_refused: [Leases];
                finished_is_finished: [Leases];
                a_finish_that_would_not_go_forward_is_refused: [Leases];
                the_last_finish_ends_the_schedule: [Leases];
                outcomes_are_counted_and_remembered: [Leases];
                a_retry_is_the_same_occurrence_later: [Leases];
                what_is_released_can_be_taken_at_once_and_did_not_count: [Leases];
                a_begun_occurrence_is_not_passed_over: [Leases, Expiry];
                a_begun_occurrence_may_be_taken_at_most_once_if_the_cursor_moves: [Leases, Expiry];
                a_leased_take_whose_answer_was_lost_is_answered_again: [Leases, Expiry];
                a_batch_of_endings_is_settled_one_by_one: [Leases, Expiry];
                a_lease_outlasts_no_clock: [Leases, Expiry];
                a_lease_ends_by_the_millisecond: [Leases, Expiry];
                fences_grow_through_every_end_of_a_lease: [Leases, Expiry];
            }
            marks {
                a_mark_stays_while_the_run_lives_and_the_cursor_moves_on: [Leases, Expiry];
                runs_that_may_overlap_do: [Leases, Expiry];
                a_run_that_must_be_alone_waits_for_the_one_before: [Leases, Expiry];
                a_silent_run_is_lost_when_its_mark_ends: [Leases, Expiry];
                the_next_run_does_not_wait_for_a_mark_that_has_ended: [Leases, Expiry];
                an_extended_mark_keeps_the_run: [Leases, Expiry];
                late_but_not_given_up_is_accepted: [Leases, Expiry];
                only_the_silent_are_lost: [Leases, Expiry];
                a_marked_take_whose_answer_was_lost_is_answered_again: [Leases, Expiry];
                what_is_released_runs_again_beside_the_cursor: [Leases];
                there_is_an_end_to_overlapping: [Leases, Expiry];
            }
            stored {
                what_is_added_is_there: [Schedules];
                a_name_that_is_taken_is_refused: [Schedules];
                of_many_that_are_added_each_is_answered_by_position: [Schedules];
                a_schedule_brings_its_past_along: [Schedules];
                registering_a_stored_name_alters_nothing: [Schedules];
                what_is_not_there_is_not_found: [Schedules];
                stored_jobs_and_jobs_in_code_are_listed_page_by_page: [Schedules];
                an_edit_changes_what_was_read_and_nothing_else: [Schedules];
                an_edited_kind_routes_it_elsewhere: [Schedules];
                an_edit_does_not_go_back_to_what_was_started: [Schedules];
                a_due_occurrence_that_an_edit_passes_over_is_missed: [Schedules];
                a_deleted_job_is_gone_to_every_plan: [Schedules];
                a_name_that_comes_back_begins_anew_above_its_old_fences: [Schedules];
                a_run_of_a_deleted_job_is_told_so_and_moves_nothing: [Leases, Schedules];
                a_tombstone_outlives_every_late_writer: [Schedules];
                fences_grow_when_even_the_tombstone_is_gone: [Schedules];
                what_is_due_is_found_by_kind_the_earliest_first: [Schedules];
                the_kinds_of_what_can_be_found_are_known: [Schedules];
                what_is_found_is_told_in_full_and_is_kept_up_to_date: [Schedules];
                no_more_is_passed_over_than_asked_for: [Schedules];
                what_is_leased_is_found_again_at_the_leases_end: [Leases, Schedules, Expiry];
                a_mark_that_ends_is_found_to_be_reaped: [Leases, Schedules, Expiry];
            }
            operators {
                a_paused_schedule_offers_nothing: [Schedules];
                pausing_again_changes_the_note_only: [Schedules];
                a_resumed_schedule_goes_on_where_it_was: [Schedules];
                a_resumed_schedule_can_skip_what_was_missed: [Schedules];
                what_runs_goes_on_while_paused: [Leases, Schedules, Expiry];
                what_failed_is_not_tried_again_while_paused: [Leases, Schedules, Expiry];
                a_silent_run_does_not_keep_a_paused_schedules_triggers: [Leases, Schedules, Expiry];
                a_trigger_runs_beside_the_schedule: [Schedules];
                a_trigger_never_moves_the_cursor: [Schedules];
                a_finished_trigger_leaves_the_cursor: [Leases, Schedules];
                a_silent_trigger_at_a_nominal_instant_is_not_that_instant: [Leases, Schedules, Expiry];
                the_same_trigger_counts_once_and_two_of_one_millisecond_twice: [Schedules];
                a_trigger_stands_for_the_instant_it_is_given: [Schedules];
                a_running_trigger_is_not_pulled_again: [Leases, Schedules];
                triggers_run_while_paused: [Schedules];
                a_released_trigger_runs_while_paused: [Leases, Schedules];
                what_is_due_first_runs_first: [Schedules];
                a_trigger_of_a_job_in_code_is_found: [Schedules];
                a_bad_trigger_id_is_refused: [Schedules];
                only_so_many_triggers_wait: [Schedules];
                what_failed_for_good_is_kept_and_can_be_run_again: [Leases, Schedules];
                only_so_many_dead_letters_are_kept: [Leases, Schedules];
            }
            history {
                a_run_is_told_from_its_start_to_its_end: [Leases, History];
                every_outcome_is_told: [Leases, History];
                an_abandoned_run_and_its_successor_are_two_entries: [Leases, History, Expiry];
                a_lost_run_is_told: [Leases, History, Expiry];
                what_is_passed_over_is_told_as_a_range: [Leases, History];
                a_redefinition_that_passes_over_is_told: [Leases, History];
                triggers_are_told_by_their_ids: [Leases, Schedules, History];
                the_newest_come_first_page_by_page: [Leases, History];
            }
            watch {
                an_added_schedule_is_told: [Schedules, Watch];
                a_trigger_is_told: [Schedules, Watch];
                an_edit_a_resumption_and_a_deletion_are_told: [Schedules, Watch];
                what_is_given_back_is_told: [Leases, Schedules, Watch];
                every_node_is_told: [Schedules, Watch];
            }
            model {
                a_random_walk_agrees_with_the_pure_functions: [Leases, Schedules, Expiry];
                a_random_walk_at_most_once_agrees_with_the_pure_functions: [];
            }
            contention {
                two_nodes_take_each_occurrence_once: [];
                four_nodes_take_each_occurrence_once: [];
                eight_nodes_take_each_occurrence_once: [];
                two_nodes_finish_each_leased_occurrence_once: [Leases];
                eight_nodes_finish_each_leased_occurrence_once: [Leases];
            }
        }
    };
}
