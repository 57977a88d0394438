//! A store in etcd.
//!
//! [allora]: ../allora/index.html
//!
// README links to the same pages as files; the first definition of a link counts.
#![doc = include_str!("../README.md")]

// The client layer: connections, transactions, errors.
mod client;
mod error;
mod timeline;
// Keys and values in the store.
mod encoding;
mod keys;
// The parts that the record layer is made of.
mod cache;
mod due_index;
mod liveness;
mod name_pages;
mod sessions;
mod silence;
mod store;
// The record layer: one file for each group of calls.
mod commit;
mod fast_path;
mod flags;
mod history;
mod notifier;
mod prune;
mod queries;
mod records;
// Connecting.
mod connect;

pub use connect::{EtcdBuilder, Tls};
pub use store::Etcd;

/// The driver, for [`EtcdBuilder::client`].
pub use etcd_client;
