//! One stored schedule as an application gives it.

use super::Definition;
use crate::{
    backend::State,
    error::{Error, Result},
    job::{CatchUp, Delivery, Overlap, Retry, Settings},
    record::MAX_DATA,
    time::{Time, whole_millis},
};
use std::{fmt::Display, sync::Arc, time::Duration};

/// The lease of stored schedules, unless given.
const LEASE: Duration = Duration::from_secs(30);

/// A stored schedule: its name, the kind that routes it, when it runs, what its runs are given, and
/// all that is said about them.
///
/// It is checked as a whole when it is [added](super::Schedules::add).
///
/// Unless said otherwise its occurrences are delivered at least once, under a lease of 30 s, and a
/// failed one is tried five times in all, 10 s after the first and then after twice as long each
/// time.
///
/// With the feature `json` the data is any value that serde knows: `.data(&Digest { … })`.
///
/// ```
/// use allora_core::{Stored, every};
/// use std::time::Duration;
///
/// let digest = Stored::new("acme/digest", "digest", "0 9 * * MON")
///     .zone("Europe/Paris")
///     .delay(Duration::from_secs(30))
///     .data_bytes(r#"["ann@acme.example", "bob@acme.example"]"#);
/// let poll = Stored::new("acme/poll", "poll", every(Duration::from_secs(90))).at_most_once();
/// # assert!(digest.definition().is_ok() && poll.definition().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a schedule runs only when it is added to a store"]
pub struct Stored {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) text: String,
    pub(super) zone: Option<String>,
    pub(super) settings: Settings,
    pub(super) first_run: Option<Time>,
    /// The payload, or why there is none.
    pub(super) data: Result<Vec<u8>, String>,
    /// The edition that it was made from.
    pub(super) edition: Option<i64>,
}

impl Stored {
    /// A schedule of this name and kind; `schedule` is a text that
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
            data: Ok(Vec::new()),
            edition: None,
        }
    }

    /// What is stored, to be changed and given to [`Schedules::modify`](super::Schedules::modify).
    ///
    /// # Errors
    /// `Invalid` if its definition cannot be read, or it is a job in code.
    pub fn of(state: &State) -> Result<Self> {
        let broken = |why: &str| {
            let name = &state.name;
            Error::invalid(format!("the stored schedule {name:?} cannot be read: {why}"))
        };
        if let Some(reason) = &state.parked {
            return Err(broken(reason));
        }
        if state.kind.is_empty() {
            let code = format!("{:?} is a job in code, which only its code changes", state.name);
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
            data: Ok(state.data.clone()),
            edition: Some(state.edition),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kind that routes it.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// All that is said about its runs.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What the store will keep as its definition.
    ///
    /// # Errors
    /// `Invalid`: the schedule, the zone or a setting is refused; says which, and where.
    pub fn definition(&self) -> Result<Definition> {
        Definition::new(&self.name, &self.text, self.zone.as_deref(), self.settings.clone())
    }

    /// What its runs are given.
    ///
    /// # Errors
    /// `Invalid` if it could not be serialized, or is too large.
    pub fn bytes(&self) -> Result<&[u8]> {
        let name = &self.name;
        let data = self.data.as_ref().map_err(|why| {
            Error::invalid(format!("the data of {name:?} cannot be written as JSON: {why}"))
        })?;
        if data.len() > MAX_DATA {
            let len = data.len();
            return Err(Error::invalid(format!(
                "the data of {name:?} has {len} bytes, at most {MAX_DATA} can be stored; store a \
                 reference to it"
            )));
        }
        Ok(data)
    }

    /// Another kind.
    pub fn with_kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = kind.into();
        self
    }

    /// Another schedule; the zone stays as it is.
    pub fn schedule(mut self, schedule: impl Display) -> Self {
        self.text = schedule.to_string();
        self
    }

    /// The zone of a cron expression: an IANA name, or an offset such as `+02:00`. Without it, and
    /// without one in the text: UTC.
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.zone = Some(zone.into());
        self
    }

    /// No zone beside the schedule's text.
    pub fn no_zone(mut self) -> Self {
        self.zone = None;
        self
    }

    /// What its runs are given: any bytes.
    pub fn data_bytes(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.data = Ok(data.into());
        self
    }

    /// When the first occurrence runs, instead of at its scheduled time and the delay; not before
    /// its scheduled time. Later occurrences are not touched.
    pub fn first_run(mut self, at: Time) -> Self {
        self.first_run = Some(at);
        self
    }

    /// Delivers at least once, which is the default, under a lease of 1 s to 24 h.
    pub fn at_least_once(mut self, lease: Duration) -> Self {
        self.settings.delivery = Delivery::AtLeastOnce { lease };
        self
    }

    /// Delivers at most once, and so tries no failed run again.
    pub fn at_most_once(mut self) -> Self {
        self.settings.delivery = Delivery::AtMostOnce;
        self.settings.retry = Retry::NEVER;
        self
    }

    /// When a failed run is tried again.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.settings.retry = retry;
        self
    }

    /// What becomes of instants that passed while nobody looked.
    pub fn catch_up(mut self, policy: CatchUp) -> Self {
        self.settings.catch_up = policy;
        self
    }

    /// An instant later than this is not run any more but recorded as missed.
    pub fn window(mut self, window: Duration) -> Self {
        self.settings.window = Some(window);
        self
    }

    /// What becomes of an at-most-once occurrence while the one before still runs.
    pub fn overlap(mut self, policy: Overlap) -> Self {
        self.settings.overlap = policy;
        self
    }

    /// Drops a run's future after so long, and records it as failed.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = Some(timeout);
        self
    }

    /// Runs so long after the scheduled time, which is reported unchanged.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.settings.delay = delay;
        self
    }

    /// Runs at a time between 0 and `spread` after that, chosen by name and instant.
    pub fn spread(mut self, spread: Duration) -> Self {
        self.settings.spread = spread;
        self
    }

    /// No occurrence before this instant: the first is the first one at or after it, also if that
    /// has passed. Cut to milliseconds, as every scheduled time is.
    pub fn starting(mut self, at: Time) -> Self {
        self.settings.start = Some(whole_millis(at));
        self
    }

    /// No occurrence after this instant (cut to milliseconds).
    pub fn ending(mut self, at: Time) -> Self {
        self.settings.end = Some(whole_millis(at));
        self
    }

    /// At most so many occurrences are started.
    pub fn max_runs(mut self, runs: u64) -> Self {
        self.settings.max_runs = Some(runs);
        self
    }

    /// Runs one at a time with all jobs of this group, in code and stored, on all nodes: see
    /// [`Entry::mutex`](crate::Entry::mutex).
    pub fn mutex(mut self, group: impl Into<Arc<str>>) -> Self {
        self.settings.mutex = Some(group.into());
        self
    }

    /// All settings at once.
    pub fn with_settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// The edition that a modification expects: that of the state that was read.
    pub fn read_at(mut self, edition: i64) -> Self {
        self.edition = Some(edition);
        self
    }
}
