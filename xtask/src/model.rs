//! `cargo xtask model`: the searches of all models, the large ones too, optimised.

use crate::{
    Failure, Outcome,
    command::{cargo, run as run_step, target},
    figures::grouped,
};
use serde_json::Value;
use std::{fmt::Write, fs, path::PathBuf};

/// The packages with models, and the module of each.
const MODELS: [(&str, &str); 2] =
    [("allora-core", "planner::model"), ("allora-redis-quorum", "model")];

/// The searches of what threads share, a workspace of its own.
const THREADS: &str = "allora-core/loom/Cargo.toml";

/// The folder of the results.
fn folder() -> PathBuf {
    target().join("model")
}

/// Searches, and keeps the results for `RELIABILITY.md`.
pub(crate) fn run() -> Outcome {
    let cannot = |cause| Failure::Check(format!("{}: {cause}", folder().display()));
    if folder().exists() {
        fs::remove_dir_all(folder()).map_err(cannot)?;
    }
    fs::create_dir_all(folder()).map_err(cannot)?;
    for (package, module) in MODELS {
        let mut search = cargo(&["test", "--release", "-p", package, "--all-features", "--lib"]);
        search.args(["--", module, "--nocapture"]).env("ALLORA_MODEL", folder());
        run_step(&format!("the models of {package}"), search)?;
    }
    threads()
}

/// Searches every order in which threads meet. It takes seconds, and is one of the checks of a change.
pub(crate) fn threads() -> Outcome {
    let mut search = cargo(&["run", "--release", "--locked", "--manifest-path", THREADS]);
    search.env("CARGO_TARGET_DIR", target());
    if folder().exists() {
        search.env("ALLORA_MODEL", folder());
    }
    run_step("the threads of allora-core", search)
}

/// A section for `RELIABILITY.md`; empty without results.
pub(crate) fn section(results: &[Value]) -> String {
    if results.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "\n# Models\n\n\
         *Searched by `cargo xtask model`: every order of events within the bounds, with the functions of the product.*\n\
         States that differ only by a symmetry count once. No state was unsound, and from each a state without work can be\n\
         reached. Of threads, the orders in which they meet are counted, by `loom`; a waiter that nobody wakes is unsound.\n\n| model | bounds | states | steps | depth | |\n|---|---|---|---|---|---|\n",
    );
    let mut results: Vec<&Value> = results.iter().collect();
    results.sort_by_key(|result| (result["model"].to_string(), result["what"].to_string()));
    let holds = |result: &&&Value| result["violation"].is_null();
    let word = |value: &Value| value.as_str().unwrap_or_default().replace('|', "/");
    let number = |value: &Value| match value.as_u64().unwrap_or(0) {
        0 => String::new(),
        number => grouped(number),
    };
    for result in results.iter().filter(holds) {
        let (model, what) = (word(&result["model"]), word(&result["what"]));
        let all = if result["whole"] == true { "all" } else { "cut off" };
        let [states, steps, depth] = ["states", "steps", "depth"].map(|name| number(&result[name]));
        let _ = writeln!(text, "| {model} | {what} | {states} | {steps} | {depth} | {all} |");
    }
    text += "\nA model that cannot fail proves nothing. Without any one of these rules the search finds a violation; the\n\
             length is that of the shortest way to it.\n\n\
             | model | the defect | states until then | length | violated |\n|---|---|---|---|---|\n";
    for result in results.iter().filter(|result| !holds(result)) {
        let (model, what) = (word(&result["model"]), word(&result["what"]));
        let (states, length) = (number(&result["states"]), number(&result["length"]));
        let violated = word(&result["violation"]);
        let _ = writeln!(text, "| {model} | {what} | {states} | {length} | {violated} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_section_lists_what_holds_and_what_is_found() {
        let result = |what: &str, violation: Option<&str>| {
            json!({ "model": "record", "what": what, "states": 5, "steps": 9, "depth": 3,
                "whole": true, "violation": violation, "length": 2 })
        };
        let text = section(&[result("a", None), result("B", Some("twice"))]);
        assert!(text.contains("| record | a | 5 | 9 | 3 | all |"), "{text}");
        assert!(text.contains("| record | B | 5 | 2 | twice |"), "{text}");
        assert_eq!(section(&[]), "");
    }
}
