//! `cargo xtask bench compare`: the measurements of two builds in turn.

use super::{
    builds::Builds,
    figures::{self, Figure, Pair},
    request::Request,
};
use crate::{Failure, Outcome, services};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Stdio},
};

/// The pairs of each store, in the order of the rounds.
type Measured = BTreeMap<String, Vec<Pair>>;

/// Builds both, starts the servers, measures and prints a table for each store.
///
/// # Errors
/// If a build, a server or a measurement fails; with `--fail-below`, if a figure is worse.
pub(super) fn run(request: &Request) -> Outcome {
    let builds = Builds::make(&request.base)?;
    let stores: Vec<&str> = request.stores.iter().map(String::as_str).collect();
    let servers = services::start_single(&stores)?;
    let mut measured = Measured::new();
    let ended = rounds(request, &builds, &servers.environment, &mut measured);
    // The measurements that were made before a failure are not lost.
    if let Some(out) = &request.out {
        write(out, &builds, &measured)?;
    }
    ended?;
    let mut regressions = Vec::new();
    for (store, pairs) in &measured {
        let rows = figures::rows(pairs);
        print!("{}", figures::table(store, &builds.title, pairs.len(), &rows));
        for name in figures::not_compared(pairs) {
            println!("\nNot compared, because only one build measures it: {name}");
        }
        let Some(limit) = request.fail_below else { continue };
        let worse = rows.iter().filter(|row| row.is_regression(limit));
        regressions.extend(worse.map(|row| format!("{store}: {}", row.summary())));
    }
    if regressions.is_empty() {
        return Ok(());
    }
    Err(Failure::Check(format!("this tree is slower: {}", regressions.join(", "))))
}

/// The stores are inside the rounds, so that the pairs of one store are spread over the whole time.
fn rounds(
    request: &Request,
    builds: &Builds,
    environment: &[(&'static str, String)],
    measured: &mut Measured,
) -> Outcome {
    for round in 0..request.rounds {
        for store in &request.stores {
            eprintln!("round {} of {}, {store}", round + 1, request.rounds);
            let measure = |program: &Path, build: &str| {
                let prefix = format!("allora_compare_{round}_{build}");
                measure(program, store, &prefix, environment)
            };
            // The first one changes caches and servers for the second: each build is first in turn.
            let pair = if round.is_multiple_of(2) {
                let base = measure(&builds.base, "base")?;
                Pair { base, this: measure(&builds.this, "this")? }
            } else {
                let this = measure(&builds.this, "this")?;
                Pair { base: measure(&builds.base, "base")?, this }
            };
            measured.entry(store.clone()).or_default().push(pair);
        }
    }
    Ok(())
}

/// One process, one store, one line.
fn measure(
    program: &Path,
    store: &str,
    prefix: &str,
    environment: &[(&'static str, String)],
) -> Outcome<Vec<Figure>> {
    let mut command = Command::new(program);
    command.args([store, prefix]).envs(environment.iter().cloned()).stderr(Stdio::inherit());
    let failed = |why: String| {
        Failure::Check(format!("the measurement of {store} by {}: {why}", program.display()))
    };
    let told = command.output().map_err(|cause| failed(cause.to_string()))?;
    if !told.status.success() {
        return Err(failed(told.status.to_string()));
    }
    figures::parse(String::from_utf8_lossy(&told.stdout).trim())
}

fn write(path: &Path, builds: &Builds, measured: &Measured) -> Outcome {
    let pair =
        |pair: &Pair| json!({"base": figures::json(&pair.base), "this": figures::json(&pair.this)});
    let stores: BTreeMap<&String, Vec<Value>> =
        measured.iter().map(|(store, pairs)| (store, pairs.iter().map(pair).collect())).collect();
    let raw = json!({"base": builds.commit, "rounds": stores});
    fs::write(path, format!("{raw:#}\n"))
        .map_err(|cause| Failure::Check(format!("{}: {cause}", path.display())))
}
