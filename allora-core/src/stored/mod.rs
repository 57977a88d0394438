//! Schedules that live in a store: added, changed and removed while everything runs, by an
//! application for its customers or by an operator, and run by nodes that know their kinds.
//!
//! # How do I add a schedule for a customer?
//! With [`Schedules`], on any node or none: see there. [`Stored`] says what one is.

mod client;
mod definition;
#[cfg(feature = "json")]
mod json;
mod route;
mod value;

pub use client::{Condition, Filter, Gap, MAX_BACKFILL, Schedules};
pub use definition::Definition;
pub use route::{Handler, Pattern};
pub(crate) use route::{Route, Routed, Router};
pub use value::Stored;
