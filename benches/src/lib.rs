//! Measurements: see `benches/`, and `BENCHMARKS.md` for what they showed.

pub mod fleet;
pub mod node;
pub mod ordinary;
pub mod process;
pub mod profile;
pub mod report;
pub mod server;
pub mod ticks;
