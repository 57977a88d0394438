//! The stored schedules of a store, as applications handle them: added, looked at, changed, removed.

use super::{
    Stored,
    planned::{Planned, replanned},
};
use crate::{
    backend::{self, Backend, Change, NewSchedule, Now, Reschedule, State},
    error::{Error, Kind, Result},
    runtime::{Runtime, detect},
    time::Time,
};
use futures::future::{Either, select};
use std::{fmt, pin::pin, sync::Arc, time::Duration};

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
/// How many schedules one request adds.
pub(super) const BATCH: usize = 500;
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
            let next = replanned(stored, &definition, &seen, self.store_now().await?)?;
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
