//! The stored schedules of a store, as applications and operators handle them.

use super::{Definition, Stored};
use crate::{
    backend::{self, Backend, Change, NewSchedule, Next, Now, Occurrence, Page, Reschedule, State},
    error::{Error, Kind, Result},
    name::check_free,
    runtime::{Runtime, detect},
    schedule::Schedule as _,
    time::Time,
};
use chrono::SecondsFormat;
use futures::future::{Either, select};
use std::{collections::BinaryHeap, fmt, pin::pin, sync::Arc, time::Duration};

/// The stored schedules of a store: added, looked at, changed and removed while everything runs.
///
/// ```
/// use allora_core::{Schedules, Stored};
/// # use allora_core::runtime::Sim;
///
/// # fn main() -> allora_core::Result {
/// # let sim = Sim::new(1);
/// # let store = allora_memory::Memory::new();
/// # sim.block_on(async {
/// let schedules = Schedules::on(store, sim.node())?;
/// let report = Stored::new("acme/report", "report", "0 9 * * MON-FRI").zone("Europe/Paris");
/// schedules.add(&report).await?;
///
/// let later = Stored::of(&schedules.get("acme/report").await?)?.schedule("0 10 * * MON-FRI");
/// schedules.modify(&later).await?;
/// assert!(schedules.exists("acme/report").await?);
/// # allora_core::Result::Ok(())
/// # })
/// # }
/// ```
#[derive(Clone)]
pub struct Schedules {
    backend: Arc<dyn Backend>,
    runtime: Arc<dyn Runtime>,
    deadline: Duration,
}

/// What becomes of the instants that passed while a schedule was paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// The catch-up policy decides, as after an outage.
    CatchUp,
    /// They are recorded as missed, and the schedule goes on from now.
    Missed,
}

/// Which schedules to list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Filter<'a> {
    /// Names that begin so.
    pub prefix: &'a str,
    /// Of this kind only.
    pub kind: Option<&'a str>,
    /// In this condition only.
    pub condition: Option<Condition>,
}

/// What a schedule is found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It waits for its time.
    Waiting,
    /// A run of it is alive.
    Running,
    /// It is paused.
    Paused,
    /// It has nothing more to run.
    Ended,
    /// It has dead letters.
    Dead,
    /// Its record or its definition cannot be read.
    Broken,
}

impl Condition {
    /// Whether the schedule is found in it; a paused one may be running, and have dead letters.
    pub fn holds(self, state: &State) -> bool {
        let idle = state.parked.is_none() && state.holds.is_empty() && state.paused.is_none();
        match self {
            Condition::Waiting => idle && state.due_at.is_some(),
            Condition::Running => !state.holds.is_empty(),
            Condition::Paused => state.paused.is_some(),
            Condition::Ended => idle && state.due_at.is_none(),
            Condition::Dead => !state.dead.is_empty(),
            Condition::Broken => {
                let unread = || Definition::parse(&state.name, &state.definition).is_err();
                state.parked.is_some() || (!state.kind.is_empty() && unread())
            }
        }
    }
}

impl<'a> Filter<'a> {
    /// Names that begin so.
    #[must_use]
    pub fn prefix(mut self, prefix: &'a str) -> Self {
        self.prefix = prefix;
        self
    }

    /// Of this kind only.
    #[must_use]
    pub fn kind(mut self, kind: &'a str) -> Self {
        self.kind = Some(kind);
        self
    }

    /// In this condition only.
    #[must_use]
    pub fn condition(mut self, condition: Condition) -> Self {
        self.condition = Some(condition);
        self
    }
}

/// How many schedules one request of a list reads.
pub(super) const PAGE: usize = 500;

/// How many schedules one request adds.
pub(super) const BATCH: usize = 500;

/// How many runs one backfill asks for at most: as many as may wait.
pub const MAX_BACKFILL: usize = crate::record::MAX_TRIGGERS;

impl Schedules {
    /// The stored schedules of this backend, on the runtime that is found
    /// ([`detect`](crate::runtime::detect)).
    ///
    /// # Errors
    /// `Unsupported` if the backend has none, `Invalid` if no runtime is found.
    pub fn new(backend: impl Backend) -> Result<Self> {
        let runtime = detect()?;
        Self::from_parts(Arc::new(backend), runtime)
    }

    /// As [`new`](Self::new), on this runtime.
    ///
    /// # Errors
    /// `Unsupported` if the backend has no stored schedules.
    pub fn on(backend: impl Backend, runtime: impl Runtime) -> Result<Self> {
        Self::from_parts(Arc::new(backend), Arc::new(runtime))
    }

    pub(crate) fn from_parts(backend: Arc<dyn Backend>, runtime: Arc<dyn Runtime>) -> Result<Self> {
        let schedules = Self { backend, runtime, deadline: Duration::from_secs(10) };
        schedules.store()?;
        Ok(schedules)
    }

    /// How long one request may take; 10 s unless given.
    #[must_use]
    pub fn call_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Adds a schedule; answers with its state, in which its first occurrence is.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken; `Invalid`: what is refused, and where; `Unavailable`.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have added it; add it again, or look.
    pub async fn add(&self, stored: &Stored) -> Result<State> {
        let mut added = self.add_all(std::slice::from_ref(stored)).await?;
        added.pop().unwrap_or_else(|| Err(Error::new(Kind::Other, "the backend gave no answer")))
    }

    /// Adds any number of schedules, each decided alone; answers by position.
    ///
    /// # Errors
    /// Of one schedule as [`add`](Self::add). Of the call: `Unavailable`; then some may have been
    /// added, and are answered with `AlreadyExists` when it is made again.
    ///
    /// # Cancel safety
    /// As [`add`](Self::add).
    pub async fn add_all(&self, stored: &[Stored]) -> Result<Vec<Result<State>>> {
        let now = self.store_now().await?;
        let mut answers = Vec::with_capacity(stored.len());
        for stored in stored.chunks(BATCH) {
            answers.extend(self.add_batch(stored, now).await?);
        }
        Ok(answers)
    }

    async fn add_batch(&self, stored: &[Stored], now: Time) -> Result<Vec<Result<State>>> {
        let planned: Vec<Result<Planned<'_>>> =
            stored.iter().map(|stored| Planned::first(stored, now)).collect();
        let new: Vec<NewSchedule<'_>> = planned.iter().flatten().map(Planned::as_new).collect();
        let mut added = self.add_new(&new).await?.into_iter();
        let answer = |planned: Result<Planned<'_>>| match planned {
            Ok(_) => added.next().unwrap_or_else(|| Err(Error::new(Kind::Other, "no answer"))),
            Err(error) => Err(error),
        };
        Ok(planned.into_iter().map(answer).collect())
    }

    pub(super) async fn add_new(&self, new: &[NewSchedule<'_>]) -> Result<Vec<Result<State>>> {
        if new.is_empty() {
            return Ok(Vec::new());
        }
        let added = self.within("add", self.store()?.add(new, self.now())).await?;
        if added.len() != new.len() {
            let fewer = "the backend did not give one answer to each that was to be added";
            return Err(Error::new(Kind::Other, fewer).op("add"));
        }
        Ok(added)
    }

    /// The job of this name, stored or in code.
    ///
    /// # Errors
    /// `NotFound`, `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn get(&self, name: &str) -> Result<State> {
        self.within("get", self.store()?.get(name)).await
    }

    /// Whether there is a job of this name, stored or in code.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn exists(&self, name: &str) -> Result<bool> {
        match self.get(name).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == Kind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The next `limit` jobs whose names come after `after`, by name: the stores keep that order,
    /// and what comes and goes meanwhile does not shift its pages.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn list(
        &self,
        filter: Filter<'_>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<State>> {
        let mut listed = Vec::new();
        let mut after = after.map(str::to_owned);
        while listed.len() < limit {
            // With a condition, most of a page may not be wanted.
            let size = filter.condition.map_or((limit - listed.len()).min(PAGE), |_| PAGE);
            let states = self.page(filter, after.as_deref(), size).await?;
            let is_last = states.len() < size;
            after = states.last().map(|state| state.name.clone());
            listed.extend(states.into_iter().filter(|state| is_in(filter, state)));
            if is_last {
                break;
            }
        }
        listed.truncate(limit);
        Ok(listed)
    }

    /// The `limit` jobs that are due first, the earliest first; those that wait for nothing are
    /// behind all others. Reads the whole list: no store keeps this order for all kinds, and it
    /// changes with every run.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn list_by_due(&self, filter: Filter<'_>, limit: usize) -> Result<Vec<State>> {
        let mut first: BinaryHeap<ByDue> = BinaryHeap::new();
        let mut after: Option<String> = None;
        loop {
            let states = self.page(filter, after.as_deref(), PAGE).await?;
            let is_last = states.len() < PAGE;
            after = states.last().map(|state| state.name.clone());
            for state in states.into_iter().filter(|state| is_in(filter, state)) {
                first.push(ByDue(state));
                if first.len() > limit {
                    first.pop();
                }
            }
            if is_last {
                return Ok(first.into_sorted_vec().into_iter().map(|by_due| by_due.0).collect());
            }
        }
    }

    async fn page(
        &self,
        filter: Filter<'_>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<State>> {
        let mut page = Page::first(limit).prefix(filter.prefix);
        page.after = after;
        page.kind = filter.kind;
        self.within("list", self.store()?.list(page)).await
    }

    /// Stores what was changed, and plans it anew: what runs goes on, a due instant that the new
    /// schedule has too stays, and one that it does not have is recorded as missed.
    ///
    /// `stored` is made with [`Stored::of`] from what was read, so that of two editors who read the
    /// same state, the second is told.
    ///
    /// # Errors
    /// `AlreadyExists` if it was changed since it was read; `NotFound`; `Invalid`: what is refused,
    /// and where. Whatever it is, nothing was changed. `Unavailable`.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have changed it; read it again.
    pub async fn modify(&self, stored: &Stored) -> Result<State> {
        let Some(edition) = stored.edition else {
            return Err(Error::invalid(format!(
                "{:?} is modified without having been read: make it with `Stored::of`",
                stored.name
            )));
        };
        let (definition, data) = (stored.definition()?, stored.bytes()?);
        let text = definition.to_string();
        let mut seen = self.get(&stored.name).await?;
        loop {
            let next = self.replanned(stored, &definition, &seen).await?;
            let kind = (seen.kind != stored.kind).then_some(stored.kind.as_str());
            let definition = (seen.definition != text || stored.first_run.is_some())
                .then_some((text.as_str(), next));
            let data = (seen.data != data).then_some(data);
            if kind.is_none() && definition.is_none() && data.is_none() && seen.edition == edition {
                return Ok(seen);
            }
            let edit = Change::Edit { edition, kind, definition, data };
            let error = match self.change(&stored.name, edit).await {
                Err(error) if error.kind() == Kind::Invalid => error,
                answer => return answer,
            };
            // What it was planned by may have been started since: plan by that.
            let now_seen = self.get(&stored.name).await?;
            if now_seen.last_started == seen.last_started {
                return Err(error);
            }
            seen = now_seen;
        }
    }

    /// The next occurrence under another definition.
    async fn replanned(
        &self,
        stored: &Stored,
        definition: &Definition,
        seen: &State,
    ) -> Result<Option<Next>> {
        let name = stored.name.as_str();
        let now = self.store_now().await?;
        let started = seen.counters.started;
        let open = seen.cursor.filter(|cursor| seen.last_started < Some(cursor.at));
        let before = |at: Time| at - chrono::TimeDelta::milliseconds(1);
        let same = Definition::parse(name, &seen.definition).is_ok_and(|old| {
            (old.schedule(), old.settings().start)
                == (definition.schedule(), definition.settings().start)
        });
        let next = match open {
            Some(cursor) if same || (cursor.at <= now && definition.has(name, cursor.at)) => {
                // Within the new bounds, and due as the new delay says.
                let settings = definition.settings();
                let ends = settings.end.is_some_and(|end| cursor.at > end)
                    || settings.max_runs.is_some_and(|max| started >= max);
                if ends { None } else { settings.next(name, cursor.at) }
            }
            Some(_) | None => {
                let last = seen.last_started.map_or(before(now), |last| last.max(before(now)));
                let after = if same { seen.last_started.unwrap_or(last) } else { last };
                definition.following(name, after, started)?
            }
        };
        first_run(stored, next)
    }

    /// Removes a job; what runs of it is cancelled.
    ///
    /// # Errors
    /// `NotFound`, `Unavailable`.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have removed it; remove it again.
    pub async fn delete(&self, name: &str) -> Result {
        self.within("delete", self.store()?.delete(name, self.now())).await
    }

    /// Stops a schedule, and says why; triggers still run, and so does what was begun.
    ///
    /// # Errors
    /// `NotFound`, `Unavailable`.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have paused it; pause it again.
    pub async fn pause(&self, name: &str, note: &str) -> Result<State> {
        self.change(name, Change::Pause { note }).await
    }

    /// Starts a paused schedule again.
    ///
    /// # Errors
    /// `NotFound`, `Unavailable`; with [`Gap::Missed`] `Invalid` if the definition cannot be read.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have resumed it; resume it again.
    pub async fn resume(&self, name: &str, gap: Gap) -> Result<State> {
        let skip_to = match gap {
            Gap::CatchUp => None,
            Gap::Missed => {
                let seen = self.get(name).await?;
                let definition = Definition::parse(name, &seen.definition)?;
                let now = self.store_now().await?;
                match seen.cursor.filter(|cursor| cursor.at <= now) {
                    // From the last that passed: an interval stays on its grid.
                    Some(cursor) => {
                        let passed = definition.schedule().latest_at(cursor.at, now);
                        let passed = passed.unwrap_or(now);
                        let after = seen.last_started.map_or(passed, |last| last.max(passed));
                        definition.following(name, after, seen.counters.started)?
                    }
                    None => None,
                }
            }
        };
        self.change(name, Change::Resume { skip_to }).await
    }

    /// One run beside the schedule, now; `id` is the trigger's own, and the same id again while it
    /// waits or runs changes nothing.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for a bad id, or if too many wait; `Unavailable`.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have pulled it; pull it again with the same id.
    pub async fn trigger(&self, name: &str, id: &str) -> Result<State> {
        self.change(name, Change::Trigger { id, at: None }).await
    }

    /// One run beside the schedule for each of its instants after `from` and up to `until`, both in
    /// the past; answers with them. The run's [`scheduled_at`](crate::Run::scheduled_at) is the
    /// instant, its [`trigger`](crate::Run::trigger) `backfill`, and its occurrence key is the same
    /// however often it is backfilled. The same instant again while it waits or runs changes
    /// nothing.
    ///
    /// # Errors
    /// `Invalid`, before anything is done, if the range has more than [`MAX_BACKFILL`] instants, or
    /// reaches beyond now; `NotFound`, `Unavailable`.
    ///
    /// # Cancel safety
    /// A dropped call may have asked for a part; ask for the same range again.
    pub async fn backfill(&self, name: &str, from: Time, until: Time) -> Result<Vec<Occurrence>> {
        let seen = self.get(name).await?;
        let definition = Definition::parse(name, &seen.definition)?;
        let now = self.store_now().await?;
        if until > now {
            let until = until.to_rfc3339_opts(SecondsFormat::Millis, true);
            let future = format!("{until} is not in the past; what is to come needs no backfill");
            return Err(Error::invalid(future).op("backfill"));
        }
        let instants = crate::schedule::between(definition.schedule(), from, until);
        let instants: Vec<Time> = instants.take(MAX_BACKFILL + 1).collect();
        if instants.len() > MAX_BACKFILL {
            let many = format!(
                "the range has more than {MAX_BACKFILL} instants of {name:?}; backfill it in parts"
            );
            return Err(Error::invalid(many).op("backfill"));
        }
        let mut filled = Vec::with_capacity(instants.len());
        for at in instants {
            self.change(name, Change::Trigger { id: "backfill", at: Some(at) }).await?;
            filled.push(Occurrence { at, trigger: Some("backfill".to_owned()) });
        }
        Ok(filled)
    }

    /// The next `n` occurrences of a schedule, as they stand now: what waits in the store first.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` if the definition cannot be read; `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn next(&self, name: &str, n: usize) -> Result<Vec<Next>> {
        let seen = self.get(name).await?;
        let definition = Definition::parse(name, &seen.definition)?;
        let mut next = seen.cursor;
        let mut started = seen.counters.started;
        let mut coming = Vec::new();
        while let Some(it) = next.filter(|_| coming.len() < n) {
            coming.push(it);
            started += u64::from(seen.last_started < Some(it.at));
            next = definition.following(name, it.at, started)?;
        }
        Ok(coming)
    }

    /// Has an occurrence that failed for good run again: the same one, its attempts counted anew.
    ///
    /// # Errors
    /// `NotFound`, also of the dead letter; `Unavailable`.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have done it; a second one then finds no dead letter.
    pub async fn rerun(&self, name: &str, run: &Occurrence) -> Result<State> {
        self.change(name, Change::Rerun { run }).await
    }

    /// Forgets an occurrence that failed for good.
    ///
    /// # Errors
    /// As [`rerun`](Self::rerun).
    ///
    /// # Cancel safety
    /// As [`rerun`](Self::rerun).
    pub async fn dismiss(&self, name: &str, run: &Occurrence) -> Result<State> {
        self.change(name, Change::Dismiss { run }).await
    }

    /// The store's time.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn store_now(&self) -> Result<Time> {
        let request = Reschedule::new("client", self.now(), &[]);
        let answer = self.within("look", self.backend.reschedule(request)).await?;
        Ok(crate::time::whole_millis(answer.now))
    }

    pub(super) async fn change(&self, name: &str, change: Change<'_>) -> Result<State> {
        self.within("modify", self.store()?.modify(name, change, self.now())).await
    }

    pub(super) fn store(&self) -> Result<&dyn backend::Schedules> {
        self.backend.schedules().ok_or_else(|| {
            let cannot = format!("{:?} has no stored schedules; use another backend", self.backend);
            Error::new(Kind::Unsupported, cannot)
        })
    }

    pub(super) fn now(&self) -> Now {
        Now::Store { node: self.runtime.wall() }
    }

    /// Awaits a request for as long as one may take.
    pub(super) async fn within<T>(
        &self,
        op: &'static str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let deadline = self.deadline;
        let limit = self.runtime.sleep_until(self.runtime.now() + deadline);
        match select(pin!(call), limit).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => {
                let late = format!("the store did not answer within {deadline:?}");
                Err(Error::new(Kind::Unavailable, late).op(op))
            }
        }
    }
}

impl fmt::Debug for Schedules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedules").field("backend", &self.backend).finish_non_exhaustive()
    }
}

fn is_in(filter: Filter<'_>, state: &State) -> bool {
    filter.condition.is_none_or(|condition| condition.holds(state))
}

/// A schedule that is to be added, and all that the request borrows from.
pub(super) struct Planned<'a> {
    stored: &'a Stored,
    text: String,
    first: Option<Next>,
    data: &'a [u8],
}

impl<'a> Planned<'a> {
    pub(super) fn first(stored: &'a Stored, now: Time) -> Result<Self> {
        check_free(&stored.name)?;
        let definition = stored.definition().map_err(|error| {
            Error::new(error.kind(), format!("{:?}: {error}", stored.name)).source(error)
        })?;
        let next = definition.first(&stored.name, now)?;
        if next.is_none() {
            return Err(Error::invalid(format!(
                "{:?} would never run: `{definition}` has no occurrence after {}",
                stored.name,
                now.to_rfc3339_opts(SecondsFormat::Millis, true)
            )));
        }
        let (first, data) = (first_run(stored, next)?, stored.bytes()?);
        Ok(Self { stored, text: definition.to_string(), first, data })
    }

    pub(super) fn definition(&self) -> &str {
        &self.text
    }

    fn as_new(&self) -> NewSchedule<'_> {
        NewSchedule::new(&self.stored.name, &self.stored.kind, &self.text, self.first)
            .data(self.data)
    }
}

/// The next occurrence, due when the application says, if it does.
fn first_run(stored: &Stored, next: Option<Next>) -> Result<Option<Next>> {
    let (Some(run_at), Some(next)) = (stored.first_run, next) else { return Ok(next) };
    let due_at = crate::time::whole_millis(run_at);
    if due_at < next.at {
        return Err(Error::invalid(format!(
            "{:?} cannot run first at {}: its scheduled time is {}, and nothing runs before that",
            stored.name,
            due_at.to_rfc3339_opts(SecondsFormat::Millis, true),
            next.at.to_rfc3339_opts(SecondsFormat::Millis, true)
        )));
    }
    Ok(Some(Next { at: next.at, due_at }))
}

/// Ordered by due time and name; what is never due last.
struct ByDue(State);

impl ByDue {
    fn key(&self) -> (bool, Option<Time>, &str) {
        (self.0.due_at.is_none(), self.0.due_at, &self.0.name)
    }
}

impl PartialEq for ByDue {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for ByDue {}

impl PartialOrd for ByDue {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByDue {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}
