//! Occurrences that are not run, and the reasons.

use super::Outcome;
use crate::time::{Time, from_millis};

/// Occurrences that are not run: recorded once, with their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotRun {
    /// The number of occurrences; `None` if counting them would take too long.
    pub count: Option<u64>,
    /// The last of them.
    pub last: Time,
    /// The reason.
    pub reason: NotRunReason,
}

impl NotRun {
    /// Missed or skipped, as the reason says; cancelled for a reason that only runs have.
    pub fn outcome(&self) -> Outcome {
        match self.reason {
            NotRunReason::CatchUp
            | NotRunReason::Window
            | NotRunReason::TooManyTriggers
            | NotRunReason::ChainTooLong => Outcome::Missed,
            NotRunReason::Overlap
            | NotRunReason::ConcurrencyKey
            | NotRunReason::Calendar
            | NotRunReason::Operator => Outcome::Skipped,
            NotRunReason::Deleted | NotRunReason::Shutdown | NotRunReason::Replaced { .. } => {
                Outcome::Cancelled
            }
        }
    }
}

/// Why occurrences are not run, or not to their end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotRunReason {
    /// Missed: the catch-up policy leaves them out, or the schedule was changed or resumed.
    CatchUp,
    /// Missed: they are later than the window allows.
    Window,
    /// Missed: a run after the end of another job, because too many triggers of the job, or too many
    /// such runs, waited already.
    TooManyTriggers,
    /// Missed: a run after the end of another job, because the chain of jobs before it is longer than
    /// [`MAX_CHAIN`](super::MAX_CHAIN), or is a cycle.
    ChainTooLong,
    /// Skipped: the run before them was still active.
    Overlap,
    /// Skipped: they came due while the job waited for its concurrency key, or the longest wait was
    /// over.
    ConcurrencyKey,
    /// Skipped: the calendar of the schedule excludes them. Only the history has them, unless a named
    /// calendar has excluded them after they were planned: no counter
    /// counts them, and no event reports them.
    Calendar,
    /// Skipped: an operator [left them out](crate::Schedules::skip_next). Of a run, or of a trigger that
    /// waited: an operator cancelled it. Of an occurrence that was [marked as
    /// succeeded](crate::Schedules::mark_succeeded): an operator did so.
    Operator,
    /// Cancelled: the job was deleted.
    Deleted,
    /// Cancelled: its node was stopped, and the run had not ended when the grace period was over.
    Shutdown,
    /// Cancelled: a later occurrence of the job was due
    /// ([`Overlap::Replace`](crate::Overlap::Replace)).
    Replaced {
        /// The scheduled time of that occurrence.
        by: Time,
    },
}

impl NotRunReason {
    /// The name of the reason in tables and metrics.
    pub fn word(self) -> &'static str {
        match self {
            NotRunReason::CatchUp => "catch_up",
            NotRunReason::Window => "window",
            NotRunReason::TooManyTriggers => "too_many_triggers",
            NotRunReason::ChainTooLong => "chain_too_long",
            NotRunReason::Overlap => "overlap",
            NotRunReason::ConcurrencyKey => "concurrency_key",
            NotRunReason::Calendar => "calendar",
            NotRunReason::Operator => "operator",
            NotRunReason::Deleted => "deleted",
            NotRunReason::Shutdown => "shutdown",
            NotRunReason::Replaced { .. } => "replaced",
        }
    }

    /// The scheduled time of the occurrence that replaced the run; `None` for other reasons.
    pub fn replaced_by(self) -> Option<Time> {
        match self {
            NotRunReason::Replaced { by } => Some(by),
            _ => None,
        }
    }

    /// The reason as stores keep it: its [`word`](Self::word); for a replaced run, followed by a blank
    /// and the scheduled time of the replacement in milliseconds since 1970.
    ///
    /// ```
    /// use allora::{backend::NotRunReason, time::from_millis};
    ///
    /// let reason = NotRunReason::Replaced { by: from_millis(1_500).unwrap() };
    /// assert_eq!(reason.text(), "replaced 1500");
    /// assert_eq!(NotRunReason::from_text("replaced 1500"), Some(reason));
    /// ```
    pub fn text(self) -> String {
        match self.replaced_by() {
            Some(by) => format!("{} {}", self.word(), by.timestamp_millis()),
            None => self.word().to_owned(),
        }
    }

    /// The reason of this [`text`](Self::text); `None` for an unknown one.
    pub fn from_text(text: &str) -> Option<Self> {
        if let Some(by) = text.strip_prefix("replaced ") {
            return Some(NotRunReason::Replaced { by: from_millis(by.parse().ok()?)? });
        }
        let all = [
            NotRunReason::CatchUp,
            NotRunReason::Window,
            NotRunReason::TooManyTriggers,
            NotRunReason::ChainTooLong,
            NotRunReason::Overlap,
            NotRunReason::ConcurrencyKey,
            NotRunReason::Calendar,
            NotRunReason::Operator,
            NotRunReason::Deleted,
            NotRunReason::Shutdown,
        ];
        all.into_iter().find(|reason| reason.word() == text)
    }
}
