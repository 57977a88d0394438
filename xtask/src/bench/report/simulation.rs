//! Many nodes in virtual time, over a store whose requests take as long as those that were measured.

use super::{
    figures::{Figures, Numbers},
    plan::BATCHES,
};
use crate::{
    Failure, Outcome,
    command::{self, Watched, cargo},
};

/// The test that runs it, and the variables that it reads.
const TEST: &str = "many_nodes::the_work_for_an_occurrence_does_not_grow_with_the_nodes";
const COSTS: &str = "ALLORA_TEST_STORE_COSTS";
const LONG: &str = "ALLORA_TEST_LONG";

/// The columns of a row, in order; the first two are the number of nodes and their registry.
const COLUMNS: [&str; 7] =
    ["calls", "operations", "failed_percent", "p50_ms", "p99_ms", "share_least", "share_most"];

/// The numbers of nodes with a registry.
pub(super) const NODES: [u64; 5] = [1, 3, 10, 30, 100];

/// The times of a store in microseconds, as the simulation needs them.
#[derive(Debug, PartialEq)]
pub(super) struct Costs {
    /// The round trip of a request.
    pub(super) trip: f64,
    /// The server's work for a request.
    pub(super) request: f64,
    /// The server's work for each operation of a request.
    pub(super) operation: f64,
}

impl Costs {
    /// The raw limits claim and complete, so that an occurrence of a batch of one has two requests. The
    /// largest batch shows the work for each operation.
    pub(super) fn of(figures: &Figures, store: &str) -> Option<Self> {
        let server = |batch: u64, count: u64| {
            let key = format!("raw {store} 1 {count} {batch}");
            Some((figures.median(&key, "server_us")? / 2.0, figures.median(&key, "per_s")?))
        };
        let [(one, few), .., (thousand, many)] = BATCHES;
        let ((single, rate), (operation, _)) = (server(one, few)?, server(thousand, many)?);
        let trip = (1e6 / rate / 2.0 - single).max(0.0);
        Some(Self { trip, request: (single - operation).max(0.0), operation })
    }
}

pub(super) fn key(store: &str, nodes: u64) -> String {
    format!("simulation {store} {nodes}")
}

/// Builds it before anything is measured.
///
/// # Errors
/// If the build fails.
pub(super) fn build() -> Outcome {
    let args = ["test", "-p", "allora-core", "--all-features", "--test", "it", "--no-run"];
    command::run("build of the simulation", cargo(&args))
}

/// Runs the simulation with the costs of a store and adds its figures.
///
/// # Errors
/// If it fails or prints fewer rows than there should be.
pub(super) fn run(store: &str, costs: &Costs, figures: &mut Figures) -> Outcome {
    let args = ["test", "-p", "allora-core", "--all-features", "--test", "it", "--"];
    let mut test = cargo(&args);
    test.args(["--exact", TEST, "--nocapture"]).env(LONG, "1");
    let Costs { trip, request, operation } = costs;
    test.env(COSTS, format!("{trip:.1} {request:.1} {operation:.2}"));
    let mut rows = Vec::new();
    let title = format!("simulation of up to {} nodes, {store}", NODES[4]);
    let succeeded = command::watch(&title, test, Watched::Stdout, |line| rows.extend(row(line)))?;
    if !succeeded {
        return Err(Failure::Check(format!("{title}: the test failed")));
    }
    for nodes in NODES {
        let found = rows.iter().find(|row| row.0 == nodes);
        let missing = || Failure::Check(format!("{title}: no row for {nodes} nodes"));
        let (_, numbers) = found.ok_or_else(missing)?;
        figures.add_numbers(&key(store, nodes), numbers.clone());
    }
    Ok(())
}

/// A row of nodes with a registry.
fn row(line: &str) -> Option<(u64, Numbers)> {
    let mut words = line.split('|').map(str::trim);
    let (nodes, "true") = (words.next()?.parse().ok()?, words.next()?) else { return None };
    let numbers: Vec<f64> = words
        .flat_map(|word| word.trim_end_matches(" %").split('–'))
        .map(|word| word.parse().ok())
        .collect::<Option<_>>()?;
    let is_whole = numbers.len() == COLUMNS.len();
    let named = COLUMNS.into_iter().map(str::to_owned).zip(numbers).collect();
    is_whole.then_some((nodes, named))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_the_test_is_read() {
        let (nodes, numbers) = row("30 | true | 0.123 | 6.50 | 0.4 % | 2.1 | 8.0 | 20–51").unwrap();
        assert_eq!(nodes, 30);
        assert_eq!((numbers["failed_percent"], numbers["share_most"]), (0.4, 51.0));
        for other in ["nodes | registry | calls", "1 | false | 1 | 1 | 1 % | 1 | 1 | 1–1", "ok"] {
            assert_eq!(row(other), None, "{other}");
        }
    }

    #[test]
    fn the_costs_follow_from_the_raw_limits_of_the_smallest_and_the_largest_batch() {
        let mut figures = Figures::default();
        for (key, line) in [
            ("raw redis 1 200 1", r#"{"per_s": 2500.0, "server_us": 120.0}"#),
            ("raw redis 1 7000 1000", r#"{"per_s": 50000.0, "server_us": 16.0}"#),
        ] {
            figures.add(key, line).unwrap();
        }
        let costs = Costs { trip: 140.0, request: 52.0, operation: 8.0 };
        assert_eq!(Costs::of(&figures, "redis"), Some(costs));
        assert_eq!(Costs::of(&figures, "postgres"), None);
    }
}
