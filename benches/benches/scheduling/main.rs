//! The cost of in-memory scheduling, beside a peer and beside a bare loop over a heap.
//!
//! `cargo bench -p allora-benches --bench scheduling` measures every scheduler in a process of its
//! own and prints tables; `-- SCHEDULER LOAD JOBS` measures one and prints its figures; with a fourth
//! word, the number of seconds, they are one line of JSON, as `cargo xtask bench` needs them.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot start says so")]
#![allow(clippy::print_stdout, reason = "its tables are what it is for")]
#![expect(clippy::disallowed_methods, reason = "it measures the clocks' passing")]

mod figures;
mod load;
mod rivals;

use figures::Figures;
use load::{Load, MEASURED};
use rivals::RIVALS;
use std::{
    process::{Command, exit},
    time::Duration,
};

/// The measurements: each load with these numbers of jobs.
const PLAN: [(Load, &[usize]); 3] = [
    (Load::Spread, &[100, 10_000, 100_000]),
    (Load::AtOnce, &[100, 10_000, 100_000]),
    (Load::Idle, &[10_000, 1_000_000]),
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    match args.as_slice() {
        [] => PLAN.iter().for_each(|(load, jobs)| table(*load, jobs)),
        [rival, load, jobs, seconds @ ..] if seconds.len() < 2 => {
            let load = Load::named(load);
            let rival = RIVALS.iter().find(|known| known.name == rival);
            let (Some(load), Some(rival), Ok(jobs)) = (load, rival, jobs.parse()) else { usage() };
            let [seconds] = seconds else { return println!("{}", (rival.run)(load, jobs)) };
            let Ok(seconds) = seconds.parse() else { usage() };
            MEASURED.get_or_init(|| Duration::from_secs(seconds));
            println!("{}", (rival.run)(load, jobs).json());
        }
        _ => usage(),
    }
}

fn usage() -> ! {
    println!("usage: scheduling [SCHEDULER spread|at-once|idle JOBS [SECONDS]]");
    exit(2);
}

fn table(load: Load, numbers: &[usize]) {
    println!("\n{}\n", load.title());
    println!("| jobs | scheduler | {} |", Figures::HEADER);
    println!("|---|---|{}", "---|".repeat(Figures::HEADER.matches('|').count() + 1));
    for jobs in numbers {
        for rival in RIVALS.iter().filter(|rival| *jobs <= rival.most_jobs(load)) {
            println!("| {jobs} | {} | {} |", rival.name, alone(rival.name, load, *jobs));
        }
    }
}

/// One measurement in a process of its own, so that memory and processor time are its alone.
fn alone(rival: &str, load: Load, jobs: usize) -> String {
    let this = std::env::current_exe().unwrap();
    let output = Command::new(this).args([rival, load.name(), &jobs.to_string()]).output().unwrap();
    match output.status.success() {
        true => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        false => format!("failed: {}", String::from_utf8_lossy(&output.stderr).trim()),
    }
}
