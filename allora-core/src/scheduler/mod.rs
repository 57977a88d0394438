//! The scheduler: a thin shell around the planner, in two halves that share one
//! [`Node`](node::Node).
//!
//! The [`Claimer`](claimer::Claimer) claims occurrences, the [`Supervisor`](supervisor::Supervisor)
//! keeps runs alive. Each waits for its own notifications and its own timers, so that a slow reply
//! to one does not keep the other from its work.

mod active_run;
mod builder;
mod claimer;
mod config;
mod execution;
mod handle;
mod health;
mod instance;
mod launch;
mod local;
mod log;
mod middleware;
mod mutex;
mod mutex_groups;
mod node;
mod notify;
mod pending_update;
mod search;
mod store_health;
mod supervisor;
mod within;

pub use builder::Builder;
pub use handle::Handle;
pub use instance::Scheduler;
pub use middleware::Next;
pub use supervisor::Stopped;
