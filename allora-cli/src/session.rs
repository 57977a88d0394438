//! The runtime and the store of commands on stored schedules, and the display of schedules.

use crate::{
    failure::{Failure, Outcome},
    kinds::masked,
    output::on_one_line,
    store::{HistoryOptions, Store, StoreArgs, Tables},
};
use allora_core::{
    ErrorKind, Schedule, Schedules,
    backend::{Author, HistoryEntry, JobState},
    runtime::Tokio,
    stored::{Definition, Filter},
};
use nix::unistd::{User, geteuid};
use serde_json::{Value, json};
use std::{env, time::Duration};

/// A store with its schedules.
pub(crate) struct Session {
    pub(crate) store: Store,
    pub(crate) schedules: Schedules,
}

/// The number of records among which a name without its file is looked for.
const LOOKED_AT: usize = 10_000;

impl Session {
    /// The full name of a job: a line, `FILE:NAME`, may be named without its file where only one
    /// has that name. A name that no job has is returned as it is.
    ///
    /// # Errors
    /// Those of the store, and a name that lines of several files have.
    pub(crate) async fn full_name(&self, name: &str) -> Outcome<String> {
        match self.schedules.get(name).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
            Ok(_) => return Ok(name.to_owned()),
        }
        let states = self.schedules.list(Filter::default().kind(""), None, LOOKED_AT).await?;
        let is_it =
            |state: &&JobState| state.name.split_once(':').is_some_and(|(_, own)| own == name);
        let mut lines = states.iter().filter(is_it).map(|state| state.name.as_str());
        match (lines.next(), lines.next()) {
            (Some(line), None) => Ok(line.to_owned()),
            (Some(one), Some(other)) => Err(Failure::failed(format!(
                "several lines are named {name:?}: {one:?}, {other:?}; write the file, too"
            ))),
            (None, _) => Ok(name.to_owned()),
        }
    }
}

/// Opens the store, and does this with it.
pub(crate) fn with<T>(
    place: &StoreArgs,
    work: impl AsyncFnOnce(Session) -> Outcome<T>,
) -> Outcome<T> {
    run(async {
        let store = place.open(Tables::Keep, HistoryOptions::default()).await?;
        if store.queries().is_none() {
            return Err(Failure::failed(
                "this store runs the lines of crontabs only: it has no stored schedules, no list of \
                 jobs and no history. `allora run FILE` and `allora init` work with it; for this \
                 command use a store in SQLite, PostgreSQL, MySQL, Redis (one server, Sentinel, \
                 Cluster) or etcd",
            ));
        }
        let schedules = Schedules::on(store.clone(), Tokio::current()?)?.by(author());
        work(Session { store, schedules }).await
    })
}

/// The author of this command's changes: whom `ALLORA_ACTOR` names, or the user who called it. With sudo,
/// that is not the user as whom it runs.
pub(crate) fn author() -> Author {
    let set = |name| env::var(name).ok().filter(|actor| !actor.is_empty());
    let user = || User::from_uid(geteuid()).ok().flatten().map(|user| user.name);
    let actor = set("ALLORA_ACTOR").or_else(|| set("SUDO_USER")).or_else(user);
    Author::new(actor.unwrap_or_else(|| format!("uid {}", geteuid()))).via("command")
}

/// Runs a future to its end.
pub(crate) fn run<T>(work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("cannot start: {error}")))?;
    let answer = runtime.block_on(work);
    // Connections that are being closed need not be waited for long.
    runtime.shutdown_timeout(Duration::from_millis(200));
    answer
}

/// The definition of a schedule, as far as it can be read.
pub(crate) struct Described {
    pub(crate) schedule: String,
    /// The schedule in English, if it can be read.
    pub(crate) in_words: Option<String>,
    pub(crate) zone: String,
    pub(crate) delay: Duration,
}

/// Reads a definition for people: one that cannot be read is shown as it is.
pub(crate) fn describe(state: &JobState) -> Described {
    match Definition::parse(&state.name, &state.definition) {
        Ok(definition) => Described {
            schedule: definition.text().to_owned(),
            in_words: definition.schedule().describe(),
            zone: zone(&definition),
            delay: definition.settings().delay,
        },
        Err(_) => {
            let schedule = state.definition.clone();
            Described { schedule, in_words: None, zone: "?".into(), delay: Duration::ZERO }
        }
    }
}

fn zone(definition: &Definition) -> String {
    definition.schedule().zone().unwrap_or("UTC").to_owned()
}

/// The payload as people read it.
pub(crate) fn data(state: &JobState) -> String {
    match state.data.is_empty() {
        true => "{}".into(),
        false => value(&state.data),
    }
}

/// Bytes as people read them, without secrets.
pub(crate) fn value(bytes: &[u8]) -> String {
    match str::from_utf8(bytes) {
        Ok(text) => match serde_json::from_str(text) {
            // Unchanged, it is shown as it was written.
            Ok(data) if masked(Value::clone(&data)) != data => masked(data).to_string(),
            _ => on_one_line(text),
        },
        Err(_) => format!("<{} bytes>", bytes.len()),
    }
}

/// A job as programs read it: the library's object, with what its definition says. Secrets in its data
/// and checkpoints are masked.
pub(crate) fn state_json(state: &JobState, is_orphaned: bool) -> Value {
    let Described { schedule, in_words, zone, .. } = describe(state);
    let mut object = json!(state);
    object["data"] = masked(object["data"].take());
    for one in object["checkpoints"].as_array_mut().into_iter().flatten() {
        one["value"] = masked(one["value"].take());
    }
    object["schedule"] = schedule.into();
    object["description"] = in_words.into();
    object["zone"] = zone.into();
    object["is_orphaned"] = is_orphaned.into();
    object
}

/// The exit status of a command that has failed, from its error.
pub(crate) fn exit_status(entry: &HistoryEntry) -> Option<u8> {
    number_after("exit status: ", entry.outcome.error())
}

/// The number of the signal that ended a command, from its error.
pub(crate) fn signal(entry: &HistoryEntry) -> Option<u8> {
    number_after("signal: ", entry.outcome.error())
}

/// The number after this text, where an error of the daemon has it: at its beginning, or after the
/// time limit.
fn number_after(what: &str, error: &str) -> Option<u8> {
    let ended = match error.strip_prefix("timed out after ") {
        Some(limit) => limit.split_once(ENDED)?.1,
        None => error,
    };
    let rest = ended.strip_prefix(what)?;
    let digits = rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().ok()
}

/// The text before the status of a command in the error of a run that took too long.
pub(crate) const ENDED: &str = ", and was ended: ";

/// An entry of the history as programs read it: the library's object, with the exit status or the
/// signal of a command.
pub(crate) fn entry_json(entry: &HistoryEntry) -> Value {
    let mut object = json!(entry);
    object["exit_status"] = exit_status(entry).into();
    object["signal"] = signal(entry).into();
    object
}

#[cfg(test)]
mod tests {
    use super::number_after;

    #[test]
    fn the_end_of_a_command_is_read_from_the_error_of_its_run() {
        for (error, status, signal) in [
            ("exit status: 3; its output ends: signal: 9", Some(3), None),
            ("signal: 9 (SIGKILL)", None, Some(9)),
            ("timed out after 1s, and was ended: signal: 15 (SIGTERM)", None, Some(15)),
            ("timed out after 1s, and was ended: exit status: 0", Some(0), None),
            ("timed out after 1s, and was killed; its output ends: exit status: 3", None, None),
            ("cannot start exit status: 3", None, None),
        ] {
            assert_eq!(number_after("exit status: ", error), status, "{error}");
            assert_eq!(number_after("signal: ", error), signal, "{error}");
        }
    }
}
