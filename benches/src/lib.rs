//! Measurements: see `benches/`, and `BENCHMARKS.md` for what they showed.

pub mod node;
