//! The tests of the etcd store, against members that `cargo xtask test` starts.

mod conformance;
mod stores;
