//! A schedule with its progress as a serde object: one line of an export.

use super::transfer::can_move;
use crate::{
    backend::{Counters, DeadLetter, JobState, NextRun, Pause},
    error::Result,
    json,
    time::Time,
};
use serde::{Deserialize, Deserializer, Serialize, de};

/// The part of a stored schedule that [`import`](super::Schedules::import) uses: one line of an export.
/// As an object it is a part of the object of its [`JobState`], with the same fields.
///
/// ```
/// use allora::{Schedules, StoredSchedule, stored::{ScheduleExport, Filter}};
/// # use allora::runtime::Sim;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let sim = Sim::new(1);
/// # let (one, other) = (allora::Memory::new(), allora::Memory::new());
/// # sim.block_on(async {
/// # let from = Schedules::on(one, sim.node())?;
/// # let to = Schedules::on(other, sim.node())?;
/// from.add(&StoredSchedule::new("acme/report", "report", "0 9 * * MON")).await?;
///
/// let mut lines = Vec::new();
/// for state in from.list(Filter::default(), None, 1_000).await? {
///     lines.push(serde_json::to_string(&ScheduleExport::of(&state)?)?);
/// }
/// for line in &lines {
///     let exported: ScheduleExport = serde_json::from_str(line)?;
///     to.import(&[exported.into()]).await?.remove(0)?;
/// }
/// assert_eq!(to.get("acme/report").await?.next, from.get("acme/report").await?.next);
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct ScheduleExport(Parts);

/// The fields of a [`JobState`] that move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parts {
    name: String,
    kind: String,
    definition: String,
    #[serde(default, with = "json::data")]
    data: Vec<u8>,
    next: Option<NextRun>,
    #[serde(default, deserialize_with = "json::maybe_instant")]
    last_started: Option<Time>,
    paused: Option<Pause>,
    #[serde(default)]
    counters: Counters,
    #[serde(default)]
    dead: Vec<DeadLetter>,
}

impl ScheduleExport {
    /// The part of a state that [`import`](super::Schedules::import) uses.
    ///
    /// # Errors
    /// `Invalid` if it is a job in code, or cannot be read.
    pub fn of(state: &JobState) -> Result<Self> {
        can_move(state)?;
        let JobState {
            name,
            kind,
            definition,
            data,
            next,
            last_started,
            paused,
            counters,
            dead,
            ..
        } = state.clone();
        Ok(Self(Parts { name, kind, definition, data, next, last_started, paused, counters, dead }))
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.0.name
    }
}

/// The state for [`import`](super::Schedules::import): the exported parts only.
impl From<ScheduleExport> for JobState {
    fn from(exported: ScheduleExport) -> Self {
        let Parts { name, kind, definition, data, next, last_started, paused, counters, dead } =
            exported.0;
        let state = JobState { kind, definition, data, last_started, paused, ..Self::empty(name) };
        Self { next, counters, dead, ..state }
    }
}

impl<'de> Deserialize<'de> for ScheduleExport {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let exported = Self(Parts::deserialize(deserializer)?);
        can_move(&exported.clone().into()).map_err(de::Error::custom)?;
        Ok(exported)
    }
}
