//! The configuration file: stores by the name of an environment.
//!
//! ```toml
//! [development]
//! url = "sqlite:dev.db"
//!
//! [production]
//! url = "postgres://cron:secret@db.example/cron"
//! timezone = "Asia/Tokyo"
//!
//! [production.run]
//! concurrency = 20
//! ```
//!
//! A section of an environment that has a command's name holds options of that command, as if they had
//! been given; the command line comes before it.

use crate::{
    failure::{Failure, Outcome, without_passwords},
    store::HistoryOptions,
    values::duration,
    yaml::seems_yaml,
};
use allora_core::schedule::zone_name;
use std::{
    fs, io,
    path::{Path, PathBuf},
};
use toml::{Table, Value};

/// The settings of one environment in a configuration. No `Debug`: the URL may hold a password.
#[derive(Default)]
pub(crate) struct Environment {
    pub(crate) url: Option<String>,
    pub(crate) prefix: Option<String>,
    /// The zone of schedules that are added without one.
    pub(crate) timezone: Option<String>,
    /// The limits of the history.
    pub(crate) history: HistoryOptions,
}

/// The file that is read when none is named.
const FILE: &str = "allora.toml";

/// The environment that is meant when none is named.
const DEFAULT: &str = "development";

/// The environment of this name in this file.
///
/// # Errors
/// A file that was named and cannot be read; an environment that is not in it; an unknown key, or a
/// value of the wrong sort.
pub(crate) fn environment(file: Option<&Path>, name: Option<&str>) -> Outcome<Environment> {
    let Some((place, section)) = section(file, name)? else { return Ok(Environment::default()) };
    read(&section).map_err(|what| Failure::wrong(format!("{place}: {}", without_passwords(&what))))
}

/// The options of a command in the environment of this name, and where they are.
#[derive(Debug, Default)]
pub(crate) struct CommandOptions {
    /// The file, the environment and the section, for messages.
    pub(crate) place: String,
    pub(crate) options: Table,
}

/// The options of this command; none without such a section.
///
/// # Errors
/// As [`environment`], and a section that is of no command.
pub(crate) fn command_options(
    file: Option<&Path>,
    name: Option<&str>,
    command: &str,
    commands: &[&str],
) -> Outcome<CommandOptions> {
    let (place, mut section) = match section(file, name) {
        Ok(Some(section)) => section,
        Ok(None) => return Ok(CommandOptions::default()),
        // No option names this file. A command that opens a store reports its errors.
        Err(_) if file.is_none() && name.is_none() => return Ok(CommandOptions::default()),
        Err(failure) => return Err(failure),
    };
    let unknown =
        section.iter().find(|(key, value)| value.is_table() && !commands.contains(&key.as_str()));
    if let Some((key, _)) = unknown {
        return Err(Failure::wrong(format!("{place}: there is no command `{key}`")));
    }
    let place = format!("{place}, options of `{command}`");
    match section.remove(command) {
        None => Ok(CommandOptions::default()),
        Some(Value::Table(options)) => Ok(CommandOptions { place, options }),
        // The reader of the environment names the key.
        Some(_) => Ok(CommandOptions::default()),
    }
}

/// The section of this environment in this file, and both names for messages; `None` without a file
/// where none is named.
fn section(file: Option<&Path>, name: Option<&str>) -> Outcome<Option<(String, Table)>> {
    let path = file.map_or_else(|| PathBuf::from(FILE), Path::to_path_buf);
    let wrong = |what: String| Failure::wrong(format!("{}: {what}", path.display()));
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound && file.is_none() => {
            return match name {
                None => Ok(None),
                Some(name) => {
                    let what =
                        format!("no such file, and so no environment `{name}`; name it with -c");
                    Err(wrong(what))
                }
            };
        }
        Err(error) => return Err(wrong(error.to_string())),
    };
    section_of(&path, &text, name).map(Some)
}

/// The section of this environment in the text of this file, and both names for messages.
fn section_of(path: &Path, text: &str, name: Option<&str>) -> Outcome<(String, Table)> {
    let wrong =
        |what: String| Failure::wrong(format!("{}: {}", path.display(), without_passwords(&what)));
    let mut table: Table = text.parse().map_err(|error: toml::de::Error| {
        if seems_yaml(path, text) {
            let what = "this is YAML, and TOML is read here; write [development] and below it \
                        url = \"sqlite:dev.db\"";
            return wrong(what.into());
        }
        // The line itself may have a password in it.
        let line = error.span().map_or(1, |span| text[..span.start].lines().count().max(1));
        wrong(format!("line {line}: {}", error.message()))
    })?;
    let name = name.unwrap_or(DEFAULT);
    let Some(section) = table.remove(name) else {
        let known: Vec<&str> = table.keys().map(String::as_str).collect();
        let known = if known.is_empty() {
            "it has none".into()
        } else {
            format!("it has {}", known.join(", "))
        };
        return Err(wrong(format!("there is no environment `{name}`; {known}")));
    };
    let Value::Table(section) = section else {
        return Err(wrong(format!(
            "`{name}` is not an environment; write [{name}] above its keys"
        )));
    };
    Ok((format!("{}: environment `{name}`", path.display()), section))
}

fn read(section: &Table) -> Result<Environment, String> {
    let mut environment = Environment::default();
    for (key, value) in section {
        let text = || {
            value
                .as_str()
                .map(str::to_owned)
                .ok_or_else(|| format!("`{key}` must be a text in quotes"))
        };
        let number = || {
            let number = value.as_integer().and_then(|number| u64::try_from(number).ok());
            number.ok_or_else(|| format!("`{key}` must be a number from 0"))
        };
        match key.as_str() {
            // The options of a command.
            _ if value.is_table() => {}
            "url" => environment.url = Some(text()?),
            "prefix" => environment.prefix = Some(text()?),
            "timezone" => {
                let zone = text()?;
                zone_name(&zone).map_err(|error| format!("`timezone`: {error}"))?;
                environment.timezone = Some(zone);
            }
            "history" => environment.history.history = Some(number()?),
            "history_failures" => environment.history.history_failures = Some(number()?),
            "history_age" | "history_failure_age" => {
                let age = duration(&text()?).map_err(|wrong| format!("`{key}`: {wrong}"))?;
                match key.as_str() {
                    "history_age" => environment.history.history_age = Some(age),
                    _ => environment.history.history_failure_age = Some(age),
                }
            }
            _ => {
                return Err(format!(
                    "unknown key `{key}`; use url, prefix, timezone, history, history_age, \
                     history_failures, history_failure_age, and a section for each command"
                ));
            }
        }
    }
    if environment.url.is_none() {
        return Err("it has no `url`".into());
    }
    Ok(environment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foreign::read_each;

    #[test]
    fn any_file_is_read_or_refused_without_its_password() {
        let seeds = [
            "[development]\nurl = \"redis://:hunter2@h\"\nprefix = 'a'\nhistory = 5\nhistory_age = \"9d\"\n",
            "[development]\nurl = 'sqlite:a'\ntimezone = \"Asia/Tokyo\"\n[development.run]\nconcurrency = 20\n",
        ];
        read_each(&seeds, |text| {
            let section = section_of(Path::new("allora.toml"), text, None);
            let (_, section) = section.map_err(|failure| format!("{failure:?}"))?;
            read(&section).map(drop).map_err(|what| without_passwords(&what))
        });
    }
}
