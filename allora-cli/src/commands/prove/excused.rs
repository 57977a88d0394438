//! Findings that break no promise after a person, or a driver of servers, has emptied the store or set its clock.

use super::verdict::Mark;
use allora_conformance::{faults::is_once, history::Violation};

/// The time around the emptying in which occurrences have been in the store, in milliseconds.
const BEFORE: i64 = 20_000;
const AFTER: i64 = 15_000;

/// The violations that remain, and the number of those that have an excuse.
pub(super) fn by_marks(found: Vec<Violation>, marks: &[Mark]) -> (Vec<Violation>, usize) {
    let all = found.len();
    let left: Vec<Violation> =
        found.into_iter().filter(|violation| !is_excused(violation, marks)).collect();
    let excused = all - left.len();
    (left, excused)
}

fn is_excused(violation: &Violation, marks: &[Mark]) -> bool {
    let is_set =
        marks.iter().any(|mark| mark.what.contains("clock of the server") || mark.what == "clock");
    let emptied = || marks.iter().filter(|mark| mark.what.contains("emptied"));
    let was_emptied =
        |at: i64| emptied().any(|mark| (mark.at - BEFORE..mark.at + AFTER).contains(&at));
    match violation {
        // Claims are dated by the store's clock, which went back.
        Violation::FenceDidNotGrow { .. } => is_set,
        // Its record and its history went with the store.
        Violation::Gap { occurrence, .. } | Violation::Unsettled { occurrence, .. } => {
            emptied().any(|mark| *occurrence < mark.at + AFTER)
        }
        // A node that knows of no end runs it again.
        Violation::Duplicate { job, occurrence, .. }
        | Violation::FinishedTwice { job, occurrence }
        | Violation::WentBack { job, to: occurrence, .. } => {
            !is_once(job) && was_emptied(*occurrence)
        }
        // A fence is the time of the claim, in microseconds.
        Violation::LeasesOverlap { given: fence, .. }
        | Violation::StaleEnd { fence, .. }
        | Violation::NotStarted { fence, .. } => was_emptied(*fence / 1_000),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_in_an_emptied_store_may_be_gone_or_run_again() {
        let mark = |what: &str| Mark { at: 100_000, what: what.into() };
        let gap = |occurrence| Violation::Gap { job: "at-least-once".into(), occurrence };
        let twice = |job: &str| Violation::FinishedTwice { job: job.into(), occurrence: 99_000 };
        let found =
            || vec![gap(99_000), gap(200_000), twice("at-least-once"), twice("at-most-once")];
        let left = vec![gap(200_000), twice("at-most-once")];
        assert_eq!(by_marks(found(), &[mark("the store was emptied")]), (left, 2));
        assert_eq!(by_marks(found(), &[mark("failover")]), (found(), 0));
    }
}
