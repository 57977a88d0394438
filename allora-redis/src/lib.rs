//! allora on Redis.

pub mod quorum;
