//! The result of an occurrence, by the same words everywhere.

/// The result of an occurrence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// It was claimed, and its run has not ended.
    Running,
    /// It succeeded.
    Succeeded,
    /// It failed with this error, and it is not tried again.
    Failed(String),
    /// It failed with this error, and another attempt follows.
    Retried(String),
    /// It was dropped before it ended, and another attempt follows.
    Interrupted,
    /// It failed with this error, and its attempts are used up.
    Dead(String),
    /// A stopping node cancelled it, or an operator, or its job was deleted.
    Cancelled,
    /// It was released before it ran.
    Released,
    /// It was skipped: a policy, a calendar or an operator decided so.
    Skipped,
    /// It was missed: it could not be run in time.
    Missed,
    /// At most once: its lease ended, and it is not run again.
    Lost,
    /// At least once: its lease ended, and another run followed.
    Expired,
}

impl Outcome {
    /// The name of the outcome in stores and tables.
    pub fn word(&self) -> &'static str {
        match self {
            Outcome::Running => "running",
            Outcome::Succeeded => "succeeded",
            Outcome::Failed(_) => "failed",
            Outcome::Retried(_) => "retried",
            Outcome::Interrupted => "interrupted",
            Outcome::Dead(_) => "dead",
            Outcome::Cancelled => "cancelled",
            Outcome::Released => "released",
            Outcome::Skipped => "skipped",
            Outcome::Missed => "missed",
            Outcome::Lost => "lost",
            Outcome::Expired => "expired",
        }
    }

    /// The outcome of this [`word`](Self::word), with its error; `None` for an unknown word.
    pub fn from_word(word: &str, error: &str) -> Option<Self> {
        Some(match word {
            "running" => Outcome::Running,
            "succeeded" => Outcome::Succeeded,
            "failed" => Outcome::Failed(error.to_owned()),
            "retried" => Outcome::Retried(error.to_owned()),
            "interrupted" => Outcome::Interrupted,
            "dead" => Outcome::Dead(error.to_owned()),
            "cancelled" => Outcome::Cancelled,
            "released" => Outcome::Released,
            "skipped" => Outcome::Skipped,
            "missed" => Outcome::Missed,
            "lost" => Outcome::Lost,
            "expired" => Outcome::Expired,
            _ => return None,
        })
    }

    /// The error of the outcome, or an empty text.
    pub fn error(&self) -> &str {
        match self {
            Outcome::Failed(error) | Outcome::Retried(error) | Outcome::Dead(error) => error,
            _ => "",
        }
    }

    /// `true` if a person should see it: a run failed for good, was lost or expired, or occurrences
    /// were missed. Attempts that are retried are no failures, and neither is what a policy or an
    /// operator decided.
    pub fn is_failure(&self) -> bool {
        match self {
            Outcome::Failed(_)
            | Outcome::Dead(_)
            | Outcome::Lost
            | Outcome::Expired
            | Outcome::Missed => true,
            Outcome::Running
            | Outcome::Succeeded
            | Outcome::Retried(_)
            | Outcome::Interrupted
            | Outcome::Cancelled
            | Outcome::Released
            | Outcome::Skipped => false,
        }
    }

    /// `true` if no other attempt at the occurrence follows.
    pub fn is_final(&self) -> bool {
        match self {
            Outcome::Succeeded
            | Outcome::Failed(_)
            | Outcome::Dead(_)
            | Outcome::Cancelled
            | Outcome::Skipped
            | Outcome::Missed
            | Outcome::Lost => true,
            Outcome::Running
            | Outcome::Retried(_)
            | Outcome::Interrupted
            | Outcome::Released
            | Outcome::Expired => false,
        }
    }
}
