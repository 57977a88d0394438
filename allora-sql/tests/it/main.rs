//! The SQL backend against real databases.

mod differential;
mod stores;
