//! `cargo xtask bench`: all figures of BENCHMARKS.md and SCALING.md from one run, on servers that are
//! started for it.

mod caption;
mod figures;
mod machine;
mod markdown;
mod page;
mod plan;
mod profile;
mod programs;
mod queues;
mod request;
mod rounds;
mod scaling;
mod simulation;
mod tables;
mod targets;
mod ticks;

pub(super) use request::Request;

use crate::{
    Failure, Outcome,
    command::{root, run as run_step},
};
use figures::{Figures, write};
use plan::{Program, Size};
use programs::Programs;
use serde_json::{Value, json};
use std::{fs, process::Command};

/// The file of the figures, and the folder of the plots.
const FILE: &str = "benches/figures.json";
const PLOTS: &str = "benches/plots";

/// The facts of a report.
struct Facts {
    size: Size,
    rounds: u32,
    machine: Value,
    servers: Value,
    /// The part of the processor time that other programs used.
    load: f64,
}

/// Builds, measures, simulates, and writes the file, the plots and the pages. A report of some stores
/// only prints its tables.
///
/// # Errors
/// If a build, a server or a measurement fails, or if a page has no place for its tables.
pub(super) fn run(request: &Request) -> Outcome {
    let programs = Programs::build(request.peers)?;
    simulation::build()?;
    let mut figures = Figures::default();
    // First, because a missing `perf` is noticed here.
    if request.profile {
        profile::run(request, &programs, &mut figures)?;
    }
    let load = rounds::run(request, &programs, &mut figures)?;
    for store in plan::MAIN {
        if let Some(costs) = simulation::Costs::of(&figures, store) {
            simulation::run(store, &costs, &mut figures)?;
        }
    }
    let facts = Facts {
        size: request.size,
        rounds: request.rounds,
        machine: machine::facts(),
        servers: machine::servers(&request.stores),
        load,
    };
    let profiles = profile::shares(facts.size, &figures);
    let targets = targets::table(&facts, &figures);
    let mut benchmarks = tables::parts(&facts, &figures, profiles, targets);
    benchmarks.push(queues::part(&facts, &figures));
    benchmarks.extend(ticks::parts(&facts, &figures));
    let pages = [("BENCHMARKS.md", benchmarks), ("SCALING.md", scaling::parts(&facts, &figures))];
    if !request.is_whole() {
        for (name, text) in pages.iter().flat_map(|(_, parts)| parts) {
            println!("\n{name}\n\n{text}");
        }
        return Ok(());
    }
    write(&root().join(FILE), &format!("{:#}\n", facts.with(&figures)))?;
    for (name, parts) in &pages {
        fill(name, parts)?;
    }
    let mut plots = Command::new(programs.of(Program::Measure));
    plots.arg("plots").arg(root().join(FILE)).arg(root().join(PLOTS));
    run_step("plots", plots)
}

impl Facts {
    /// The file.
    fn with(&self, figures: &Figures) -> Value {
        json!({
            "size": if self.size.is_quick { "quick" } else { "full" },
            "sustained": self.size.sustained,
            "rounds": self.rounds,
            "machine": self.machine,
            "servers": self.servers,
            "load_by_others": (self.load * 1e3).round() / 1e3,
            "measurements": figures.json(),
        })
    }
}

fn fill(name: &str, parts: &[(&str, String)]) -> Outcome {
    let path = root().join(name);
    let text = fs::read_to_string(&path)
        .map_err(|cause| Failure::Check(format!("{}: {cause}", path.display())))?;
    write(&path, &page::fill(name, &text, parts)?)
}
