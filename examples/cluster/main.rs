//! Many nodes, one store, and a check that every occurrence ran as promised.
//!
//! `cargo run --example cluster`: a day of a real crontab on three nodes of this process, in some
//! seconds, on clocks that run fast. `-- --nodes 5 --seconds 20` changes the numbers.
//!
//! `cargo run --example cluster --features sqlite -- --store sqlite --kill`: the nodes are processes
//! on one database, in real time. One of them is killed on the way, and another one started. What
//! the processes wrote down and what the store remembers then go to the history checker.

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
