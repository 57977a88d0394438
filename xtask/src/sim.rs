//! `cargo xtask sim`: the worlds of the core's campaign, as many hours of them as wanted, optimised.

use crate::{
    Failure, Outcome,
    command::{cargo, run as run_step, target},
};
use std::fs;

/// The test that plays the worlds.
const TEST: &str = "campaign::whatever_happens_the_books_balance";

/// Plays at least so many simulated hours, from this seed.
pub(crate) fn run(args: &[String]) -> Outcome {
    let (mut hours, mut seed) = (1_000.0, 0);
    for pair in args.chunks(2) {
        let value = pair.get(1).map_or("", String::as_str);
        let wrong = || Failure::Usage(format!("{} needs a number", pair[0]));
        match pair[0].as_str() {
            "--hours" => hours = value.parse::<f64>().map_err(|_| wrong())?,
            "--seed" => seed = value.parse::<u64>().map_err(|_| wrong())?,
            other => return Err(Failure::Usage(format!("sim knows no `{other}`"))),
        }
    }
    let mut worlds =
        cargo(&["test", "--release", "-p", "allora-core", "--all-features", "--test", "it"]);
    worlds.args(["--", TEST, "--exact", "--nocapture"]);
    worlds.env("ALLORA_SIM_HOURS", hours.to_string()).env("ALLORA_SEED", seed.to_string());
    let folder = target().join("sim");
    fs::create_dir_all(&folder)
        .map_err(|cause| Failure::Check(format!("{}: {cause}", folder.display())))?;
    // For the page of `cargo xtask chaos report`.
    worlds.env("ALLORA_SIM_RESULT", folder.join(format!("{seed}.json")));
    run_step(&format!("{hours} hours of worlds from seed {seed}"), worlds)
}
