//! The scheduler: a thin shell around the planners, in parts that share one [`Node`](node::Node).
//!
//! The [`Claimer`](claimer::Claimer) claims occurrences in the store, the
//! [`LocalClaimer`](local_claimer::LocalClaimer) those of jobs that run on every node, and the
//! [`Supervisor`](supervisor::Supervisor) keeps runs alive, in a task of its own. Each waits for its
//! own notifications and its own timers, so that a slow reply to one does not keep the others from
//! their work. So does the [`Registry`](registry::Registry), which keeps this node's record, and the
//! reader of named [`calendars`].

mod active_run;
mod ahead;
mod board;
mod builder;
mod calendar_cache;
mod calendars;
mod capacity;
mod claimer;
mod config;
mod data_mismatch;
mod driver;
mod due_claims;
mod execution;
mod handle;
mod health;
mod inbox;
mod instance;
mod lane;
mod launch;
mod local;
mod local_claimer;
#[cfg_attr(not(feature = "metrics"), path = "no_metrics.rs")]
mod metrics;
mod middleware;
mod misfits;
mod misplaced;
mod monotonic;
mod node;
mod notify;
mod on_way;
mod overdue;
mod pending_update;
mod pruning;
mod registry;
mod retention;
mod run_client;
mod search;
mod search_pace;
mod side_request;
mod spawned;
mod store_health;
mod store_request;
mod subscription;
mod supervisor;
mod timer_queue;
mod trigger_waits;
mod unresolved;
mod watcher;
mod woken_by;

pub use builder::Builder;
pub use handle::Handle;
pub use instance::Scheduler;
pub(crate) use launch::millis;
pub use middleware::Next;
pub(crate) use notify::yield_now;
pub use supervisor::Stopped;
pub(crate) use trigger_waits::{end_unknown, no_history, not_ended, not_triggered};
