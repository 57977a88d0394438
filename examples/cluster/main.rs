//! Many nodes, one store, and a check that every occurrence ran as promised.
//!
//! `cargo run --example cluster`: three processes on one SQLite file, in real time. At the end, the
//! history checker compares the log of the processes with the history of the store. With
//! `-- --kill`, one process is killed and another one is started. `--nodes 5 --seconds 20` changes
//! the numbers. `--store sqlite:FILE` sets the file; the default is a temporary one. With
//! `--features postgres` (or `mysql`) before the `--`, the store may be a URL.
//!
//! `cargo run --example cluster -- --store memory`: a day of a real crontab on three nodes of this
//! process, in some seconds, because its clocks run fast.

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
