//! A schedule with its past, as serde knows it: what an export is made of.

use super::{
    form::{Data, instant, written},
    transfer::can_move,
};
use crate::{
    backend::{Counters, DeadLetter, Next, Occurrence, Pause, State},
    error::Result,
    time::Time,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;

/// A stored schedule with its cursor, its pause, its counters and its dead letters, as an object:
/// one line of an export.
///
/// ```
/// use allora_core::{Schedules, Stored, stored::{Exported, Filter}};
/// # use allora_core::runtime::Sim;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let sim = Sim::new(1);
/// # let (one, other) = (allora_memory::Memory::new(), allora_memory::Memory::new());
/// # sim.block_on(async {
/// # let from = Schedules::on(one, sim.node())?;
/// # let to = Schedules::on(other, sim.node())?;
/// from.add(&Stored::new("acme/report", "report", "0 9 * * MON")).await?;
///
/// let mut lines = Vec::new();
/// for state in from.list(Filter::default(), None, 1_000).await? {
///     lines.push(serde_json::to_string(&Exported::of(&state)?)?);
/// }
/// for line in &lines {
///     let exported: Exported = serde_json::from_str(line)?;
///     to.import(&[exported.into()]).await?.remove(0)?;
/// }
/// assert_eq!(to.get("acme/report").await?.cursor, from.get("acme/report").await?.cursor);
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Exported {
    state: State,
}

impl Exported {
    /// All that [`import`](super::Schedules::import) takes of a state.
    ///
    /// # Errors
    /// `Invalid` if it is a job in code, or cannot be read.
    pub fn of(state: &State) -> Result<Self> {
        can_move(state)?;
        Ok(Self {
            state: State {
                kind: state.kind.clone(),
                definition: state.definition.clone(),
                data: state.data.clone(),
                cursor: state.cursor,
                last_started: state.last_started,
                paused: state.paused.clone(),
                counters: state.counters,
                dead: state.dead.clone(),
                ..State::blank(state.name.clone())
            },
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.state.name
    }
}

/// For [`import`](super::Schedules::import): what is exported, and nothing else.
impl From<Exported> for State {
    fn from(exported: Exported) -> Self {
        exported.state
    }
}

/// The object.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Form {
    name: String,
    kind: String,
    definition: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data_text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data_hex: Option<String>,
    /// The next occurrence, and when it may be taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next_at: Option<Instant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    due_at: Option<Instant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_started: Option<Instant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    paused: Option<PauseForm>,
    #[serde(default)]
    counters: CountersForm,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    dead: Vec<DeadForm>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct PauseForm {
    since: Instant,
    #[serde(default)]
    note: String,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct CountersForm {
    started: u64,
    ran: u64,
    failed: u64,
    cancelled: u64,
    skipped: u64,
    missed: u64,
    lost: u64,
    abandoned: u64,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct DeadForm {
    at: Instant,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trigger: Option<String>,
    attempts: u32,
    ended_at: Instant,
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

impl Serialize for Exported {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Form::of(&self.state).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Exported {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let state = Form::deserialize(deserializer)?.state().map_err(de::Error::custom)?;
        can_move(&state).map_err(de::Error::custom)?;
        Ok(Self { state })
    }
}

impl Form {
    fn of(state: &State) -> Self {
        let (mut data, mut data_text, mut data_hex) = (None, None, None);
        match Data::of(&state.data) {
            // No value reads as no data.
            Data::Json(Value::Null) => data_text = Some("null".to_owned()),
            Data::Json(value) => data = Some(value),
            Data::Text(text) => data_text = Some(text),
            Data::Hex(hex) => data_hex = Some(hex),
            Data::None => {}
        }
        let Counters { started, ran, failed, cancelled, skipped, missed, lost, abandoned } =
            state.counters;
        let dead = |letter: &DeadLetter| DeadForm {
            at: Instant(letter.run.at),
            trigger: letter.run.trigger.clone(),
            attempts: letter.attempts,
            ended_at: Instant(letter.at),
            error: letter.error.clone(),
        };
        Self {
            name: state.name.clone(),
            kind: state.kind.clone(),
            definition: state.definition.clone(),
            data,
            data_text,
            data_hex,
            next_at: state.cursor.map(|next| Instant(next.at)),
            due_at: state.cursor.map(|next| Instant(next.due_at)),
            last_started: state.last_started.map(Instant),
            paused: state
                .paused
                .as_ref()
                .map(|pause| PauseForm { since: Instant(pause.since), note: pause.note.clone() }),
            counters: CountersForm {
                started,
                ran,
                failed,
                cancelled,
                skipped,
                missed,
                lost,
                abandoned,
            },
            dead: state.dead.iter().map(dead).collect(),
        }
    }

    fn state(self) -> Result<State, String> {
        let data = match (self.data, self.data_text, self.data_hex) {
            (None, None, None) => Data::None,
            (Some(value), None, None) => Data::Json(value),
            (None, Some(text), None) => Data::Text(text),
            (None, None, Some(hex)) => Data::Hex(hex),
            _ => return Err("the data is there twice".to_owned()),
        };
        let cursor = match (self.next_at, self.due_at) {
            (Some(Instant(at)), due_at) => {
                let due_at = due_at.map_or(at, |due_at| due_at.0);
                Some(Next { at, due_at }).filter(|next| next.at <= next.due_at)
            }
            (None, _) => None,
        };
        if cursor.is_none() && self.due_at.is_some() {
            return Err("due-at is not before next-at, nor without it".to_owned());
        }
        let CountersForm { started, ran, failed, cancelled, skipped, missed, lost, abandoned } =
            self.counters;
        let dead = |letter: DeadForm| DeadLetter {
            run: Occurrence { at: letter.at.0, trigger: letter.trigger },
            attempts: letter.attempts,
            at: letter.ended_at.0,
            error: letter.error,
        };
        Ok(State {
            kind: self.kind,
            definition: self.definition,
            data: data.bytes()?,
            cursor,
            last_started: self.last_started.map(|at| at.0),
            paused: self.paused.map(|pause| Pause { since: pause.since.0, note: pause.note }),
            counters: Counters {
                started,
                ran,
                failed,
                cancelled,
                skipped,
                missed,
                lost,
                abandoned,
            },
            dead: self.dead.into_iter().map(dead).collect(),
            ..State::blank(self.name)
        })
    }
}
