//! The planner: computes the next operations of this node from the time and from replies.
//!
//! It keeps the last known state of each job, and a queue ordered by wake-up time.
//! [`Planner::tick`] returns the operations to send now; [`Planner::on_reply`] applies their
//! replies. It reads no clock and awaits nothing, so that every policy can be tested with plain
//! values.

mod adopted;
mod ahead;
mod ask;
mod backlog;
mod broken;
mod capacity;
mod congestion_window;
mod contention;
mod decide;
mod due_claims;
mod due_queries;
mod failing;
mod finished;
mod finished_jobs;
mod key;
mod key_lines;
mod keys;
mod known;
mod learn;
mod left_keys;
mod limited;
mod machine;
mod mark;
mod own_claims;
mod published;
mod reply;
mod request;
mod reserved;
mod shares;
mod slot;
mod slot_id;
mod slots;
mod stored;
#[cfg(test)]
mod tests;
mod turn;
mod wake_up;
mod watch;
mod working_set;

pub(crate) use decide::completion_of;
pub(crate) use due_queries::{DueRequest, LeftLease};
pub(crate) use key::{HeldKey, KeyRelease};
pub(crate) use machine::{EXTRA_ATTEMPTS, NewJob, OnWay, Planner};
pub(crate) use published::PlannedJob;
pub(crate) use reply::{Answer, RunUpdate};
pub(crate) use request::{Request, Start, Tick};
pub(crate) use slot_id::SlotId;
