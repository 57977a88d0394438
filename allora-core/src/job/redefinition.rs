//! The cursor under another definition. No occurrence that has come is dropped without a record.
//!
//! A node may be stopped at 23:59 and started at 00:01 with another setting: the occurrence of
//! midnight keeps its place, and the new catch-up policy decides about it. Earlier ones are recorded
//! with their number, unless both definitions have them.

use super::{CatchUp, CheckedSchedule, InvalidNextAt};
use crate::{
    backend::{JobState, NextRun, NotRun, NotRunReason, Replan},
    time::Time,
};
use chrono::TimeDelta;

/// The largest number of occurrences of which each is compared.
const MAX_COMPARED: u64 = 1_000;

/// The progress of a job under its former definition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// The cursor.
    pub(crate) cursor: Option<NextRun>,
    /// The last occurrence that was started.
    pub(crate) last_started: Option<Time>,
    /// The number of occurrences that were started.
    pub(crate) started: u64,
}

impl Progress {
    pub(crate) fn of(state: &JobState) -> Self {
        let JobState { next, last_started, .. } = *state;
        Self { cursor: next, last_started, started: state.counters.started }
    }
}

/// A change of a job's definition.
#[derive(Clone, Copy)]
pub(crate) struct Redefinition<'a> {
    /// The former definition; `None` if its text cannot be read.
    pub(crate) former: Option<CheckedSchedule<'a>>,
    /// The new definition.
    pub(crate) new: CheckedSchedule<'a>,
    /// Schedule and start are the same, and only settings differ.
    pub(crate) same_schedule: bool,
    /// The occurrences that have come are recorded as missed.
    pub(crate) skip: bool,
    /// The progress under the former definition.
    pub(crate) progress: Progress,
    /// The time of the change.
    pub(crate) now: Time,
}

/// The occurrences of the former definition that have come and were not started.
#[derive(Clone, Copy)]
struct Pending {
    first: NextRun,
    last: NextRun,
    /// The number of them; `None` if it is not known.
    count: Option<u64>,
}

impl Redefinition<'_> {
    /// The plan. The last occurrence that has come keeps its place, and the new definition's
    /// catch-up policy decides about it; the earlier ones are recorded as missed. All keep their
    /// places if the new definition has the same ones, or has them all and catches up on all.
    pub(crate) fn plan(&self) -> Result<Replan, InvalidNextAt> {
        let expected = self.progress.cursor.map(|cursor| cursor.scheduled_at);
        let Some(Pending { first, last, count }) = self.pending() else {
            return Ok(Replan { expected, not_run: None, then: self.future()? });
        };
        let is_over = self.new.is_over(last.scheduled_at, self.progress.started);
        let (not_run, then) = if self.skip || is_over {
            let after = last.scheduled_at.max(self.now);
            let then = self.new.following(after, self.progress.started)?;
            (Some((count, last.scheduled_at)), then.filter(|_| !is_over))
        } else if self.has_same(first, last, count) || self.catches_up_on(first, last, count) {
            (None, Some(self.in_place(first)))
        } else {
            let count = count.map(|count| count - 1);
            let before = self.before(first, last);
            (before.map(|before| (count, before)), Some(self.in_place(last)))
        };
        let not_run = not_run.map(|(count, last)| {
            (first.scheduled_at, NotRun { count, last, reason: NotRunReason::CatchUp })
        });
        Ok(Replan { expected, not_run, then })
    }

    fn pending(&self) -> Option<Pending> {
        let Progress { cursor, last_started, started } = self.progress;
        // A definition that cannot be read, with the same schedule as the new one.
        let former = self.former.or(self.same_schedule.then_some(self.new));
        let begun = cursor.filter(|cursor| last_started >= Some(cursor.scheduled_at));
        // A fault of the former schedule is no fault of the new one.
        let first = match begun {
            // The next one is not known before the end of the run.
            Some(_) if former?.follows_end() => return None,
            Some(begun) => former?.following(begun.scheduled_at, started).ok()?,
            None => cursor,
        };
        let has_come = |next: &NextRun| next.scheduled_at.min(next.due_at) <= self.now;
        let first = first.filter(has_come)?;
        let found = former.and_then(|former| {
            let last = former.latest(first.scheduled_at, self.now).ok()??;
            let count = former.count(first.scheduled_at, last).ok()?.map(|more| more + 1);
            let last = if last == first.scheduled_at { first } else { former.next(last)? };
            Some(Pending { first, last, count })
        });
        Some(found.unwrap_or(Pending { first, last: first, count: None }))
    }

    /// The next occurrence, if none has come.
    fn future(&self) -> Result<Option<NextRun>, InvalidNextAt> {
        let Progress { cursor, last_started, started } = self.progress;
        let open = cursor.filter(|cursor| last_started < Some(cursor.scheduled_at));
        match open {
            Some(next) if self.same_schedule => {
                let is_over = self.new.is_over(next.scheduled_at, started);
                Ok(Some(self.in_place(next)).filter(|_| !is_over))
            }
            _ => {
                // Of another schedule from now on, now included.
                let before = self.now - TimeDelta::milliseconds(1);
                let from = if self.new.has(self.now) { before } else { self.now };
                match last_started {
                    Some(last) if self.same_schedule && !self.new.follows_end() => {
                        self.new.following(last, started)
                    }
                    last => self.new.upcoming(from, last, started),
                }
            }
        }
    }

    /// An occurrence that stays: due as the new delay says if the new schedule has it, too.
    fn in_place(&self, next: NextRun) -> NextRun {
        let has_it = self.same_schedule || self.new.has(next.scheduled_at);
        has_it.then(|| self.new.next(next.scheduled_at)).flatten().unwrap_or(next)
    }

    /// `true` if the new definition has the same occurrences in this range.
    fn has_same(&self, first: NextRun, last: NextRun, count: Option<u64>) -> bool {
        let (first, last) = (first.scheduled_at, last.scheduled_at);
        first == last
            || count.is_some_and(|count| {
                self.new.latest(first, self.now) == Ok(Some(last))
                    && self.new.count(first, last) == Ok(Some(count - 1))
            })
    }

    /// `true` if the new definition has each occurrence of this range, among others perhaps, and its
    /// catch-up policy wants them all.
    fn catches_up_on(&self, first: NextRun, last: NextRun, count: Option<u64>) -> bool {
        let CatchUp::All { limit } = self.new.catch_up() else { return false };
        let most = u64::from(limit).min(MAX_COMPARED);
        let Some(former) = self.former.filter(|_| count.is_some_and(|count| count <= most)) else {
            return false;
        };
        let mut at = first.scheduled_at;
        loop {
            if !self.new.has(at) {
                return false;
            }
            match former.instant_after(at) {
                Ok(Some(next)) if next <= last.scheduled_at => at = next,
                ended => return ended.is_ok(),
            }
        }
    }

    /// The last occurrence of the former definition before `last`.
    fn before(&self, first: NextRun, last: NextRun) -> Option<Time> {
        let until = last.scheduled_at - TimeDelta::milliseconds(1);
        let former = self.former.or(self.same_schedule.then_some(self.new))?;
        former.latest_of_chain(first.scheduled_at, until).ok()?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{JobSpec, Run, cron, every, job};
    use std::time::Duration;

    fn at(minute: i64) -> Time {
        Time::from_timestamp(minute * 60, 0).unwrap()
    }

    fn next(minute: i64) -> NextRun {
        at(minute).into()
    }

    fn spec(text: &str) -> JobSpec {
        job(cron(text).unwrap(), async |_: Run| {})
    }

    /// The plan at minute 10 of a job whose cursor is at this minute, from one cron text to
    /// another.
    fn plan(cursor: i64, last_started: Option<i64>, former: Option<&str>, new: &str) -> Replan {
        change(cursor, last_started, former.map(spec).as_ref(), &spec(new), false)
    }

    fn change(
        cursor: i64,
        last_started: Option<i64>,
        former: Option<&JobSpec>,
        new: &JobSpec,
        skip: bool,
    ) -> Replan {
        let redefinition = Redefinition {
            former: former.map(|former| CheckedSchedule::of("job", former)),
            new: CheckedSchedule::of("job", new),
            same_schedule: false,
            skip,
            progress: Progress {
                cursor: Some(next(cursor)),
                last_started: last_started.map(at),
                started: 3,
            },
            now: at(10),
        };
        redefinition.plan().unwrap()
    }

    fn missed(first: i64, last: i64, count: u64) -> Option<(Time, NotRun)> {
        let reason = NotRunReason::CatchUp;
        Some((at(first), NotRun { count: Some(count), last: at(last), reason }))
    }

    #[test]
    fn the_last_occurrence_that_has_come_keeps_its_place_and_the_earlier_ones_are_missed() {
        let replan = plan(6, None, Some("* * * * *"), "0 12 * * *");
        assert_eq!((replan.then, replan.not_run), (Some(next(10)), missed(6, 9, 4)));
        let replan = plan(10, None, Some("* * * * *"), "0 12 * * *");
        assert_eq!((replan.then, replan.not_run), (Some(next(10)), None));
    }

    #[test]
    fn all_keep_their_places_if_both_definitions_have_them() {
        let replan = plan(6, None, Some("* * * * *"), "*/1 * * * *");
        assert_eq!((replan.then, replan.not_run), (Some(next(6)), None));
    }

    #[test]
    fn all_keep_their_places_if_the_new_definition_has_them_and_catches_up_on_all() {
        let all = |text: &str, limit| spec(text).catch_up(CatchUp::All { limit });
        let change = |former: &str, new: &JobSpec| change(6, None, Some(&spec(former)), new, false);
        let replan = change("*/2 * * * *", &all("* * * * *", 3));
        assert_eq!((replan.then, replan.not_run), (Some(next(6)), None));
        // Too many of them, too few of the new schedule, another policy.
        for new in [all("* * * * *", 2), all("*/10 * * * *", 1_000), spec("* * * * *")] {
            let replan = change("*/2 * * * *", &new);
            assert_eq!((replan.then, replan.not_run), (Some(next(10)), missed(6, 8, 2)));
        }
    }

    #[test]
    fn occurrences_behind_an_active_run_are_accounted_for() {
        let replan = plan(6, Some(6), Some("* * * * *"), "0 12 * * *");
        assert_eq!((replan.then, replan.not_run), (Some(next(10)), missed(7, 9, 3)));
        let replan = plan(10, Some(10), Some("* * * * *"), "*/7 * * * *");
        assert_eq!((replan.then, replan.not_run), (Some(next(14)), None));
    }

    #[test]
    fn the_cursor_keeps_its_place_if_the_former_text_cannot_be_read() {
        let replan = plan(6, None, None, "0 12 * * *");
        assert_eq!((replan.then, replan.not_run), (Some(next(6)), None));
        let replan = plan(6, Some(6), None, "*/7 * * * *");
        assert_eq!((replan.then, replan.not_run), (Some(next(14)), None));
    }

    #[test]
    fn occurrences_after_the_new_end_are_missed() {
        let ends = spec("* * * * *").ending(at(7));
        let replan = change(6, None, Some(&spec("* * * * *")), &ends, false);
        assert_eq!((replan.then, replan.not_run), (None, missed(6, 10, 5)));
        let full = spec("* * * * *").max_runs(3);
        let replan = change(6, None, Some(&spec("* * * * *")), &full, false);
        assert_eq!((replan.then, replan.not_run), (None, missed(6, 10, 5)));
    }

    #[test]
    fn the_number_is_unknown_if_the_former_schedule_does_not_compute_it() {
        let closure = job(|after: Time| Some(after + Duration::from_secs(60)), async |_: Run| {});
        let replan = change(6, None, Some(&closure), &spec("0 12 * * *"), true);
        let (first, not_run) = replan.not_run.unwrap();
        assert_eq!((first, not_run.last, not_run.count), (at(6), at(6), None));
    }

    #[test]
    fn what_has_come_can_be_skipped() {
        let hourly = job(every(Duration::from_secs(3_600)), async |_: Run| {});
        let replan = change(6, None, Some(&spec("* * * * *")), &hourly, true);
        assert_eq!((replan.then, replan.not_run), (Some(next(70)), missed(6, 10, 5)));
    }
}
