//! Nodes that die, freeze or stop in the middle of a run.

use crate::stores::{Place, on_every_database};
use allora_conformance::faults;

on_every_database! {
    a_killed_nodes_runs_run_again_or_are_lost
    a_node_frozen_beyond_its_lease_is_fenced_and_goes_on
    occurrences_released_by_stopping_nodes_run_on_others
}

async fn a_killed_nodes_runs_run_again_or_are_lost(place: Place) {
    faults::a_killed_nodes_runs_run_again_or_are_lost(place);
}

async fn a_node_frozen_beyond_its_lease_is_fenced_and_goes_on(place: Place) {
    faults::a_node_frozen_beyond_its_lease_is_fenced_and_goes_on(place);
}

async fn occurrences_released_by_stopping_nodes_run_on_others(place: Place) {
    faults::occurrences_released_by_stopping_nodes_run_on_others(place);
}
