//! Runs cases: one of them for a named test, all of them for a suite's own tests.

use crate::{
    cases::{CASES, Case},
    cluster::Cluster,
    fixture::{Capability, Fixture, open},
    text::{chain, namespace},
};
use allora_core::ErrorKind;
use futures::FutureExt;
use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

/// The result of a case that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Passed {
    /// It was run, and holds.
    Holds,
    /// It was not run: the fixture declares that the store cannot do what it needs.
    Denied(Capability),
    /// It was not run: there is no such store on this machine, and why.
    Skipped(String),
}

/// The names of all cases, as `file::sentence`.
pub fn names() -> impl Iterator<Item = &'static str> {
    CASES.iter().map(|case| case.name)
}

/// Runs one case as a test: what [`suite!`](crate::suite) puts into each of its functions.
///
/// # Panics
/// If the case fails, if there is none of this name, or if it was skipped where the variable `CI`
/// is set.
pub fn run<F: Fixture>(name: &str) {
    match run_case::<F>(find(name)) {
        Ok(Passed::Skipped(why)) if std::env::var_os("CI").is_some() => {
            panic!("{name} was skipped, which is a failure where `CI` is set: {why}")
        }
        Ok(Passed::Skipped(why)) => say(&format!("{name} was skipped: {why}")),
        Ok(Passed::Denied(what)) => say(&format!("{name} was not run: no {what:?}")),
        Ok(Passed::Holds) => {}
        Err(panic) => resume_unwind(panic),
    }
}

/// Runs one case, and answers with how it failed. For suites that test the suite; the panic is
/// printed all the same.
///
/// # Errors
/// The message of the panic.
///
/// # Panics
/// If there is no case of this name.
pub fn check<F: Fixture>(name: &str) -> Result<Passed, String> {
    run_case::<F>(find(name)).map_err(|panic| message(&*panic))
}

fn find(name: &str) -> &'static Case {
    let Some(case) = CASES.iter().find(|case| case.name == name) else {
        panic!("there is no case `{name}`; `allora_conformance::names` lists them")
    };
    case
}

fn run_case<F: Fixture>(case: &Case) -> Result<Passed, Box<dyn Any + Send>> {
    if let Some(what) = case.needs.iter().find(|what| F::unsupported().contains(what)) {
        return Ok(Passed::Denied(*what));
    }
    // Unwinding is caught to tear down what was set up; nothing of it is used afterwards.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        F::block_on(async {
            let stores = match open::<F>(&namespace()).await {
                Ok(stores) => stores,
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    return Ok(Passed::Skipped(error.to_string()));
                }
                Err(error) => panic!("the fixture cannot be set up: {}", chain(&error)),
            };
            let world = Cluster::new(stores).await;
            let held = AssertUnwindSafe((case.body)(&world)).catch_unwind().await;
            let torn = world.tear_down().await;
            held?;
            torn.unwrap_or_else(|error| panic!("the fixture cannot be torn down: {error}"));
            Ok(Passed::Holds)
        })
    }));
    outcome.and_then(|inner| inner)
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

#[expect(clippy::print_stderr, reason = "a test that was not run says so where its reader looks")]
pub(crate) fn say(line: &str) {
    eprintln!("{line}");
}
