//! A job's instants under its settings, with the user's code kept in check.

use super::{Entry, Job, Settings};
use crate::{
    backend::Next,
    time::{Time, whole_millis},
};
use chrono::TimeDelta;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A job's instants: its schedule within its bounds, each with the time from which it is due.
#[derive(Clone, Copy)]
pub(crate) struct Timetable<'a> {
    name: &'a str,
    job: &'a dyn Job,
    settings: &'a Settings,
}

/// Why a job cannot be planned: its `next_at` broke its promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Panicked(String),
    NotLater { after: Time, answer: Time },
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Panicked(message) => write!(f, "its schedule panicked: {message}"),
            Fault::NotLater { after, answer } => {
                write!(f, "its next_at({after}) answered {answer}, which is not later")
            }
        }
    }
}

type Planned<T> = Result<T, Fault>;

impl<'a> Timetable<'a> {
    pub(crate) fn of(name: &'a str, entry: &'a Entry) -> Self {
        Self { name, job: &*entry.job, settings: &entry.settings }
    }

    /// The text whose change is noticed.
    pub(crate) fn definition(entry: &Entry) -> Planned<String> {
        guarded(|| entry.definition())
    }

    /// The first occurrence after `after`; `started` occurrences were started before.
    pub(crate) fn following(&self, after: Time, started: u64) -> Planned<Option<Next>> {
        if self.settings.max_runs.is_some_and(|max| started >= max) {
            return Ok(None);
        }
        Ok(self.instant_after(after)?.and_then(|at| self.next(at)))
    }

    /// The instant after `after`, within the bounds.
    pub(crate) fn instant_after(&self, after: Time) -> Planned<Option<Time>> {
        let after = guarded(|| self.settings.begin(after, |at| self.job.next_at(at)))?;
        let Some(answer) = guarded(|| self.job.next_at(after))? else { return Ok(None) };
        let answer = whole_millis(answer);
        if answer <= after {
            return Err(Fault::NotLater { after, answer });
        }
        Ok(Some(answer).filter(|at| self.settings.end.is_none_or(|end| *at <= end)))
    }

    /// The last instant of the chain from `from` that is due at `now`; `from` itself is. `None`
    /// if finding it costs too much.
    pub(crate) fn latest(&self, from: Time, now: Time) -> Planned<Option<Time>> {
        let shift = TimeDelta::from_std(self.settings.delay + self.settings.spread);
        let until = shift.ok().and_then(|shift| now.checked_sub_signed(shift));
        until.map_or(Ok(Some(from)), |until| self.latest_of_chain(from, until))
    }

    /// The last instant of the chain from `from`, not after `until`, within the bounds; `from`
    /// itself if there is none. `None` if finding it costs too much.
    pub(crate) fn latest_of_chain(&self, from: Time, until: Time) -> Planned<Option<Time>> {
        let until = self.settings.end.map_or(until, |end| until.min(end));
        if until <= from {
            return Ok(Some(from));
        }
        match guarded(|| self.job.latest_at(from, until))?.map(whole_millis) {
            Some(answer) if answer < from || answer > until => {
                Err(Fault::NotLater { after: from, answer })
            }
            latest => Ok(latest),
        }
    }

    /// How many instants the chain from `from` has after it and not after `until`; `None` if
    /// counting them costs too much.
    pub(crate) fn count(&self, from: Time, until: Time) -> Planned<Option<u64>> {
        guarded(|| self.job.count(from, until))
    }

    /// When an instant is due; `None` past the end of time.
    pub(crate) fn next(&self, at: Time) -> Option<Next> {
        self.settings.next(self.name, at)
    }
}

/// Runs the user's code; a panic in it is the job's fault, not the scheduler's end.
fn guarded<T>(code: impl FnOnce() -> T) -> Planned<T> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|panic| Fault::Panicked(panic_text(&*panic)))
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a text").to_owned()
}
