//! The `allora` command as its users have it: the real binary, in processes of its own.

#![allow(clippy::unwrap_used, reason = "a test that unwraps says where")]

mod allora;
mod check;
mod cluster;
mod commands;
mod config;
mod debian;
mod docs;
mod doctor;
mod logging;
mod next;
mod nodes;
mod operators;
mod perfectsched;
mod reload;
mod site;
mod stop;
mod stored;
mod stores;
mod transfer;
mod waiting;
