//! Work that is not about a due job: this node's record, calendars, removal of what is old, and the
//! watch over what does not run.

pub(in crate::scheduler) mod ahead;
pub(in crate::scheduler) mod calendar_cache;
pub(in crate::scheduler) mod calendars;
pub(in crate::scheduler) mod chain_delivery;
pub(in crate::scheduler) mod chains;
pub(in crate::scheduler) mod data_mismatch;
pub(in crate::scheduler) mod misfits;
pub(in crate::scheduler) mod overdue;
pub(in crate::scheduler) mod pruning;
pub(in crate::scheduler) mod registry;
pub(in crate::scheduler) mod retention;
pub(in crate::scheduler) mod streaks;
pub(in crate::scheduler) mod watcher;
