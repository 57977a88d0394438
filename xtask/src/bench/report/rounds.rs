//! The rounds: every measurement in turn, each in a process of its own, on servers that are started
//! for them alone.

use super::{
    figures::Figures,
    machine,
    plan::{self, Cell},
    programs::Programs,
    request::Request,
};
use crate::{
    Failure, Outcome,
    bench::figures::median,
    services::{self, Running},
};
use std::{
    process::{Command, Stdio},
    time::Instant,
};

/// Measures; returns the part of the processor time that other programs used, by samples between the
/// rounds.
///
/// # Errors
/// If a server does not start, or if a measurement fails: none of its figures is used then.
#[expect(clippy::disallowed_methods, reason = "a chore shows its progress")]
pub(super) fn run(request: &Request, programs: &Programs, figures: &mut Figures) -> Outcome<f64> {
    let cells = plan::cells(request.size, &request.stores, request.peers);
    let stores: Vec<&str> = request.stores.iter().map(String::as_str).collect();
    let servers = services::start_private(&stores)?;
    let begun = Instant::now();
    let mut load = Vec::new();
    for round in 0..request.rounds {
        load.push(machine::load_by_others()?);
        let cells: Vec<&Cell> = cells.iter().filter(|cell| cell.is_in(round)).collect();
        for (i, cell) in cells.iter().enumerate() {
            eprintln!(
                "{:>4} s, round {} of {}, {} of {}: {}",
                begun.elapsed().as_secs(),
                round + 1,
                request.rounds,
                i + 1,
                cells.len(),
                cell.key()
            );
            figures.add(&cell.key(), &measure(cell, programs, &servers)?)?;
        }
    }
    eprintln!("{:>4} s: measured", begun.elapsed().as_secs());
    load.push(machine::load_by_others()?);
    Ok(median(load.into_iter()))
}

/// One process, one line.
fn measure(cell: &Cell, programs: &Programs, servers: &Running) -> Outcome<String> {
    let failed = |why: String| Failure::Check(format!("the measurement `{}`: {why}", cell.key()));
    let mut command = Command::new(programs.of(cell.program));
    command.args(&cell.words).envs(servers.environment.iter().cloned()).stderr(Stdio::inherit());
    if let Some(pid) = servers.pid(cell.store) {
        command.env("ALLORA_BENCH_SERVER_PID", pid.to_string());
    }
    let told = command.output().map_err(|cause| failed(cause.to_string()))?;
    match told.status.success() {
        true => Ok(String::from_utf8_lossy(&told.stdout).trim().to_owned()),
        false => Err(failed(told.status.to_string())),
    }
}
