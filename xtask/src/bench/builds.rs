//! The two builds of the measurement program: of this tree, and of a git revision.

use crate::{
    Failure, Outcome,
    command::{self, cargo, root},
};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The first page of the measurement program, which describes its contract.
const PROGRAM: &str = "benches/benches/whole/main.rs";

/// Copies of the two programs, which later builds do not replace.
pub(super) struct Builds {
    pub(super) base: PathBuf,
    pub(super) this: PathBuf,
    /// The revision as it was named, with its short hash.
    pub(super) title: String,
    pub(super) commit: String,
}

impl Builds {
    /// Builds both with the release profile of their trees. A base that is a file is the measurement
    /// program of a build made by hand, for revisions that have none.
    ///
    /// # Errors
    /// If the revision is unknown or has no measurement program, or if a build fails.
    pub(super) fn make(base: &str) -> Outcome<Self> {
        if let Some(by_hand) = built_by_hand(base) {
            let (title, commit) = (base.to_owned(), base.to_owned());
            return Ok(Self { base: by_hand, this: this_tree(&folder())?, title, commit });
        }
        let commit = commit(base)?;
        let short: String = commit.chars().take(9).collect();
        let title = if commit.starts_with(base) { short } else { format!("{base} ({short})") };
        refuse_without_program(&title, &commit)?;
        let folder = folder();
        let this = this_tree(&folder)?;
        let tree = Worktree::add(folder.join("base"), &commit)?;
        let target = folder.join("target");
        let base = program(&title, &tree.0, Some(&target), &folder.join("whole-base"))?;
        Ok(Self { base, this, title, commit })
    }
}

/// Builds the program of this tree.
fn this_tree(folder: &Path) -> Outcome<PathBuf> {
    fs::create_dir_all(folder).map_err(|cause| failed(folder, &cause))?;
    program("this tree", root(), None, &folder.join("whole-this"))
}

/// The absolute path of a base that is a file.
fn built_by_hand(base: &str) -> Option<PathBuf> {
    let path = fs::canonicalize(base).ok()?;
    path.is_file().then_some(path)
}

/// The hash of a revision.
fn commit(revision: &str) -> Outcome<String> {
    let name = format!("{revision}^{{commit}}");
    git(&["rev-parse", "--verify", "--quiet", "--end-of-options", &name])
        .map_err(|_| Failure::Check(format!("git knows no revision `{revision}`")))
}

/// Refuses a revision that is older than the measurement program.
fn refuse_without_program(title: &str, commit: &str) -> Outcome {
    let missing = |_| {
        let what = "it has no measurement program; use a revision that has the file";
        Failure::Check(format!("{title} cannot be compared: {what} {PROGRAM}"))
    };
    git(&["cat-file", "-e", &format!("{commit}:{PROGRAM}")]).map(drop).map_err(missing)
}

/// The folder of the comparison, which stays between calls.
fn folder() -> PathBuf {
    command::target().join("compare")
}

/// A checkout of a revision; dropped, it is removed.
struct Worktree(PathBuf);

impl Worktree {
    fn add(path: PathBuf, commit: &str) -> Outcome<Self> {
        // One that an interrupted call has left.
        let tree = Self(path);
        tree.remove();
        let path = tree.0.to_string_lossy().into_owned();
        git(&["worktree", "add", "--detach", "--force", &path, commit])?;
        Ok(tree)
    }

    fn remove(&self) {
        // That there is none is no failure.
        let _ = git(&["worktree", "remove", "--force", &self.0.to_string_lossy()]);
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Drop for Worktree {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Builds the program of a tree and copies it.
fn program(title: &str, tree: &Path, target: Option<&Path>, copy: &Path) -> Outcome<PathBuf> {
    let title = format!("build of {title}");
    command::step(&title);
    let mut build = cargo(&["build", "--release", "-p", "allora-benches", "--bench", "whole"]);
    build.args(["--all-features", "--locked", "--message-format", "json-render-diagnostics"]);
    build.current_dir(tree).stderr(Stdio::inherit());
    if let Some(target) = target {
        build.env("CARGO_TARGET_DIR", target);
    }
    let built = build.output().map_err(|cause| failed(Path::new("cargo"), &cause))?;
    if !built.status.success() {
        return Err(Failure::Check(format!("{title}: {}", built.status)));
    }
    let program = executable(&String::from_utf8_lossy(&built.stdout), "whole")
        .ok_or_else(|| Failure::Check(format!("{title}: cargo names no program")))?;
    fs::copy(&program, copy).map_err(|cause| failed(copy, &cause))?;
    Ok(copy.to_owned())
}

/// The program with this name in the messages of cargo.
pub(super) fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    let of = |line: &str| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_ours = message["target"]["name"] == name;
        message["executable"].as_str().filter(|_| is_ours).map(PathBuf::from)
    };
    messages.lines().find_map(of)
}

/// The output of git.
fn git(args: &[&str]) -> Outcome<String> {
    let told = Command::new("git").args(args).current_dir(root()).output();
    let told = told.map_err(|cause| failed(Path::new("git"), &cause))?;
    if told.status.success() {
        return Ok(String::from_utf8_lossy(&told.stdout).trim().to_owned());
    }
    let why = String::from_utf8_lossy(&told.stderr);
    Err(Failure::Check(format!("git {}: {}", args.join(" "), why.trim())))
}

fn failed(what: &Path, cause: &std::io::Error) -> Failure {
    Failure::Check(format!("{}: {cause}", what.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_in_the_messages_of_cargo() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"name":"build"},"executable":"/b"}"#,
            "\nnoise\n",
            r#"{"reason":"compiler-artifact","target":{"name":"whole"},"executable":"/w"}"#,
            "\n",
        );
        assert_eq!(executable(messages, "whole"), Some("/w".into()));
        assert_eq!(executable(messages, "other"), None);
        assert_eq!(executable("{}", "whole"), None);
    }

    #[test]
    fn this_tree_has_the_program() {
        assert!(root().join(PROGRAM).is_file());
    }

    #[test]
    fn only_a_file_was_built_by_hand() {
        let file = root().join("Cargo.toml");
        assert_eq!(built_by_hand(&file.to_string_lossy()), fs::canonicalize(&file).ok());
        for base in [&*root().to_string_lossy(), "main", "no/such-file"] {
            assert_eq!(built_by_hand(base), None);
        }
    }

    #[test]
    fn an_unknown_revision_is_named() {
        for revision in ["no/such-revision", "--all"] {
            let Err(Failure::Check(what)) = commit(revision) else { panic!("accepted") };
            assert!(what.contains(revision), "{what}");
        }
    }

    #[test]
    fn a_revision_without_the_program_says_so() {
        // Git's empty tree.
        let empty = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
        let refused = refuse_without_program("v0 (4b825dc64)", empty);
        let Err(Failure::Check(what)) = refused else { panic!("accepted") };
        assert!(what.starts_with("v0 (4b825dc64) cannot be compared"), "{what}");
        assert!(what.contains("no measurement program"), "{what}");
    }
}
