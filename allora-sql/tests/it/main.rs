//! The SQL backend against real databases.

mod conformance;
mod differential;
mod stores;
