//! Named calendars: records of the store whose rules stored schedules use by their names.

use super::{Definition, Filter, Found, Schedules, list::PAGE};
use crate::{
    backend::{Action, Edit, JobState, Operation, Page, Replan, Reply},
    error::{Error, ErrorKind, Result},
    name::{CALENDAR, calendar_record},
    schedule::{AnySchedule, Calendar, Schedule as _},
    time::Time,
};
use chrono::TimeDelta;
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

/// The largest number of calendars that one request reads: each may have 10,000 dates.
pub(crate) const AT_ONCE: usize = 16;

/// The longest text of a calendar, in bytes.
const MAX_TEXT: usize = 512 << 10;

/// The number of attempts at a change that other clients or nodes make fail.
const ATTEMPTS: u32 = 8;

/// The number of schedules that an error names.
const NAMED: usize = 3;

/// The name of the record to read. A definition has only names that are valid.
pub(crate) fn record_of(name: &str) -> String {
    format!("{CALENDAR}{name}")
}

/// The calendar in the reply to a read, with the generation of its record.
pub(crate) fn of_reply(name: &str, reply: &Reply) -> (Option<i64>, Found) {
    match reply {
        Reply::State(state) => (Some(state.generation), of_state(name, state)),
        _ => (None, Err(missing(name))),
    }
}

fn of_state(name: &str, state: &JobState) -> Found {
    let unread = |why: String| format!("the calendar {name:?} cannot be read: {why}");
    if let Some(reason) = &state.unreadable {
        return Err(unread(reason.clone()));
    }
    Calendar::parse(&state.definition).map(Arc::new).map_err(|error| unread(error.to_string()))
}

fn missing(name: &str) -> String {
    format!(
        "the calendar {name:?} is not in the store; put it there with `Schedules::upsert_calendar` or \
         `allora calendar put {name} FILE`"
    )
}

/// Calendars as they were read from the store.
#[derive(Default)]
pub(super) struct Calendars(HashMap<String, Found>);

impl Calendars {
    /// The definition with its calendars.
    ///
    /// # Errors
    /// `Invalid` if the store lacks one of them.
    pub(super) fn give(&self, definition: Definition) -> Result<Definition> {
        definition.with_calendars(|name| match self.0.get(name) {
            Some(found) => found.clone(),
            None => Err(missing(name)),
        })
    }
}

impl Schedules {
    /// Adds a named calendar, or replaces the one of its name: an upsert. Stored schedules use it with
    /// the rule `except calendar:NAME` in the text of their schedule. A name is one word of up to 184
    /// bytes, without commas and semicolons.
    ///
    /// Returns the names of the schedules whose next occurrence is planned anew, because it is not
    /// excluded any more, or is moved to another day. For that, it reads all stored schedules. A planned occurrence that is
    /// excluded now is recorded as skipped, with the reason `Calendar`, when its time comes.
    ///
    /// A node learns of the change at once if the store has notifications, and otherwise within its
    /// [heartbeat](crate::SchedulerBuilder::heartbeat), 15 s by default. Until then it decides by the former
    /// rules about occurrences that are due in that time. What was claimed before runs.
    ///
    /// ```
    /// use allora::{Schedules, StoredSchedule, schedule::Calendar};
    /// # use allora::runtime::Sim;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let sim = Sim::new(1);
    /// # let store = allora::Memory::new();
    /// # sim.block_on(async {
    /// let schedules = Schedules::on(store, sim.node())?;
    /// let holidays = Calendar::parse("2026-12-25 # Christmas\n2026-12-26\n2027-01-01")?;
    /// schedules.upsert_calendar("holidays-de", &holidays).await?;
    ///
    /// let text = "0 9 * * MON-FRI; except calendar:holidays-de";
    /// schedules.add(&StoredSchedule::new("acme/report", "report", text)).await?;
    /// assert_eq!(schedules.calendar("holidays-de").await?, holidays);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Invalid` for a bad name, or a calendar whose text is longer than 512 KiB; `AlreadyExists` if
    /// other clients change it all the time; `Unavailable`: it may have been stored, and some schedules
    /// may not have been looked at. Repeat the call.
    ///
    /// # Cancel safety
    /// As for `Unavailable`.
    pub async fn upsert_calendar(&self, name: &str, calendar: &Calendar) -> Result<Vec<String>> {
        let (record, text) = (calendar_record(name)?, calendar.to_string());
        if text.len() > MAX_TEXT {
            let len = text.len();
            return Err(Error::invalid(format!(
                "the calendar {name:?} has {len} bytes, more than {MAX_TEXT}; put a part of it into \
                 another calendar"
            )));
        }
        let mut attempt = 1;
        loop {
            let register = Action::Register { definition: &text, version: 0, first: None };
            let seen = match self.state_of(&record).await? {
                Some(state) if state.definition == text => break,
                Some(state) => state,
                None => self.change(&record, register).await?,
            };
            // Nodes are notified of a modification only.
            let definition = Some((text.as_str(), Replan::default()));
            let edit = Edit { definition, ..Edit::of(seen.generation) };
            match self.change(&record, Action::Modify(edit)).await {
                // Another client has changed or deleted it.
                Err(error) if attempt < ATTEMPTS && is_race(&error) => attempt += 1,
                changed => {
                    changed?;
                    break;
                }
            }
        }
        self.bring_forward(name).await
    }

    /// The calendar of this name.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` if a later build has written it; `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn calendar(&self, name: &str) -> Result<Calendar> {
        match self.state_of(&calendar_record(name)?).await? {
            Some(state) => readable(name, &state),
            None => Err(Error::new(ErrorKind::NotFound, missing(name))),
        }
    }

    /// The next `limit` calendars with names after `after`, by name. One that a later build has written
    /// is an error in its place.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn calendars(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Result<Calendar>)>> {
        let mut calendars = Vec::new();
        let mut after = after.map(record_of);
        while calendars.len() < limit {
            let size = (limit - calendars.len()).min(AT_ONCE);
            let mut page = Page::first(size).prefix(CALENDAR);
            page.after = after.as_deref();
            let states = self.within("list", self.queries()?.list(page)).await?;
            let is_last = states.len() < size;
            for state in &states {
                let name = state.name.strip_prefix(CALENDAR).unwrap_or(&state.name);
                calendars.push((name.to_owned(), readable(name, state)));
            }
            if is_last {
                break;
            }
            after = states.into_iter().last().map(|state| state.name);
        }
        Ok(calendars)
    }

    /// The names of the stored schedules that use a calendar, the first `limit` by name. Reads the list
    /// of schedules.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn calendar_users(&self, name: &str, limit: usize) -> Result<Vec<String>> {
        let mut users = Vec::new();
        let mut pages = self.pages(Filter::default(), None);
        while users.len() < limit {
            let Some(states) = pages.next(PAGE).await? else { break };
            let users_of = states.iter().filter(|state| uses(state, name).is_some());
            users.extend(users_of.map(|state| state.name.clone()));
        }
        users.truncate(limit);
        Ok(users)
    }

    /// Deletes a calendar that no stored schedule uses.
    ///
    /// A schedule that is added or changed at the same time may name it nevertheless. Nodes then report
    /// the schedule as invalid with the name of the calendar, and run it when the calendar is there
    /// again.
    ///
    /// # Errors
    /// `Invalid` with the names of some schedules, if schedules use it; `NotFound`; `Unavailable`.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have deleted it. Delete it again.
    pub async fn delete_calendar(&self, name: &str) -> Result {
        let record = calendar_record(name)?;
        let users = self.calendar_users(name, NAMED + 1).await?;
        if !users.is_empty() {
            let names: Vec<String> =
                users.iter().take(NAMED).map(|user| format!("{user:?}")).collect();
            let more = if users.len() > NAMED { " and others" } else { "" };
            let names = names.join(", ");
            return Err(Error::invalid(format!(
                "the calendar {name:?} is used by {names}{more}; change or delete these schedules first"
            )));
        }
        self.delete(&record).await.map_err(|error| match error.kind() {
            ErrorKind::NotFound => Error::new(ErrorKind::NotFound, missing(name)),
            _ => error,
        })
    }

    /// The definition of a stored schedule, with its named calendars as the store has them now.
    ///
    /// # Errors
    /// `Invalid` if it cannot be read, or the store lacks a calendar; `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn definition(&self, state: &JobState) -> Result<Definition> {
        let definition = Definition::parse(&state.name, &state.definition)?;
        self.calendars_of([&definition]).await?.give(definition)
    }

    /// The calendars that these definitions name.
    pub(super) async fn calendars_of<'a>(
        &self,
        definitions: impl IntoIterator<Item = &'a Definition>,
    ) -> Result<Calendars> {
        let names: BTreeSet<&str> =
            definitions.into_iter().flat_map(Definition::calendars).collect();
        let names: Vec<&str> = names.into_iter().collect();
        let mut calendars = Calendars::default();
        for names in names.chunks(AT_ONCE) {
            let records: Vec<String> = names.iter().map(|name| record_of(name)).collect();
            let reads: Vec<Operation<'_>> =
                records.iter().map(|record| Operation::read(record)).collect();
            let replies = self.apply("calendar", &reads).await?;
            for (name, reply) in names.iter().zip(replies) {
                calendars.0.insert((*name).to_owned(), of_reply(name, &reply?).1);
            }
        }
        Ok(calendars)
    }

    /// Of these schedules, the names of those with calendars that the store lacks.
    pub(super) async fn lacking_calendars(&self, states: &[JobState]) -> Result<HashSet<String>> {
        let definitions: Vec<(&str, Definition)> = states
            .iter()
            .filter(|state| state.definition.contains("calendar:"))
            .filter_map(|state| {
                let definition = Definition::parse(&state.name, &state.definition).ok()?;
                Some((state.name.as_str(), definition))
            })
            .collect();
        let calendars = self.calendars_of(definitions.iter().map(|(_, one)| one)).await?;
        let lacks =
            |(name, one): (&str, Definition)| calendars.give(one).is_err().then(|| name.to_owned());
        Ok(definitions.into_iter().filter_map(lacks).collect())
    }

    async fn state_of(&self, record: &str) -> Result<Option<JobState>> {
        Ok(self.apply_one("calendar", &Operation::read(record)).await??.state())
    }

    /// Moves the cursors of the schedules that use a calendar to earlier occurrences that it does not
    /// exclude any more, or to the day to which it moves them now. Returns the names of these schedules.
    async fn bring_forward(&self, calendar: &str) -> Result<Vec<String>> {
        let now = self.recent_store_time().await?;
        let mut moved = Vec::new();
        let mut pages = self.pages(Filter::default(), None);
        while let Some(states) = pages.next(PAGE).await? {
            let users: Vec<(JobState, Definition)> = states
                .into_iter()
                .filter_map(|state| uses(&state, calendar).map(|definition| (state, definition)))
                .collect();
            let calendars =
                self.calendars_of(users.iter().map(|(_, definition)| definition)).await?;
            for (state, definition) in users {
                // Without its other calendars, no node runs it.
                let Ok(definition) = calendars.give(definition) else { continue };
                let name = state.name.clone();
                if self.bring_one_forward(state, &definition, now).await? {
                    moved.push(name);
                }
            }
        }
        Ok(moved)
    }

    async fn bring_one_forward(
        &self,
        mut seen: JobState,
        definition: &Definition,
        now: Time,
    ) -> Result<bool> {
        let text = seen.definition.clone();
        for _ in 0..ATTEMPTS {
            let Some(plan) = earlier(definition, &seen, now)? else { return Ok(false) };
            let edit =
                Edit { definition: Some((text.as_str(), plan)), ..Edit::of(seen.generation) };
            match self.change(&seen.name, Action::Modify(edit)).await {
                Ok(_) => return Ok(true),
                // Claimed, changed or deleted since.
                Err(error) if is_race(&error) || error.kind() == ErrorKind::Invalid => {}
                Err(error) => return Err(error),
            }
            match self.state_of(&seen.name).await? {
                Some(state) if state.definition == text => seen = state,
                // The client that has changed it has planned it by the present calendar.
                _ => return Ok(false),
            }
        }
        Ok(false)
    }
}

fn readable(name: &str, state: &JobState) -> Result<Calendar> {
    let calendar = of_state(name, state).map_err(Error::invalid)?;
    Ok(Arc::unwrap_or_clone(calendar))
}

fn is_race(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound)
}

/// The definition of a stored schedule that uses this calendar.
fn uses(state: &JobState, calendar: &str) -> Option<Definition> {
    // Most schedules need not be parsed.
    if state.kind.is_empty() || !state.definition.contains("calendar:") {
        return None;
    }
    let definition = Definition::parse(&state.name, &state.definition).ok()?;
    definition.calendars().contains(calendar).then_some(definition)
}

/// The plan of an occurrence that comes before the one that is planned; `None` if there is none.
fn earlier(definition: &Definition, seen: &JobState, now: Time) -> Result<Option<Replan>> {
    if definition.schedule().moved(now).is_some() {
        return moved(definition, seen, now);
    }
    let begun = seen.next.filter(|next| seen.last_started >= Some(next.scheduled_at));
    // The next one follows the end of the run.
    if begun.is_some() && definition.follows_end() {
        return Ok(None);
    }
    let open = seen.next.filter(|_| begun.is_none()).map(|next| next.scheduled_at);
    // An occurrence that is due stays.
    if open.is_some_and(|at| at <= now) {
        return Ok(None);
    }
    let after = match (begun, open.or(seen.last_started)) {
        (Some(begun), _) => begun.scheduled_at,
        (None, Some(anchor)) => in_phase(definition.schedule(), anchor, now),
        (None, None) => now,
    };
    let after = seen.last_started.map_or(after, |last| after.max(last));
    let then = definition.following(&seen.name, after, seen.counters.started)?;
    let then = then.filter(|then| open.is_none_or(|open| then.scheduled_at < open));
    Ok(then.map(|then| Replan::new(seen.next, Some(then))))
}

/// The plan where the calendar moves the occurrences: the one that is planned keeps its place, and is
/// due when the calendar says now, unless another one comes before it.
fn moved(definition: &Definition, seen: &JobState, now: Time) -> Result<Option<Replan>> {
    let (name, last) = (&seen.name, seen.last_started);
    let open = seen.next.filter(|next| last < Some(next.scheduled_at));
    if open.is_some_and(|open| open.due_at <= now) {
        return Ok(None);
    }
    let after = last.map_or(now, |last| last.max(now));
    let earlier = definition.following(name, after, seen.counters.started)?;
    let is_before = |at: Time| open.is_none_or(|open| at < open.scheduled_at);
    // What has passed by its moved time was left out, or has run.
    let earlier = earlier.filter(|next| is_before(next.scheduled_at) && next.due_at > now);
    let again = || {
        let open = open?;
        definition.occurrence(name, open.scheduled_at).filter(|again| again.due_at != open.due_at)
    };
    Ok(earlier.or_else(again).map(|then| Replan::new(seen.next, Some(then))))
}

/// The last instant up to `now` from which the schedule counts as from an occurrence: that of a period
/// is whole periods away from it.
fn in_phase(schedule: &AnySchedule, occurrence: Time, now: Time) -> Time {
    match schedule {
        AnySchedule::Filtered(filtered) => in_phase(filtered.schedule(), occurrence, now),
        AnySchedule::Every(every) => {
            let period = i64::try_from(every.period().as_millis()).unwrap_or(i64::MAX);
            let past = (now - occurrence).num_milliseconds().rem_euclid(period.max(1));
            now - TimeDelta::milliseconds(past)
        }
        _ => now,
    }
}
