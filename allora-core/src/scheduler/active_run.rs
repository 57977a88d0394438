//! Runs that are active, or whose ends are not recorded yet.

use crate::{
    backend::{Action, Completion, Cursor, Outcome},
    job::{Delivery, JobSpec, Placement},
    planner::SlotId,
    record::bounded,
    run::{Requested, Run},
    time::{Time, saturating_add},
};
use std::time::{Duration, Instant};

/// The place of a run in its node.
pub(crate) type RunId = usize;

/// A run whose end is not recorded.
pub(crate) struct ActiveRun {
    pub(crate) slot: SlotId,
    pub(crate) started: Instant,
    pub(crate) run: Run,
    pub(crate) spec: JobSpec,
    /// Its lease.
    pub(crate) timers: LeaseTimers,
    /// The result, when it has ended.
    pub(crate) result: Option<RunResult>,
    /// Its lease is lost: its end is not recorded.
    pub(crate) lost: bool,
    pub(crate) turn: Turn,
}

/// The progress of a run in the lock of its mutex group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It waits, and its code has not begun.
    Waits,
    /// Its code has begun; or there is no group.
    Begun,
    /// The lock may belong to another run now.
    Lost,
}

/// The times of a lease, by this node's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseTimers {
    pub(crate) duration: Duration,
    pub(crate) extend_at: Instant,
    /// The run is cancelled unless an extension was confirmed before.
    pub(crate) cancel_at: Instant,
    /// Its future is dropped.
    pub(crate) drop_at: Instant,
}

impl LeaseTimers {
    /// A lease of `duration`. The request that confirmed it was sent at `sent` and left `left` of
    /// it.
    pub(crate) fn new(sent: Instant, left: Duration, duration: Duration) -> Self {
        let margin = (duration / 10).max(Duration::from_millis(100)).min(left / 2);
        Self {
            duration,
            extend_at: sent + left.min(duration / 3),
            cancel_at: sent + (left - margin),
            drop_at: sent + left,
        }
    }
}

/// The way in which a run's future ended.
#[derive(Debug)]
pub(crate) enum ExitReason {
    /// With the text of the error, if any.
    Returned(Result<(), String>),
    Panicked(String),
    TimedOut(Duration),
    /// It was dropped before it ended.
    Dropped,
    /// It waited for the lock of its mutex group and did not get it.
    NotBegun,
}

/// The result of a run, as it is recorded in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RunResult {
    Succeeded,
    Failed(String),
    Dead(String),
    Cancelled,
    Retry { not_before: Time, error: String },
    Released,
}

impl RunResult {
    /// The operation that records it, of the run under `fence`.
    pub(crate) fn action(&self, fence: i64, then: Cursor) -> Action<'_> {
        let completion = match self {
            RunResult::Succeeded => Completion::Succeeded,
            RunResult::Failed(error) => Completion::Failed(error),
            RunResult::Dead(error) => Completion::Dead(error),
            RunResult::Cancelled => Completion::Cancelled,
            RunResult::Retry { not_before, error } => {
                return Action::Retry { fence, not_before: *not_before, error };
            }
            RunResult::Released => return Action::Release { fence },
        };
        Action::Complete { fence, then, completion }
    }

    /// `true` if it ends the occurrence.
    pub(crate) fn is_completion(&self) -> bool {
        !matches!(self, RunResult::Retry { .. } | RunResult::Released)
    }

    pub(super) fn outcome(&self) -> Outcome {
        match self {
            RunResult::Succeeded => Outcome::Succeeded,
            RunResult::Failed(error) => Outcome::Failed(error.clone()),
            RunResult::Retry { error, .. } => Outcome::Retried(error.clone()),
            RunResult::Dead(error) => Outcome::Dead(error.clone()),
            RunResult::Cancelled => Outcome::Cancelled,
            RunResult::Released => Outcome::Released,
        }
    }
}

impl ActiveRun {
    pub(super) fn result(&self, how: ExitReason, now: Time) -> RunResult {
        let decided = match how {
            ExitReason::Returned(_) => self.run.control().requested(),
            _ => None,
        };
        let gives_up = match decided {
            Some(Requested::Retry { after, error }) => {
                let error = bounded(&error);
                return RunResult::Retry { not_before: saturating_add(now, after), error };
            }
            Some(Requested::Release) => return RunResult::Released,
            Some(Requested::GiveUp) => true,
            None => false,
        };
        let error = match how {
            ExitReason::Returned(Ok(())) => return RunResult::Succeeded,
            ExitReason::Dropped => return self.dropped(),
            // Its code has not begun. So it can be released even at most once.
            ExitReason::NotBegun => return RunResult::Released,
            ExitReason::Returned(Err(error)) => error,
            ExitReason::Panicked(text) => format!("panicked: {text}"),
            ExitReason::TimedOut(limit) => format!("timed out after {limit:?}"),
        };
        let error = bounded(&error);
        match self.spec.settings.delivery {
            Delivery::AtMostOnce => RunResult::Failed(error),
            Delivery::AtLeastOnce { .. } => {
                let wait = self.spec.settings.retry.after(self.run.attempt());
                match wait.filter(|_| !gives_up) {
                    Some(wait) => RunResult::Retry { not_before: saturating_add(now, wait), error },
                    None => RunResult::Dead(error),
                }
            }
        }
    }

    /// At least once, it may be run again on another node. At most once, it has begun and is not
    /// run again.
    fn dropped(&self) -> RunResult {
        match (self.spec.settings.delivery, self.turn) {
            (Delivery::AtLeastOnce { .. }, _) => RunResult::Released,
            (Delivery::AtMostOnce, Turn::Lost) => RunResult::Failed(
                "dropped: the lease of its mutex group was not extended in time".to_owned(),
            ),
            (Delivery::AtMostOnce, _) => RunResult::Cancelled,
        }
    }

    pub(crate) fn is_local(&self) -> bool {
        self.spec.settings.placement == Placement::EveryNode
    }
}
