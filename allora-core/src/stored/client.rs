//! The client for the stored schedules of a store: add, read, change, remove.

use super::{
    Definition, StoredSchedule,
    errors::no_history,
    history::history_page,
    planned::{Planned, replanned},
    requests::{BATCH, Requests, sent_or},
    shared_requests::SharedRequests,
    shortest_period::ShortestPeriod,
};
use crate::{
    backend::{
        Action, Author, Backend, Edit, History, HistoryEntry, HistoryLimits, HistoryQuery,
        JobState, Notification, Operation, Queries, Reply, TimeSource, no_reply,
    },
    error::{Error, ErrorKind, Result},
    monotonic::{self, later},
    record::TRIGGER_RETENTION,
    runtime::{Runtime, detect},
    time::{Time, whole_millis},
};
use futures::stream::BoxStream;
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// The stored schedules of a store. They are added, read, changed and removed while nodes run.
///
/// ```
/// use allora::{Schedules, StoredSchedule};
/// # use allora::runtime::Sim;
///
/// # fn main() -> allora::Result {
/// # let sim = Sim::new(1);
/// # let store = allora::Memory::new();
/// # sim.block_on(async {
/// let schedules = Schedules::on(store, sim.node())?;
/// let report = StoredSchedule::new("acme/report", "report", "0 9 * * MON-FRI").in_zone("Europe/Paris");
/// schedules.add(&report).await?;
///
/// let later = StoredSchedule::of(&schedules.get("acme/report").await?)?.schedule("0 10 * * MON-FRI");
/// schedules.modify(&later).await?;
/// assert!(schedules.exists("acme/report").await?);
/// # allora::Result::Ok(())
/// # })
/// # }
/// ```
///
/// # Concurrent calls
/// Calls that change one job each, and that come while a request of the same client is on its way, are
/// sent together as one request: of this client and its clones. Make one client, and clone it. A call
/// that is alone is sent at once. One of many takes up to two requests: the one before it, and its own.
/// The error of one operation is that of its call; the failure of a request is that of all its calls. A
/// dropped call, or one whose time is up, ends no other one: its operation is not sent, if it still
/// waits, and may be applied otherwise.
///
/// ```
/// use allora::{Schedules, StoredSchedule};
/// use futures::future::try_join_all;
///
/// # async fn example(schedules: Schedules, tenants: Vec<String>) -> allora::Result {
/// let all: Vec<StoredSchedule> =
///     tenants.iter().map(|tenant| StoredSchedule::new(tenant, "report", "@daily")).collect();
/// try_join_all(all.iter().map(|stored| schedules.add(stored))).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Schedules {
    pub(super) requests: Arc<Requests>,
    shared: Arc<SharedRequests>,
    deadline: Duration,
    /// The time for which the ids of triggers are remembered.
    pub(super) trigger_retention: Duration,
    /// The number of deletions; `None` if they remove nothing else.
    deleted: Option<Arc<AtomicU64>>,
    /// The author of its changes.
    author: Option<Arc<Author>>,
    /// The shortest periods of the schedules that it stores.
    pub(super) shortest_periods: Vec<ShortestPeriod>,
}

/// A deletion in this number also removes old tombstones: every store removes more than that at once.
const PRUNE_EVERY: u64 = 10;

/// The longest time for which a deletion waits for that.
const PRUNE_TIMEOUT: Duration = Duration::from_secs(1);

/// A time limit that ends nothing.
const UNBOUNDED: Duration = Duration::from_secs(365 * 86_400);

/// The part of the time limit of a request after which it keeps no concurrent calls waiting.
const PATIENCE: u32 = 8;

impl Schedules {
    /// The stored schedules of this backend, on the current runtime
    /// ([`detect`](crate::runtime::detect)).
    ///
    /// # Errors
    /// `Unsupported` if the backend has no stored schedules, `Invalid` if there is no runtime.
    pub fn new(backend: impl Backend) -> Result<Self> {
        let runtime = detect()?;
        Self::from_parts(Arc::new(backend), runtime).checked()
    }

    /// As [`new`](Self::new), on this runtime.
    ///
    /// # Errors
    /// `Unsupported` if the backend has no stored schedules.
    pub fn on(backend: impl Backend, runtime: impl Runtime) -> Result<Self> {
        Self::from_parts(Arc::new(backend), Arc::new(runtime)).checked()
    }

    /// A client that may lack queries: its calls that need them say so.
    pub(crate) fn from_parts(backend: Arc<dyn Backend>, runtime: Arc<dyn Runtime>) -> Self {
        let deadline = Duration::from_secs(10);
        let requests = Arc::new(Requests::new(backend, runtime));
        let shared = Arc::new(SharedRequests::new(requests.clone()));
        let (trigger_retention, deleted) = (TRIGGER_RETENTION, Some(Arc::default()));
        let (author, shortest_periods) = (None, Vec::new());
        Self { requests, shared, deadline, trigger_retention, deleted, author, shortest_periods }
    }

    /// A client with the settings of this one, whose requests are part of one transaction: for a store that
    /// has such a backend. The database alone says how long they wait.
    pub fn in_transaction(&self, backend: impl Backend) -> Self {
        let runtime = self.requests.runtime.clone();
        Self {
            deadline: UNBOUNDED,
            trigger_retention: self.trigger_retention,
            deleted: None,
            author: self.author.clone(),
            shortest_periods: self.shortest_periods.clone(),
            ..Self::from_parts(Arc::new(backend), runtime)
        }
    }

    /// This client, if its backend has queries.
    pub(crate) fn checked(self) -> Result<Self> {
        self.queries()?;
        Ok(self)
    }

    /// Sets the longest duration of one request. Default: 10 s.
    #[must_use]
    pub fn store_timeout(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets the time for which the id of a [trigger](Self::trigger) is remembered: until then the same
    /// id does not run the job again. Default: 24 h. Range: 0 to 30 days; 0: while its run waits or is
    /// active.
    #[must_use]
    pub fn trigger_retention(mut self, retention: Duration) -> Self {
        self.trigger_retention = retention;
        self
    }

    /// Makes the changes of this client those of an author: each is noted, with what the job was before
    /// and after, in the step that makes it. [`changes`](Self::changes) shows them, and
    /// [`undo`](Self::undo) takes some of them back. Clones for other authors share the requests of
    /// this client. Default: none, and its changes are not noted.
    ///
    /// ```
    /// use allora::{Schedules, backend::Author};
    ///
    /// # async fn example(schedules: Schedules) -> allora::Result {
    /// let ann = Author::new("ann").via("console").note("the mail server is down");
    /// schedules.clone().by(ann).pause("acme/report", "").await?;
    /// schedules.by("deploy script").delete("acme/old report").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Of a change: `Invalid` for an actor that is no name, or a note of more than 1 KiB.
    #[must_use]
    pub fn by(mut self, author: impl Into<Author>) -> Self {
        self.author = Some(Arc::new(author.into()));
        self
    }

    /// Adds a schedule. Returns its state, which includes the first occurrence. Concurrent calls
    /// [share requests](Self#concurrent-calls); for many at once, use [`add_all`](Self::add_all).
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken; `Invalid` with the rejected part; `Unavailable`.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have added it. Add it again, or read it.
    pub async fn add(&self, stored: &StoredSchedule) -> Result<JobState> {
        let mut added = self.add_all(std::slice::from_ref(stored)).await?;
        added.pop().unwrap_or_else(|| Err(no_reply()))
    }

    /// Adds any number of schedules, each independently. Returns the results by position.
    ///
    /// # Errors
    /// Of one schedule as [`add`](Self::add). Of the call: `Unavailable`. Some schedules may then
    /// have been added; a repeated call returns `AlreadyExists` for them.
    ///
    /// # Cancel safety
    /// As [`add`](Self::add).
    pub async fn add_all(&self, stored: &[StoredSchedule]) -> Result<Vec<Result<JobState>>> {
        let now = self.recent_store_time().await?;
        let mut answers = Vec::with_capacity(stored.len());
        for stored in stored.chunks(BATCH) {
            answers.extend(self.add_batch(stored, now).await?);
        }
        Ok(answers)
    }

    async fn add_batch(
        &self,
        stored: &[StoredSchedule],
        now: Time,
    ) -> Result<Vec<Result<JobState>>> {
        let definitions: Vec<Result<Definition>> =
            stored.iter().map(|stored| stored.definition()).collect();
        let calendars = self.calendars_of(definitions.iter().flatten()).await?;
        let planned = stored.iter().zip(definitions).map(|(stored, definition)| {
            let definition = definition.and_then(|definition| calendars.give(definition));
            let definition = definition.map_err(|error| stored.refused(error))?;
            let planned = Planned::first(stored, &definition, now)?;
            self.check_period(&stored.name, &definition, now)?;
            Ok(planned)
        });
        let planned: Vec<Result<Planned<'_>>> = planned.collect();
        let new: Vec<Operation<'_>> = planned.iter().flatten().map(Planned::operation).collect();
        let mut created = self.create(&new).await?.into_iter();
        let reply = |planned: Result<Planned<'_>>| match planned {
            Ok(_) => created.next().unwrap_or_else(|| Err(no_reply())),
            Err(error) => Err(error),
        };
        Ok(planned.into_iter().map(reply).collect())
    }

    /// Creates schedules. Returns the states by position.
    pub(super) async fn create(&self, new: &[Operation<'_>]) -> Result<Vec<Result<JobState>>> {
        if new.is_empty() {
            return Ok(Vec::new());
        }
        let stored = new.iter().map(|operation| match &operation.action {
            Action::Create(new) => (operation.name, new.definition),
            _ => (operation.name, ""),
        });
        let noted = self.note_followers(stored).await?;
        let replies = match noted.iter().all(Result::is_ok) {
            true => self.apply("add", new).await?,
            false => {
                let may = new.iter().zip(&noted).filter(|(_, noted)| noted.is_ok());
                let may: Vec<_> = may.map(|(new, _)| new.clone()).collect();
                sent_or(noted, self.apply("add", &may).await?.into_iter())
            }
        };
        Ok(replies.into_iter().map(|reply| Ok(reply?.state().unwrap_or_default())).collect())
    }

    /// The job of this name, stored or in code.
    ///
    /// # Errors
    /// `NotFound`, `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn get(&self, name: &str) -> Result<JobState> {
        let mut state = self.within("get", self.queries()?.get(name)).await?;
        self.end_pauses(std::slice::from_mut(&mut state)).await?;
        Ok(state)
    }

    /// Removes the pauses that have ended by themselves: they stay in their records until these are
    /// written. Needs the store's time only if a pause has an end.
    pub(super) async fn end_pauses(&self, states: &mut [JobState]) -> Result {
        let has_end = |state: &JobState| state.paused.as_ref().is_some_and(|it| it.until.is_some());
        if states.iter().any(has_end) {
            let now = self.recent_store_time().await?;
            for state in states {
                state.paused.take_if(|pause| !pause.lasts(now));
            }
        }
        Ok(())
    }

    /// `true` if there is a job of this name, stored or in code.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn exists(&self, name: &str) -> Result<bool> {
        match self.get(name).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
    /// Stores a changed schedule. Active runs continue. The last occurrence that is due stays, and
    /// the new definition's catch-up policy decides about it; earlier ones are recorded as missed.
    /// All of them stay if the new definition has them, too. With
    /// [`Gap::Missed`](super::StoredSchedule::gap) all are recorded as missed.
    ///
    /// Make `stored` with [`StoredSchedule::of`] from the state that was read. Of two concurrent
    /// changes of the same state, the second fails. Concurrent calls
    /// [share requests](Self#concurrent-calls).
    ///
    /// # Errors
    /// `AlreadyExists` if the schedule was changed since it was read; `NotFound`; `Invalid` with
    /// the rejected part. In these cases nothing was changed. `Unavailable`.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have changed it. Read it again.
    pub async fn modify(&self, stored: &StoredSchedule) -> Result<JobState> {
        let Some(generation) = stored.generation else {
            return Err(Error::invalid(format!(
                "{:?} cannot be modified: it has no generation; make it with `StoredSchedule::of`",
                stored.name
            )));
        };
        let (definition, data) = (stored.definition()?, stored.bytes()?);
        let text = definition.to_string();
        let mut seen = self.get(&stored.name).await?;
        loop {
            let former = Definition::parse(&stored.name, &seen.definition).ok();
            let calendars = self.calendars_of(former.iter().chain([&definition])).await?;
            let former = former.and_then(|former| calendars.give(former).ok());
            let new = calendars.give(definition.clone())?;
            let now = self.recent_store_time().await?;
            if seen.definition != text {
                self.check_period(&stored.name, &new, now)?;
            }
            let plan = replanned(stored, &new, former.as_ref(), &seen, now)?;
            let kind = (seen.kind != stored.kind).then_some(stored.kind.as_str());
            let changed = (seen.definition != text || stored.first_run.is_some())
                .then_some((text.as_str(), plan));
            let data = (seen.data != data).then_some(data);
            if kind.is_none()
                && changed.is_none()
                && data.is_none()
                && seen.generation == generation
            {
                return Ok(seen);
            }
            if let Some((text, _)) = changed {
                let noted = self.note_followers([(&*stored.name, text)].into_iter()).await?;
                noted.into_iter().collect::<Result<Vec<()>>>()?;
            }
            let edit = Edit { generation, kind, definition: changed, data };
            let error = match self.change(&stored.name, Action::Modify(edit)).await {
                Err(error) if error.kind() == ErrorKind::Invalid => error,
                answer => return answer,
            };
            // An occurrence may have been claimed since. The new plan uses the current state.
            let now_seen = self.get(&stored.name).await?;
            if (now_seen.last_started, now_seen.next) == (seen.last_started, seen.next) {
                return Err(error);
            }
            seen = now_seen;
        }
    }
    /// Deletes a job. Its active runs are recorded as cancelled, and cancelled as by
    /// [`cancel`](Self::cancel). What is created again under the name waits for their ends, unless it
    /// has [`Overlap::Allow`](crate::Overlap::Allow). Concurrent calls
    /// [share requests](Self#concurrent-calls).
    ///
    /// The first deletion of a client, and every tenth, also removes what is left of deletions more
    /// than a week ago: a scheduler, which does so, may not be running. It waits for that for up to a
    /// second.
    ///
    /// # Errors
    /// `NotFound`, `Unavailable`.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have deleted it. Delete it again.
    pub async fn delete(&self, name: &str) -> Result {
        self.delete_after_delivery(name).await?;
        let deleted = self.deleted.as_ref().map(|deleted| deleted.fetch_add(1, Ordering::Relaxed));
        if deleted.is_some_and(|before| before.is_multiple_of(PRUNE_EVERY)) {
            // A failure is left to a later deletion.
            let prune = self.requests.backend.prune(self.now());
            let limit = PRUNE_TIMEOUT.min(self.deadline);
            let _ = monotonic::within(&*self.requests.runtime, "prune", limit, prune).await;
        }
        Ok(())
    }
    /// The store's time.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn store_now(&self) -> Result<Time> {
        let applied = self.within("now", self.requests.send(&[])).await?;
        Ok(whole_millis(applied.now))
    }

    /// The store's time, worked out from its last reply if that is recent: no request is sent only
    /// to read the clock.
    pub(super) async fn recent_store_time(&self) -> Result<Time> {
        match self.requests.recent_store_time() {
            Some(now) => Ok(now),
            None => self.store_now().await,
        }
    }

    /// The store's notifications from now on: a job was added, changed, deleted or triggered, by any
    /// process. Some may be lost, so read what matters now and then as well. When the stream ends, ask
    /// for another one.
    ///
    /// # Errors
    /// `Unsupported` if the store has none, as SQLite and MySQL; `Invalid` if something before the
    /// database swallows them; `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn notifications(&self) -> Result<BoxStream<'static, Notification>> {
        let notifier = self.requests.backend.notifier().ok_or_else(|| {
            let none = format!("{:?} has no notifications; read it again", self.requests.backend);
            Error::new(ErrorKind::Unsupported, none).op("watch")
        })?;
        self.within("watch", notifier.subscribe()).await
    }

    /// The runtime on which this client waits.
    pub fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.requests.runtime
    }

    /// Refuses to add, change or import a schedule whose name begins with `prefix`, if two of its times
    /// are closer together than `period`. If several prefixes fit a name, the longest period counts. It is
    /// a rule of this client and its clones: what other clients have stored is not touched.
    ///
    /// The period of `@every` is compared, which is exact. Of any other schedule, the next 4,000 times are
    /// compared, as far as they are within 400 days from now, or from its `start`: a change of the clocks is
    /// among them, and what comes closer only later is not found. The times are the scheduled ones,
    /// without delay and jitter. `end`, `max-runs` and calendars are considered.
    ///
    /// ```
    /// use allora::{Schedules, StoredSchedule};
    /// use std::time::Duration;
    ///
    /// # async fn example(schedules: Schedules) -> allora::Result {
    /// let schedules = schedules.shortest_period("acme/", Duration::from_secs(300));
    /// let each_minute = StoredSchedule::new("acme/poll", "poll", "* * * * *");
    /// assert!(schedules.add(&each_minute).await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn shortest_period(mut self, prefix: impl Into<String>, period: Duration) -> Self {
        self.shortest_periods.push(ShortestPeriod::new(prefix.into(), period));
        self
    }

    /// Checks the times of a schedule, whose definition has its calendars, against the shortest periods.
    pub(super) fn check_period(&self, name: &str, definition: &Definition, now: Time) -> Result {
        ShortestPeriod::check(&self.shortest_periods, name, definition, now)
    }

    /// One change of one job. Returns the state after it.
    pub(super) async fn change(&self, name: &str, action: Action<'_>) -> Result<JobState> {
        Ok(self.change_one(name, action).await?.state().unwrap_or_default())
    }

    /// One change of one job. Returns the reply.
    pub(super) async fn change_one(&self, name: &str, action: Action<'_>) -> Result<Reply> {
        self.apply_one("modify", &Operation::new(name, action)).await?
    }

    /// A page of the history of all nodes, the newest entry first. Of one job it has the active runs,
    /// too; of all jobs, only what has ended.
    ///
    /// # Errors
    /// `Unsupported` if the store keeps no history; `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn history(&self, query: HistoryQuery<'_>) -> Result<Vec<HistoryEntry>> {
        self.within("history", history_page(&*self.requests.backend, query)).await
    }

    /// The limits of the history, as this client's connection to the store has them; `None` without a
    /// history.
    pub fn history_limits(&self) -> Option<HistoryLimits> {
        self.history_of_runs().map(History::limits)
    }

    /// The store's history, for this call.
    pub(super) fn needed_history(&self, op: &'static str) -> Result<&dyn History> {
        self.history_of_runs().ok_or_else(|| no_history(op))
    }

    pub(super) fn history_of_runs(&self) -> Option<&dyn History> {
        self.requests.backend.history()
    }

    /// Adds a schedule, or changes the one of its name to this: an upsert. The progress of an existing
    /// one stays, as by [`modify`](Self::modify).
    ///
    /// ```
    /// use allora::{Schedules, StoredSchedule};
    ///
    /// # async fn example(schedules: Schedules) -> allora::Result {
    /// schedules.upsert(&StoredSchedule::new("acme/report", "report", "0 9 * * MON-FRI")).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Invalid` with the rejected part, or if the name is that of a job in code; `AlreadyExists` if
    /// other clients change the schedule all the time; `Unavailable`.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have been applied. Repeat it.
    pub async fn upsert(&self, stored: &StoredSchedule) -> Result<JobState> {
        const ATTEMPTS: u32 = 8;
        let mut attempt = 1;
        loop {
            let error = match self.add(stored).await {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => error,
                answer => return answer,
            };
            let changed = match self.get(&stored.name).await {
                Ok(seen) if seen.kind.is_empty() => {
                    let code = format!("{:?} is a job in code; use another name", stored.name);
                    return Err(Error::invalid(code).op("upsert"));
                }
                Ok(seen) => self.modify(&stored.clone().read_at(seen.generation)).await,
                Err(error) => Err(error),
            };
            match changed.map_err(|error| (error.kind(), error)) {
                // It was deleted, or changed by another client.
                Err((ErrorKind::NotFound | ErrorKind::AlreadyExists, _)) if attempt < ATTEMPTS => {}
                Err((ErrorKind::NotFound, _)) => return Err(error),
                answer => return answer.map_err(|(_, error)| error),
            }
            attempt += 1;
        }
    }

    /// Waits.
    pub(super) async fn pause_for(&self, span: Duration) {
        let runtime = &self.requests.runtime;
        runtime.sleep_until(later(runtime.now(), span)).await;
    }

    /// Sends operations as one batch, or one operation with those of concurrent calls. Returns the
    /// replies by position.
    pub(super) async fn apply(
        &self,
        op: &'static str,
        operations: &[Operation<'_>],
    ) -> Result<Vec<Result<Reply>>> {
        match operations {
            [operation] => Ok(vec![self.apply_one(op, operation).await?]),
            _ => {
                let author = self.author.as_deref();
                let operations = operations.iter().map(|operation| operation.clone().by(author));
                let operations: Vec<Operation<'_>> = operations.collect();
                Ok(self.within(op, self.requests.send(&operations)).await?.replies)
            }
        }
    }

    /// Sends an operation, with those of concurrent calls. Returns the reply to it, or the error of the
    /// request.
    pub(super) async fn apply_one(
        &self,
        op: &'static str,
        operation: &Operation<'_>,
    ) -> Result<Result<Reply>> {
        let operation = operation.clone().by(self.author.as_deref());
        self.within(op, self.shared.send(&operation, self.deadline / PATIENCE)).await
    }

    pub(crate) fn queries(&self) -> Result<&dyn Queries> {
        self.requests.backend.queries().ok_or_else(|| {
            let none = format!(
                "{:?} has no queries, which stored schedules need; use another backend",
                self.requests.backend
            );
            Error::new(ErrorKind::Unsupported, none)
        })
    }

    pub(super) fn now(&self) -> TimeSource {
        self.requests.time()
    }

    /// Awaits a request, up to the time limit.
    pub(super) async fn within<T>(
        &self,
        op: &'static str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        monotonic::within(&*self.requests.runtime, op, self.deadline, call).await
    }
}

impl fmt::Debug for Schedules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedules").field("backend", &self.requests.backend).finish_non_exhaustive()
    }
}
