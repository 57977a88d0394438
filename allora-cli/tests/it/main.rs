//! The `allora` command as its users have it: the real binary, in processes of its own.

#![allow(clippy::unwrap_used, reason = "a test that unwraps says where")]

mod alerts;
mod allora;
mod calendars;
mod check;
mod clock_set_back;
mod cluster;
mod commands;
mod completions;
mod conditions;
mod config;
mod console;
mod deb;
mod debian;
mod docs;
mod doctor;
mod exit_codes;
mod http_api;
mod lines;
mod listen;
mod logging;
mod next;
mod nodes;
mod operators;
mod packaging;
mod perfectsched;
mod prove;
mod questions;
mod records;
mod reload;
mod rolling;
mod shared_store;
mod signed;
mod site;
mod stop;
mod stored;
mod stores;
mod system;
mod transfer;
mod waiting;
mod workers;
