//! A time of a job, by its schedule: whether it has it, and what calendars and clocks make of it.

use super::{Facts, Why, WhyCode};
use crate::{
    schedule::{AnySchedule, NoteReason, Schedule as _},
    stored::Definition,
    time::Time,
};
use chrono::TimeDelta;

/// The shortest step of time.
const TICK: TimeDelta = TimeDelta::milliseconds(1);

/// The job and one of its times.
pub(super) struct Times<'a> {
    pub(super) facts: &'a Facts,
    pub(super) at: Time,
}

impl Times<'_> {
    pub(super) fn schedule(&self) -> Option<&AnySchedule> {
        self.facts.readable().map(Definition::schedule)
    }

    /// `true` if the present schedule has the time; `None` if it is not known.
    pub(super) fn is_scheduled(&self) -> Option<bool> {
        let definition = self.facts.readable()?;
        let settings = definition.settings();
        let is_outside = settings.start.is_some_and(|start| self.at < start)
            || settings.end.is_some_and(|end| self.at > end);
        if is_outside {
            return Some(false);
        }
        self.has(definition.schedule(), self.at)
    }

    /// `true` if the schedule has this time, which a calendar may exclude.
    fn has(&self, schedule: &AnySchedule, at: Time) -> Option<bool> {
        if let Some(period) = period(schedule) {
            // Without a grid of its own, a period counts from the job's occurrences.
            let state = &self.facts.state;
            let anchor = state.next.map(|next| next.scheduled_at).or(state.last_started)?;
            let is_in_phase = (at - anchor).num_milliseconds().rem_euclid(period) == 0;
            let before = earlier(at, TimeDelta::milliseconds(period));
            return Some(is_in_phase && schedule.excluded(before, at).is_none());
        }
        Some(schedule.next_at(at - TICK) == Some(at))
    }

    /// The rule of a calendar that excludes the time.
    pub(super) fn excluded(&self) -> Option<String> {
        let schedule = self.schedule()?;
        let before = period(schedule).map_or(TICK, TimeDelta::milliseconds);
        let notes = schedule.notes(earlier(self.at, before), self.at);
        let mut excluded = notes.into_iter().filter(|note| note.reason == NoteReason::Excluded);
        excluded.next().map(|note| note.message)
    }

    /// That a change of the clocks dropped a local time near this one, and whether it is this one.
    pub(super) fn dropped(&self) -> Option<(bool, String)> {
        let schedule = self.schedule()?;
        let notes = schedule.notes(self.at - TimeDelta::hours(2), self.at);
        let note = notes
            .into_iter()
            .find(|note| matches!(note.reason, NoteReason::Skipped | NoteReason::Once))?;
        let near = [-60, -30, 24 * 60, -24 * 60, 7 * 24 * 60, -7 * 24 * 60];
        let is_it = note.at == self.at
            || near.iter().any(|minutes| {
                self.has(schedule, self.at + TimeDelta::minutes(*minutes)) == Some(true)
            });
        Some((is_it, note.message))
    }

    /// That the occurrence of this time is one that a change of the clocks or a calendar has moved.
    pub(super) fn moved(&self) -> Option<Why> {
        let notes = self.schedule()?.notes(self.at - TICK, self.at);
        notes.into_iter().find_map(|note| match note.reason {
            NoteReason::Moved => {
                let why = Why::new(WhyCode::MovedByClockChange, note.message);
                Some(why.with("change", note.at))
            }
            NoteReason::OtherDay => Some(Why::new(WhyCode::MovedByCalendar, note.message)),
            _ => None,
        })
    }
}

/// `at - by`; 1970 if that is out of range.
fn earlier(at: Time, by: TimeDelta) -> Time {
    at.checked_sub_signed(by).unwrap_or(Time::UNIX_EPOCH)
}

/// The period of a schedule that counts from one occurrence to the next, in milliseconds.
pub(super) fn period(schedule: &AnySchedule) -> Option<i64> {
    match schedule {
        AnySchedule::Filtered(filtered) => period(filtered.schedule()),
        AnySchedule::Every(every) => {
            Some(i64::try_from(every.period().as_millis()).unwrap_or(i64::MAX).max(1))
        }
        _ => None,
    }
}
