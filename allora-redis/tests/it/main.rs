//! The integration tests: one program, so that it is linked once.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod conformance;
mod connect;
mod cost;
mod differential;
mod equal_records;
mod faults;
mod parity;
mod records;
mod runtimes;
mod server;
mod stores;
mod tls;
mod trace;
mod unused;
mod upgrade;
