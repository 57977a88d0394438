//! The lines of an export: calendars, and schedules with their progress as serde objects.

use super::{Schedules, transfer::can_move};
use crate::{
    backend::{Counters, DeadLetter, JobState, NextRun, Pause},
    error::{Error, ErrorKind, Result},
    json,
    name::printable,
    schedule::Calendar,
    time::Time,
};
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::{Value, json};
use std::{fmt, str::FromStr};

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

    /// The kind.
    pub fn kind(&self) -> &str {
        &self.0.kind
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

/// One line of an export. `Display` writes it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ExportLine {
    /// A calendar, which the schedules behind it may need.
    Calendar {
        /// Its name.
        name: String,
        /// Its rules.
        calendar: Calendar,
    },
    /// A schedule.
    Schedule(Box<ScheduleExport>),
}

/// The effect of a line of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Imported {
    /// It was added, or was there with the same content.
    Added,
    /// Something else of this name is there, and was kept.
    Kept,
}

impl fmt::Display for ExportLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Calendar { name, calendar } => {
                write!(f, "{}", json!({ "calendar": name, "text": calendar.to_string() }))
            }
            Self::Schedule(schedule) => {
                f.write_str(&serde_json::to_string(schedule).map_err(|_| fmt::Error)?)
            }
        }
    }
}

impl FromStr for ExportLine {
    type Err = Error;

    fn from_str(line: &str) -> Result<Self> {
        let unreadable = |error: serde_json::Error| Error::invalid(printable(&error.to_string()));
        // The name of a schedule may be the word, but not the first field.
        let object = line.trim_start().strip_prefix('{').unwrap_or_default();
        if !object.trim_start().starts_with("\"calendar\"") {
            return serde_json::from_str(line).map(Self::Schedule).map_err(unreadable);
        }
        let object: Value = serde_json::from_str(line).map_err(unreadable)?;
        let (Some(name), Some(text)) = (object["calendar"].as_str(), object["text"].as_str())
        else {
            let text = "a calendar must have the texts `calendar` (its name) and `text`";
            return Err(Error::invalid(text));
        };
        let calendar = Calendar::parse(text)
            .map_err(|error| Error::from(error).within(format_args!("the calendar {name:?}")))?;
        Ok(Self::Calendar { name: name.to_owned(), calendar })
    }
}

impl Schedules {
    /// Adds calendars and schedules of an export, as [`import`](Self::import). Returns the results by
    /// position. With `keep`, something else of the same name is kept; without it, that is an error of
    /// the line.
    ///
    /// # Errors
    /// Of one line as of [`import`](Self::import), and `AlreadyExists` for another calendar of the name.
    /// Of the call: `Unavailable`; some lines may then have been added. A repeated call with `keep` adds
    /// the others.
    ///
    /// # Cancel safety
    /// As [`import`](Self::import).
    pub async fn import_lines(
        &self,
        lines: &[ExportLine],
        keep: bool,
    ) -> Result<Vec<Result<Imported>>> {
        let mut states: Vec<JobState> = Vec::new();
        let mut results: Vec<Option<Result<Imported>>> = Vec::with_capacity(lines.len());
        for line in lines {
            results.push(match line {
                ExportLine::Calendar { name, calendar } => {
                    Some(self.import_calendar(name, calendar, keep).await?)
                }
                ExportLine::Schedule(schedule) => {
                    states.push(JobState::from((**schedule).clone()));
                    None
                }
            });
        }
        let mut added = self.import(&states).await?.into_iter();
        let mut of_schedule = || match added.next() {
            Some(Err(error)) if keep && error.kind() == ErrorKind::AlreadyExists => {
                Ok(Imported::Kept)
            }
            Some(Err(error)) => Err(error),
            _ => Ok(Imported::Added),
        };
        Ok(results.into_iter().map(|result| result.unwrap_or_else(&mut of_schedule)).collect())
    }

    async fn import_calendar(
        &self,
        name: &str,
        calendar: &Calendar,
        keep: bool,
    ) -> Result<Result<Imported>> {
        match self.calendar(name).await {
            Ok(present) if present == *calendar => Ok(Ok(Imported::Added)),
            Ok(_) if keep => Ok(Ok(Imported::Kept)),
            Ok(_) => {
                let other =
                    format!("the store has another calendar {name:?}; keep that, or delete it");
                Ok(Err(Error::new(ErrorKind::AlreadyExists, other)))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                match self.upsert_calendar(name, calendar).await {
                    Err(error) if error.kind() == ErrorKind::Invalid => Ok(Err(error)),
                    added => added.map(|_| Ok(Imported::Added)),
                }
            }
            Err(error) if error.kind() == ErrorKind::Invalid => Ok(Err(error)),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_are_written_and_the_others_are_errors() {
        let mut state = JobState::empty("calendar");
        (state.kind, state.definition) = ("report".into(), "@daily".into());
        let schedule = ExportLine::Schedule(Box::new(ScheduleExport::of(&state).unwrap()));
        let calendar = Calendar::parse("2026-12-25 # Christmas").unwrap();
        let calendar = ExportLine::Calendar { name: "holidays".into(), calendar };
        for line in [schedule, calendar] {
            assert_eq!(line.to_string().parse::<ExportLine>().unwrap(), line);
        }
        for (line, says) in [
            ("", "EOF"),
            ("[]", "expected"),
            (r#"{"calendar": "a"}"#, "must have the texts"),
            (r#"{"calendar": "a", "text": "61"}"#, "the calendar \"a\""),
            (r#"{"name": "a", "error": "b"}"#, "unknown field `error`"),
            (r#"{"a\u001bb": 1}"#, r"unknown field `a\u{1b}b`"),
        ] {
            let error = line.parse::<ExportLine>().unwrap_err().to_string();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
