//! The claimers: occurrences are found and claimed, in the store and on this node.

pub(in crate::scheduler) mod capacity;
pub(in crate::scheduler) mod claimer;
pub(in crate::scheduler) mod driver;
pub(in crate::scheduler) mod due_claims;
pub(in crate::scheduler) mod local_claimer;
pub(in crate::scheduler) mod on_way;
pub(in crate::scheduler) mod search;
pub(in crate::scheduler) mod search_pace;
pub(in crate::scheduler) mod subscription;
pub(in crate::scheduler) mod unresolved;
pub(in crate::scheduler) mod woken_by;
