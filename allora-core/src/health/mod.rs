//! The state of a node for its operators: what works, what does not run, and why.

mod display;
mod status;

pub use status::{JobStatus, Place};

use crate::time::Time;
use std::time::Duration;

/// The state of one node, from [`Handle::health`](crate::Handle::health).
///
/// `Display` writes one line for each fact: a summary, then everything that does not work or does
/// not run, with its reason, its beginning and its remedy. A condition that starts or ends is also
/// an [`Event`](crate::Event). With the feature `json`, the value is `Serialize`: times are texts in
/// the form of RFC 3339, and durations are whole milliseconds in fields that end in `_ms`, as
/// `store.age_ms`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Health {
    /// The node's id.
    pub node: String,
    /// The store's time, as this node estimates it. Before the first reply: the node's own time.
    pub at: Time,
    /// The scheduler is stopping or has stopped.
    pub is_stopping: bool,
    /// The requests to the store.
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
    /// ([`Builder::kind_concurrency`](crate::Builder::kind_concurrency)), in the order in which the
    /// limits were set.
    pub kind_capacity: Vec<KindCapacity>,
    /// The number of claims whose reply was lost. Each reserves capacity until it is resolved.
    pub unresolved_claims: usize,
    /// The number of jobs in code on this node.
    pub jobs: usize,
    /// The number of them that are paused. A pause is an operator's decision and no problem.
    pub paused: usize,
    /// The jobs that do not run although nothing but a problem prevents it, ordered by name.
    pub problems: Vec<JobProblem>,
    /// The jobs of this node that wait for a busy concurrency key, ordered by name. A wait is no
    /// problem.
    pub key_waits: Vec<KeyWait>,
    /// The kinds of which a stored schedule has been due for a minute, and which no live node has a
    /// handler for. Only nodes that handle stored schedules look for them, once a minute.
    pub unhandled_kinds: Vec<UnhandledKind>,
    /// The kinds of which data of a stored schedule does not fit the handler of this node.
    pub data_mismatches: Vec<DataMismatch>,
    /// The due stored schedules that this node cannot run, if they are more than 100: the first ones are
    /// among the `problems`, and all are counted here.
    pub invalid_schedules: Option<InvalidSchedules>,
    /// The nodes of the store, as this node read their records last.
    pub nodes: NodesStatus,
    /// The labels that the program of a live node needs and no live node has, ordered by name.
    pub unmatched_labels: Vec<String>,
    /// The conditions that only the program knows
    /// ([`ProgramReport::conditions`](crate::ProgramReport)).
    pub conditions: Vec<String>,
    /// The things that the live nodes should agree about, and do not
    /// ([`NodeInfo::disagreements`](crate::NodeInfo::disagreements)). They keep no job from running.
    pub disagreements: Vec<String>,
    /// The jobs in code that no live build declares.
    pub orphans: OrphansStatus,
}

/// Very many due stored schedules that a node cannot run: their definitions have words that its build
/// does not know, say, or name calendars that are not in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InvalidSchedules {
    /// Their number, as of the last search for all that is due.
    pub count: usize,
    /// One of them.
    pub example: String,
    /// The time since which they are so many.
    pub since: Time,
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

/// Records of jobs in code that no live build declares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OrphansStatus {
    /// Their number.
    pub count: usize,
    /// The names of some of them, at most eight.
    pub examples: Vec<String>,
}

/// The requests of a node to its store.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct StoreStatus {
    /// The store's time in its last reply; `None` before the first one.
    pub last_reply: Option<Time>,
    /// The time since the last reply.
    pub age: Option<Duration>,
    /// The parts whose requests fail.
    pub failing: Vec<FailingPart>,
    /// The risk that the store loses the record of at-most-once runs, and its remedy; `None` if
    /// there is none.
    pub durability_warning: Option<String>,
}

/// A part of a node whose requests to the store fail.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FailingPart {
    /// The part.
    pub part: StorePart,
    /// `true` if the store rejects the requests; `false` if it does not answer, or too slowly.
    pub is_rejected: bool,
    /// The time of the first failure, as this node estimates the store's time.
    pub since: Time,
    /// The error of the last failed request, with its causes.
    pub error: String,
}

/// The parts of a node that send requests to the store. Each fails by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum StorePart {
    /// Registrations, reads and claims.
    Claims,
    /// Searches for due stored schedules and triggers.
    Search,
    /// Extensions of leases.
    Extensions,
    /// Ends of runs.
    Ends,
    /// The removal of old tombstones and history.
    Pruning,
    /// The records of the nodes.
    Registry,
    /// The concurrency keys of jobs that run on every node.
    Keys,
}

impl StorePart {
    /// The name of the part in texts.
    pub fn word(self) -> &'static str {
        match self {
            StorePart::Claims => "claims",
            StorePart::Search => "searches",
            StorePart::Extensions => "extensions",
            StorePart::Ends => "ends",
            StorePart::Pruning => "pruning",
            StorePart::Registry => "registry",
            StorePart::Keys => "keys",
        }
    }
}

/// Notifications from the store to this node.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Notifications {
    /// The store has none. The poll finds every change.
    #[default]
    Unsupported,
    /// The node has not subscribed yet.
    Connecting,
    /// They arrive.
    On,
    /// The subscription fails. The poll finds every change.
    Off {
        /// The time of the first failure, as this node estimates the store's time.
        since: Time,
        /// The error, with its causes.
        error: String,
    },
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
    /// The time since which due occurrences wait for capacity, if that is reported.
    pub full_since: Option<Time>,
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

/// A job that does not run on this node.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct JobProblem {
    /// The job.
    pub name: String,
    /// The reason.
    pub reason: ProblemReason,
    /// The reason in detail; may be empty.
    pub detail: String,
    /// The beginning, as this node estimates the store's time. Of an overdue job: when its
    /// occurrence became due.
    pub since: Time,
    /// The time until which the job waits, if it is known.
    pub until: Option<Time>,
}

impl JobProblem {
    /// The remedy.
    pub fn remedy(&self) -> &'static str {
        self.reason.remedy()
    }
}

/// The reason why a job does not run on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ProblemReason {
    /// Its record cannot be read.
    Unreadable,
    /// The store has a definition that this node cannot run. The job is left to other nodes.
    DefinitionConflict,
    /// Its schedule, its definition or its name is faulty.
    Invalid,
    /// It was deleted in the store.
    Deleted,
    /// Its record has times of a store whose clock was ahead.
    ClockWasAhead,
    /// An occurrence has been due for more than a minute without a lease.
    Overdue,
}

impl ProblemReason {
    /// The name of the reason in texts.
    pub fn word(self) -> &'static str {
        match self {
            ProblemReason::Unreadable => "unreadable",
            ProblemReason::DefinitionConflict => "definition conflict",
            ProblemReason::Invalid => "invalid",
            ProblemReason::Deleted => "deleted",
            ProblemReason::ClockWasAhead => "clock was ahead",
            ProblemReason::Overdue => "overdue",
        }
    }

    /// The remedy.
    pub fn remedy(self) -> &'static str {
        match self {
            ProblemReason::Unreadable => {
                "run a build that can read the record, or delete the job and create it again; \
                 this node reads it once a minute"
            }
            ProblemReason::DefinitionConflict => {
                "start a node with the build of that definition, or deploy one build on all nodes; \
                 if a due occurrence waits for a minute, this node sets its own definition"
            }
            ProblemReason::Invalid => "correct the schedule, the definition or the name",
            ProblemReason::Deleted => {
                "restart the node if the job should exist, or remove it from the program"
            }
            ProblemReason::ClockWasAhead => "resume the job with `allora reset JOB`",
            ProblemReason::Overdue => {
                "look at the store and the capacity of the nodes; if both are sound, report a \
                 defect of allora"
            }
        }
    }
}

/// A job whose due occurrence waits for a concurrency key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyWait {
    /// The job.
    pub job: String,
    /// The key.
    pub key: String,
    /// The job's limit of the key's active runs.
    pub limit: u32,
    /// The time since which it waits.
    pub since: Time,
    /// The holders of the key when this node last asked for it.
    pub holders: Vec<KeyHolder>,
}

/// A run that holds a concurrency key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyHolder {
    /// The job.
    pub job: String,
    /// The id of the node that runs it.
    pub node: String,
    /// The time since which it holds the key.
    pub since: Time,
}

impl KeyWait {
    /// The holders as text.
    pub(crate) fn holders(&self) -> String {
        let holders =
            self.holders.iter().map(|holder| format!("{} on {}", holder.job, holder.node));
        holders.collect::<Vec<_>>().join(", ")
    }
}

/// A kind of stored schedules that no live node has a handler for.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct UnhandledKind {
    /// The kind.
    pub kind: String,
    /// One of its schedules that are due and that no node has claimed.
    pub example: String,
    /// The time since which this schedule is due.
    pub since: Time,
    /// The number of its schedules that wait; at least that number, if it is 100.
    pub waiting: usize,
}

/// A kind of stored schedules whose data does not fit the handler of this node.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DataMismatch {
    /// The kind.
    pub kind: String,
    /// The first of its schedules whose data did not fit.
    pub example: String,
    /// The error, with line and column.
    pub error: String,
    /// The versions of the builds that handle the kind, here and on other live nodes.
    pub builds: String,
    /// The beginning, as this node estimates the store's time.
    pub since: Time,
}

impl Health {
    /// `true` if the store answers every part of the node and every job can run.
    ///
    /// Do not restart a node because this is `false`: most conditions are not the node's own.
    pub fn is_healthy(&self) -> bool {
        self.store.last_reply.is_some()
            && self.store.failing.is_empty()
            && self.capacity.full_since.is_none()
            && self.problems.is_empty()
            && self.unhandled_kinds.is_empty()
            && self.data_mismatches.is_empty()
            && self.invalid_schedules.is_none()
            && self.unmatched_labels.is_empty()
            && self.conditions.is_empty()
    }
}
