//! A run whose end is not recorded yet: it is active, or has ended and the store has not answered.

use crate::{
    backend::{Action, Completion, Cursor, NotRunReason, Outcome, RetryCause},
    job::{Delivery, Overlap, Placement, Settings},
    planner::{HeldKey, SlotId},
    record::bounded,
    run::{Requested, Run},
    scheduler::monotonic::later,
    time::{Time, saturating_add},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// The part of a lease by which an extension may be early, so that one request has those of many
/// runs.
const EARLY: u32 = 12;

/// The place of a run in its node.
pub(crate) type RunId = usize;

/// A run whose end is not recorded. It owns no code of the user.
pub(crate) struct ActiveRun {
    pub(crate) slot: Option<SlotId>,
    pub(crate) started: Instant,
    pub(crate) run: Run,
    pub(crate) settings: Arc<Settings>,
    /// Its lease.
    pub(crate) timers: LeaseTimers,
    /// Its extension waits for a request, or for the reply.
    pub(crate) extending: bool,
    /// The time at which this node learnt that its cancellation was requested.
    pub(crate) cancelled_at: Option<Instant>,
    /// The result, when it has ended.
    pub(crate) result: Option<RunResult>,
    /// The code of the run may have completed it, and it ended otherwise.
    pub(crate) doubt: Option<Doubt>,
    /// The store confirmed no extension before the lease's end, and the run continues.
    pub(crate) unconfirmed: bool,
    /// Its lease is lost: its end is not recorded.
    pub(crate) lost: bool,
    /// The place of its concurrency key.
    pub(crate) key: Option<HeldKey>,
    pub(crate) turn: Turn,
}

/// The result of a run whose code may have completed it in a transaction of its own. An extension of
/// its lease finds out: a completed run has none.
#[derive(Clone, Debug)]
pub(crate) struct Doubt {
    pub(crate) took: Duration,
    /// The reason of the result, if a stop of the node cut the run off.
    pub(crate) reason: Option<NotRunReason>,
    /// The store does not know the lease any more: the run's completion is sent again, in place of this
    /// result.
    pub(crate) overruled: Option<RunResult>,
    /// The lease lasts: the result is sent.
    pub(crate) is_over: bool,
}

/// The progress of a run, also under its concurrency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Its code has not begun: it waits for its first poll.
    Waits,
    /// Its code has begun.
    Begun,
    /// Its lease, or its place of the key, may belong to another run now.
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

    /// The time from which it may be extended together with others.
    pub(crate) fn early_at(&self) -> Instant {
        self.extend_at.checked_sub(self.duration / EARLY).unwrap_or(self.extend_at)
    }

    /// The times of two leases that are extended together.
    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            duration: self.duration,
            extend_at: self.extend_at.min(other.extend_at),
            cancel_at: self.cancel_at.min(other.cancel_at),
            drop_at: self.drop_at.min(other.drop_at),
        }
    }

    /// The lease ends earlier, by `jump`: it is extended now. The run is not cancelled for as long as
    /// the request may take.
    pub(crate) fn shorten(&mut self, jump: Duration, now: Instant, request: Duration) {
        let earlier = |at: Instant| {
            let at = at.checked_sub(jump).unwrap_or(now);
            at.max(later(now, request))
        };
        self.extend_at = self.extend_at.min(now);
        self.cancel_at = self.cancel_at.min(earlier(self.cancel_at));
        self.drop_at = self.drop_at.min(earlier(self.drop_at));
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
    /// Its code has not begun.
    NotBegun,
}

/// The result of a run, as it is recorded in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RunResult {
    Succeeded,
    Failed(String),
    Dead(String),
    Cancelled,
    Retry {
        not_before: Time,
        error: String,
    },
    /// It was dropped before it ended, and is run again.
    Interrupted {
        not_before: Time,
    },
    Released,
    /// Given back for a while.
    Snoozed {
        not_before: Time,
    },
}

/// The error of an occurrence whose runs were interrupted too often.
const INTERRUPTED: &str = "cancelled: the run was dropped before it ended";

impl RunResult {
    /// The operation that records it, of the run under `fence`.
    pub(crate) fn action(&self, fence: i64, then: Cursor) -> Action<'_> {
        let completion = match self {
            RunResult::Succeeded => Completion::Succeeded,
            RunResult::Failed(error) => Completion::Failed(error),
            RunResult::Dead(error) => Completion::Dead(error),
            RunResult::Cancelled => Completion::Cancelled,
            RunResult::Retry { not_before, error } => {
                let cause = RetryCause::Failed(error);
                return Action::Retry { fence, not_before: *not_before, cause };
            }
            RunResult::Interrupted { not_before } => {
                let cause = RetryCause::Interrupted;
                return Action::Retry { fence, not_before: *not_before, cause };
            }
            RunResult::Snoozed { not_before } => {
                let cause = RetryCause::Released;
                return Action::Retry { fence, not_before: *not_before, cause };
            }
            RunResult::Released => return Action::Release { fence },
        };
        Action::Complete { fence, then, completion }
    }

    /// `true` if it ends the occurrence.
    pub(crate) fn is_completion(&self) -> bool {
        !matches!(
            self,
            RunResult::Retry { .. }
                | RunResult::Interrupted { .. }
                | RunResult::Snoozed { .. }
                | RunResult::Released
        )
    }

    /// The text of what a run did after its completion.
    pub(in crate::scheduler) fn text(&self) -> &str {
        match self {
            RunResult::Failed(error) | RunResult::Dead(error) | RunResult::Retry { error, .. } => {
                error
            }
            RunResult::Released | RunResult::Snoozed { .. } => "it requested its release",
            _ => "it was dropped before it ended",
        }
    }

    pub(in crate::scheduler) fn outcome(&self) -> Outcome {
        match self {
            RunResult::Succeeded => Outcome::Succeeded,
            RunResult::Failed(error) => Outcome::Failed(error.clone()),
            RunResult::Retry { error, .. } => Outcome::Retried(error.clone()),
            RunResult::Dead(error) => Outcome::Dead(error.clone()),
            RunResult::Cancelled => Outcome::Cancelled,
            RunResult::Interrupted { .. } => Outcome::Interrupted,
            RunResult::Released | RunResult::Snoozed { .. } => Outcome::Released,
        }
    }
}

impl ActiveRun {
    /// `extra_attempts`: the number of attempts beyond the retry policy if the run was dropped.
    pub(in crate::scheduler) fn result(
        &self,
        how: ExitReason,
        now: Time,
        extra_attempts: u32,
    ) -> RunResult {
        if self.cancelled_at.is_some() {
            return RunResult::Cancelled;
        }
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
            Some(Requested::ReleaseFor(after)) => {
                return RunResult::Snoozed { not_before: saturating_add(now, after) };
            }
            Some(Requested::GiveUp) => true,
            None => false,
        };
        let error = match how {
            ExitReason::Returned(Ok(())) => return RunResult::Succeeded,
            ExitReason::Dropped => return self.dropped(now, extra_attempts),
            // Its code has not begun. So it can be released even at most once.
            ExitReason::NotBegun => return RunResult::Released,
            ExitReason::Returned(Err(error)) => error,
            ExitReason::Panicked(text) => format!("panicked: {text}"),
            ExitReason::TimedOut(limit) => format!("timed out after {limit:?}"),
        };
        let error = bounded(&error);
        match self.settings.delivery {
            Delivery::AtMostOnce => RunResult::Failed(error),
            Delivery::AtLeastOnce { .. } => {
                let wait = self.settings.retry.after(self.run.attempt());
                match wait.filter(|_| !gives_up) {
                    Some(wait) => RunResult::Retry { not_before: saturating_add(now, wait), error },
                    None => RunResult::Dead(error),
                }
            }
        }
    }

    /// Its code has begun, so that the attempt counts. At least once, it is run again.
    fn dropped(&self, now: Time, extra_attempts: u32) -> RunResult {
        match (self.settings.delivery, self.turn) {
            (Delivery::AtLeastOnce { .. }, _) => {
                match self.settings.retry.is_exhausted(self.run.attempt(), extra_attempts) {
                    false => RunResult::Interrupted { not_before: now },
                    true => RunResult::Dead(format!(
                        "{INTERRUPTED}, as the attempts before; make the job shorter than its \
                         lease and the grace period, then rerun or dismiss it"
                    )),
                }
            }
            (Delivery::AtMostOnce, Turn::Lost) => {
                let what = match &self.settings.concurrency_key {
                    Some(key) if key.per.is_none() => "place of its concurrency key",
                    _ => "lease",
                };
                RunResult::Failed(format!("dropped: its {what} was not extended in time"))
            }
            (Delivery::AtMostOnce, _) => RunResult::Cancelled,
        }
    }

    /// `true` if the run may continue when its lease has ended: no other run waits for that. It is
    /// recorded as lost, and when the store answers again, an extension or its end replaces the loss.
    pub(crate) fn may_outlive_lease(&self) -> bool {
        let Settings { delivery, overlap, .. } = &*self.settings;
        *delivery == Delivery::AtMostOnce && *overlap == Overlap::Allow && self.key.is_none()
    }

    /// `true` if the store has nothing of the run, not even a place of a concurrency key.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.placement() == Placement::EveryNode && self.key.is_none()
    }

    /// The job's placement, which decides where its record is.
    pub(crate) fn placement(&self) -> Placement {
        self.settings.placement
    }
}
