//! `cargo xtask release`: the command, optimised, with the list of its packages in the file, as cargo-auditable
//! writes it. Scanners compare it with the known weaknesses years later, without the sources.

use crate::{
    Failure, Outcome,
    command::{cargo, run as run_step, target, with_path},
    services::install::cargo_package,
};
use serde_json::Value;
use std::{
    env,
    process::{Command, Stdio},
};

/// Versions that are tried: the program that writes the list, and the one that reads it.
const WRITER: &str = "cargo-auditable@0.7.7";
const READER: &str = "rust-audit-info@0.5.4";

/// Packages that the list must have: ours, and one of crates.io.
const LISTED: [&str; 2] = ["allora-core", "tokio"];

/// Builds, and reads the list back.
///
/// # Errors
/// If a program cannot be installed, the command does not build, or its list is missing or lacks packages.
pub(crate) fn run() -> Outcome {
    let (writer, reader) = (cargo_package(WRITER)?, cargo_package(READER)?);
    let mut build = cargo(&["auditable", "build", "--release", "--locked", "--all-features"]);
    build.args(["-p", "allora-cli"]);
    run_step("the command", with_path(build, &writer))?;
    let file = target().join("release").join(format!("allora{}", env::consts::EXE_SUFFIX));
    let told =
        Command::new(reader.join("rust-audit-info")).arg(&file).stderr(Stdio::inherit()).output();
    let told = told.map_err(|cause| Failure::Check(format!("rust-audit-info: {cause}")))?;
    let packages = names(&told.stdout);
    if let Some(missing) = LISTED.iter().find(|name| !packages.iter().any(|other| other == *name)) {
        let what = format!("{}: the list of packages lacks {missing}", file.display());
        return Err(Failure::Check(what));
    }
    println!("{} with the list of its {} packages", file.display(), packages.len());
    Ok(())
}

/// The names of a list; empty if there is none.
fn names(told: &[u8]) -> Vec<String> {
    let list: Value = serde_json::from_slice(told).unwrap_or_default();
    let packages = list["packages"].as_array().into_iter().flatten();
    packages.filter_map(|package| package["name"].as_str().map(String::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_and_the_lack_of_one_is_no_package() {
        assert_eq!(names(br#"{"packages": [{"name": "a"}, {"name": "b"}]}"#), ["a", "b"]);
        assert!(names(b"").is_empty());
    }
}
