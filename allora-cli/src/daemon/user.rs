//! Running commands as other users, with all their groups.
//!
//! The standard library can change user and group of a child but leaves it no supplementary
//! groups. So the daemon starts itself once more: that process, still root and with nothing of the
//! crontab in its environment, takes on the user's groups and numbers, and only then becomes the
//! command.

use crate::failure::Failure;
use clap::Args;
use nix::unistd::{Uid, User, geteuid, initgroups, setgid, setuid};
use std::{
    env,
    ffi::{CString, OsString},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::Command,
};

/// The name of the hidden subcommand.
pub(crate) const HELPER: &str = "__as-user";

/// The prefix of the command's variables until the user is changed. A variable that a loader obeys,
/// as `LD_PRELOAD`, must not reach a process that is still root.
const VEIL: &str = "_ALLORA_FOR_COMMAND_";

/// Whose a command is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) home: PathBuf,
    /// True if the daemon must change to it.
    pub(crate) other: bool,
}

impl Account {
    /// The account of this name, or the daemon's own. Asks the system's user database, which may
    /// take its time.
    pub(crate) fn of(name: Option<&str>) -> Result<Self, String> {
        let me = geteuid();
        let Some(name) = name else { return Ok(Self::own(me)) };
        let user = User::from_name(name)
            .map_err(|error| format!("cannot look up the user `{name}`: {}", error.desc()))?;
        let user = user.ok_or_else(|| format!("there is no user `{name}`"))?;
        let other = user.uid != me;
        if other && !me.is_root() {
            return Err(format!("it runs as `{name}`, which only root's daemon can do"));
        }
        Ok(Self { name: user.name, home: user.dir, other })
    }

    /// The daemon's own; a container may have no entry for it.
    fn own(me: Uid) -> Self {
        let user = User::from_uid(me).ok().flatten();
        let home = || env::var_os("HOME").map_or_else(|| "/".into(), PathBuf::from);
        match user {
            Some(user) => Self { name: user.name, home: user.dir, other: false },
            None => Self { name: me.to_string(), home: home(), other: false },
        }
    }

    /// The command `program args..`, run as this account in this folder with exactly these
    /// variables.
    pub(crate) fn command(
        &self,
        program: &str,
        args: &[String],
        folder: &std::path::Path,
        variables: &[(String, String)],
    ) -> Command {
        if !self.other {
            let mut command = Command::new(program);
            let variables = variables.iter().map(|(name, value)| (name, value));
            command.args(args).current_dir(folder).env_clear().envs(variables);
            return command;
        }
        // Also when the file was replaced by a newer one while the daemon runs.
        let mut command = Command::new("/proc/self/exe");
        command.arg(HELPER).arg(&self.name).arg(folder).arg("--").arg(program).args(args);
        command.env_clear().current_dir("/");
        command.envs(variables.iter().map(|(name, value)| (format!("{VEIL}{name}"), value)));
        command
    }
}

/// A word about a user whom this machine does not know.
pub(crate) fn unknown(name: Option<&str>) -> Option<String> {
    let name = name?;
    let is_unknown = matches!(User::from_name(name), Ok(None));
    is_unknown.then(|| {
        format!("there is no user `{name}` on this machine; create it, or correct the name before the command")
    })
}

/// Becomes a command of another user; started by the daemon only.
#[derive(Debug, Args)]
pub(crate) struct AsUser {
    user: String,
    folder: PathBuf,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl AsUser {
    /// Returns only if it cannot be done.
    pub(crate) fn run(self) -> Failure {
        match self.become_it() {
            Ok(error) => {
                let program = self.command.first().cloned().unwrap_or_default();
                let (program, folder) = (program.display(), self.folder.display());
                Failure::failed(format!("cannot start {program} in {folder}: {error}"))
            }
            Err(what) => Failure::failed(what),
        }
    }

    fn become_it(&self) -> Result<std::io::Error, String> {
        let name = &self.user;
        let user = User::from_name(name).map_err(|error| error.desc().to_owned())?;
        let user = user.ok_or_else(|| format!("there is no user `{name}`"))?;
        let failed = |what: &str| {
            let what = what.to_owned();
            move |error: nix::Error| format!("cannot {what} of `{name}`: {}", error.desc())
        };
        let c_name = CString::new(name.as_str()).map_err(|error| error.to_string())?;
        initgroups(&c_name, user.gid).map_err(failed("set the groups"))?;
        setgid(user.gid).map_err(failed("set the group"))?;
        setuid(user.uid).map_err(failed("set the id"))?;
        let variables = env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok()?;
            Some((name.strip_prefix(VEIL)?.to_owned(), value))
        });
        let (program, args) = self.command.split_first().ok_or("no command was given")?;
        let mut command = Command::new(program);
        command.args(args).env_clear().envs(variables).current_dir(&self.folder);
        Ok(command.exec())
    }
}
