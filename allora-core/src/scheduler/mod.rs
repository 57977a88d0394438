//! The scheduler: a thin shell around the planners, in parts that share one [`Node`](node::Node).
//!
//! The [`Claimer`](claims::claimer::Claimer) claims occurrences in the store, the
//! [`LocalClaimer`](claims::local_claimer::LocalClaimer) those of jobs that run on every node, and the
//! [`Supervisor`](runs::supervisor::Supervisor) keeps runs alive, in a task of its own. Each waits for its
//! own notifications and its own timers, so that a slow reply to one does not keep the others from
//! their work. So does the [`Registry`](upkeep::registry::Registry), which keeps this node's record, and the
//! reader of named [`calendars`](upkeep::calendars).

mod builder;
mod claims;
mod config;
mod handle;
mod inbox;
mod instance;
mod monotonic;
mod node;
mod runs;
mod side_request;
mod status;
mod store_request;
mod trigger_waits;
mod upkeep;

pub use builder::Builder;
pub use handle::Handle;
pub use instance::Scheduler;
pub use runs::middleware::Next;
pub use runs::supervisor::Stopped;
