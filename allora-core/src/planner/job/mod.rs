//! One job on this node: the state that is known of it, and the decision that follows from that. Plain
//! values: nothing here knows other jobs, requests or replies.

pub(super) mod adopted;
pub(super) mod backlog;
pub(super) mod decide;
pub(super) mod known;
pub(super) mod slot;
pub(super) mod walk;
