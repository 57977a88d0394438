//! The integration tests of the core: one binary, one module for each subject.

#![allow(clippy::unwrap_used, reason = "a test's helper fails as the test does")]

mod campaign;
mod explain;
mod history;
mod hours;
mod liveness;
mod many_nodes;
#[cfg(feature = "tokio")]
mod paused_tokio;
#[cfg(any(feature = "tokio", feature = "async-std", feature = "smol"))]
mod runtime_real;
mod runtime_sim;
mod scheduler;
#[cfg(any(feature = "tokio", feature = "async-std", feature = "smol"))]
mod scheduler_real;
#[cfg(feature = "json")]
mod stored;
mod support;
mod take_over;
