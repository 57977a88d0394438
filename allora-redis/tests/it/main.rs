//! The Redis backends against real servers.

#![allow(clippy::unwrap_used, reason = "a test that unwraps says where")]

mod quorum;
