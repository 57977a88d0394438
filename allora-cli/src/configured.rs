//! Options of a command that the configuration file gives, as if they were on the command line.

use crate::{
    config::{self, CommandOptions},
    failure::{Failure, Outcome},
};
use clap::{Arg, ArgMatches, Command, parser::ValueSource};
use std::{ffi::OsString, path::PathBuf};
use toml::Value;

/// The options that choose the configuration and the store: they are not in a command's section.
const OF_THE_PLACE: [&str; 4] = ["url", "prefix", "environment", "config"];

/// Arguments from the configuration.
pub(crate) struct Configured {
    place: String,
    arguments: Vec<OsString>,
}

impl Configured {
    /// The command line with them. What stands behind `--` stays the last.
    pub(crate) fn after(&self, mut line: Vec<OsString>) -> Vec<OsString> {
        let end = line.iter().position(|word| word == "--").unwrap_or(line.len());
        line.splice(end..end, self.arguments.iter().cloned());
        line
    }

    /// A failure of theirs, with the file.
    pub(crate) fn wrong(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Invalid(what) => Failure::wrong(format!("{}: {what}", self.place)),
            other => other,
        }
    }
}

/// The arguments that the configuration has for the command of this line, without those that the line
/// or the environment gives; `None` if there are none.
///
/// # Errors
/// Those of the configuration file, and an option that the command does not have.
pub(crate) fn arguments(clap: &Command, line: &ArgMatches) -> Outcome<Option<Configured>> {
    let Some((name, given)) = line.subcommand() else { return Ok(None) };
    let Some(command) = clap.find_subcommand(name) else { return Ok(None) };
    // Commands without a store have no configuration.
    let Ok(file) = given.try_get_one::<PathBuf>("config") else { return Ok(None) };
    let environment = given.get_one::<String>("environment").map(String::as_str);
    let names: Vec<&str> = clap.get_subcommands().map(Command::get_name).collect();
    let file = file.map(PathBuf::as_path);
    let CommandOptions { place, options } =
        config::command_options(file, environment, name, &names)?;
    let mut arguments = Vec::new();
    for (key, value) in &options {
        let wrong = |what: String| Failure::wrong(format!("{place}: {what}"));
        let long = key.replace('_', "-");
        let of_place = OF_THE_PLACE.contains(&long.as_str());
        let known = |argument: &&Arg| !of_place && argument.get_long() == Some(&long);
        let argument = command
            .get_arguments()
            .find(known)
            .ok_or_else(|| wrong(format!("unknown option `{key}`; see `allora {name} --help`")))?;
        let source = given.value_source(argument.get_id().as_str());
        if matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable)) {
            continue;
        }
        let words = words(argument, &long, value)
            .ok_or_else(|| wrong(format!("`{key}` must be {}", expected(argument))))?;
        arguments.extend(words.into_iter().map(OsString::from));
    }
    Ok(Some(Configured { place, arguments }).filter(|configured| !configured.arguments.is_empty()))
}

/// The words of one option; `None` if the value is of the wrong sort.
fn words(argument: &Arg, long: &str, value: &Value) -> Option<Vec<String>> {
    if !argument.get_action().takes_values() {
        return Some(if value.as_bool()? { vec![format!("--{long}")] } else { Vec::new() });
    }
    let word = |value: &Value| match value {
        Value::String(text) => Some(format!("--{long}={text}")),
        Value::Integer(number) => Some(format!("--{long}={number}")),
        _ => None,
    };
    match value {
        Value::Array(values) => values.iter().map(word).collect(),
        value => Some(vec![word(value)?]),
    }
}

fn expected(argument: &Arg) -> &'static str {
    match argument.get_action().takes_values() {
        true => "a text in quotes, a number, or a list of them",
        false => "true or false",
    }
}
