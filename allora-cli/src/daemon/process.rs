//! One command: started in a process group of its own, watched, and ended with all it has started.

use super::{
    context::CommandContext,
    group::Group,
    mask::Mask,
    output::{self, OutputTail, Source},
    runs::CommandResult,
    user::Account,
};
use crate::{
    kinds::command::{CommandSpec, Invocation},
    session::ENDED,
    values::{run_id, shown},
};
use allora_core::{BoxError, Run, runtime::Runtime};
use futures::future::{Either, pending, select};
use std::{
    collections::BTreeMap,
    env,
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    pin::pin,
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};
use tokio::io::AsyncWriteExt;
use tracing::debug;

/// The `PATH` of Debian's cron.
const PATH: &str = "/usr/bin:/bin";

/// The time to wait for the last output of a command that has ended. A process that it left in the
/// background may keep the pipe open for ever.
const LAST_OUTPUT: Duration = Duration::from_millis(500);

/// Runs a command to its end.
///
/// # Errors
/// It cannot be started, ended otherwise than with status 0, or took too long. The text has the
/// end of what it printed.
///
/// # Cancel safety
/// When the future is dropped, the whole group is killed.
pub(crate) async fn execute(
    work: Arc<CommandSpec>,
    run: Run,
    context: Arc<CommandContext>,
) -> Result<(), BoxError> {
    let (mut group, tail) = start(&work, &run, &context).await?;
    let mut printed = Printed { tail: Some(tail), run: &run, context: &context };
    let (rt, timeout) = (&context.runtime, work.timeout);
    let limit = async {
        match timeout {
            Some(timeout) => rt.sleep_until(rt.now() + timeout).await,
            None => pending().await,
        }
    };
    let unwanted = pin!(async {
        match select(pin!(limit), run.cancelled()).await {
            Either::Left(_) => Some(timeout.unwrap_or_default()),
            Either::Right(_) => None,
        }
    });
    let first = match select(pin!(group.child.wait()), unwanted).await {
        Either::Left((status, _)) => Either::Left(status),
        Either::Right((too_long, _)) => Either::Right(too_long),
    };
    let too_long = match first {
        Either::Left(status) => {
            group.has_ended();
            return ended(status?, printed).await;
        }
        Either::Right(too_long) => too_long,
    };
    let status = group.end(&context.runtime, context.kill_after).await;
    let said = printed.said(status).await;
    match too_long {
        Some(limit) => {
            let ended = match status {
                Some(status) => format!("{ENDED}{status}"),
                None => ", and was killed".into(),
            };
            Err(format!("timed out after {limit:?}{ended}{said}").into())
        }
        None if run.cancel_requested() => Ok(()),
        // Cancelled, and it ended well all the same.
        None if status.is_some_and(|status| status.success()) => Ok(()),
        // At least once, another node runs it. At most once it is not run again; how that is
        // recorded is the scheduler's affair.
        None if run.release().is_ok() => Ok(()),
        None => pending().await,
    }
}

/// The output of a command, until it is noted for log, history and alerts. If the run's future is
/// dropped before, which is how a stop cuts a run off, what was printed so far is noted.
struct Printed<'a> {
    tail: Option<OutputTail>,
    run: &'a Run,
    context: &'a CommandContext,
}

impl Printed<'_> {
    /// The end of the output of a failed run, as the end of a sentence.
    async fn said(&mut self, status: Option<ExitStatus>) -> String {
        if let Some(tail) = &mut self.tail {
            tail.closed(&self.context.runtime, LAST_OUTPUT).await;
        }
        let printed = self.note(status);
        if printed.is_empty() { printed } else { format!("; its output ends: {printed}") }
    }

    /// Notes the output so far; returns as much of its end as the history has.
    fn note(&mut self, status: Option<ExitStatus>) -> String {
        let Some(tail) = self.tail.take() else { return String::new() };
        let output = tail.text();
        let printed = output::end_of(output.clone());
        let result = CommandResult {
            exit_status: status.and_then(|status| status.code()),
            signal: status.and_then(|status| status.signal()),
            output,
        };
        self.context.results.set(self.run.name(), self.run.fence(), result);
        if !printed.is_empty() {
            self.run.set_output(printed.clone());
        }
        printed
    }
}

impl Drop for Printed<'_> {
    fn drop(&mut self) {
        self.note(None);
    }
}

async fn ended(status: ExitStatus, mut printed: Printed<'_>) -> Result<(), BoxError> {
    // Also of a command that has succeeded: its last lines are in the log before its end.
    let said = printed.said(Some(status)).await;
    if status.success() { Ok(()) } else { Err(format!("{status}{said}").into()) }
}

async fn start(
    work: &CommandSpec,
    run: &Run,
    context: &CommandContext,
) -> Result<(Group, OutputTail), BoxError> {
    let user = work.user.clone();
    // Where users come from a directory service, this waits for the network.
    let account = tokio::task::spawn_blocking(move || Account::of(user.as_deref())).await??;
    let variables = variables(work, &account, &about(run), &context.environment);
    let command = command(work, &account, &variables);
    let (program, folder) = (command.program, command.folder);
    let mut command = tokio::process::Command::from(command.command);
    let stdin = if work.stdin.is_some() { Stdio::piped() } else { Stdio::null() };
    command.process_group(0).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| format!("cannot start {program} in {}: {error}", folder.display()))?;
    let name: Arc<str> = run.name().into();
    let (run_id, pid) = (run_id(run.name(), run.fence()), child.id().unwrap_or(0));
    debug!(target: "allora", job = &*name, run = run_id, pid, "command started");
    let source = Source { job: name, run: run_id.into() };
    let secret = |name: &String| variables.get(name).cloned().or_else(|| env::var(name).ok());
    let mask = Mask::new(context.masked.iter().filter_map(secret));
    let tail = output::follow(&mut child, &source, work.kept_output, &mask, context);
    if let (Some(mut input), Some(text)) = (child.stdin.take(), work.stdin.clone()) {
        context.runtime.spawn(Box::pin(async move {
            // A command that does not read all of its input is no failure.
            let _ = input.write_all(text.as_bytes()).await;
        }));
    }
    let marks = ["ALLORA_OCCURRENCE", "ALLORA_FENCE"];
    let mark = |name: &str| format!("{name}={}", variables.get(name).map_or("", String::as_str));
    Ok((Group::new(child, marks.map(mark).into()), tail))
}

/// A command that is ready to be started.
struct Prepared {
    command: std::process::Command,
    program: String,
    folder: PathBuf,
}

fn command(
    work: &CommandSpec,
    account: &Account,
    variables: &BTreeMap<String, String>,
) -> Prepared {
    let value = |name: &str| variables.get(name).cloned().unwrap_or_default();
    let (program, args) = match &work.invocation {
        Invocation::Shell(command) => (value("SHELL"), vec!["-c".to_owned(), command.clone()]),
        Invocation::Program(program, args) => (program.clone(), args.clone()),
    };
    let folder = match &work.folder {
        Some(folder) => folder.clone(),
        // Some of the system's users have no home: as under cron, their lines run all the same.
        None if value("HOME") == account.home.to_string_lossy() && !account.home.is_dir() => {
            "/".into()
        }
        None => value("HOME").into(),
    };
    let variables: Vec<_> = variables.clone().into_iter().collect();
    let command = account.command(&program, &args, &folder, &variables);
    Prepared { command, program, folder }
}

/// The command for the foreground, with these variables about its job beside its own.
///
/// # Errors
/// Its user is not known, or only root may run it.
pub(crate) fn foreground(
    work: &CommandSpec,
    about: &[(&'static str, String)],
) -> Result<std::process::Command, String> {
    let account = Account::of(work.user.as_deref())?;
    let variables = variables(work, &account, about, &[]);
    Ok(command(work, &account, &variables).command)
}

/// The variables that tell a command about its run.
fn about(run: &Run) -> Vec<(&'static str, String)> {
    let mut about = vec![
        ("ALLORA_JOB", run.name().to_owned()),
        ("ALLORA_NODE", run.node().to_owned()),
        ("ALLORA_SCHEDULED_AT", shown(run.scheduled_at())),
        ("ALLORA_ATTEMPT", run.attempt().to_string()),
        ("ALLORA_FENCE", run.fence().to_string()),
        ("ALLORA_OCCURRENCE", run.occurrence_key()),
    ];
    about.extend(run.mutex_fence().map(|fence| ("ALLORA_MUTEX_FENCE", fence.to_string())));
    about
}

/// The command's environment: what cron gives, what the crontab sets, and what it may want to know
/// about its run.
fn variables(
    work: &CommandSpec,
    account: &Account,
    about: &[(&'static str, String)],
    of_daemon: &[(String, String)],
) -> BTreeMap<String, String> {
    let mut variables: BTreeMap<String, String> = of_daemon.iter().cloned().collect();
    let mut set = |name: &str, value: String| variables.insert(name.to_owned(), value);
    set("HOME", account.home.to_string_lossy().into_owned());
    set("SHELL", "/bin/sh".into());
    if of_daemon.is_empty() {
        set("PATH", PATH.into());
    }
    // Without it, a command's idea of the time would not be the schedule's.
    if let Ok(zone) = env::var("TZ") {
        set("TZ", zone);
    }
    let settings =
        |name: &str| name.starts_with("ALLORA_") && !crate::crontab_files::is_commands_own(name);
    for (name, value) in work.environment.iter().filter(|(name, _)| !settings(name)) {
        set(name, value.clone());
    }
    set("LOGNAME", account.name.clone());
    set("USER", account.name.clone());
    for (name, value) in about {
        set(name, value.clone());
    }
    variables
}
