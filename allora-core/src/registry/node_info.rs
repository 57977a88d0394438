//! The state of a node as its record in the store shows it.
//!
//! It has a hash of 32 bits for the name of each job in code, up to 512, so that orphans are found
//! among nodes with different jobs. An equal hash keeps an orphan, and never removes a live job.

use crate::{pattern::Pattern, time::Time};
use allora_schedule::stable_hash;
use std::{collections::BTreeMap, time::Duration};

/// A node that lives, or lived during the last day, from [`Handle::nodes`](crate::Handle::nodes) or
/// [`Schedules::nodes`](crate::Schedules::nodes).
///
/// A node writes it when it starts and every 15 s ([`SchedulerBuilder::heartbeat`](crate::SchedulerBuilder::heartbeat)).
/// When it is stopped, it writes so while it waits for the end of its runs, and removes it then. It is
/// for operators: a node that is dead by its record may be alive and only be cut off from the store. So
/// nothing that must happen once may depend on it, such as a choice of one node among all or the
/// takeover of a run. Leases and fences decide these.
///
/// With the feature `json`, the value is `Serialize`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NodeInfo {
    /// The node's id.
    pub node: String,
    /// The version of its build ([`SchedulerBuilder::build_version`](crate::SchedulerBuilder::build_version)).
    pub version: Option<String>,
    /// The newest [format](FORMAT) of records that its build reads.
    pub(crate) format: u32,
    /// The kinds of stored schedules that it handles.
    pub kinds: Vec<Pattern>,
    /// They change while the node runs, so that the record may be behind.
    pub(crate) kinds_change: bool,
    /// Its labels ([`SchedulerBuilder::node_labels`](crate::SchedulerBuilder::node_labels)).
    pub labels: Vec<String>,
    /// The labels that its program needs on some node
    /// ([`Handle::need_labels`](crate::Handle::need_labels)).
    pub needed_labels: Vec<String>,
    /// `true` if the lists above are whole. They end at 4 KiB of kinds and 1 KiB of labels.
    pub is_complete: bool,
    /// The largest number of simultaneous runs.
    pub concurrency: usize,
    /// The number of active runs.
    pub running: usize,
    /// The progress of active runs that have [set](crate::Run::set_progress) any, ordered by job, up to
    /// 1 KiB.
    pub progress: Vec<RunProgress>,
    /// The number of its jobs in code that run on one of the nodes.
    pub jobs: usize,
    /// A hash of the names of these jobs: nodes with the same jobs have the same.
    pub jobs_hash: u64,
    /// Hashes of these names, at most [`NAMES`]; `None` if there are more.
    pub(crate) job_names: Option<Vec<u32>>,
    /// Hashes of the names of jobs in code that it keeps without running them.
    pub(crate) kept_names: Vec<u32>,
    /// Beginnings of such names ([`ProgramReport::kept_prefixes`](crate::ProgramReport)).
    pub kept_prefixes: Vec<String>,
    /// Settings that all nodes should share, up to 1 KiB
    /// ([`ProgramReport::settings`](crate::ProgramReport)).
    pub settings: BTreeMap<String, String>,
    /// A name that no other live node should have
    /// ([`ProgramReport::unique_name`](crate::ProgramReport)).
    pub unique_name: Option<String>,
    /// Hashes of the names of those whose stored definitions its build cannot run, at most [`LEFT`].
    pub(crate) left_jobs: Vec<u32>,
    /// The [conditions](crate::Condition) that keep jobs from running on it, each with its code, at
    /// most eight lines.
    pub problems: Vec<String>,
    /// The number of orphaned jobs in code, if this node is the one that looks for them.
    pub orphans: usize,
    /// The names of some of them, at most eight.
    pub orphan_examples: Vec<String>,
    /// The start of the node.
    pub started_at: Time,
    /// The interval of its writes.
    pub heartbeat: Duration,
    /// The last write, by the store's clock.
    pub last_seen: Time,
    /// `true` if the last write is not older than three intervals, and the node does not stop.
    pub is_live: bool,
    /// `true` if the node was stopped, starts nothing any more, and waits for the end of its runs. Its
    /// last write is not older than three intervals.
    pub is_stopping: bool,
}

/// The progress of an active run, as its node last wrote it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct RunProgress {
    /// The job.
    pub name: String,
    /// The run's fence.
    pub fence: i64,
    /// Its text of at most 200 bytes.
    pub text: String,
}

/// The format of records that this build reads. A build reads those of older ones. What only newer builds
/// read is written only when it is used, and refused while a node of an older build lives.
pub(crate) const FORMAT: u32 = 2;

/// The first [format](FORMAT) with triggers that have data of their own.
pub(crate) const TRIGGER_DATA: u32 = 2;

/// The largest number of jobs in code that a node's record has.
pub(crate) const NAMES: usize = 512;

/// The largest number of jobs that a node's record has as left to others.
pub(crate) const LEFT: usize = 128;

/// The longest interval of writes that a node can have.
pub(crate) const MAX_HEARTBEAT: Duration = Duration::from_secs(5 * 60);

/// The hash of a job's name in a node's record.
pub(crate) fn name_hash(name: &str) -> u32 {
    // The upper half.
    u32::try_from(stable_hash(&[name.as_bytes()]) >> 32).unwrap_or(u32::MAX)
}

/// The number of missed writes after which a node counts as dead.
const MISSED: u32 = 3;

impl NodeInfo {
    /// `true` if the last write is older than three intervals.
    pub fn is_dead(&self) -> bool {
        !self.is_live && !self.is_stopping
    }

    /// `true` if the node lives and has no active run.
    pub fn is_idle(&self) -> bool {
        self.is_live && self.running == 0
    }

    /// `true` if the node may run stored schedules of this kind.
    pub fn handles(&self, kind: &str) -> bool {
        !self.is_complete || self.kinds.iter().any(|pattern| pattern.matches(kind))
    }

    /// `true` if the node may have a job in code of this name: it has one of this hash, or more than
    /// 512 jobs, or it [keeps](Self::keeps) the job. A job that was added since the last write is not
    /// known yet.
    pub fn may_declare(&self, name: &str) -> bool {
        self.keeps(name)
            || self.job_names.as_ref().is_none_or(|names| names.contains(&name_hash(name)))
    }

    /// `true` if its program keeps the job in code of this name without running it
    /// ([`ProgramReport::kept_jobs`](crate::ProgramReport)).
    pub fn keeps(&self, name: &str) -> bool {
        self.kept_names.contains(&name_hash(name))
            || self.kept_prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()))
    }

    /// The time without a write after which the node counts as dead. A record with a longer heartbeat
    /// than a node can have is no node's.
    pub(super) fn patience(&self) -> Duration {
        self.heartbeat.min(MAX_HEARTBEAT) * MISSED
    }
}
