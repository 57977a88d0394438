//! The results of searches, for the page on reliability.

use allora_conformance::explore::{Model, explore};
use std::fmt::Debug;

/// The number of states after which a search without a violation ends.
const MOST: usize = 30_000_000;

/// Searches every state, and checks that all of them are sound.
pub(in crate::planner) fn holds(model: &str, what: &str, world: &mut impl Model) {
    let explored = explore(world, MOST);
    explored.note(model, what);
    assert!(explored.violation.is_none() && explored.is_whole, "{what}: {explored:#?}");
}

/// Searches until the defect is found. Returns the property that it violates.
pub(in crate::planner) fn breaks(
    model: &str,
    defect: &impl Debug,
    world: &mut impl Model,
) -> String {
    let explored = explore(world, MOST);
    explored.note(model, &format!("{defect:?}"));
    let states = explored.states;
    let violation = explored.violation.map(|violation| violation.what);
    violation.unwrap_or_else(|| panic!("{defect:?} is not found in {states} states"))
}
