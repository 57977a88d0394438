//! The scheduler: a thin shell around the planners, in parts that share one [`Node`](node::Node).
//!
//! - [`claims`]: the [`Claimer`](claims::claimer::Claimer) claims occurrences in the store, and the
//!   [`LocalClaimer`](claims::local_claimer::LocalClaimer) those of jobs that run on every node.
//!   Each drives a planner of its own.
//! - [`runs`]: the [`Supervisor`](runs::supervisor::Supervisor) keeps runs alive, in a task of its
//!   own.
//! - [`upkeep`]: the [`Registry`](upkeep::registry::Registry) keeps this node's record, the
//!   [`Watcher`](upkeep::watcher::Watcher) looks for what does not run, and others keep the
//!   named [`calendars`](upkeep::calendars) and trigger what follows in [`chains`](upkeep::chains).
//! - [`status`]: health, conditions and metrics, which the other parts write as they change.
//!
//! Each part has its own requests, notifications and timers, so a slow reply to one does not keep
//! the others from their work.

mod builder;
mod claims;
mod config;
mod handle;
mod inbox;
mod instance;
mod kinds;
mod misplaced;
mod node;
mod runs;
mod side_request;
mod status;
mod store_request;
mod trigger_waits;
mod upkeep;

use crate::monotonic;

pub use builder::SchedulerBuilder;
pub use handle::Handle;
pub use instance::Scheduler;
pub use runs::middleware::Next;
pub use runs::supervisor::Stopped;
