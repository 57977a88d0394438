//! A job's schedule under its settings, guarded against faulty user code.

use super::{CatchUp, Job, JobSpec, Settings, Token};
use crate::{
    backend::{Cursor, NextRun},
    schedule::Warning,
    time::{Time, saturating_add, whole_millis},
};
use allora_schedule::{At, Excluded};
use chrono::TimeDelta;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

/// A job's occurrences: its schedule within its bounds, each with the time from which it is due.
#[derive(Clone, Copy)]
pub(crate) struct CheckedSchedule<'a> {
    name: &'a str,
    job: &'a dyn Job,
    settings: &'a Settings,
}

/// The age up to which the single time of a job that is added counts as now.
const AS_NOW: Duration = Duration::from_secs(60);

/// The most occurrences that are due later than others before them, as they are moved.
const MOST_MOVED: usize = 10_000;

/// No occurrence moves further.
const FURTHEST_MOVE: TimeDelta = TimeDelta::days(63);

const MILLISECOND: TimeDelta = TimeDelta::milliseconds(1);

/// `true` if a single time is too old at `now` to count as now.
pub(crate) fn is_past(at: Time, now: Time) -> bool {
    saturating_add(at, AS_NOW) < now
}

/// The reason why a job cannot be planned: its `next_at` is not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InvalidNextAt {
    Panicked(String),
    NotLater { after: Time, answer: Time },
}

impl std::fmt::Display for InvalidNextAt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            InvalidNextAt::Panicked(message) => write!(f, "its schedule panicked: {message}"),
            InvalidNextAt::NotLater { after, answer } => {
                write!(f, "its next_at({after}) returned {answer}, which is not later")
            }
        }
    }
}

type Planned<T> = Result<T, InvalidNextAt>;

impl<'a> CheckedSchedule<'a> {
    pub(crate) fn of(name: &'a str, entry: &'a JobSpec) -> Self {
        Self { name, job: &*entry.job, settings: &entry.settings }
    }

    /// The text by which a change of the job is detected.
    pub(crate) fn definition(entry: &JobSpec) -> Planned<String> {
        guarded(|| entry.definition())
    }

    /// The first occurrence after `after`, if `started` occurrences were started before.
    pub(crate) fn following(&self, after: Time, started: u64) -> Planned<Option<NextRun>> {
        if self.settings.max_runs.is_some_and(|max| started >= max) {
            return Ok(None);
        }
        Ok(self.instant_after(after)?.and_then(|at| self.next(at)))
    }

    /// The cursor's move by a run of the occurrence at `at`, if `started` occurrences were started with it.
    pub(crate) fn after_run(&self, at: Time, started: u64) -> Planned<Cursor> {
        let next = self.following(at, started)?;
        Ok(match next.is_some() && self.follows_end() {
            true => Cursor::AfterEnd,
            false => Cursor::To(next),
        })
    }

    /// The delay of a schedule whose next occurrence follows the end of a run.
    pub(crate) fn delay_after_end(&self) -> Option<Duration> {
        self.job.after_end(Token(()))
    }

    /// `true` if the next occurrence follows the end of a run.
    pub(crate) fn follows_end(&self) -> bool {
        self.delay_after_end().is_some()
    }

    /// The first occurrence of a job that is added at `now`: its start, if it is an occurrence and not
    /// more than [a minute](AS_NOW) past. An interval whose start is longer past goes on as if it had run
    /// since.
    pub(crate) fn first(&self, now: Time) -> Planned<Option<NextRun>> {
        match self.settings.run_when_created {
            true => Ok(Some(whole_millis(now).into())),
            false => self.first_scheduled(now),
        }
    }

    /// As [`first`](Self::first), whether or not the job runs when it is created.
    pub(crate) fn first_scheduled(&self, now: Time) -> Planned<Option<NextRun>> {
        let start = self.settings.start.filter(|start| *start <= now);
        let is_due = |at: &Time| *at <= now && !self.is_too_old(*at, now) && self.has(*at);
        if let Some(due) = start.or_else(|| self.own_start()).filter(is_due) {
            return Ok(self.next(due));
        }
        match start.filter(|_| !matches!(self.moved(now), Ok(Some(_))) && !self.follows_end()) {
            Some(start) => self.following(self.latest_of_chain(start, now)?.unwrap_or(now), 0),
            None => self.upcoming(now, None, 0),
        }
    }

    /// The instant with which the schedule itself begins, if it is one of this library.
    fn own_start(&self) -> Option<Time> {
        let is_built_in = self.job.is_built_in(Token(()));
        let text = is_built_in.then(|| self.job.definition()).flatten()?;
        allora_schedule::parse(&text).ok()?.start()
    }

    /// The first occurrence after `last` that runs after `now`: [`following`](Self::following) `now`,
    /// unless the schedule moves its occurrences. Then it may be one of the days before.
    pub(crate) fn upcoming(
        &self,
        now: Time,
        last: Option<Time>,
        started: u64,
    ) -> Planned<Option<NextRun>> {
        let mut after = last.map_or(now, |last| last.max(now));
        if self.moved(now)?.is_some() {
            let before = now.checked_sub_signed(FURTHEST_MOVE).unwrap_or(Time::UNIX_EPOCH);
            after = last.map_or(before, |last| last.max(before));
        }
        loop {
            let next = self.following(after, started)?;
            match next {
                Some(next) if self.moved(next.scheduled_at)?.is_some_and(|to| to <= now) => {
                    after = next.scheduled_at;
                }
                next => return Ok(next),
            }
        }
    }

    /// The only scheduled time of a job that is added at `now`, if it is too old to run.
    pub(crate) fn passed(&self, now: Time) -> Option<Time> {
        self.only_time().filter(|at| self.is_too_old(*at, now))
    }

    fn is_too_old(&self, at: Time, now: Time) -> bool {
        let runs_anyway = self.settings.run_if_past && self.only_time() == Some(at);
        is_past(at, now) && !runs_anyway
    }

    /// The only scheduled time of a job whose schedule is [`at`](crate::at()), unless its bounds leave
    /// it out.
    fn only_time(&self) -> Option<Time> {
        let is_built_in = self.job.is_built_in(Token(()));
        let text = is_built_in.then(|| self.job.definition()).flatten()?;
        let at = At::parse(text.strip_prefix("@at ")?).ok()?.instant();
        Some(at).filter(|at| self.has(*at))
    }

    /// The first nominal time after `after`, within the bounds.
    pub(crate) fn instant_after(&self, after: Time) -> Planned<Option<Time>> {
        let after = guarded(|| self.settings.begin(after, |at| self.job.next_at(at)))?;
        let Some(answer) = guarded(|| self.job.next_at(after))? else { return Ok(None) };
        let answer = whole_millis(answer);
        if answer <= after {
            return Err(InvalidNextAt::NotLater { after, answer });
        }
        Ok(Some(answer).filter(|at| self.settings.end.is_none_or(|end| *at <= end)))
    }

    /// The last nominal time of the chain from `from` that is due at `now`; `from` itself is due.
    /// `None` if the schedule does not compute it.
    pub(crate) fn latest(&self, from: Time, now: Time) -> Planned<Option<Time>> {
        let Some(until) = self.due_until(now) else { return Ok(Some(from)) };
        let mut latest = self.latest_of_chain(from, until)?;
        for _ in 0..MOST_MOVED {
            match latest {
                Some(at) if at > from && !self.is_due_by(at, until)? => {
                    latest = self.latest_of_chain(from, at - MILLISECOND)?;
                }
                latest => return Ok(latest),
            }
        }
        Ok(Some(from))
    }

    /// `true` if a nominal time up to `until` is not moved to a later one.
    pub(crate) fn is_due_by(&self, at: Time, until: Time) -> Planned<bool> {
        Ok(self.moved(at)?.is_none_or(|to| to <= until))
    }

    /// The first nominal time of the chain from `from` that is moved to the same instant as `at`.
    pub(crate) fn first_moved_as(&self, at: Time, from: Time) -> Planned<Time> {
        let mut first = at;
        let Some(to) = self.moved(at)? else { return Ok(at) };
        while let Some(before) = self.latest_of_chain(from, first - MILLISECOND)?
            && before < first
            && self.moved(before)? == Some(to)
        {
            first = before;
        }
        Ok(first)
    }

    /// The instant to which the schedule moves this nominal time; `None` if it moves none.
    pub(crate) fn moved(&self, at: Time) -> Planned<Option<Time>> {
        guarded(|| self.job.moved(at).map(whole_millis))
    }

    /// The last nominal time that is due at `now`, if there is an occurrence at it.
    pub(crate) fn due_until(&self, now: Time) -> Option<Time> {
        let shift = TimeDelta::from_std(self.settings.delay + self.settings.jitter);
        shift.ok().and_then(|shift| now.checked_sub_signed(shift))
    }

    /// The last nominal time of the chain from `from` that is not after `until` and within the
    /// bounds; `from` itself if there is none. `None` if the schedule does not compute it.
    pub(crate) fn latest_of_chain(&self, from: Time, until: Time) -> Planned<Option<Time>> {
        let until = self.settings.end.map_or(until, |end| until.min(end));
        if until <= from {
            return Ok(Some(from));
        }
        match guarded(|| self.job.latest_at(from, until))?.map(whole_millis) {
            Some(answer) if answer < from || answer > until => {
                Err(InvalidNextAt::NotLater { after: from, answer })
            }
            latest => Ok(latest),
        }
    }

    /// The number of nominal times of the chain after `from` and not after `until`; `None` if
    /// the schedule does not compute it.
    pub(crate) fn count(&self, from: Time, until: Time) -> Planned<Option<u64>> {
        guarded(|| self.job.count(from, until))
    }

    /// The nominal times between two others that a calendar excludes.
    pub(crate) fn excluded(&self, after: Time, until: Time) -> Planned<Option<Excluded>> {
        guarded(|| self.job.excluded(after, until))
    }

    /// `true` if a named calendar excludes this scheduled time.
    pub(crate) fn is_excluded(&self, at: Time) -> Planned<bool> {
        guarded(|| self.job.is_excluded(at))
    }

    /// The time between the next two nominal times; `None` if there are not two.
    pub(crate) fn period(&self, now: Time) -> Option<Duration> {
        let next = self.instant_after(now).ok()??;
        let after = self.instant_after(next).ok()??;
        (after - next).to_std().ok()
    }

    /// `true` if `at` is a scheduled time, as far as a schedule can tell for a single time.
    pub(crate) fn has(&self, at: Time) -> bool {
        self.instant_after(at - MILLISECOND) == Ok(Some(at))
    }

    /// The policy for missed occurrences.
    pub(crate) fn catch_up(&self) -> CatchUp {
        self.settings.catch_up
    }

    /// The earliest scheduled time.
    pub(crate) fn start(&self) -> Option<Time> {
        self.settings.start
    }

    /// `true` if `at` is after the end, or all occurrences were started.
    pub(crate) fn is_over(&self, at: Time, started: u64) -> bool {
        self.settings.end.is_some_and(|end| at > end)
            || self.settings.max_runs.is_some_and(|max| started >= max)
    }

    /// The nominal time and the due time of `at`; `None` if the due time is out of range.
    pub(crate) fn next(&self, at: Time) -> Option<NextRun> {
        // A faulty schedule is reported where it is asked for its times.
        let to = self.moved(at).ok().flatten().unwrap_or(at);
        self.settings.next_moved(self.name, at, to)
    }
}

/// The warnings to report when a job is added at `now`: about its schedule and its settings.
pub(crate) fn warnings(name: &str, spec: &JobSpec, now: Time) -> Vec<Warning> {
    if spec.is_quiet {
        return Vec::new();
    }
    let jitter = spec.settings.jitter;
    let period = (!jitter.is_zero()).then(|| CheckedSchedule::of(name, spec).period(now)).flatten();
    let mut warnings = spec.job.warnings().to_vec();
    warnings.extend(spec.settings.warnings(period));
    let key = spec.settings.concurrency_key.as_ref().filter(|_| spec.has_replaced_key);
    warnings.extend(key.map(|key| {
        let message = format!(
            "the concurrency key {:?} has replaced another one: a job has one key, the last that is set",
            key.key
        );
        Warning::new("replaced-key", message)
    }));
    warnings
}

/// Runs user code. A panic in it becomes an error of the job.
fn guarded<T>(code: impl FnOnce() -> T) -> Planned<T> {
    catch_unwind(AssertUnwindSafe(code))
        .map_err(|panic| InvalidNextAt::Panicked(panic_text(&*panic)))
}

/// The text of a panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a text").to_owned()
}
