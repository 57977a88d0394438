//! The programs that measure, as release builds.

use super::plan::Program;
use crate::{
    Failure, Outcome,
    bench::builds::executable,
    command::{self, cargo, root},
};
use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

/// The workspace of the peers, which has a lock file of its own.
const PEERS: &str = "benches/peers";

pub(super) struct Programs {
    measure: PathBuf,
    scheduling: PathBuf,
    peers: Option<PathBuf>,
}

impl Programs {
    /// Builds them.
    ///
    /// # Errors
    /// If a build fails.
    pub(super) fn build(with_peers: bool) -> Outcome<Self> {
        let benches = ["-p", "allora-benches", "--bench", "measure", "--bench", "scheduling"];
        let built = build("benches", &benches, root())?;
        let peers = match with_peers {
            true => Some(peers()?),
            false => None,
        };
        Ok(Self {
            measure: named(&built, "measure")?,
            scheduling: named(&built, "scheduling")?,
            peers,
        })
    }

    pub(super) fn of(&self, program: Program) -> &Path {
        match program {
            Program::Measure => &self.measure,
            Program::Scheduling => &self.scheduling,
            Program::Peers => self.peers.as_deref().expect("planned only if it was built"),
        }
    }
}

/// Builds the program of the peers.
///
/// # Errors
/// If the build fails.
pub(crate) fn peers() -> Outcome<PathBuf> {
    named(&build("peers", &[], &root().join(PEERS))?, "peers")
}

/// The messages of a release build.
fn build(title: &str, words: &[&str], folder: &Path) -> Outcome<String> {
    let title = format!("release build of the {title}");
    command::step(&title);
    let mut build = cargo(&["build", "--release", "--locked", "--all-features"]);
    build.args(["--message-format", "json-render-diagnostics"]).args(words);
    build.current_dir(folder).stderr(Stdio::inherit());
    let failed = |why: String| Failure::Check(format!("{title}: {why}"));
    let built = build.output().map_err(|cause| failed(cause.to_string()))?;
    match built.status.success() {
        true => Ok(String::from_utf8_lossy(&built.stdout).into_owned()),
        false => Err(failed(built.status.to_string())),
    }
}

fn named(messages: &str, name: &str) -> Outcome<PathBuf> {
    executable(messages, name)
        .ok_or_else(|| Failure::Check(format!("cargo names no program `{name}`")))
}
