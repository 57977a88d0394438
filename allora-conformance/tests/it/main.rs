//! The suite's own tests: broken backends that it must catch, and broken histories.

#![allow(clippy::unwrap_used, reason = "a test's helper fails as the test does")]

mod broken;
mod defects;
mod history;
mod teeth;
