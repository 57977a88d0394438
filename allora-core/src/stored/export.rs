//! A schedule with its progress as a serde object: one line of an export.

use super::{
    repr::{DataRepr, instant, written},
    transfer::can_move,
};
use crate::{
    backend::{Counters, DeadLetter, JobState, NextRun, Occurrence, Pause},
    error::Result,
    time::Time,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;
use std::collections::BTreeMap;

/// A stored schedule with its cursor, its pause, its counters and its dead letters, as an object:
/// one line of an export.
///
/// ```
/// use allora_core::{Schedules, StoredSchedule, stored::{ScheduleExport, Filter}};
/// # use allora_core::runtime::Sim;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let sim = Sim::new(1);
/// # let (one, other) = (allora_memory::Memory::new(), allora_memory::Memory::new());
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
/// assert_eq!(to.get("acme/report").await?.cursor, from.get("acme/report").await?.cursor);
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleExport {
    state: JobState,
}

impl ScheduleExport {
    /// The part of a state that [`import`](super::Schedules::import) uses.
    ///
    /// # Errors
    /// `Invalid` if it is a job in code, or cannot be read.
    pub fn of(state: &JobState) -> Result<Self> {
        can_move(state)?;
        Ok(Self {
            state: JobState {
                kind: state.kind.clone(),
                definition: state.definition.clone(),
                data: state.data.clone(),
                cursor: state.cursor,
                last_started: state.last_started,
                paused: state.paused.clone(),
                counters: state.counters,
                dead: state.dead.clone(),
                ..JobState::empty(state.name.clone())
            },
        })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.state.name
    }
}

/// The state for [`import`](super::Schedules::import): the exported parts only.
impl From<ScheduleExport> for JobState {
    fn from(exported: ScheduleExport) -> Self {
        exported.state
    }
}

/// The serde representation.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ExportRepr {
    name: String,
    kind: String,
    definition: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data_text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data_hex: Option<String>,
    /// The next occurrence, and the earliest time of its claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scheduled_at: Option<Instant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    due_at: Option<Instant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_started: Option<Instant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    paused: Option<PauseRepr>,
    #[serde(default, deserialize_with = "counters")]
    counters: Counters,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    dead: Vec<DeadLetterRepr>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct PauseRepr {
    since: Instant,
    #[serde(default)]
    note: String,
}

/// Reads counters by their names. A missing one is 0.
fn counters<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Counters, D::Error> {
    let mut counters = Counters::default();
    for (name, number) in BTreeMap::<String, u64>::deserialize(deserializer)? {
        let names = Counters::default().each().map(|(name, _)| name);
        let unknown = || {
            de::Error::custom(format!(
                "no counter is called `{name}`; write one of {}",
                names.join(", ")
            ))
        };
        *counters.by_name_mut(&name).ok_or_else(unknown)? = number;
    }
    Ok(counters)
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct DeadLetterRepr {
    scheduled_at: Instant,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trigger: Option<String>,
    attempts: u32,
    died_at: Instant,
    error: String,
}

#[derive(Clone, Copy)]
struct Instant(Time);

impl Serialize for Instant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&written(self.0))
    }
}

impl<'de> Deserialize<'de> for Instant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        instant(&text).map(Self).map_err(de::Error::custom)
    }
}

impl Serialize for ScheduleExport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ExportRepr::of(&self.state).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ScheduleExport {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let state = ExportRepr::deserialize(deserializer)?.state().map_err(de::Error::custom)?;
        can_move(&state).map_err(de::Error::custom)?;
        Ok(Self { state })
    }
}

impl ExportRepr {
    fn of(state: &JobState) -> Self {
        let (mut data, mut data_text, mut data_hex) = (None, None, None);
        match DataRepr::of(&state.data) {
            // An empty value is read as no data.
            DataRepr::Json(Value::Null) => data_text = Some("null".to_owned()),
            DataRepr::Json(value) => data = Some(value),
            DataRepr::Text(text) => data_text = Some(text),
            DataRepr::Hex(hex) => data_hex = Some(hex),
            DataRepr::None => {}
        }
        let dead = |letter: &DeadLetter| DeadLetterRepr {
            scheduled_at: Instant(letter.occurrence.scheduled_at),
            trigger: letter.occurrence.trigger.clone(),
            attempts: letter.attempts,
            died_at: Instant(letter.died_at),
            error: letter.error.clone(),
        };
        Self {
            name: state.name.clone(),
            kind: state.kind.clone(),
            definition: state.definition.clone(),
            data,
            data_text,
            data_hex,
            scheduled_at: state.cursor.map(|next| Instant(next.scheduled_at)),
            due_at: state.cursor.map(|next| Instant(next.due_at)),
            last_started: state.last_started.map(Instant),
            paused: state
                .paused
                .as_ref()
                .map(|pause| PauseRepr { since: Instant(pause.since), note: pause.note.clone() }),
            counters: state.counters,
            dead: state.dead.iter().map(dead).collect(),
        }
    }

    fn state(self) -> Result<JobState, String> {
        let data = match (self.data, self.data_text, self.data_hex) {
            (None, None, None) => DataRepr::None,
            (Some(value), None, None) => DataRepr::Json(value),
            (None, Some(text), None) => DataRepr::Text(text),
            (None, None, Some(hex)) => DataRepr::Hex(hex),
            _ => return Err("the data is given twice; give it once".to_owned()),
        };
        let cursor = match (self.scheduled_at, self.due_at) {
            (Some(Instant(at)), due_at) => {
                let due_at = due_at.map_or(at, |due_at| due_at.0);
                Some(NextRun { scheduled_at: at, due_at })
                    .filter(|next| next.scheduled_at <= next.due_at)
            }
            (None, _) => None,
        };
        if cursor.is_none() && self.due_at.is_some() {
            return Err("due-at is before scheduled-at, or scheduled-at is missing; give scheduled-at, and a due-at that is not earlier".to_owned());
        }
        let dead = |letter: DeadLetterRepr| DeadLetter {
            occurrence: Occurrence { scheduled_at: letter.scheduled_at.0, trigger: letter.trigger },
            attempts: letter.attempts,
            died_at: letter.died_at.0,
            error: letter.error,
        };
        Ok(JobState {
            kind: self.kind,
            definition: self.definition,
            data: data.bytes()?,
            cursor,
            last_started: self.last_started.map(|at| at.0),
            paused: self.paused.map(|pause| Pause { since: pause.since.0, note: pause.note }),
            counters: self.counters,
            dead: self.dead.into_iter().map(dead).collect(),
            ..JobState::empty(self.name)
        })
    }
}
