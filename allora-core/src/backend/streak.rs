//! The failed occurrences of a job in a row, and what they lead to.

use crate::time::Time;

/// The failed occurrences of a job in a row. The record of a job with a [`Breaker`](crate::Breaker) or an
/// [`AlertRule`](crate::AlertRule) has it from its first failure to its next success.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
pub struct Streak {
    /// Their number. 0 after an operator has resumed the job.
    pub failures: u32,
    /// The time at which people were last told; `None` if they were not.
    #[cfg_attr(feature = "json", serde(default, deserialize_with = "crate::json::maybe_instant"))]
    pub alerted_at: Option<Time>,
    /// The job has paused itself because of them, and no success and no operator has ended that since.
    pub has_paused: bool,
}

/// A change of the failures in a row that an operation has made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreakReport {
    /// The job.
    pub name: String,
    /// The kind of a stored schedule; empty for a job in code.
    pub kind: String,
    /// The scheduled time of the occurrence that has ended.
    pub scheduled_at: Time,
    /// The number of failed occurrences in a row; those before, if one has succeeded.
    pub failures: u32,
    /// The change.
    pub change: StreakChange,
}

impl StreakReport {
    /// A change of the job of this name.
    pub(crate) fn new(
        name: &str,
        kind: &str,
        scheduled_at: Time,
        streak: (u32, StreakChange),
    ) -> Self {
        let (failures, change) = streak;
        Self { name: name.to_owned(), kind: kind.to_owned(), scheduled_at, failures, change }
    }
}

/// A change of the failures in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreakChange {
    /// There are so many that people are to be told, by the job's [`AlertRule`](crate::AlertRule).
    Failing,
    /// The job has paused itself, by its [`Breaker`](crate::Breaker).
    Paused {
        /// The time of the probe; `None` if there is none.
        until: Option<Time>,
        /// People are to be told: not if a probe has failed and they were told before, unless the
        /// [`AlertRule`](crate::AlertRule) tells them again.
        is_alert: bool,
    },
    /// A run has succeeded, or one that was recorded as lost is alive; people were told before.
    Over,
}

impl StreakChange {
    /// The last change that people were told of, by the failures and the pause as they are now.
    pub(crate) fn of(streak: &Streak, is_paused: bool, until: Option<Time>) -> Self {
        match streak.has_paused && is_paused {
            true => StreakChange::Paused { until, is_alert: true },
            false => StreakChange::Failing,
        }
    }

    /// `true` if people are to be told.
    pub fn is_alert(self) -> bool {
        match self {
            StreakChange::Failing | StreakChange::Over => true,
            StreakChange::Paused { is_alert, .. } => is_alert,
        }
    }
}
