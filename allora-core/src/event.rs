//! Events: the changes that a scheduler reports about itself.

use crate::{
    backend::{NotRunReason, Outcome},
    error::Error,
    schedule::Warning,
    time::Time,
};
use std::{sync::Arc, time::Duration};

/// A change that happened on this node.
///
/// The scheduler passes each event to the closure of
/// [`Builder::on_event`](crate::Builder::on_event), in the order in which the events happen, and
/// logs it through `tracing` under the target `allora`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The scheduler has jobs that run at most once, and the store, in its present setup, can lose
    /// the record of their runs.
    DurabilityWarning {
        /// The risk and its remedy.
        what: String,
    },
    /// A job was added whose schedule is legal and seldom intended, such as sixty runs for
    /// `* 2 * * *`. The scheduler runs it as it is written.
    ScheduleWarning {
        /// The job.
        name: Arc<str>,
        /// The meaning of the schedule, and the probable intention.
        warning: Warning,
    },
    /// The scheduler has reached its store for the first time.
    Ready {
        /// This node's id.
        node: Arc<str>,
        /// The number of jobs registered on this node.
        jobs: usize,
    },
    /// A run has started.
    Started {
        /// The job.
        name: Arc<str>,
        /// The nominal time.
        scheduled_at: Time,
        /// The number of the attempt, from 1.
        attempt: u32,
        /// Its fence.
        fence: i64,
        /// The time between `due_at` and the start.
        late: Duration,
    },
    /// A run has ended.
    Ended {
        /// The job.
        name: Arc<str>,
        /// The nominal time.
        scheduled_at: Time,
        /// The number of the attempt, from 1.
        attempt: u32,
        /// Its fence.
        fence: i64,
        /// The result of the run.
        outcome: Outcome,
        /// The duration of the run.
        took: Duration,
    },
    /// Occurrences were missed: they could not be run in time.
    OccurrencesMissed {
        /// The job.
        name: Arc<str>,
        /// The first of them.
        first: Time,
        /// The last of them.
        last: Time,
        /// The number of occurrences; `None` if counting them would take too long.
        count: Option<u64>,
        /// The reason.
        reason: NotRunReason,
    },
    /// Occurrences were skipped: a policy decided so.
    OccurrencesSkipped {
        /// The job.
        name: Arc<str>,
        /// The first of them.
        first: Time,
        /// The last of them.
        last: Time,
        /// The number of occurrences; `None` if counting them would take too long.
        count: Option<u64>,
        /// The reason.
        reason: NotRunReason,
    },
    /// Another node has claimed the run's occurrence, or the run is recorded as lost, or the lease
    /// on its concurrency key belongs to another run. The run is cancelled.
    LeaseLost {
        /// The job.
        name: Arc<str>,
        /// The concurrency key; `None` for the run's own lease.
        key: Option<Arc<str>>,
        /// The run's fence.
        fence: i64,
    },
    /// The run was cancelled: the store confirmed no extension before the end of its lease, or of
    /// the lease on its concurrency key.
    LeaseRenewalFailed {
        /// The job.
        name: Arc<str>,
        /// The concurrency key; `None` for the run's own lease.
        key: Option<Arc<str>>,
        /// The run's fence.
        fence: i64,
    },
    /// The store had another definition of the job. It was replaced by this node's definition.
    Redefined {
        /// The job.
        name: Arc<str>,
    },
    /// Another node has defined the job differently. This node does not run the job until the
    /// definitions agree, or it is restarted. It compares them once a minute.
    DefinitionConflict {
        /// The job.
        name: Arc<str>,
    },
    /// The job was deleted in the store. This node does not run the job until it is restarted, or
    /// another node has registered it again.
    Deleted {
        /// The job.
        name: Arc<str>,
    },
    /// The store had no record of the job any more, and the job was registered again. The store may
    /// have been emptied.
    Reregistered {
        /// The job.
        name: Arc<str>,
    },
    /// This node cannot run the job. It tries again once a minute.
    JobInvalid {
        /// The job.
        name: Arc<str>,
        /// The reason and its remedy.
        reason: String,
    },
    /// This node runs a job again: the reason of its [`Deleted`](Self::Deleted),
    /// [`DefinitionConflict`](Self::DefinitionConflict) or [`JobInvalid`](Self::JobInvalid) is
    /// over.
    JobResumed {
        /// The job.
        name: Arc<str>,
    },
    /// The reply to a claim was lost, and nothing resolved the claim before the end of its lease. If
    /// it had succeeded, its run is recorded as lost, or run again at least once.
    ClaimAbandoned {
        /// The job.
        name: Arc<str>,
        /// The nominal time of the last occurrence that was claimed.
        scheduled_at: Time,
    },
    /// The store does not answer. The scheduler tries again after at most 800 ms.
    StoreDown {
        /// The error of the request.
        error: Arc<Error>,
    },
    /// The store answers again.
    StoreUp,
    /// The store rejected a request. Waiting does not help.
    StoreError {
        /// The error of the request.
        error: Arc<Error>,
    },
    /// Occurrences have been due for 1 s, and this node runs as many jobs as it may. Other nodes may
    /// claim them. Start more nodes, or set a larger
    /// [concurrency](crate::Builder::concurrency).
    CapacityFull {
        /// The largest number of simultaneous runs.
        concurrency: usize,
    },
    /// Nothing waits for capacity on this node any more.
    CapacityFree,
    /// This node's clock differs from the store's by more than 1 s. This does no harm: the
    /// scheduler uses the store's clock.
    ClockSkew {
        /// `true` if the node's clock is ahead.
        ahead: bool,
        /// The difference.
        by: Duration,
    },
    /// A timer of the scheduler fired late: a task blocks the executor, or the machine slept. Move
    /// blocking work to a thread of its own.
    TimerDelayed {
        /// The delay.
        by: Duration,
    },
    /// The scheduler has stopped.
    Stopped {
        /// The number of runs cancelled at the end of the grace period.
        cancelled: usize,
        /// The number of runs whose result was not recorded in the store.
        unrecorded: usize,
        /// The number of claims whose reply was lost and that could not be repeated, so that their
        /// occurrences may belong to this node.
        unresolved: usize,
    },
}
