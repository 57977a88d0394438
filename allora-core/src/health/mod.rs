//! The state of a node for its operators: what works, what does not run, and why.

mod display;
mod status;

pub use status::{JobStatus, Place};

use crate::{condition::ActiveCondition, time::Time};
use std::time::Duration;

/// The state of one node, from [`Handle::health`](crate::Handle::health): its figures, and what is
/// wrong.
///
/// `Display` writes one line for each fact: a summary, the figures, then each condition with its
/// beginning, its evidence and its remedy. With the feature `json`, the value is `Serialize`: times are
/// texts in the form of RFC 3339, and durations are whole milliseconds in fields that end in `_ms`, as
/// `store.age_ms`. A condition is an object with `code`, `since`, `stops_jobs`, `text`, `evidence` and
/// `remedy`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Health {
    /// The node's id.
    pub node: String,
    /// The store's time, as this node estimates it. Before the first reply: the node's own time.
    pub at: Time,
    /// The scheduler is stopping or has stopped.
    pub is_stopping: bool,
    /// The conditions that have begun and not ended, in the order of the table of
    /// [`Condition`](crate::Condition) and of the names that they are about. Each has had its
    /// [`Event::Began`](crate::Event::Began).
    pub conditions: Vec<ActiveCondition>,
    /// The last reply of the store.
    pub store: StoreStatus,
    /// Notifications from the store.
    pub notifications: Notifications,
    /// The difference between this node's clock and the store's in milliseconds: positive if the
    /// node's clock is ahead; 0 if one round trip shows no difference. `None` before the first
    /// reply.
    pub clock_offset_ms: Option<i64>,
    /// The capacity for runs.
    pub capacity: CapacityStatus,
    /// The capacity of the handlers that have a limit of their own
    /// ([`SchedulerBuilder::kind_concurrency`](crate::SchedulerBuilder::kind_concurrency)), in the order in which the
    /// limits were set.
    pub kind_capacity: Vec<KindCapacity>,
    /// The number of claims whose reply was lost. Each reserves capacity until it is resolved.
    pub unresolved_claims: usize,
    /// The number of jobs in code on this node.
    pub jobs: usize,
    /// The number of them that are paused. A pause is an operator's decision and no condition.
    pub paused: usize,
    /// The nodes of the store, as this node read their records last.
    pub nodes: NodesStatus,
}

/// The numbers of the nodes of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodesStatus {
    /// The live nodes, this one included. 0 before the first look.
    pub live: usize,
    /// The live nodes without an active run.
    pub idle: usize,
    /// The ids of the nodes that died during the last day without removing their records.
    pub dead: Vec<String>,
}

/// The last reply of the store to this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStatus {
    /// The store's time in its last reply; `None` before the first one.
    pub last_reply: Option<Time>,
    /// The time since the last reply.
    pub age: Option<Duration>,
}

/// Notifications from the store to this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notifications {
    /// The store has none. The poll finds every change.
    Unsupported,
    /// The node has not subscribed yet.
    Connecting,
    /// They arrive.
    On,
    /// The subscription fails ([`NotificationsDown`](crate::Condition::NotificationsDown)). The poll
    /// finds every change.
    Off,
}

impl Notifications {
    /// The name in texts.
    pub fn word(self) -> &'static str {
        match self {
            Notifications::Unsupported => "unsupported",
            Notifications::Connecting => "connecting",
            Notifications::On => "on",
            Notifications::Off => "off",
        }
    }
}

/// The capacity of a node for runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CapacityStatus {
    /// The largest number of simultaneous runs.
    pub limit: usize,
    /// The number of active runs.
    pub used: usize,
    /// The capacity that claims and concurrency keys have: those that are on their way, whose replies
    /// were lost, or that are held for a claim.
    pub reserved: usize,
}

/// The capacity of a handler of stored schedules.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KindCapacity {
    /// The kinds, as the text of their pattern.
    pub kinds: String,
    /// The largest number of simultaneous runs on this node.
    pub limit: usize,
    /// The number of active runs.
    pub used: usize,
}

impl Health {
    /// `true` if the store has answered, and no condition [stops jobs](crate::Condition::stops_jobs).
    ///
    /// Do not restart a node because this is `false`: most conditions are not the node's own.
    pub fn is_healthy(&self) -> bool {
        let stops = |one: &ActiveCondition| one.condition.stops_jobs();
        self.store.last_reply.is_some() && !self.conditions.iter().any(stops)
    }

    /// The conditions with this [code](crate::Condition::code), such as `job-overdue`.
    pub fn with<'a>(&'a self, code: &'a str) -> impl Iterator<Item = &'a ActiveCondition> {
        self.conditions.iter().filter(move |one| one.condition.code() == code)
    }
}
