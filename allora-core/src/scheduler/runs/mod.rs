//! The runs of claimed occurrences: their code is called, their leases are extended, and their ends
//! are recorded.

pub(in crate::scheduler) mod active_run;
pub(in crate::scheduler) mod execution;
pub(in crate::scheduler) mod lane;
pub(in crate::scheduler) mod launch;
pub(in crate::scheduler) mod local;
pub(in crate::scheduler) mod middleware;
pub(in crate::scheduler) mod pending_update;
pub(in crate::scheduler) mod run_client;
pub(in crate::scheduler) mod spawned;
pub(in crate::scheduler) mod supervisor;
pub(in crate::scheduler) mod timer_queue;
