//! The integration tests of the crate, one subject in each file.

mod runtime_real;
