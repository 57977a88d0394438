//! `allora import --from crontab`: lines of a crontab as stored schedules of the kind `command`.

use crate::{
    crontab_files::{self, Defaults, Line, Notices, find, is_commands_own},
    declared::warn_of_unhandled,
    failure::{Failure, Outcome},
    kinds,
    output::{complain, on_one_line},
    session::{self, Session},
    store::StoreArgs,
};
use allora_core::{ErrorKind, Placement, StoredSchedule, schedule::period_text};
use serde_json::{Map, Value, json};
use std::{
    io::{self, Write},
    path::Path,
};

/// The treatment of lines that become schedules.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conversion {
    pub(super) as_daemon: bool,
    pub(super) skip_existing: bool,
    pub(super) dry_run: bool,
}

/// Imports the lines of a crontab. Prints each schedule, and says what has no equivalent.
pub(super) fn import(
    file: &Path,
    zone: String,
    conversion: Conversion,
    place: &StoreArgs,
) -> Outcome {
    let defaults = Defaults { zone: Some(zone), has_sendmail: true, ..Defaults::default() };
    let (mut stored, mut rejected) = (Vec::new(), 0);
    for source in find(&[file.to_path_buf()], None)? {
        let text = source.text().map_err(|wrong| Failure::wrong(wrong.to_string()))?;
        let reading = crontab_files::read(&source, &text, &defaults);
        for wrong in &reading.diagnostics {
            complain("error", &wrong.to_string());
        }
        rejected += reading.diagnostics.len();
        for line in reading.lines {
            let said = |what: &str| source.diagnostic(Some(line.number), what).to_string();
            match converted(&line, conversion) {
                Ok((schedule, notes)) => {
                    notes.iter().for_each(|note| complain("warning", &said(note)));
                    stored.push(schedule);
                }
                Err(what) => {
                    complain("error", &said(&what));
                    rejected += 1;
                }
            }
        }
    }
    add_all(&stored, rejected, conversion, place)
}

/// Adds schedules that were made of something else, and prints each.
pub(super) fn add_all(
    stored: &[StoredSchedule],
    mut rejected: usize,
    conversion: Conversion,
    place: &StoreArgs,
) -> Outcome {
    let (mut imported, mut skipped) = (0, 0);
    let mut out = io::stdout().lock();
    let mut add = |schedule: &StoredSchedule| -> Outcome {
        imported += 1;
        let definition = schedule.definition()?;
        let data = String::from_utf8_lossy(schedule.bytes()?).into_owned();
        let text = format!("{}  {}  {data}", schedule.name(), definition.text());
        Ok(writeln!(out, "{}", on_one_line(&text))?)
    };
    if conversion.dry_run {
        stored.iter().try_for_each(&mut add)?;
    } else {
        session::with(place, async |session: Session| {
            let answers = session.schedules.add_all(stored).await?;
            warn_of_unhandled(&session, stored.iter().map(StoredSchedule::kind)).await;
            for (answer, schedule) in answers.into_iter().zip(stored) {
                match answer {
                    Ok(_) => add(schedule)?,
                    Err(error)
                        if conversion.skip_existing && error.kind() == ErrorKind::AlreadyExists =>
                    {
                        skipped += 1;
                    }
                    Err(error) => {
                        complain("error", &format!("{:?}: {error}", schedule.name()));
                        rejected += 1;
                    }
                }
            }
            Ok(())
        })?;
    }
    let done = if conversion.dry_run { "would be imported" } else { "imported" };
    let skipped = if skipped == 0 { String::new() } else { format!(", {skipped} exist already") };
    writeln!(out, "{imported} {done}{skipped}, {rejected} rejected.")?;
    out.flush()?;
    if rejected == 0 { Ok(()) } else { Err(Failure::Said(1)) }
}

/// The schedule that does what the line does, and what it does not.
fn converted(line: &Line, conversion: Conversion) -> Result<(StoredSchedule, Vec<String>), String> {
    let keep = "keep the line in a crontab of `allora run`";
    let Some(schedule) = &line.schedule else {
        return Err(format!("a stored schedule has no start of a machine as its time; {keep}"));
    };
    if line.settings.placement == Placement::EveryNode {
        return Err(format!("a stored schedule runs on one node, not on every one; {keep}"));
    }
    let kind = kinds::on_nodes(kinds::COMMAND, &line.nodes);
    let mut notes = Vec::new();
    if let Some(user) = &line.shell.user {
        if !conversion.as_daemon {
            return Err(format!(
                "it runs as `{user}`, and a stored schedule as the daemon; {keep}, or import it with \
                 --as-daemon"
            ));
        }
        notes.push(format!("it will run as the daemon, and not as `{user}`"));
    }
    if line.notices != Notices::default() {
        notes.push("a stored schedule sends no alerts, pings and mails".to_owned());
    }
    let own = |name: &str| !name.starts_with("ALLORA_") || is_commands_own(name);
    let environment = line.shell.environment.iter().filter(|(name, _)| own(name));
    let env: Map<String, Value> =
        environment.map(|(name, value)| (name.clone(), value.clone().into())).collect();
    let shell = env.get("SHELL").and_then(Value::as_str).unwrap_or("/bin/sh");
    let mut data = json!({ "command": [shell, "-c", line.shell.command], "env": env });
    if let Some(input) = &line.shell.stdin {
        data["input"] = input.clone().into();
    }
    if let Some(timeout) = line.settings.timeout {
        data["timeout"] = period_text(timeout).into();
    }
    let mut settings = line.settings.clone();
    settings.timeout = None;
    let stored =
        StoredSchedule::new(&line.name, &kind, schedule).with_settings(settings).data(&data);
    stored.definition().map_err(|error| error.to_string())?;
    Ok((stored, notes))
}
