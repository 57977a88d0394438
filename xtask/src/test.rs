//! `cargo xtask test`: every test of the workspace with all features, then the doctests.

use crate::{
    Failure, Outcome,
    command::{self, Watched, cargo, has_subcommand, target},
    panics::Panics,
    services::{self, Running},
    stores,
    totals::{Totals, from_libtest, from_nextest},
};
use std::process::Command;

/// Names, separated by commas: tests of other stores do nothing. Not set: all stores.
const ONLY: &str = "ALLORA_TEST_STORES";

/// Set to `1`: the campaigns run too.
const LONG: &str = "ALLORA_TEST_LONG";

/// The tests to run.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Request {
    only: Option<String>,
    long: bool,
    /// Also the examples of other drivers, which are a workspace of their own.
    drivers: bool,
    filters: Vec<String>,
}

/// The workspace of the examples with other drivers.
const DRIVERS: &str = "examples/drivers/Cargo.toml";

impl Request {
    /// All that a change must pass.
    pub(crate) fn everything() -> Self {
        Self { drivers: true, ..Self::default() }
    }

    /// Reads the words after `cargo xtask test`.
    ///
    /// # Errors
    /// An unknown option or store.
    pub(crate) fn parse(args: &[String]) -> Outcome<Self> {
        let mut request = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--long" => request.long = true,
                "--only" => {
                    let names = args.next().map_or("", String::as_str);
                    request.only = Some(stores::stores(names)?);
                }
                "--" => request.filters = args.by_ref().cloned().collect(),
                other => {
                    let what = format!("`test` knows no `{other}`; filters follow a `--`");
                    return Err(Failure::Usage(what));
                }
            }
        }
        Ok(request)
    }

    /// The environment of the tests, beside the addresses of their servers.
    fn environment(&self) -> Vec<(&'static str, String)> {
        let only = self.only.iter().map(|names| (ONLY, names.clone()));
        let long = self.long.then(|| (LONG, "1".to_owned()));
        only.chain(long).collect()
    }
}

/// The results of the tests.
#[derive(Debug, Default)]
pub(crate) struct Report {
    totals: Totals,
    /// The errors besides failed tests, as a test that does not compile.
    broken: Vec<String>,
    /// The words with which tests failed.
    panics: Vec<String>,
}

impl Report {
    /// Prints the totals, alone on the last line.
    ///
    /// # Errors
    /// If a test failed, if none ran, or if a runner did not get as far as its tests.
    pub(crate) fn end(self) -> Outcome {
        for what in &self.panics {
            println!("{what}");
        }
        for what in &self.broken {
            println!("error: {what}");
        }
        println!("{}", self.totals);
        if self.is_good() { Ok(()) } else { Err(Failure::Check(String::new())) }
    }

    fn is_good(&self) -> bool {
        self.broken.is_empty() && self.totals.failed == 0
    }

    /// Counts what `runner` said; one that failed without a failed test is broken.
    fn add(&mut self, runner: &str, counted: Totals, succeeded: bool) {
        if !succeeded && counted.failed == 0 {
            self.broken.push(format!("{runner} stopped before its tests were done"));
        }
        self.totals.add(counted);
    }

    /// A filter with a typing error in it must not look like success.
    fn refuse_nothing(mut self) -> Self {
        if self.broken.is_empty() && self.totals == Totals::default() {
            self.broken.push("no test ran".to_owned());
        }
        self
    }

    /// Its line in the summary of `ci`.
    pub(crate) fn failure(&self) -> Option<String> {
        (!self.is_good()).then(|| format!("test: {}", self.totals))
    }
}

/// Runs the tests, the doctests also where a test failed before.
pub(crate) fn run(request: &Request) -> Report {
    let mut report = Report::default();
    let running = match services::start(request.only.as_deref()) {
        Ok(running) => running,
        Err(Failure::Usage(what) | Failure::Check(what)) => {
            report.broken.push(what);
            return report;
        }
    };
    if has_subcommand("nextest") {
        // Its summary is its last such line; a failed test may print another one before.
        let (mut last, mut panics) = (Totals::default(), Panics::default());
        let mut command = cargo(&["nextest", "run", "--workspace", "--all-features"]);
        command.args(["--no-fail-fast", "--no-tests=pass", "--color=never"]);
        let ended = watch("nextest", command, (request, &running), Watched::Stderr, |line| {
            last = from_nextest(line).unwrap_or(last);
            panics.look(line);
        });
        report.panics = panics.into_lines();
        close(&mut report, "nextest", last, ended);
    } else {
        libtest(
            &mut report,
            "test",
            &["--workspace", "--all-features", "--tests"],
            (request, &running),
        );
    }
    libtest(
        &mut report,
        "doctests",
        &["--workspace", "--all-features", "--doc"],
        (request, &running),
    );
    if request.drivers {
        let which = ["--manifest-path", DRIVERS, "--locked"];
        libtest(&mut report, "examples of other drivers", &which, (request, &running));
    }
    report.refuse_nothing()
}

fn libtest(report: &mut Report, title: &str, which: &[&str], told: (&Request, &Running)) {
    let mut sum = Totals::default();
    let mut command = cargo(&["test", "--no-fail-fast"]);
    command.args(which);
    // One folder for all workspaces: what they have in common is built once.
    command.env("CARGO_TARGET_DIR", target());
    let ended = watch(title, command, told, Watched::Stdout, |line| {
        sum.add(from_libtest(line).unwrap_or_default());
    });
    close(report, title, sum, ended);
}

fn watch(
    title: &str,
    mut command: Command,
    (request, running): (&Request, &Running),
    stream: Watched,
    look: impl FnMut(&str),
) -> Outcome<bool> {
    command.arg("--").args(&request.filters);
    command.envs(request.environment()).envs(running.environment.iter().cloned());
    command::watch(title, command, stream, look)
}

fn close(report: &mut Report, title: &str, counted: Totals, ended: Outcome<bool>) {
    match ended {
        Ok(succeeded) => report.add(title, counted, succeeded),
        Err(Failure::Usage(what) | Failure::Check(what)) => report.broken.push(what),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Outcome<Request> {
        Request::parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn the_command_line_is_read() {
        let filters = vec!["cron".to_owned(), "--exact".to_owned()];
        let only = Some("memory".to_owned());
        assert_eq!(parse(""), Ok(Request::default()));
        assert_eq!(
            parse("--only memory --long -- cron --exact"),
            Ok(Request { only, long: true, drivers: false, filters })
        );
    }

    #[test]
    fn what_it_does_not_know_it_refuses() {
        for line in ["cron", "--only", "--only oracle", "--only memory,", "--only memory,x"] {
            assert!(matches!(parse(line), Err(Failure::Usage(_))), "{line}");
        }
    }

    #[test]
    fn tests_are_told_by_environment_variables() {
        assert_eq!(parse("").unwrap().environment(), []);
        let told = parse("--long --only memory").unwrap().environment();
        assert_eq!(told, [(ONLY, "memory".to_owned()), (LONG, "1".to_owned())]);
    }

    #[test]
    fn only_tests_that_ran_and_passed_are_success() {
        let report = |passed, failed, succeeded| {
            let mut report = Report::default();
            report.add("runner", Totals { passed, failed }, succeeded);
            report.refuse_nothing().failure()
        };
        assert_eq!(report(1, 0, true), None);
        assert!(report(1, 1, false).is_some(), "a failed test");
        assert!(report(1, 0, false).is_some(), "a runner that stopped");
        assert!(report(0, 0, true).is_some(), "no tests");
    }
}
