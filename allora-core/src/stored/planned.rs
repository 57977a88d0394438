//! When a schedule that is added or changed runs first.

use super::{Definition, Gap, StoredSchedule};
use crate::{
    backend::{Action, After, JobState, NewSchedule, NextRun, Operation, Replan},
    error::{Error, Result},
    job::{CheckedSchedule, Progress, Redefinition, warnings},
    schedule::AnySchedule,
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
    /// `definition`: that of the schedule, with its calendars.
    pub(super) fn first(
        stored: &'a StoredSchedule,
        definition: &Definition,
        now: Time,
    ) -> Result<Self> {
        let next = definition.first(&stored.name, now)?;
        let is_never = matches!(definition.schedule(), AnySchedule::Never(_));
        if next.is_none() && !is_never && definition.settings().after.is_none() {
            let from = definition.settings().start.unwrap_or(now);
            return Err(Error::invalid(format!(
                "{:?} would never run: `{definition}` has no occurrence from {} on; use a later time, \
                 or the present one or run-if-past (`StoredSchedule::run_if_past`) for a run at once",
                stored.name,
                from.to_rfc3339_opts(SecondsFormat::Millis, true)
            )));
        }
        let (first, data) = (first_run(stored, next)?, stored.bytes()?);
        for warning in warnings(&stored.name, &definition.bare(), now) {
            let (code, warning) = (warning.code, warning.message);
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

/// The creation of a stored schedule, planned at a time: for a store that creates it in a transaction
/// of the application. [`StoredSchedule::creation`] makes it.
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
    /// [`Schedules::add`](super::Schedules::add), or `SqlxTransaction::add_in` in a transaction of their own.
    ///
    /// # Errors
    /// `Invalid` with the rejected part, if it names a calendar of the store, which only
    /// [`Schedules::add`](super::Schedules::add) reads, or if it runs after another job, whose record only
    /// that writes.
    pub fn creation(&self, now: Time) -> Result<Creation<'_>> {
        let named = |name: &str| {
            Err(format!(
                "the calendar {name:?} is in the store; add the schedule with `Schedules::add`"
            ))
        };
        let definition = self.definition().and_then(|definition| definition.with_calendars(named));
        let definition = definition.map_err(|error| self.refused(error))?;
        if let Some(After { job, .. }) = &definition.settings().after {
            return Err(Error::invalid(format!(
                "{:?} runs after {job:?}, whose record has to note that first; add the schedule with \
                 `Schedules::add`",
                self.name
            )));
        }
        Planned::first(self, &definition, now).map(Creation)
    }

    /// The error with the name of the schedule.
    pub(super) fn refused(&self, error: Error) -> Error {
        error.within(format_args!("{:?}", self.name))
    }
}

/// The cursor under another definition. `former`: the definition in the state that was read, if it can
/// be read; both with their calendars.
pub(super) fn replanned(
    stored: &StoredSchedule,
    definition: &Definition,
    former: Option<&Definition>,
    seen: &JobState,
    now: Time,
) -> Result<Replan> {
    let name = stored.name.as_str();
    let same_schedule = former.is_some_and(|former| {
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
    if due_at < next.scheduled_at.min(next.due_at) {
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
    fn a_single_time_of_up_to_a_minute_ago_counts_as_now() {
        let now = Time::from_timestamp(1_767_225_600, 0).unwrap();
        let planned = |stored: &StoredSchedule| {
            let definition = stored.definition().unwrap();
            Planned::first(stored, &definition, now).map(|planned| planned.first)
        };
        for ago in [0, 2, 59_999, 60_000] {
            let at = now - chrono::TimeDelta::milliseconds(ago);
            let first = planned(&StoredSchedule::once("once", "kind", at)).unwrap();
            assert_eq!(first.map(|next| (next.scheduled_at, next.due_at)), Some((at, at)));
        }
        let old =
            StoredSchedule::once("once", "kind", now - chrono::TimeDelta::milliseconds(60_001));
        let refused = planned(&old).unwrap_err().to_string();
        assert!(
            refused.contains("no occurrence from 2026-01-01T00:00:00.000Z on; use a"),
            "{refused}"
        );
        let first = planned(&old.clone().run_if_past()).unwrap().map(|next| next.scheduled_at);
        assert_eq!(first, Some(now - chrono::TimeDelta::milliseconds(60_001)));
        // Another schedule begins after now.
        let ended = StoredSchedule::new("ended", "kind", "@every 10s").ending(now);
        assert!(planned(&ended).is_err());
    }

    #[test]
    fn what_runs_when_it_is_created_is_due_at_that_time_and_then_by_its_schedule() {
        let now = Time::from_timestamp(1_767_225_600, 1_500_000).unwrap();
        let daily = StoredSchedule::new("daily", "kind", "0 9 * * *").run_when_created();
        let definition = daily.delay(std::time::Duration::from_secs(60)).definition().unwrap();
        let first = definition.first("daily", now).unwrap().unwrap();
        assert_eq!((first.scheduled_at, first.due_at), (whole_millis(now), whole_millis(now)));
        let next = definition.following("daily", first.scheduled_at, 1).unwrap().unwrap();
        assert_eq!(next.scheduled_at.to_rfc3339(), "2026-01-01T09:00:00+00:00");
        let never = StoredSchedule::once("never", "kind", now - chrono::TimeDelta::hours(1));
        let never = never.run_when_created();
        assert!(Planned::first(&never, &never.definition().unwrap(), now).is_err());
    }

    #[test]
    fn what_is_due_at_its_very_start_runs() {
        let now = Time::from_timestamp(1_767_225_600, 0).unwrap();
        let start = now - chrono::TimeDelta::microseconds(1_500);
        let bounded = StoredSchedule::new("once", "kind", at(start)).starting(start);
        let definition = bounded.definition().unwrap();
        let first = Planned::first(&bounded, &definition, now).unwrap().first;
        let first = first.map(|next| next.scheduled_at);
        assert_eq!(first, Some(whole_millis(start)), "both are cut");
    }
}
