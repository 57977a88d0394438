//! One stored schedule, as an application passes it.

use super::Definition;
use crate::{
    backend::JobState,
    error::{Error, Result},
    job::{
        AlertRule, Breaker, CatchUp, ConcurrencyKey, Delivery, JobHistory, Overlap, Retry,
        Settings, setters,
    },
    record::MAX_DATA,
    time::{Time, whole_millis},
};
use std::{fmt::Display, sync::Arc, time::Duration};

/// The default lease of stored schedules.
const LEASE: Duration = Duration::from_secs(30);

/// A stored schedule: its name, the kind that selects its code, its schedule, the data of its runs,
/// and its settings.
///
/// It is checked as a whole when it is [added](super::Schedules::add).
///
/// By default its occurrences are delivered at least once, with a lease of 30 s, and are attempted
/// five times in all. The first wait is 10 s; each further wait is twice as long.
///
/// With the feature `json` the data is any serde value: `.data(&Digest { … })`.
///
/// ```
/// use allora::{StoredSchedule, every};
/// use std::time::Duration;
///
/// let digest = StoredSchedule::new("acme/digest", "digest", "0 9 * * MON")
///     .in_zone("Europe/Paris")
///     .delay(Duration::from_secs(30))
///     .data_bytes(r#"["ann@acme.example", "bob@acme.example"]"#);
/// let poll = StoredSchedule::new("acme/poll", "poll", every(Duration::from_secs(90))).at_most_once();
/// # assert!(digest.definition().is_ok() && poll.definition().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a schedule runs only when it is added to a store"]
pub struct StoredSchedule {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) text: String,
    pub(super) zone: Option<String>,
    pub(super) settings: Settings,
    pub(super) first_run: Option<Time>,
    pub(super) gap: Gap,
    /// The data, or the reason why there is none.
    pub(super) data: Result<Vec<u8>, String>,
    /// The generation that it was made from.
    pub(super) generation: Option<i64>,
}

/// The handling of the occurrences that came due during a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gap {
    /// The catch-up policy applies, as after an outage.
    CatchUp,
    /// They are recorded as missed, and the schedule continues from now.
    Missed,
}
impl StoredSchedule {
    /// A schedule of this name and kind. `schedule` is a text that
    /// [`parse`](crate::schedule::parse) reads, or a schedule of this library.
    pub fn new(name: impl Into<String>, kind: impl Into<String>, schedule: impl Display) -> Self {
        let settings = Settings {
            delivery: Delivery::AtLeastOnce { lease: LEASE },
            retry: Retry::up_to(5, Duration::from_secs(10)),
            ..Settings::default()
        };
        Self {
            name: name.into(),
            kind: kind.into(),
            text: schedule.to_string(),
            zone: None,
            settings,
            first_run: None,
            gap: Gap::CatchUp,
            data: Ok(Vec::new()),
            generation: None,
        }
    }

    /// A schedule that runs once, at this time. A time of up to a minute ago counts as now, and an
    /// older one is an error when the schedule is added, unless it [runs](Self::run_if_past) even then. Its record, with its outcome, is removed some
    /// time after its end: after 7 days, unless a node [sets](crate::SchedulerBuilder::prune_finished_after)
    /// another time.
    ///
    /// ```
    /// use allora::{StoredSchedule, Time};
    ///
    /// fn reminder(order: u64, at: Time) -> StoredSchedule {
    ///     StoredSchedule::once(format!("reminder/{order}"), "reminder", at)
    ///         .data_bytes(order.to_string())
    /// }
    /// # assert!(reminder(7, "2027-01-01T00:00:00Z".parse().unwrap()).definition().is_ok());
    /// ```
    pub fn once(name: impl Into<String>, kind: impl Into<String>, at: Time) -> Self {
        Self::new(name, kind, crate::at(at))
    }

    /// The stored schedule of this state, to be changed and passed to
    /// [`Schedules::modify`](super::Schedules::modify).
    ///
    /// # Errors
    /// `Invalid` if its definition cannot be read, or it is a job in code.
    pub fn of(state: &JobState) -> Result<Self> {
        let broken = |why: &str| {
            let name = &state.name;
            Error::invalid(format!("the stored schedule {name:?} cannot be read: {why}"))
        };
        if let Some(reason) = &state.unreadable {
            return Err(broken(reason));
        }
        if state.kind.is_empty() {
            let code = format!("{:?} is a job in code; change its code", state.name);
            return Err(Error::invalid(code));
        }
        let definition = Definition::parse(&state.name, &state.definition)
            .map_err(|error| broken(&error.to_string()))?;
        Ok(Self {
            name: state.name.clone(),
            kind: state.kind.clone(),
            text: definition.text().to_owned(),
            zone: definition.zone().map(str::to_owned),
            settings: definition.settings().clone(),
            first_run: None,
            gap: Gap::CatchUp,
            data: Ok(state.data.clone()),
            generation: Some(state.generation),
        })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kind, which selects the code of its runs.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The definition that the store will keep.
    ///
    /// # Errors
    /// `Invalid` with the rejected schedule, zone or setting.
    pub fn definition(&self) -> Result<Definition> {
        Definition::new(&self.name, &self.text, self.zone.as_deref(), self.settings.clone())
    }

    /// The data of its runs.
    ///
    /// # Errors
    /// `Invalid` if the data could not be serialized, or is too large.
    pub fn bytes(&self) -> Result<&[u8]> {
        let name = &self.name;
        let data = self.data.as_ref().map_err(|why| {
            Error::invalid(format!("the data of {name:?} cannot be written as JSON: {why}"))
        })?;
        if data.len() > MAX_DATA {
            let len = data.len();
            return Err(Error::invalid(format!(
                "the data of {name:?} has {len} bytes, more than the {MAX_DATA} that can be stored; store a \
                 reference to it"
            )));
        }
        Ok(data)
    }

    /// Sets the kind.
    pub fn with_kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = kind.into();
        self
    }

    /// Sets the schedule. The zone stays.
    pub fn schedule(mut self, schedule: impl Display) -> Self {
        self.text = schedule.to_string();
        self
    }

    /// Sets the zone of a cron expression: an IANA name, or an offset such as `+02:00`. Default:
    /// the zone in the text, or UTC.
    pub fn in_zone(mut self, zone: impl Into<String>) -> Self {
        self.zone = Some(zone.into());
        self
    }

    /// Removes the separate zone.
    pub fn no_zone(mut self) -> Self {
        self.zone = None;
        self
    }

    /// Sets the data of its runs: any bytes.
    pub fn data_bytes(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.data = Ok(data.into());
        self
    }

    /// Sets the time at which the first occurrence runs, in place of its scheduled time and the
    /// delay. It is not before the scheduled time. Later occurrences are not affected.
    pub fn first_run(mut self, at: Time) -> Self {
        self.first_run = Some(at);
        self
    }

    /// Sets the handling of the occurrences that are due when a change of this schedule is stored by
    /// [`Schedules::modify`](super::Schedules::modify). Default: [`Gap::CatchUp`].
    pub fn gap(mut self, gap: Gap) -> Self {
        self.gap = gap;
        self
    }

    setters!();

    /// Delivers at most once, without retries.
    pub fn at_most_once(mut self) -> Self {
        self.settings.delivery = Delivery::AtMostOnce;
        self.settings.retry = Retry::NEVER;
        self
    }

    /// Shares a limit of active runs with all jobs of this key, in code and stored, on all nodes: see
    /// [`JobSpec::concurrency_key`](crate::JobSpec::concurrency_key).
    pub fn concurrency_key(mut self, key: impl Into<Arc<str>>, limit: u32) -> Self {
        self.settings.concurrency_key = Some(ConcurrencyKey::new(key, limit));
        self
    }

    /// Shares a rate with all jobs of this key, in code and stored, on all nodes: see
    /// [`JobSpec::rate`](crate::JobSpec::rate).
    pub fn rate(mut self, key: impl Into<Arc<str>>, limit: u32, per: Duration) -> Self {
        self.settings.concurrency_key = Some(ConcurrencyKey::rate(key, limit, per));
        self
    }

    /// Sets the team or person that is responsible for it: one word. Lists and bulk changes select by
    /// it ([`Filter::owner`](super::Filter::owner)).
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.settings.owner = Some(owner.into());
        self
    }

    /// Adds a tag: one word without a comma. Lists and bulk changes select by it
    /// ([`Filter::tag`](super::Filter::tag)).
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.settings.tags.insert(tag.into());
        self
    }

    /// Sets the generation that a modification expects: that of the state that was read.
    pub fn read_at(mut self, generation: i64) -> Self {
        self.generation = Some(generation);
        self
    }

    fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }
}
