//! allora on Redis.
