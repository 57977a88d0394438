//! The SQL backend against real databases.

#![allow(clippy::unwrap_used, reason = "a test that unwraps says where")]

mod calls;
mod changes;
mod conformance;
mod connect;
mod desk;
mod differential;
#[cfg(unix)]
mod faults;
mod measurements;
mod parity;
mod pools;
#[cfg(unix)]
mod replaced;
mod rows;
mod runtimes;
mod sessions;
mod statements;
mod stored;
mod stores;
mod trace;
mod transactional;
mod upgrade;
