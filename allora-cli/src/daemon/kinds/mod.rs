//! The kinds of stored schedules that the daemon runs without any code: commands and HTTP requests.

mod command;
mod data;
pub(super) mod http;
mod secrets;

pub(crate) use secrets::masked;

use super::context::CommandContext;
use crate::failure::{Failure, Outcome};
use allora_core::{BoxError, Builder, Run, StoredSchedule, check_name};
use serde_json::Value;
use std::{path::Path, sync::Arc};

/// Runs a program on the node.
pub(crate) const COMMAND: &str = "command";

/// Sends a request.
pub(crate) const HTTP: &str = "http";

/// The kind without its label: a schedule of the kind `command@gpu` runs on nodes with the label `gpu`.
/// As a part of the kind, the label needs no column, and nodes without it do not find the schedule.
pub(crate) fn base(kind: &str) -> &str {
    kind.split_once('@').map_or(kind, |(base, _)| base)
}

/// The kind with this label, in place of the one that it has; without any if it is empty.
///
/// # Errors
/// The label is malformed, or the kind is not one of the daemon's: nodes choose the others themselves.
pub(crate) fn with_label(kind: &str, label: &str) -> Outcome<String> {
    let base = base(kind);
    if !matches!(base, COMMAND | HTTP) {
        return Err(Failure::Usage(format!(
            "--label is of the kinds {COMMAND} and {HTTP}; of {kind:?}, the nodes choose kinds by \
             themselves"
        )));
    }
    if label.is_empty() {
        return Ok(base.to_owned());
    }
    check_name(label)?;
    if label.contains(['@', ',', '!']) {
        let what = format!("--label {label:?}: one label, without @, commas and exclamation marks");
        return Err(Failure::Usage(what));
    }
    Ok(format!("{base}@{label}"))
}

/// Has the scheduler run these kinds, and those with the labels of this node.
pub(crate) fn route(
    mut builder: Builder,
    kinds: &[String],
    labels: &[String],
    context: &Arc<CommandContext>,
) -> Builder {
    let labelled = |kind: &str| {
        let own = labels.iter().map(|label| format!("{kind}@{label}"));
        std::iter::once(kind.to_owned()).chain(own).collect::<Vec<_>>()
    };
    if kinds.iter().any(|kind| kind == COMMAND) {
        for kind in labelled(COMMAND) {
            let context = context.clone();
            builder = builder.kind(kind, async move |run: Run| -> Result<(), BoxError> {
                let work = read(&run, command::work, context.secrets.as_deref())?;
                super::process::execute(Arc::new(work), run, context).await
            });
        }
    }
    if kinds.iter().any(|kind| kind == HTTP) {
        let client = Arc::new(http::Client::new());
        for kind in labelled(HTTP) {
            let (client, context) = (client.clone(), context.clone());
            builder = builder.kind(kind, async move |run: Run| -> Result<(), BoxError> {
                let request = read(&run, http::request, context.secrets.as_deref())?;
                client.deliver(request, &run).await
            });
        }
    }
    builder
}

/// The command of a stored schedule with this data.
///
/// # Errors
/// The data is invalid.
pub(crate) fn command_of(data: &[u8]) -> Result<super::CommandSpec, String> {
    let data = serde_json::from_slice(data).map_err(|error| error.to_string())?;
    command::work(&secrets::resolved(&data, None)?)
}

/// The data of a run. What cannot be read now will not be readable at the next attempt.
fn read<T>(
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
    fits(kind, data).map_err(Failure::failed)
}

/// As [`check`], of a whole schedule, whose data may be no JSON.
///
/// # Errors
/// The data is invalid.
pub(crate) fn check_stored(stored: &StoredSchedule) -> Result<(), String> {
    if !matches!(base(stored.kind()), COMMAND | HTTP) {
        return Ok(());
    }
    let bytes = stored.bytes().map_err(|error| error.to_string())?;
    let data = if bytes.is_empty() { b"{}" } else { bytes };
    let data = serde_json::from_slice(data).map_err(|error| format!("the data: {error}"))?;
    fits(stored.kind(), &data)
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
