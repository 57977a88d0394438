//! Servers beside the stores on them: how they are emptied, and how many requests they receive.

#[cfg(feature = "etcd")]
pub mod etcd;
pub mod redis;
pub mod sql;
pub mod statements;
