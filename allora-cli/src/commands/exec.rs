//! `allora exec`: runs the command of a job here and now.

use super::crontab_line::Crontabs;
use crate::{
    clock,
    crontab_files::{EnvFile, Line},
    daemon::foreground,
    failure::{Failure, Outcome},
    kinds::{
        self,
        command::{CommandSpec, Invocation},
    },
    session::{self, Session},
    store::StoreArgs,
    values::shown,
};
use clap::Args;
use std::{
    io::Write,
    path::PathBuf,
    process::{ExitStatus, Stdio},
};

/// Runs the command of a job here and now, in the foreground.
///
/// It has the environment of its line, and runs as the line's user if you are root. Ends with the
/// command's exit status, or with 128 plus the number of the signal that ended the command.
///
/// The store is not changed, and nothing is recorded: use `allora trigger` to run the job on a node.
/// The command has no lease and no fence.
#[derive(Debug, Args)]
pub(crate) struct Exec {
    /// The job's name, as FILE:NAME of a line, or of a stored schedule of the kind `command`.
    name: String,
    #[command(flatten)]
    crontabs: Crontabs,
    /// A file of variables for the command of a line, as that of `allora run`. May be given several
    /// times.
    #[arg(long, value_name = "FILE")]
    env_file: Vec<PathBuf>,
    #[command(flatten)]
    place: StoreArgs,
}

impl Exec {
    pub(crate) fn run(self) -> Outcome {
        let spec = match self.crontabs.line(&self.name)? {
            Some(line) => of_line(&line, &self.env_file)?,
            None if self.env_file.is_empty() => self.stored()?,
            None => {
                return Err(Failure::wrong(format!(
                    "no crontab has the line {:?}, and --env-file is for lines of crontabs alone",
                    self.name
                )));
            }
        };
        let about = [
            ("ALLORA_JOB", self.name.clone()),
            ("ALLORA_SCHEDULED_AT", shown(clock::now())),
            ("ALLORA_ATTEMPT", "1".to_owned()),
        ];
        let mut command = foreground(&spec, &about).map_err(Failure::failed)?;
        let stdin = if spec.stdin.is_some() { Stdio::piped() } else { Stdio::null() };
        let failed = |error: std::io::Error| {
            Failure::failed(format!("the command of {:?} cannot be started: {error}", self.name))
        };
        let mut child = command.stdin(stdin).spawn().map_err(failed)?;
        if let (Some(mut input), Some(text)) = (child.stdin.take(), &spec.stdin) {
            // A command that does not read all of its input is no failure.
            let _ = input.write_all(text.as_bytes());
        }
        match code(child.wait().map_err(failed)?) {
            0 => Ok(()),
            code => Err(Failure::Said(code)),
        }
    }

    /// The command of a stored schedule.
    fn stored(&self) -> Outcome<CommandSpec> {
        let state = session::with(&self.place, async |session: Session| {
            Ok(session.schedules.get(&self.name).await?)
        })?;
        let name = &self.name;
        match kinds::base(&state.kind) {
            kinds::COMMAND => kinds::command_of(&state.data).map_err(|what| {
                Failure::failed(format!("{name:?} cannot be run: the data: {what}"))
            }),
            "" => Err(Failure::failed(format!(
                "{name:?} is a line of a crontab: its command is not in the store; name the \
                 crontab, as `allora exec {name} /etc/crontab`"
            ))),
            kind => Err(Failure::failed(format!(
                "{name:?} is of the kind {kind:?}; only commands are run here, so trigger it on a \
                 node with `allora trigger {name}`"
            ))),
        }
    }
}

fn of_line(line: &Line, env_files: &[PathBuf]) -> Outcome<CommandSpec> {
    let shell = (*line.shell).clone();
    let env_file = EnvFile::read(env_files).map_err(|wrong| Failure::wrong(wrong.to_string()))?;
    Ok(CommandSpec {
        invocation: Invocation::Shell(shell.command),
        stdin: shell.stdin,
        environment: env_file.below(&shell.environment),
        folder: None,
        user: shell.user,
        timeout: None,
        kept_output: 0,
    })
}

fn code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let signal = || status.signal().map(|signal| 128 + signal);
    let code = status.code().or_else(signal).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}
