//! Many nodes, one store, and a check that every occurrence ran as promised.
//!
//! `cargo run --example cluster`: three processes on one SQLite file, in real time. What they wrote
//! down and what the store remembers then go to the history checker. With `-- --kill` one of them is
//! killed on the way, and another one started. `--nodes 5 --seconds 20` changes the numbers, and
//! `--store sqlite:FILE` where the file is, which else is a temporary one; `--features postgres` (or
//! `mysql`), before the `--`, lets it be a URL.
//!
//! `cargo run --example cluster -- --store memory`: a day of a real crontab on three nodes of this
//! process, in some seconds, on clocks that run fast.

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

mod arguments;
mod day;
mod fast;
mod jobs;
mod log;
mod machine;
mod processes;
mod store;
mod table;
mod verdict;

use allora::BoxError;
use arguments::Task;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    match arguments::read(std::env::args().skip(1))? {
        Task::Day { nodes, seconds } => day::run(nodes, seconds).await,
        Task::Processes(plan) => processes::run(&plan).await,
        Task::Machine(orders) => machine::run(&orders).await,
    }
}
