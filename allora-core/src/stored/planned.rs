//! When a schedule that is added or changed runs first.

use super::{Definition, Gap, StoredSchedule};
use crate::{
    backend::{Action, JobState, NewSchedule, NextRun, Operation, Replan},
    error::{Error, Result},
    job::{CheckedSchedule, Progress, Redefinition},
    time::{Time, whole_millis},
};
use chrono::SecondsFormat;
use std::fmt;
use tracing::warn;

/// A schedule that is to be added, and all that the request borrows from.
pub(super) struct Planned<'a> {
    stored: &'a StoredSchedule,
    text: String,
    first: Option<NextRun>,
    data: &'a [u8],
}

impl<'a> Planned<'a> {
    pub(super) fn first(stored: &'a StoredSchedule, now: Time) -> Result<Self> {
        let definition =
            stored.definition().map_err(|error| error.within(format_args!("{:?}", stored.name)))?;
        let next = definition.first(&stored.name, now)?;
        if next.is_none() {
            let from = definition.settings().start.unwrap_or(now);
            return Err(Error::invalid(format!(
                "{:?} would never run: `{definition}` has no occurrence from {} on",
                stored.name,
                from.to_rfc3339_opts(SecondsFormat::Millis, true)
            )));
        }
        let (first, data) = (first_run(stored, next)?, stored.bytes()?);
        for warning in definition.schedule().warnings() {
            let (code, warning) = (warning.code, &warning.message);
            warn!(target: "allora", job = stored.name, code, warning, "the job's schedule is seldom intended");
        }
        Ok(Self { stored, text: definition.to_string(), first, data })
    }

    pub(super) fn definition(&self) -> &str {
        &self.text
    }

    /// The operation that creates it.
    pub(super) fn operation(&self) -> Operation<'_> {
        let new = NewSchedule::new(&self.stored.kind, &self.text, self.first).data(self.data);
        Operation::new(&self.stored.name, Action::Create(new))
    }
}

/// The creation of a stored schedule, planned at a time: for a store that creates it in a transaction of
/// the application. [`StoredSchedule::creation`] makes it.
pub struct Creation<'a>(Planned<'a>);

impl Creation<'_> {
    /// The operation that creates it.
    pub fn operation(&self) -> Operation<'_> {
        self.0.operation()
    }
}

impl fmt::Debug for Creation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Creation").field("name", &self.0.stored.name).finish_non_exhaustive()
    }
}

impl StoredSchedule {
    /// Plans the creation of this schedule at `now`, the store's time. Applications use
    /// [`Schedules::add`](super::Schedules::add), or `Sql::add_in` in a transaction of their own.
    ///
    /// # Errors
    /// `Invalid` with the rejected part.
    pub fn creation(&self, now: Time) -> Result<Creation<'_>> {
        Planned::first(self, now).map(Creation)
    }
}

/// The cursor under another definition.
pub(super) fn replanned(
    stored: &StoredSchedule,
    definition: &Definition,
    seen: &JobState,
    now: Time,
) -> Result<Replan> {
    let name = stored.name.as_str();
    let former = Definition::parse(name, &seen.definition).ok();
    let same_schedule = former.as_ref().is_some_and(|former| {
        (former.schedule(), former.settings().start)
            == (definition.schedule(), definition.settings().start)
    });
    let (former, new) = (former.map(|former| former.bare()), definition.bare());
    let redefinition = Redefinition {
        former: former.as_ref().map(|former| CheckedSchedule::of(name, former)),
        new: CheckedSchedule::of(name, &new),
        same_schedule,
        skip: stored.gap == Gap::Missed,
        progress: Progress::of(seen),
        now,
    };
    let mut plan = redefinition
        .plan()
        .map_err(|fault| Error::invalid(format!("{name:?} cannot be planned: {fault}")))?;
    plan.then = first_run(stored, plan.then)?;
    Ok(plan)
}

/// The next occurrence, due when the application says, if it does.
fn first_run(stored: &StoredSchedule, next: Option<NextRun>) -> Result<Option<NextRun>> {
    let (Some(run_at), Some(next)) = (stored.first_run, next) else { return Ok(next) };
    let due_at = whole_millis(run_at);
    if due_at < next.scheduled_at {
        return Err(Error::invalid(format!(
            "{:?} cannot run first at {}: its scheduled time is {}, and nothing runs before that",
            stored.name,
            due_at.to_rfc3339_opts(SecondsFormat::Millis, true),
            next.scheduled_at.to_rfc3339_opts(SecondsFormat::Millis, true)
        )));
    }
    Ok(Some(NextRun { scheduled_at: next.scheduled_at, due_at }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::at;

    #[test]
    fn what_is_due_at_its_very_start_runs() {
        let now = Time::from_timestamp(1_767_225_600, 0).unwrap();
        let start = now - chrono::TimeDelta::microseconds(1_500);
        let once = StoredSchedule::new("once", "kind", at(start));
        let bounded = once.clone().starting(start);
        let first = Planned::first(&bounded, now).unwrap().first.map(|next| next.scheduled_at);
        assert_eq!(first, Some(whole_millis(start)), "both are cut");
        let without = Planned::first(&once, now).map(|_| ()).unwrap_err().to_string();
        assert!(without.contains("no occurrence from 2026-01-01T00:00:00.000Z on"), "{without}");
    }
}
