//! `cargo xtask mutants`: the code that decides what runs, changed in one place at a time; a test must fail.

use crate::{
    Failure, Outcome,
    command::{cargo, has_subcommand, run as run_step, target, with_path},
    figures::grouped,
    services::{self, install::cargo_package},
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fmt::Write, fs, path::PathBuf, process::Command};

/// The release that is installed where there is none.
const PACKAGE: &str = "cargo-mutants@27.1.0";

/// The parts of the code, and what the paths of their files contain.
const PARTS: [(&str, &str); 4] = [
    ("planner", "/src/planner/"),
    ("record", "/src/record/"),
    ("quorum", "/quorum/src/"),
    ("cron", "/src/cron/"),
];

/// The folder of the results.
fn folder() -> PathBuf {
    target().join("mutants")
}

/// Tests the mutants that these options of cargo-mutants choose, all without options, and keeps the result. The unit tests
/// come first, which take seconds; what passes them is tried by the tests in `tests/it`, which take minutes.
/// `.cargo/mutants.toml` has the files, and why some mutants are left out.
///
/// # Errors
/// If a mutant was not noticed.
pub(crate) fn run(args: &[String]) -> Outcome {
    let installed = if has_subcommand("mutants") { None } else { Some(cargo_package(PACKAGE)?) };
    let program = |more: &[&str]| {
        let mut command = cargo(&["mutants", "--workspace"]);
        // Builds of the copy begin with the dependencies that are built already.
        command.args(more).env("CARGO_TARGET_DIR", target());
        match &installed {
            Some(programs) => with_path(command, programs),
            None => command,
        }
    };
    let listed = program(&["--list", "--json"]).output();
    let listed: Value = listed
        .ok()
        .and_then(|listed| serde_json::from_slice(&listed.stdout).ok())
        .ok_or_else(|| Failure::Check("cargo mutants lists no mutants".into()))?;
    // In no order, so that a run that is interrupted has tried some of everything.
    let mut units = program(&["--shuffle", "--cargo-arg=--lib"]);
    units.args(args);
    let (mut outcome, by_units) = tried("mutants: unit tests", units)?;
    let mut by_others = Fates::new();
    if by_units.values().any(|fate| fate == MISSED) {
        leave_out(
            names(&listed).filter(|name| by_units.get(*name).is_none_or(|fate| fate != MISSED)),
        )?;
        let servers = services::start_single(&["redis-quorum"])?;
        // The tests of all parts take several times as long as those of one, which are run for each mutant.
        let mut others = program(&["--iterate", "--timeout-multiplier=2", "--cargo-arg=--test=it"]);
        others.envs(servers.environment.iter().cloned());
        (outcome, by_others) = tried("mutants: tests/it", others)?;
    }
    let kept = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = args.join(" ").chars().map(kept).collect();
    let file = folder().join(format!("mutants{name}.json"));
    fs::write(&file, result(&listed, &by_units, &by_others).to_string())
        .map_err(|cause| Failure::Check(format!("{}: {cause}", file.display())))?;
    outcome
}

/// By the name of a mutant, which begins with its file, what cargo-mutants says of it.
type Fates = BTreeMap<String, String>;

/// The fate of a mutant that passed the tests.
const MISSED: &str = "MissedMutant";

/// Runs cargo-mutants. Returns whether no mutant passed the tests, and the fates; those it had when it was interrupted.
fn tried(title: &str, mut command: Command) -> Outcome<(Outcome, Fates)> {
    command.arg("--output").arg(folder());
    // The result of an earlier run must not pass for that of this one.
    let outcomes = folder().join("mutants.out/outcomes.json");
    let _ = fs::remove_file(&outcomes);
    let outcome = run_step(title, command);
    let text = fs::read_to_string(&outcomes).unwrap_or_default();
    match serde_json::from_str(&text) {
        Ok(outcomes) => Ok((outcome, fates(&outcomes))),
        Err(_) => Err(outcome.err().unwrap_or(Failure::Check(format!("{title}: no outcomes")))),
    }
}

fn fates(outcomes: &Value) -> Fates {
    let fate = |outcome: &Value| {
        let name = outcome["scenario"]["Mutant"]["name"].as_str()?;
        Some((name.into(), outcome["summary"].as_str()?.into()))
    };
    outcomes["outcomes"].as_array().into_iter().flatten().filter_map(fate).collect()
}

fn names(listed: &Value) -> impl Iterator<Item = &str> {
    listed.as_array().into_iter().flatten().filter_map(|mutant| mutant["name"].as_str())
}

/// The next run with `--iterate` leaves these mutants out, as if an earlier one had noticed them. An expression of names
/// (`--re`) would not do: it lets all mutants pass in which a field is deleted.
fn leave_out<'a>(names: impl Iterator<Item = &'a str>) -> Outcome {
    let file = folder().join("mutants.out/previously_caught.txt");
    let names: String = names.map(|name| format!("{name}\n")).collect();
    fs::write(&file, names).map_err(|cause| Failure::Check(format!("{}: {cause}", file.display())))
}

/// The fates of the mutants of each part, and the number of all that it has. Those that passed the unit tests, and that
/// the other tests did not try, are not noticed.
fn result(listed: &Value, by_units: &Fates, by_others: &Fates) -> Value {
    let is_noticed = |fate: &str| matches!(fate, "CaughtMutant" | "Timeout");
    let part = |(name, path): &(&str, &str)| {
        let mut own: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, fate) in by_units.iter().filter(|(name, _)| name.contains(path)) {
            let later = by_others.get(name).is_some_and(|fate| is_noticed(fate));
            let fate = match fate.as_str() {
                fate if is_noticed(fate) => "caught",
                MISSED if later => "caught_later",
                MISSED => "missed",
                _ => "unviable",
            };
            own.entry(fate).or_default().push(name);
        }
        let count = |fate: &str| own.get(fate).map_or(0, Vec::len);
        json!({ "part": name, "all": names(listed).filter(|name| name.contains(path)).count(),
            "caught": count("caught"), "caught_later": count("caught_later"),
            "unviable": count("unviable"), "missed": own.get("missed").cloned().unwrap_or_default() })
    };
    PARTS.iter().map(part).collect()
}

/// The numbers of a part.
#[derive(Default)]
struct Part {
    all: u64,
    caught: u64,
    caught_later: u64,
    unviable: u64,
    missed: u64,
}

/// A section for `RELIABILITY.md`; empty without results.
pub(crate) fn section(results: &[Value]) -> String {
    let mut parts: BTreeMap<&str, Part> = BTreeMap::new();
    let mut missed: Vec<&str> = Vec::new();
    for result in results.iter().filter_map(Value::as_array).flatten() {
        let number = |of: &str| result[of].as_u64().unwrap_or(0);
        let part = parts.entry(result["part"].as_str().unwrap_or_default()).or_default();
        part.all = number("all");
        part.caught += number("caught");
        part.caught_later += number("caught_later");
        part.unviable += number("unviable");
        let own = result["missed"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let before = missed.len();
        missed.extend(own);
        part.missed += (missed.len() - before) as u64;
    }
    if parts.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "\n# Mutants\n\n\
         *`cargo xtask mutants` changes the code that decides what runs, in one place at a time, and runs the unit tests of\n\
         the changed package; if they pass, its tests in `tests/it`.* A change is noticed if a test fails or does not end.\n\
         The conformance suites of the stores are not run. A sample is every n-th change of all.\n\n\
         | part | possible changes | tried | noticed by unit tests | by `tests/it` | not noticed | do not compile |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for (name, part) in parts {
        let Part { all, caught, caught_later, unviable, missed } = part;
        let tried = caught + caught_later + unviable + missed;
        if tried > 0 {
            let all = grouped(all);
            let _ = writeln!(
                text,
                "| {name} | {all} | {tried} | {caught} | {caught_later} | {missed} | {unviable} |"
            );
        }
    }
    if !missed.is_empty() {
        text += "\nNot noticed:\n\n";
        missed.iter().for_each(|name| text += &format!("- `{name}`\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_section_counts_the_mutants_of_each_part() {
        let mutant = |file: &str, change: &str| json!({ "name": format!("{file}:1: {change}") });
        let claim = |change| mutant("core/src/record/claim.rs", change);
        let next = |change| mutant("s/src/cron/next.rs", change);
        let outcome = |summary: &str, mutant: &Value| json!({ "summary": summary, "scenario": { "Mutant": mutant } });
        let listed = json!([claim("a"), claim("b"), claim("c"), claim("d"), next("a"), next("b")]);
        let units = json!({ "outcomes": [
            { "summary": "Success", "scenario": "Baseline" },
            outcome("CaughtMutant", &claim("a")), outcome("Timeout", &claim("b")),
            outcome(MISSED, &claim("c")), outcome("Unviable", &claim("d")), outcome(MISSED, &next("a")),
        ]});
        let others = json!({ "outcomes": [outcome("CaughtMutant", &claim("c")), outcome(MISSED, &next("a"))]});
        let text = section(&[result(&listed, &fates(&units), &fates(&others))]);
        assert!(text.contains("| record | 4 | 4 | 2 | 1 | 0 | 1 |"), "{text}");
        assert!(text.contains("| cron | 2 | 1 | 0 | 0 | 1 | 0 |"), "{text}");
        assert!(text.contains("- `s/src/cron/next.rs:1: a`"), "{text}");
        assert_eq!(section(&[]), "");
    }
}
