//! `cargo xtask ci`: all that a change must pass, the cheap checks first, the totals last.
//!
//! Every check runs, also after one that failed, so that one run shows everything. All share one
//! target folder; clippy and the documentation share their metadata, the examples and the tests
//! their compiled code.

use crate::{
    Failure, Outcome, chaos,
    command::{cargo, root, run as run_step, step, target},
    deny, disk, model, package, publish, test, tidy, versions,
};
use std::process::Command;

pub(crate) fn run() -> Outcome {
    let mut failures = Vec::new();
    let small_disk = disk::warning();
    if let Some(what) = &small_disk {
        println!("warning: {what}");
    }
    let mut note = |outcome: Outcome| {
        if let Err(Failure::Usage(what) | Failure::Check(what)) = outcome {
            failures.push(what);
        }
    };
    note(run_step("fmt", cargo(&["fmt", "--all", "--check"])));
    for (what, folder) in APART {
        note(run_step(&format!("fmt of {what}"), apart(folder, &["fmt", "--check"])));
    }
    note(tidy::run());
    clippy(&mut note);
    note(docs());
    note(run_step(
        "examples",
        cargo(&["build", "--workspace", "--examples", "--all-features", "--locked"]),
    ));
    note(deny::run(&[]));
    note(publish::run(false));
    note(model::threads());
    let report = test::run(&test::Request::everything());
    failures.extend(report.failure());
    // The tests have installed the servers and built the command.
    if let Err(Failure::Usage(what) | Failure::Check(what)) =
        chaos::each().and_then(|()| chaos::find_planted())
    {
        failures.push(what);
    }
    // The tests have installed the servers. A new release of one is no fault of a change.
    if let Err(Failure::Usage(what) | Failure::Check(what)) = versions::run() {
        println!("warning: {what}");
    }

    // A target folder with builds in it needs much less.
    if !failures.is_empty()
        && let Some(what) = small_disk
    {
        failures.push(format!("perhaps because of this: {what}"));
    }
    step(if failures.is_empty() { "all checks passed" } else { "failed" });
    for what in &failures {
        println!("{what}");
    }
    let tested = report.end();
    if failures.is_empty() { tested } else { Err(Failure::Check(String::new())) }
}

/// Each package alone: with its neighbours, it would borrow the features they turn on.
fn clippy(note: &mut impl FnMut(Outcome)) {
    let packages = match package::all() {
        Ok(packages) => packages,
        Err(failure) => return note(Err(failure)),
    };
    for package in &packages {
        for features in &package.feature_sets {
            // The tests of a package turn on features by themselves.
            let is_one_alone = features.iter().any(|arg| arg == "--features");
            let targets = if is_one_alone { "--lib" } else { "--all-targets" };
            let mut command = cargo(&["clippy", "--locked", targets, "-p", &package.name]);
            // Its neighbours have, or had, their own turn.
            command.arg("--no-deps").args(features).args(["--", "-D", "warnings"]);
            let title = format!("clippy {} {}", package.name, features.join(" "));
            note(run_step(title.trim_end(), command));
        }
    }
    let args = ["clippy", "--locked", "--all-targets", "--no-deps", "--", "-D", "warnings"];
    for (what, folder) in APART {
        note(run_step(&format!("clippy of {what}"), apart(folder, &args)));
    }
}

/// Workspaces of their own, whose dependencies the lock file of the project does not name.
const APART: [(&str, &str); 2] = [
    ("the examples of other drivers", "examples/drivers"),
    ("the searches of threads", "allora-core/loom"),
];

/// A command in a workspace of its own.
fn apart(folder: &str, args: &[&str]) -> Command {
    let mut command = cargo(args);
    command.current_dir(root().join(folder)).env("CARGO_TARGET_DIR", target());
    command
}

fn docs() -> Outcome {
    let mut command = cargo(&["doc", "--workspace", "--no-deps", "--all-features", "--locked"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    run_step("docs", command)
}
