//! The first process of a container: it starts the daemon as a child, passes signals on, and reaps
//! the processes that commands leave behind.

use crate::failure::{Failure, Outcome};
use nix::{
    errno::Errno,
    sys::{
        signal::{SigSet, Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{Pid, getpid},
};
use std::{env, process::Command};

/// True if this process has the number 1, whose duty the orphans of its container are.
pub(crate) fn is_first() -> bool {
    getpid().as_raw() == 1
}

/// Starts this command again as a child, and ends as that does.
///
/// # Errors
/// The child cannot be started, or ends otherwise than with status 0: all has been said.
pub(crate) fn run() -> Outcome {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::failed(format!("cannot start the daemon as a child of process 1: {error}"))
    };
    // Blocked here, they wait to be passed on. The child unblocks them.
    let signals = SigSet::all();
    signals.thread_block().map_err(|error| failed(&error.desc()))?;
    let program = env::current_exe().map_err(|error| failed(&error))?;
    let child = Command::new(program)
        .args(env::args_os().skip(1))
        .spawn()
        .map_err(|error| failed(&error))?;
    let daemon = i32::try_from(child.id()).map(Pid::from_raw).map_err(|error| failed(&error))?;
    loop {
        match signals.wait() {
            Ok(Signal::SIGCHLD) => {
                if let Some(code) = reap(daemon) {
                    return if code == 0 { Ok(()) } else { Err(Failure::Said(code)) };
                }
            }
            // One that has just ended is reaped next.
            Ok(signal) => drop(kill(daemon, signal)),
            Err(error) => return Err(failed(&error.desc())),
        }
    }
}

/// Receives signals again: a child of process 1 begins with all of them blocked, and passes that on
/// to the threads and commands that it starts.
pub(crate) fn unblock_signals() {
    // It fails for no set.
    let _ = SigSet::all().thread_unblock();
}

/// Reaps all processes that have ended; answers with the daemon's exit code if it is one of them.
fn reap(daemon: Pid) -> Option<u8> {
    let mut code = None;
    loop {
        let (pid, ended) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, status)) => (pid, status),
            Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, 128 + signal as i32),
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return code,
            Ok(_) | Err(Errno::EINTR) => continue,
            Err(_) => return code,
        };
        if pid == daemon {
            code = Some(u8::try_from(ended).unwrap_or(1));
        }
    }
}
