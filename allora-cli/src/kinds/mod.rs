//! The kinds of stored schedules that the daemon runs without any code: commands and HTTP requests.

pub(crate) mod command;
mod data;
pub(crate) mod http;
mod labels;
mod secrets;

pub(crate) use labels::{base, canonical, on_nodes, remedy, with_labels};
pub(crate) use secrets::masked;

use crate::failure::{Failure, Outcome};
use allora_core::{BoxError, Run, StoredSchedule, backend::JobState};
use command::CommandSpec;
use serde_json::Value;
use std::path::Path;

/// Runs a program on the node.
pub(crate) const COMMAND: &str = "command";

/// Sends a request.
pub(crate) const HTTP: &str = "http";

/// The command of a stored schedule with this data.
///
/// # Errors
/// The data is invalid.
pub(crate) fn command_of(data: &[u8]) -> Result<CommandSpec, String> {
    let data = serde_json::from_slice(data).map_err(|error| error.to_string())?;
    command::work(&secrets::resolved(&data, None)?)
}

/// The data of a run. What cannot be read now will not be readable at the next attempt.
pub(crate) fn read<T>(
    run: &Run,
    read: fn(&Value) -> Result<T, String>,
    folder: Option<&Path>,
) -> Result<T, BoxError> {
    let data = serde_json::from_slice::<Value>(run.data()).map_err(|error| error.to_string());
    let data = data.map(|data| secrets::resolved(&data, folder));
    if let Ok(Err(missing)) = data {
        // The secret may be there at the next attempt.
        return Err(missing.into());
    }
    data.and_then(|data| data).and_then(|data| read(&data)).map_err(|what| {
        run.give_up();
        format!("the data of the schedule: {what}").into()
    })
}

/// Refuses data that a schedule of this kind cannot be run with, if the daemon runs that kind.
///
/// # Errors
/// The data is invalid.
pub(crate) fn check(kind: &str, data: &Value) -> Outcome {
    fits(kind, data).map_err(Failure::wrong)
}

/// A whole schedule, checked as [`check`] does, with its kind as [`canonical`] writes it. The data of
/// other kinds may be no JSON.
///
/// # Errors
/// The labels of the kind or the data are invalid.
pub(crate) fn checked(stored: StoredSchedule) -> Result<StoredSchedule, String> {
    if !matches!(base(stored.kind()), COMMAND | HTTP) {
        return Ok(stored);
    }
    let kind = canonical(stored.kind()).map_err(|error| error.to_string())?;
    let bytes = stored.bytes().map_err(|error| error.to_string())?;
    let data = if bytes.is_empty() { b"{}" } else { bytes };
    let data = serde_json::from_slice(data).map_err(|error| format!("the data: {error}"))?;
    fits(&kind, &data)?;
    Ok(if kind == stored.kind() { stored } else { stored.with_kind(&kind) })
}

/// Why a stored schedule of one of the daemon's kinds cannot be run with the data that the store has.
pub(crate) fn bad_data(state: &JobState) -> Option<String> {
    if !matches!(base(&state.kind), COMMAND | HTTP) {
        return None;
    }
    let data: &[u8] = if state.data.is_empty() { b"{}" } else { &state.data };
    match serde_json::from_slice(data) {
        Ok(data) => fits(&state.kind, &data).err(),
        Err(error) => Some(format!("the data: {error}")),
    }
}

fn fits(kind: &str, data: &Value) -> Result<(), String> {
    let data = || secrets::without_values(data);
    let checked = match base(kind) {
        COMMAND => data().and_then(|data| command::work(&data)).map(drop),
        HTTP => data().and_then(|data| http::request(&data)).map(drop),
        _ => Ok(()),
    };
    checked.map_err(|what| format!("the data of the kind `{kind}`: {what}"))
}
