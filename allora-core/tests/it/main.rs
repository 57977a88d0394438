//! The integration tests of the crate, one subject in each file.

#[cfg(any(feature = "tokio", feature = "async-std", feature = "smol"))]
mod runtime_real;
mod runtime_sim;
