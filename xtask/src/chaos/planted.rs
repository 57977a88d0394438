//! `cargo xtask chaos --planted`: `allora prove` with each planted defect, which it must find within a minute.

use super::{cannot, end};
use crate::{
    Failure, Outcome,
    command::{step, target},
};
use serde_json::Value;
use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
};

/// The defects, each with the finding that names it: those of the store first.
const DEFECTS: [(&str, &str); 10] = [
    ("stale-ends", "StaleEnd"),
    ("forgotten-ends", "FinishedTwice"),
    ("short-leases", "LeasesOverlap"),
    ("unwritten-claims", "Duplicate"),
    ("wide-keys", "LeasesOverlap"),
    ("skipped-occurrences", "Gap"),
    ("repeated-at-most-once", "LeasesOverlap"),
    ("ends-without-runs", "NotStarted"),
    ("forgotten-followers", "Gap"),
    ("released-successes", "Duplicate"),
];

/// The time of each in minutes.
const MINUTES: &str = "0.9";

/// All at the same time, each on a file of its own.
pub(super) fn run(program: &Path, seed: u64) -> Outcome {
    step(&format!("{} planted defects, seed {seed}", DEFECTS.len()));
    let folder = target().join("chaos").join("planted");
    fs::create_dir_all(&folder).map_err(|cause| cannot(&folder, &cause))?;
    let mut trials = Vec::new();
    for (defect, finding) in DEFECTS {
        let path = folder.join(format!("{defect}.log"));
        let log = File::create(&path).map_err(|cause| cannot(&path, &cause))?;
        let mut prove = Command::new(program);
        prove.args(["prove", "--json", "--without-cases", "--minutes", MINUTES, "--rate", "16"]);
        prove.args(["--seed", &seed.to_string(), "--plant", defect]);
        prove
            .env("ALLORA_URL", format!("sqlite:{}", folder.join(format!("{defect}.db")).display()));
        prove.env_remove("ALLORA_CONFIG").env_remove("ALLORA_ENVIRONMENT");
        prove.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let prove = prove.spawn();
        let prove = prove.map_err(|cause| Failure::Check(format!("allora prove: {cause}")))?;
        trials.push((defect, finding, prove));
    }
    let mut missed = Vec::new();
    for (defect, finding, prove) in trials {
        let found = findings(&end(prove, false)?);
        println!("{defect}: {} findings", found.len());
        if !found.iter().any(|found| found.starts_with(finding)) {
            missed.push(format!("{defect} (expected {finding}, found {:?})", found.first()));
        }
    }
    match missed.is_empty() {
        true => Ok(()),
        false => Err(Failure::Check(format!("chaos did not find {}", missed.join("; ")))),
    }
}

/// The broken promises of a verdict.
fn findings(verdict: &Value) -> Vec<String> {
    let found = verdict["violations"].as_array().into_iter().flatten();
    found.filter_map(Value::as_str).map(str::to_owned).collect()
}
