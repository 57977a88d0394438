//! The `allora` command.

mod clock;
mod commands;
mod crontabs;
mod daemon;
mod failure;
mod output;
mod store;
mod values;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use failure::Outcome;
use std::{ffi::OsString, process::ExitCode};

/// A distributed cron: each occurrence of each job on exactly one of many machines.
#[derive(Debug, Parser)]
#[command(name = "allora", version, subcommand_required = true)]
struct Allora {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Next(commands::next::Next),
    Run(Box<commands::run::Run>),
    #[command(hide = true, name = daemon::user::HELPER)]
    AsUser(daemon::user::AsUser),
}

fn main() -> ExitCode {
    match parse(std::env::args_os()).and_then(Allora::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Reads the command line. Help and the version are printed here.
fn parse(args: impl Iterator<Item = OsString>) -> Outcome<Allora> {
    let mut clap = Allora::command();
    let matches = clap.try_get_matches_from_mut(args).map_err(|error| failure::of_clap(&error))?;
    Allora::from_arg_matches(&matches).map_err(|error| failure::of_clap(&error))
}

impl Allora {
    fn run(self) -> Outcome {
        match self.command {
            Command::Next(next) => next.run(),
            Command::Run(run) => run.run(),
            Command::AsUser(helper) => Err(helper.run()),
        }
    }
}
