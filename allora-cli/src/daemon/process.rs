//! One command: started in a process group of its own, watched, and ended with all it has started.

use super::{
    output::{self, Tail},
    user::Account,
};
use crate::values::shown;
use allora_core::{
    BoxError, Run,
    runtime::{Runtime, Tokio},
};
use futures::future::{Either, pending, select};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use std::{
    collections::BTreeMap,
    env, fs,
    path::PathBuf,
    pin::pin,
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};
use tokio::{io::AsyncWriteExt, process::Child};
use tracing::info;

/// What to run.
pub(crate) struct Work {
    pub(crate) call: Call,
    pub(crate) stdin: Option<String>,
    pub(crate) environment: Arc<[(String, String)]>,
    /// In which folder; `None`: in `HOME`, or in / if the user has no home.
    pub(crate) folder: Option<PathBuf>,
    /// As whom; `None`: as the daemon.
    pub(crate) user: Option<String>,
    /// It is ended after so long.
    pub(crate) timeout: Option<Duration>,
}

/// How it is called.
pub(crate) enum Call {
    /// By `$SHELL -c`.
    Shell(String),
    /// A program and its arguments, without any shell.
    Program(String, Vec<String>),
}

/// What all commands of a daemon have in common.
#[derive(Debug)]
pub(crate) struct Surroundings {
    pub(crate) runtime: Tokio,
    /// Between TERM and KILL.
    pub(crate) kill_after: Duration,
    /// Whether what commands print goes to the log line by line.
    pub(crate) log_output: bool,
    /// The daemon's own variables that commands get.
    pub(crate) environment: Vec<(String, String)>,
}

/// The `PATH` of Debian's cron.
const PATH: &str = "/usr/bin:/bin";

/// How often a group that was asked to end is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// How long to wait for the last output of a command that has ended: what it left in the
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
    work: Arc<Work>,
    run: Run,
    around: Arc<Surroundings>,
) -> Result<(), BoxError> {
    let (mut group, tail) = start(&work, &run, &around).await?;
    let (rt, timeout) = (&around.runtime, work.timeout);
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
            return ended(&run, status?, tail, &around).await;
        }
        Either::Right(too_long) => too_long,
    };
    let status = group.end(&around).await;
    match too_long {
        Some(limit) => {
            let printed = tail.end(&around.runtime, LAST_OUTPUT).await;
            Err(format!("timed out after {limit:?}, and was ended{printed}").into())
        }
        // Cancelled, and it ended well all the same.
        None if status.is_some_and(|status| status.success()) => Ok(()),
        // At least once, another node runs it. At most once it is not run again; how that is
        // recorded is the scheduler's affair.
        None if run.release().is_ok() => Ok(()),
        None => pending().await,
    }
}

async fn ended(
    run: &Run,
    status: ExitStatus,
    tail: Tail,
    around: &Surroundings,
) -> Result<(), BoxError> {
    let printed = tail.end(&around.runtime, LAST_OUTPUT).await;
    info!(target: "allora", job = run.name(), scheduled_at = %shown(run.scheduled_at()), fence = run.fence(), "ended: {status}");
    if status.success() { Ok(()) } else { Err(format!("{status}{printed}").into()) }
}

async fn start(work: &Work, run: &Run, around: &Surroundings) -> Result<(Group, Tail), BoxError> {
    let user = work.user.clone();
    // Where users come from a directory service, this waits for the network.
    let account = tokio::task::spawn_blocking(move || Account::of(user.as_deref())).await??;
    let variables = variables(work, &account, run, around);
    let value = |name: &str| variables.get(name).cloned().unwrap_or_default();
    let (program, args) = match &work.call {
        Call::Shell(command) => (value("SHELL"), vec!["-c".to_owned(), command.clone()]),
        Call::Program(program, args) => (program.clone(), args.clone()),
    };
    let folder = match &work.folder {
        Some(folder) => folder.clone(),
        // Some of the system's users have no home: as under cron, their lines run all the same.
        None if value("HOME") == account.home.to_string_lossy() && !account.home.is_dir() => {
            "/".into()
        }
        None => value("HOME").into(),
    };
    let variables: Vec<_> = variables.into_iter().collect();
    let command = account.command(&program, &args, &folder, &variables);
    let mut command = tokio::process::Command::from(command);
    let stdin = if work.stdin.is_some() { Stdio::piped() } else { Stdio::null() };
    command.process_group(0).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| format!("cannot start {program} in {}: {error}", folder.display()))?;
    let id = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
    let name: Arc<str> = run.name().into();
    info!(
        target: "allora", job = &*name, scheduled_at = %shown(run.scheduled_at()),
        attempt = run.attempt(), fence = run.fence(), pid = id.map_or(0, Pid::as_raw), "started"
    );
    let tail = output::follow(&mut child, &name, around);
    if let (Some(mut input), Some(text)) = (child.stdin.take(), work.stdin.clone()) {
        around.runtime.spawn(Box::pin(async move {
            // A command that does not read all of its input is no failure.
            let _ = input.write_all(text.as_bytes()).await;
        }));
    }
    Ok((Group { child, id }, tail))
}

/// The command's environment: what cron gives, what the crontab sets, and what it may want to know
/// about its run.
fn variables(
    work: &Work,
    account: &Account,
    run: &Run,
    around: &Surroundings,
) -> BTreeMap<String, String> {
    let mut variables: BTreeMap<String, String> = around.environment.iter().cloned().collect();
    let mut set = |name: &str, value: String| variables.insert(name.to_owned(), value);
    set("HOME", account.home.to_string_lossy().into_owned());
    set("SHELL", "/bin/sh".into());
    if around.environment.is_empty() {
        set("PATH", PATH.into());
    }
    // Without it, a command's idea of the time would not be the schedule's.
    if let Ok(zone) = env::var("TZ") {
        set("TZ", zone);
    }
    let settings =
        |name: &str| name.starts_with("ALLORA_") && !crate::crontabs::is_commands_own(name);
    for (name, value) in work.environment.iter().filter(|(name, _)| !settings(name)) {
        set(name, value.clone());
    }
    set("LOGNAME", account.name.clone());
    set("USER", account.name.clone());
    set("ALLORA_JOB", run.name().to_owned());
    set("ALLORA_NODE", run.node().to_owned());
    set("ALLORA_SCHEDULED_AT", shown(run.scheduled_at()));
    set("ALLORA_ATTEMPT", run.attempt().to_string());
    set("ALLORA_FENCE", run.fence().to_string());
    if let Some(fence) = run.mutex_fence() {
        set("ALLORA_MUTEX_FENCE", fence.to_string());
    }
    set("ALLORA_OCCURRENCE", run.occurrence_key());
    variables
}

/// A command and whatever it has started, unless that made a group of its own.
struct Group {
    child: Child,
    /// `None` once the command has ended: then the number may be somebody else's.
    id: Option<Pid>,
}

impl Group {
    /// The command has ended by itself. What it left in the background stays, as with cron.
    fn has_ended(&mut self) {
        self.id = None;
    }

    /// Asks the group to end, and kills what has not ended in time. The status is the command's,
    /// if it ended when asked.
    async fn end(&mut self, around: &Surroundings) -> Option<ExitStatus> {
        self.signal(Signal::SIGTERM);
        let rt = &around.runtime;
        let until = rt.now() + around.kill_after;
        let mut status = None;
        // A group's number is free for others only when the last of the group is gone.
        while rt.now() < until && (status.is_none() || self.lives()) {
            let look = rt.sleep_until((rt.now() + LOOK).min(until));
            if status.is_some() {
                look.await;
            } else if let Either::Left((Ok(ended), _)) = select(pin!(self.child.wait()), look).await
            {
                status = Some(ended);
            }
        }
        self.signal(Signal::SIGKILL);
        self.id = None;
        status
    }

    /// Whether anybody of the group lives. Who has ended and waits to be noticed by a parent does
    /// not: in a container nobody may ever notice.
    fn lives(&self) -> bool {
        let Some(id) = self.id.filter(|_| self.signal(None)) else { return false };
        let Ok(processes) = fs::read_dir("/proc") else { return true };
        let stats = processes.flatten().map(|process| process.path().join("stat"));
        let mut stats = stats.filter_map(|stat| fs::read_to_string(stat).ok()).peekable();
        // Where there is no such thing, the group is believed to live.
        stats.peek().is_none() || stats.any(|stat| is_alive_in(&stat, id.as_raw()))
    }

    /// Whether there was anybody to send it to.
    fn signal(&self, signal: impl Into<Option<Signal>>) -> bool {
        self.id.is_some_and(|id| killpg(id, signal).is_ok())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
    }
}

/// Whether `/proc/PID/stat` tells of a process of this group that has not ended. The name in it is
/// in brackets, and may have anything in it.
fn is_alive_in(stat: &str, group: i32) -> bool {
    let Some((_, rest)) = stat.rsplit_once(')') else { return false };
    let mut fields = rest.split_ascii_whitespace();
    let (state, of) = (fields.next(), fields.nth(1));
    of.and_then(|of| of.parse().ok()) == Some(group) && !matches!(state, Some("Z" | "X"))
}

#[cfg(test)]
mod tests {
    use super::is_alive_in;

    #[test]
    fn who_has_ended_is_not_alive() {
        assert!(is_alive_in("12 (a) R) S 1 77 77 0 -1", 77));
        assert!(!is_alive_in("12 (sh) Z 1 77 77 0 -1", 77));
        assert!(!is_alive_in("12 (sh) S 77 12 12 0 -1", 77));
        assert!(!is_alive_in("", 77));
    }
}
