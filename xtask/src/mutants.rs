//! `cargo xtask mutants`: the code that decides what runs, changed in one place at a time; a unit test must fail.

use crate::{
    Failure, Outcome,
    command::{cargo, has_subcommand, run as run_step, target, with_path},
    services::install::cargo_package,
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fmt::Write, fs, path::PathBuf};

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

/// Tests the mutants that these options of cargo-mutants choose, all without options, and keeps the result.
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
    let mut test = program(&["--no-shuffle", "--output"]);
    test.arg(folder()).args(args);
    // The result of an earlier run must not pass for that of this one.
    let outcomes = folder().join("mutants.out/outcomes.json");
    let _ = fs::remove_file(&outcomes);
    let tested = run_step("mutants", test);
    let text = fs::read_to_string(&outcomes).unwrap_or_default();
    if let Ok(outcomes) = serde_json::from_str::<Value>(&text) {
        let kept = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let name: String = args.join(" ").chars().map(kept).collect();
        let file = folder().join(format!("mutants{name}.json"));
        fs::write(&file, result(&listed, &outcomes).to_string())
            .map_err(|cause| Failure::Check(format!("{}: {cause}", file.display())))?;
    }
    tested
}

/// The fates of the mutants of each part, and the number of all that it has.
fn result(listed: &Value, outcomes: &Value) -> Value {
    let has =
        |mutant: &Value, path: &str| mutant["file"].as_str().is_some_and(|f| f.contains(path));
    let array = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let part = |(name, path): &(&str, &str)| {
        let all = array(listed).iter().filter(|mutant| has(mutant, path)).count();
        let own: Vec<(String, Value)> = array(&outcomes["outcomes"])
            .iter()
            .map(|outcome| (outcome["summary"].to_string(), &outcome["scenario"]["Mutant"]))
            .filter(|(_, mutant)| has(mutant, path))
            .map(|(summary, mutant)| (summary, mutant["name"].clone()))
            .collect();
        let count = |is: &str| own.iter().filter(|(summary, _)| summary.contains(is)).count();
        let missed = own.iter().filter(|(summary, _)| summary.contains("MissedMutant"));
        let missed: Vec<&Value> = missed.map(|(_, name)| name).collect();
        json!({ "part": name, "all": all, "caught": count("CaughtMutant") + count("Timeout"),
            "unviable": count("Unviable"), "missed": missed })
    };
    PARTS.iter().map(part).collect()
}

/// A section for `RELIABILITY.md`; empty without results.
pub(crate) fn section(results: &[Value]) -> String {
    let mut parts: BTreeMap<&str, (u64, u64, u64)> = BTreeMap::new();
    let mut missed: Vec<&str> = Vec::new();
    let mut missed_of: BTreeMap<&str, usize> = BTreeMap::new();
    for part in results.iter().filter_map(Value::as_array).flatten() {
        let name = part["part"].as_str().unwrap_or_default();
        let number = |of: &str| part[of].as_u64().unwrap_or(0);
        let (all, caught, unviable) = parts.entry(name).or_default();
        *all = number("all");
        *caught += number("caught");
        *unviable += number("unviable");
        let own = part["missed"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let before = missed.len();
        missed.extend(own);
        *missed_of.entry(name).or_default() += missed.len() - before;
    }
    if parts.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "\n# Mutants\n\n\
         *`cargo xtask mutants` changes the code that decides what runs, in one place at a time, and runs the unit tests of\n\
         the changed package.* A change is noticed if a test fails or does not end. The conformance suite and the simulated\n\
         clusters are not run, although they would notice more. A sample is every n-th change of all.\n\n\
         | part | possible changes | tried | noticed | not noticed | do not compile |\n|---|---|---|---|---|---|\n",
    );
    for (name, (all, caught, unviable)) in parts {
        let missed = missed_of[name];
        let tried = caught + unviable + missed as u64;
        if tried > 0 {
            let _ =
                writeln!(text, "| {name} | {all} | {tried} | {caught} | {missed} | {unviable} |");
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
        let mutant = |file: &str| json!({ "file": file, "name": format!("{file}:1: replace") });
        let (claim, next) = (mutant("core/src/record/claim.rs"), mutant("s/src/cron/next.rs"));
        let outcome = |summary: &str, mutant: &Value| json!({ "summary": summary, "scenario": { "Mutant": mutant } });
        let outcomes = json!({ "outcomes": [
            { "summary": "Success", "scenario": "Baseline" },
            outcome("CaughtMutant", &claim), outcome("Timeout", &claim), outcome("MissedMutant", &next),
        ]});
        let result = result(&json!([claim, claim, claim, next]), &outcomes);
        let text = section(&[result]);
        assert!(text.contains("| record | 3 | 2 | 2 | 0 | 0 |"), "{text}");
        assert!(text.contains("| cron | 1 | 1 | 0 | 1 | 0 |"), "{text}");
        assert!(text.contains("- `s/src/cron/next.rs:1: replace`"), "{text}");
        assert_eq!(section(&[]), "");
    }
}
