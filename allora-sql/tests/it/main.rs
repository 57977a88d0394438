//! The SQL backend against real databases.

mod conformance;
mod connect;
mod differential;
mod rows;
mod runtimes;
mod stores;
mod transactional;
