//! The integration tests of schedules: one binary, one module for each subject.

#![allow(clippy::unwrap_used, reason = "a test's helper fails as the test does")]

mod calendar;
mod cron;
mod describe;
mod moved;
mod phrase;
mod recurrence;
mod schedule;
#[cfg(feature = "sun")]
mod sun;
