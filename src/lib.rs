//! A distributed cron for async Rust.

pub use allora_core::*;
