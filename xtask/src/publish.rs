//! `cargo xtask publish`: the packages as they would be published, in a copy of the workspace, with
//! unused names. No package is sent.

use crate::{
    Failure, Outcome,
    command::{cargo, root, run as run_step},
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Stands before each name in the copy.
const PREFIX: &str = "dry-run-";

/// Packs every package and, with `build`, builds each from its package alone.
///
/// # Errors
/// If a package cannot be made, or does not build.
pub(crate) fn run(build: bool) -> Outcome {
    let copy = root().join("target/publish");
    match fs::remove_dir_all(copy.join("workspace")) {
        Err(cause) if copy.join("workspace").exists() => {
            return Err(failed("remove", &copy)(cause));
        }
        _ => {}
    }
    for file in tracked()? {
        copy_file(&file, &copy.join("workspace"))?;
    }
    let mut command = cargo(&["publish", "--workspace", "--dry-run", "--allow-dirty"]);
    if !build {
        command.arg("--no-verify");
    }
    command.current_dir(copy.join("workspace")).env("CARGO_TARGET_DIR", copy.join("target"));
    run_step("publish", command)
}

/// The files of the repository.
fn tracked() -> Outcome<Vec<PathBuf>> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output();
    let output = output.map_err(|cause| Failure::Check(format!("git did not start: {cause}")))?;
    let names = String::from_utf8_lossy(&output.stdout);
    let files: Vec<PathBuf> = names.split_terminator('\0').map(PathBuf::from).collect();
    if files.is_empty() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::Check(format!("git lists no files: {}", why.trim())));
    }
    Ok(files)
}

/// Copies one file; a manifest under the other names. A link becomes what it points to.
fn copy_file(file: &Path, to: &Path) -> Outcome {
    let (from, to) = (root().join(file), to.join(file));
    let folder = to.parent().unwrap_or(&to);
    fs::create_dir_all(folder).map_err(failed("create", folder))?;
    if file.file_name().is_some_and(|name| name == "Cargo.toml") {
        let manifest = fs::read_to_string(&from).map_err(failed("read", &from))?;
        return fs::write(&to, renamed(&manifest)).map_err(failed("write", &to));
    }
    if from.exists() {
        fs::copy(&from, &to).map_err(failed("copy", &from))?;
    }
    Ok(())
}

fn failed(what: &'static str, path: &Path) -> impl Fn(std::io::Error) -> Failure {
    move |cause| Failure::Check(format!("cannot {what} {}: {cause}", path.display()))
}

/// A manifest whose packages have other names and may be published. Code and tests find them under
/// their own names, because a dependency keeps its key.
fn renamed(manifest: &str) -> String {
    let mut section = "";
    let mut text = String::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        }
        let is_allora = line.starts_with("allora");
        let line = match line.split_once(" = ") {
            Some(("name", name)) if section == "[package]" && name.starts_with("\"allora") => {
                format!("name = \"{PREFIX}{}", &name[1..])
            }
            Some((key, rest)) if is_allora && rest.starts_with("{ path = ") => {
                format!("{key} = {{ package = \"{PREFIX}{key}\", {}", &rest[2..])
            }
            Some(("publish", "false")) if section == "[workspace.package]" => continue,
            _ if line == "publish.workspace = true" => continue,
            _ => line.to_owned(),
        };
        text += &line;
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_have_other_names_and_keep_their_keys() {
        let manifest = "[package]\nname = \"allora-x\"\npublish.workspace = true\n\
                        [dependencies]\nallora-core = { path = \"../core\", version = \"1\" }\n\
                        allora-sql.workspace = true\n[[bin]]\nname = \"allora\"\n";
        assert_eq!(
            renamed(manifest),
            "[package]\nname = \"dry-run-allora-x\"\n[dependencies]\nallora-core = { package = \
             \"dry-run-allora-core\", path = \"../core\", version = \"1\" }\n\
             allora-sql.workspace = true\n[[bin]]\nname = \"allora\"\n"
        );
        assert_eq!(renamed("[workspace.package]\npublish = false\n"), "[workspace.package]\n");
        assert_eq!(renamed("[package]\npublish = false\n"), "[package]\npublish = false\n");
    }
}
