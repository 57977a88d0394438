//! What a scheduler tells about itself.

use crate::{backend::Outcome, error::Error, time::Time};
use std::{sync::Arc, time::Duration};

/// Something that happened on this node.
///
/// Given to the closure of [`Builder::on_event`](crate::Builder::on_event), in the order in which
/// it happened, and logged through `tracing` under the target `allora`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The scheduler was built with jobs that run at most once, and the store, as it is set up, may
    /// forget that they ran.
    Caveat {
        /// What it may forget, and what to do about it.
        what: String,
    },
    /// The scheduler has reached its store for the first time.
    Ready {
        /// This node's id.
        node: Arc<str>,
        /// How many jobs it knows.
        jobs: usize,
    },
    /// A run has started.
    Started {
        /// The job.
        name: Arc<str>,
        /// The nominal instant.
        scheduled_at: Time,
        /// Which attempt, from 1.
        attempt: u32,
        /// Its fence.
        fence: i64,
        /// How long after it was due.
        late: Duration,
    },
    /// A run has ended.
    Ended {
        /// The job.
        name: Arc<str>,
        /// The nominal instant.
        scheduled_at: Time,
        /// Which attempt, from 1.
        attempt: u32,
        /// Its fence.
        fence: i64,
        /// How.
        outcome: Outcome,
        /// How long it ran.
        took: Duration,
    },
    /// Instants were passed over.
    Passed {
        /// The job.
        name: Arc<str>,
        /// The first of them.
        first: Time,
        /// The last of them.
        last: Time,
        /// How many; `None` if counting them would have cost too much.
        count: Option<u64>,
        /// [`Outcome::Skipped`] or [`Outcome::Missed`].
        outcome: Outcome,
    },
    /// Somebody else has taken the run's occurrence over, or gave it up as lost: it is cancelled.
    LeaseLost {
        /// The job.
        name: Arc<str>,
        /// The run's fence.
        fence: i64,
    },
    /// The run was cancelled: no extension was confirmed before its lease's end.
    LeaseUnconfirmed {
        /// The job.
        name: Arc<str>,
        /// The run's fence.
        fence: i64,
    },
    /// The run was cancelled: no extension of its turn in its mutex group was confirmed in time.
    MutexUnconfirmed {
        /// The job.
        name: Arc<str>,
        /// The group.
        group: Arc<str>,
        /// The run's fence.
        fence: i64,
    },
    /// The run was ended: somebody else has its turn in its mutex group, or the group's record was
    /// deleted.
    MutexLost {
        /// The job.
        name: Arc<str>,
        /// The group.
        group: Arc<str>,
        /// The run's fence.
        fence: i64,
    },
    /// The job is now as this node defines it; the store had it otherwise.
    Redefined {
        /// The job.
        name: Arc<str>,
    },
    /// Another node has defined the job otherwise: this node leaves it alone until it is restarted.
    Outdated {
        /// The job.
        name: Arc<str>,
    },
    /// The job was deleted in the store: this node leaves it alone until it is restarted.
    Deleted {
        /// The job.
        name: Arc<str>,
    },
    /// The store had forgotten the job, and it was registered again: somebody emptied the store.
    Forgotten {
        /// The job.
        name: Arc<str>,
    },
    /// The job cannot be run by this node, which leaves it alone.
    Unplannable {
        /// The job.
        name: Arc<str>,
        /// Why, and what to do.
        reason: String,
    },
    /// The store does not answer; the scheduler asks again, every 800 ms at the latest.
    StoreDown {
        /// What it said.
        error: Arc<Error>,
    },
    /// The store answers again.
    StoreUp,
    /// The store refused a request for a reason that waiting does not mend.
    StoreRefused {
        /// What it said.
        error: Arc<Error>,
    },
    /// This node's clock differs from the store's by more than 1 s. Harmless: the store's decides.
    ClockOff {
        /// Whether the node's clock is ahead.
        ahead: bool,
        /// By how much.
        by: Duration,
    },
    /// A timer of the scheduler came late by so long: something blocks the executor, or the machine
    /// slept. Work that blocks belongs on a thread of its own.
    Stalled {
        /// How late.
        by: Duration,
    },
    /// The scheduler has stopped.
    Stopped {
        /// Runs that were cancelled because the grace was over.
        cancelled: usize,
        /// Runs whose end could not be told to the store.
        unsettled: usize,
    },
}
