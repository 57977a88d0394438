//! The tests of the etcd store, against members that `cargo xtask test` starts.

#![allow(clippy::unwrap_used, reason = "a test that unwraps says where")]

mod clocks;
mod conformance;
#[cfg(unix)]
mod connect;
#[cfg(unix)]
mod exchanges;
#[cfg(unix)]
mod faults;
#[cfg(unix)]
mod history;
mod index;
#[cfg(unix)]
mod pages;
mod records;
mod runtimes;
mod stores;
mod upgrade;
