//! The suite's own tests: broken backends that it must catch, and broken histories.

#![allow(clippy::unwrap_used, reason = "a test's helper fails as the test does")]

mod broken;
mod custom_backend;
mod defects;
mod faulty_stores;
mod gates;
mod history;
mod liveness;
#[path = "../../../examples/custom_backend/store.rs"]
mod store;
mod stores;
mod teeth;
