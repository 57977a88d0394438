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
    let excuses = Excuses::of(marks, ran);
    let left: Vec<Violation> = found.into_iter().filter(|one| !excuses.explain(one)).collect();
    let excused = all - left.len();
    (left, excused)
}

/// The changes of the store behind the backs of its workers.
struct Excuses {
    clock_was_set: bool,
    /// Each time at which it was emptied, with the longest lateness of the runs that began around it.
    emptied: Vec<(i64, i64)>,
}

impl Excuses {
    fn of(marks: &[Mark], ran: &Summary) -> Self {
        let latest_near = |time: i64| {
            let near = ran.started.iter().filter(|(at, late)| (at + late - time).abs() < AROUND);
            near.map(|(_, late)| *late).max().unwrap_or_default()
        };
        let emptied = marks.iter().filter(|mark| mark.what.contains("emptied"));
        let is_clock =
            |mark: &Mark| mark.what.contains("clock of the server") || mark.what == "clock";
        Self {
            clock_was_set: marks.iter().any(is_clock),
            emptied: emptied.map(|mark| (mark.at, latest_near(mark.at))).collect(),
        }
    }

    /// The time lies around one at which the store was emptied; behind it, up to `after`.
    fn was_emptied(&self, time: i64, after: i64) -> bool {
        self.emptied.iter().any(|(at, late)| (at - BEFORE - late..at + after).contains(&time))
    }

    fn explain(&self, violation: &Violation) -> bool {
        let is_set = self.clock_was_set;
        let was_emptied = |at: i64| self.was_emptied(at, AFTER);
        match violation {
            // Claims are dated by the store's clock, which went back.
            Violation::FenceDidNotGrow { .. } | Violation::Early { .. } => is_set,
            // The instants of `every` begin when the schedule is stored again.
            Violation::NotScheduled { occurrence, .. } => was_emptied(*occurrence),
            Violation::Gap { job, occurrence } if job == FOLLOWER => {
                self.was_emptied(*occurrence, NOTED + AFTER)
            }
            // Its record and its history went with the store.
            Violation::Gap { occurrence, .. } => was_emptied(*occurrence),
            // A node that knows of no end runs it again.
            Violation::Duplicate { job, occurrence, .. }
            | Violation::FinishedTwice { job, occurrence }
            | Violation::WentBack { job, to: occurrence, .. } => {
                // An emptied store has forgotten the runs that came ahead of their time.
                (!is_once(job) || is_set) && was_emptied(*occurrence)
            }
            // A fence is the time of the claim, in microseconds.
            Violation::LeasesOverlap { given: fence, .. }
            | Violation::StaleEnd { fence, .. }
            | Violation::Unsettled { fence, .. }
            | Violation::NotStarted { fence, .. } => was_emptied(*fence / 1_000),
            _ => false,
        }
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
