//! Findings that break no promise: after a person, or a driver of servers, has emptied the store or set its clock; and
//! of what killed workers did last, on a store without a history.

use super::verdict::Mark;
use allora_conformance::{
    faults::{FOLLOWER, is_once},
    history::{Summary, Violation},
};
use std::ops::Range;

/// The time around the emptying in which occurrences have been in the store, in milliseconds; before it, the
/// lateness of that time is added.
const BEFORE: i64 = 20_000;
const AFTER: i64 = 15_000;

/// The time in which a job in code notes itself again with the one before it: until then, nothing follows.
const NOTED: i64 = 60_000;

/// The time around it whose lateness counts.
const AROUND: i64 = 60_000;

/// The time around the death of a worker in which the store may have accepted what it could not write down any more:
/// a run takes less than that.
const LAST_WORDS: Range<i64> = -1_500..500;

/// The reasons for findings that break no promise.
pub(super) struct Excuses {
    clock_was_set: bool,
    /// Each time at which a worker was killed, if the store keeps no history that would tell its last ends.
    killed: Vec<i64>,
    /// Each time at which it was emptied, with the longest lateness of the runs that began around it.
    emptied: Vec<(i64, i64)>,
}

impl Excuses {
    pub(super) fn of(marks: &[Mark], ran: &Summary, keeps_history: bool) -> Self {
        let latest_near = |time: i64| {
            let near = ran.started.iter().filter(|(at, late)| (at + late - time).abs() < AROUND);
            near.map(|(_, late)| *late).max().unwrap_or_default()
        };
        let emptied = marks.iter().filter(|mark| mark.what.contains("emptied"));
        let is_clock =
            |mark: &Mark| mark.what.contains("clock of the server") || mark.what == "clock";
        let is_killed = |mark: &&Mark| {
            mark.what.starts_with("worker") && mark.what.ends_with("is killed") && !keeps_history
        };
        Self {
            clock_was_set: marks.iter().any(is_clock),
            killed: marks.iter().filter(is_killed).map(|mark| mark.at).collect(),
            emptied: emptied.map(|mark| (mark.at, latest_near(mark.at))).collect(),
        }
    }

    /// The violations that remain, and the number of those that have an excuse.
    pub(super) fn judge(&self, found: Vec<Violation>) -> (Vec<Violation>, usize) {
        let all = found.len();
        let left: Vec<Violation> = found.into_iter().filter(|one| !self.explain(one)).collect();
        let excused = all - left.len();
        (left, excused)
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
            Violation::Unsettled { fence, .. }
                if self.killed.iter().any(|at| LAST_WORDS.contains(&(*fence / 1_000 - at))) =>
            {
                true
            }
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
        let judged =
            |what: &str| Excuses::of(&[mark(what)], &Summary::default(), true).judge(found());
        assert_eq!(judged("the store was emptied"), (left, 2));
        assert_eq!(judged("failover"), (found(), 0));
    }

    #[test]
    fn without_a_history_the_last_end_of_a_killed_worker_may_be_unknown() {
        let marks = [Mark { at: 100_000, what: "worker 3 is killed".into() }];
        let unsettled = |claimed_at: i64| Violation::Unsettled {
            job: "at-least-once".into(),
            occurrence: 99_000,
            fence: claimed_at * 1_000,
        };
        let judged = |keeps_history| {
            let found = vec![unsettled(99_100), unsettled(90_000)];
            Excuses::of(&marks, &Summary::default(), keeps_history).judge(found)
        };
        assert_eq!(judged(false), (vec![unsettled(90_000)], 1));
        assert_eq!(judged(true).1, 0);
    }
}
