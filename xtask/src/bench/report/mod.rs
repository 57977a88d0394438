//! `cargo xtask bench`: all figures of the pages from one run, on servers that are started for it.
//!
//! BENCHMARKS.md has the tables that most readers want, `benches/TABLES.md` all others, and the guide
//! `production` the arithmetic of several numbers of schedules.

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

pub(crate) use programs::peers;
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
    let pages = pages(&facts, &figures);
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

/// The generated parts of a page, by name.
type Parts = Vec<(&'static str, String)>;

/// All pages, with their parts.
fn pages(facts: &Facts, figures: &Figures) -> [(&'static str, Parts); 3] {
    let mut main = tables::parts(facts, figures);
    main.push(("ticks", ticks::table_of_all(figures)));
    main.push(("targets", targets::summary(facts, figures)));
    let mut others = tables::others(facts, figures);
    others.push(("queues", queues::queues(facts, figures)));
    others.push(("simulation", scaling::simulation(figures)));
    others.push(("profiles", profile::shares(facts.size, figures)));
    others.push(("targets", targets::table(facts, figures)));
    let scaling = scaling::parts(facts, figures);
    let mut pages = [
        ("BENCHMARKS.md", main),
        ("benches/TABLES.md", others),
        ("src/guide/production.md", scaling),
    ];
    for (_, parts) in &mut pages {
        parts.push(("machine", facts.caption()));
    }
    pages
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_a_place_for_each_of_its_parts() {
        let facts = Facts {
            size: Size::FULL,
            rounds: 1,
            machine: Value::Null,
            servers: Value::Null,
            load: 0.0,
        };
        for (name, parts) in pages(&facts, &Figures::default()) {
            let text = fs::read_to_string(root().join(name)).unwrap();
            page::fill(name, &text, &parts).unwrap();
        }
    }
}
