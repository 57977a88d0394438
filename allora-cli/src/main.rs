//! The `allora` command.

mod clock;
mod commands;
mod config;
mod configured;
mod console_access;
mod crontab_files;
mod daemon;
mod declared;
mod failure;
#[cfg(test)]
mod foreign;
mod help;
mod kinds;
mod output;
mod server;
mod session;
mod store;
mod table;
mod values;
mod yaml;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use failure::Outcome;
use std::{ffi::OsString, process::ExitCode};

/// A distributed cron: each occurrence of each job on exactly one of many machines.
#[derive(Debug, Parser)]
#[command(
    name = "allora",
    version,
    subcommand_required = true,
    after_help = "\
EXIT CODES
  0  it is done
  1  the answer is no, or it failed, in whole or in part
  2  what was given is wrong, and nothing was done: the command line, or what it names (a file, a
     crontab, the configuration, a URL)
  `exec` and `trigger --wait` end as the command that they run; see there."
)]
struct Allora {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<commands::run::Run>),
    Next(commands::next::Next),
    Init(commands::init::Init),
    Add(Box<commands::add::Add>),
    List(commands::list::List),
    Show(commands::show::Show),
    Calendar(commands::calendar::Calendar),
    Modify(Box<commands::modify::Modify>),
    Delete(commands::delete::Delete),
    Pause(commands::pause::Pause),
    Resume(commands::pause::Resume),
    Skip(commands::skip::Skip),
    Cancel(commands::cancel::Cancel),
    Reset(commands::reset::Reset),
    Trigger(commands::trigger::Trigger),
    Backfill(commands::trigger::Backfill),
    Rerun(commands::trigger::Rerun),
    Mark(commands::mark::Mark),
    Undo(commands::undo::Undo),
    History(commands::history::History),
    Logs(commands::logs::Logs),
    Changes(commands::undo::Changes),
    Stats(commands::stats::Stats),
    Status(commands::status::Status),
    Console(commands::console::Console),
    Token(commands::token::Token),
    Why(commands::why::Why),
    Exec(commands::exec::Exec),
    Nodes(commands::nodes::Nodes),
    Gc(commands::gc::Gc),
    Sync(commands::sync::Sync),
    Export(commands::export::Export),
    Import(commands::import::Import),
    Doctor(commands::doctor::Doctor),
    Prove(commands::prove::Prove),
    Completions(commands::completions::Completions),
    Man(commands::man::Man),
    #[command(hide = true)]
    Names(commands::names::Names),
    #[command(hide = true, name = commands::prove::NODE)]
    ProveNode(commands::prove::ProveNode),
    #[command(hide = true, name = commands::prove::REMOTE_WORKER)]
    ProveRemote(commands::prove::ProveRemote),
    #[command(hide = true, name = daemon::user::HELPER)]
    AsUser(daemon::user::AsUser),
}

fn main() -> ExitCode {
    match parse(std::env::args_os()).and_then(Allora::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Reads the command line, and the options of its command in the configuration. Help and the version
/// are printed here.
fn parse(args: impl Iterator<Item = OsString>) -> Outcome<Allora> {
    let mut clap = help::grouped(Allora::command());
    let args: Vec<OsString> = args.collect();
    let read = clap.try_get_matches_from_mut(&args).map_err(|error| failure::of_clap(&error))?;
    let configured = configured::arguments(&clap, &read)?;
    let matches = match configured {
        None => read,
        Some(more) => clap
            .try_get_matches_from_mut(more.after(args))
            .map_err(|error| more.wrong(failure::of_clap(&error)))?,
    };
    Allora::from_arg_matches(&matches).map_err(|error| failure::of_clap(&error))
}

impl Allora {
    fn run(self) -> Outcome {
        match self.command {
            Command::Run(run) => run.run(),
            Command::Next(next) => next.run(),
            Command::Init(init) => init.run(),
            Command::Add(add) => add.run(),
            Command::List(list) => list.run(),
            Command::Show(show) => show.run(),
            Command::Calendar(calendar) => calendar.run(),
            Command::Modify(modify) => modify.run(),
            Command::Delete(delete) => delete.run(),
            Command::Pause(pause) => pause.run(),
            Command::Resume(resume) => resume.run(),
            Command::Skip(skip) => skip.run(),
            Command::Cancel(cancel) => cancel.run(),
            Command::Reset(reset) => reset.run(),
            Command::Trigger(trigger) => trigger.run(),
            Command::Backfill(backfill) => backfill.run(),
            Command::Rerun(rerun) => rerun.run(),
            Command::Mark(mark) => mark.run(),
            Command::Undo(undo) => undo.run(),
            Command::History(history) => history.run(),
            Command::Logs(logs) => logs.run(),
            Command::Changes(changes) => changes.run(),
            Command::Stats(stats) => stats.run(),
            Command::Status(status) => status.run(),
            Command::Console(console) => console.run(),
            Command::Token(token) => token.run(),
            Command::Why(why) => why.run(),
            Command::Exec(exec) => exec.run(),
            Command::Nodes(nodes) => nodes.run(),
            Command::Gc(gc) => gc.run(),
            Command::Sync(sync) => sync.run(),
            Command::Export(export) => export.run(),
            Command::Import(import) => import.run(),
            Command::Doctor(doctor) => doctor.run(),
            Command::Prove(prove) => prove.run(),
            Command::ProveNode(node) => node.run(),
            Command::ProveRemote(remote) => remote.run(),
            Command::Completions(completions) => completions.run(Allora::command()),
            Command::Man(man) => man.run(Allora::command()),
            Command::Names(names) => names.run(),
            Command::AsUser(helper) => Err(helper.run()),
        }
    }
}
