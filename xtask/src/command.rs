//! Running other programs, with a line before each so that a log reads as a list of steps.

use crate::{Failure, Outcome};
use std::{
    env,
    ffi::OsString,
    io::{self, BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::LazyLock,
};

/// The workspace's folder: of the checkout in which `cargo xtask` was called, also if the target folder
/// was copied from another one.
pub(crate) fn root() -> &'static Path {
    static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
        let compiled = env!("CARGO_MANIFEST_DIR").into();
        let xtask = env::var_os("CARGO_MANIFEST_DIR").map_or(compiled, PathBuf::from);
        xtask.parent().expect("xtask is a folder of the workspace").to_owned()
    });
    &ROOT
}

/// The folder of what cargo builds.
pub(crate) fn target() -> PathBuf {
    root().join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// The cargo that runs this program, in the workspace's folder, with the compiler of protocol files
/// that allora-etcd needs to be built.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    // Variables about the package of this program would have every dependency built again that reads them.
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(|name| {
            ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|start| name.starts_with(start))
        }) {
            command.env_remove(name);
        }
    }
    // One that is named by the user, or by the cargo that runs us, is the one to take.
    if env::var_os("PROTOC").is_none()
        && let (Ok(protoc), Ok(include)) =
            (protoc_bin_vendored::protoc_bin_path(), protoc_bin_vendored::include_path())
    {
        command.env("PROTOC", protoc).env("PROTOC_INCLUDE", include);
    }
    command
}

/// True if `cargo NAME` is installed.
pub(crate) fn has_subcommand(name: &str) -> bool {
    let quiet = cargo(&[name, "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}

/// The command, which finds the programs of this folder too.
pub(crate) fn with_path(mut command: Command, programs: &Path) -> Command {
    let mut path = OsString::from(programs);
    path.push(":");
    path.push(env::var_os("PATH").unwrap_or_default());
    command.env("PATH", path);
    command
}

/// Announces a step.
pub(crate) fn step(title: &str) {
    println!("== {title}");
    // A log that is a file would otherwise show the title after the step's own messages.
    let _ = io::stdout().flush();
}

/// Runs a step to its end; its output goes where ours goes.
pub(crate) fn run(title: &str, mut command: Command) -> Outcome {
    step(title);
    let status = command.status().map_err(|cause| cannot_start(title, &cause))?;
    if status.success() { Ok(()) } else { Err(Failure::Check(format!("{title}: {status}"))) }
}

/// Which stream of a command carries the lines that matter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Watched {
    Stdout,
    Stderr,
}

/// Runs a step, passes its output on and shows each line of one stream to `look`.
/// True if the command succeeded.
pub(crate) fn watch(
    title: &str,
    mut command: Command,
    stream: Watched,
    mut look: impl FnMut(&str),
) -> Outcome<bool> {
    step(title);
    match stream {
        Watched::Stdout => command.stdout(Stdio::piped()),
        Watched::Stderr => command.stderr(Stdio::piped()),
    };
    let mut child = command.spawn().map_err(|cause| cannot_start(title, &cause))?;
    let piped: Box<dyn Read> = match stream {
        Watched::Stdout => Box::new(child.stdout.take().expect("piped above")),
        Watched::Stderr => Box::new(child.stderr.take().expect("piped above")),
    };
    for line in BufReader::new(piped).split(b'\n') {
        let line = line.map_err(|cause| Failure::Check(format!("{title}: {cause}")))?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        look(&line);
    }
    let status = child.wait().map_err(|cause| Failure::Check(format!("{title}: {cause}")))?;
    Ok(status.success())
}

fn cannot_start(title: &str, cause: &io::Error) -> Failure {
    Failure::Check(format!("{title}: the program did not start: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cargo_builds_finds_a_compiler_of_protocol_files() {
        let command = cargo(&["build"]);
        let named = command.get_envs().find(|(name, _)| *name == "PROTOC");
        let named = named.and_then(|(_, path)| path.map(Into::into));
        let protoc = named.or_else(|| env::var_os("PROTOC")).expect("one that is brought along");
        let said = Command::new(protoc).arg("--version").output().unwrap();
        assert!(String::from_utf8_lossy(&said.stdout).starts_with("libprotoc"));
    }
}
