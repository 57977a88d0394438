//! Findings that break no promise after a person, or a driver of servers, has emptied the store or set its clock.

use super::verdict::Mark;
use allora_conformance::{
    faults::{FOLLOWER, is_once},
    history::{Summary, Violation},
};

/// The time around the emptying in which occurrences have been in the store, in milliseconds; before it, the
/// lateness of that time is added.
const BEFORE: i64 = 20_000;
const AFTER: i64 = 15_000;

/// The time in which a job in code notes itself again with the one before it: until then, nothing follows.
const NOTED: i64 = 60_000;

/// The time around it whose lateness counts.
const AROUND: i64 = 60_000;

/// The violations that remain, and the number of those that have an excuse.
pub(super) fn by_marks(
    found: Vec<Violation>,
    marks: &[Mark],
    ran: &Summary,
) -> (Vec<Violation>, usize) {
    let all = found.len();
    let left: Vec<Violation> =
        found.into_iter().filter(|violation| !is_excused(violation, marks, ran)).collect();
    let excused = all - left.len();
    (left, excused)
}

fn is_excused(violation: &Violation, marks: &[Mark], ran: &Summary) -> bool {
    let is_set =
        marks.iter().any(|mark| mark.what.contains("clock of the server") || mark.what == "clock");
    let emptied = || marks.iter().filter(|mark| mark.what.contains("emptied"));
    let was_emptied_until = |at: i64, after: i64| {
        emptied().any(|mark| {
            let late = ran.latest(mark.at - AROUND, mark.at + AROUND).unwrap_or_default();
            (mark.at - BEFORE - late..mark.at + after).contains(&at)
        })
    };
    let was_emptied = |at: i64| was_emptied_until(at, AFTER);
    match violation {
        // Claims are dated by the store's clock, which went back.
        Violation::FenceDidNotGrow { .. } | Violation::Early { .. } => is_set,
        // The instants of `every` begin when the schedule is stored again.
        Violation::NotScheduled { occurrence, .. } => was_emptied(*occurrence),
        Violation::Gap { job, occurrence } if job == FOLLOWER => {
            was_emptied_until(*occurrence, NOTED + AFTER)
        }
        // Its record and its history went with the store.
        Violation::Gap { occurrence, .. } | Violation::Unsettled { occurrence, .. } => {
            was_emptied(*occurrence)
        }
        // A node that knows of no end runs it again.
        Violation::Duplicate { job, occurrence, .. }
        | Violation::FinishedTwice { job, occurrence }
        | Violation::WentBack { job, to: occurrence, .. } => {
            // What ran ahead of its time is not known to the next store.
            (!is_once(job) || is_set) && was_emptied(*occurrence)
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
        let ran = Summary::default();
        assert_eq!(by_marks(found(), &[mark("the store was emptied")], &ran), (left, 2));
        assert_eq!(by_marks(found(), &[mark("failover")], &ran), (found(), 0));
    }
}
