//! Breaches of liveness.

use allora_core::{Time, backend::Occurrence};
use std::{fmt, sync::Arc};

/// A breach of the promise.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stall {
    /// The seed of the run.
    pub seed: u64,
    /// The breach.
    pub kind: Kind,
    /// The job; empty for [`Kind::Storm`], [`Kind::LeftBehind`] and [`Kind::TooManyRuns`].
    pub job: Arc<str>,
    /// The occurrence, if one is concerned.
    pub occurrence: Option<Occurrence>,
    /// When the occurrence was due, by the clock of the trace.
    pub due_at: Option<Time>,
    /// The time in which nothing happened.
    pub during: (Time, Time),
    /// The nodes that could have acted.
    pub nodes: Vec<Arc<str>>,
}

/// The kinds of breaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// An occurrence that could start was not claimed.
    NotClaimed,
    /// A job in code was not registered.
    NotRegistered,
    /// An occurrence was claimed, and its node did not start it.
    NotStarted,
    /// A lease ended although its node was healthy.
    LeaseLapsed,
    /// A run went on without its lease although its node was healthy.
    NoLease,
    /// A node stopped with more leases than it has counted.
    LeftBehind,
    /// An every-node job did not run in time.
    NotRunHere,
    /// An every-node job ran an occurrence from before it was added.
    OldOccurrence,
    /// The code of a run was called after its lease had ended.
    BegunTooLate,
    /// Two runs of one occurrence were the same attempt, although the code of the first was called.
    AttemptNotCounted,
    /// An occurrence of an at-most-once job was called twice.
    RanTwice,
    /// A node claimed what was due later, again and again, while an earlier occurrence waited.
    Overtaken,
    /// Triggers ran one after the other while the schedule's occurrence was due.
    ScheduleHeldBack,
    /// A node ran more jobs at the same time than its concurrency allows.
    TooManyRuns,
    /// A node sent many requests, or read many records, while little changed.
    Storm,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |at: Time| at.format("%T%.3f").to_string();
        let (from, to) = self.during;
        write!(f, "seed {}: {:?} {:?}", self.seed, self.kind, self.job)?;
        if let Some(occurrence) = &self.occurrence {
            write!(f, ", occurrence {}", time(occurrence.scheduled_at))?;
            if let Some(trigger) = &occurrence.trigger {
                write!(f, " ({trigger})")?;
            }
        }
        if let Some(due_at) = self.due_at {
            write!(f, ", due {}", time(due_at))?;
        }
        write!(f, ", from {} to {}, although of {:?}", time(from), time(to), self.nodes)
    }
}
