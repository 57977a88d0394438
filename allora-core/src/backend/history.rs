//! The history: one entry for each attempt and for each range that was not run.

use super::Occurrence;
use crate::{error::Result, time::Time};
use async_trait::async_trait;

/// The history of all runs, within the size that the store keeps.
///
/// # Promises
/// Each names the cases of the conformance suite that check it.
/// 1. *One entry for each attempt*, from its start to its end, and one for each range that was
///    not run. Cases: `history::a_run_has_an_entry_from_start_to_end`,
///    `history::every_outcome_has_an_entry`, `history::occurrences_that_did_not_run_are_one_entry_with_their_range`.
/// 2. *Ended leases have entries*: runs that expired or were lost. Cases:
///    `history::an_expired_run_and_its_successor_are_two_entries`,
///    `history::a_lost_run_has_an_entry`.
/// 3. *The newest come first*, page by page. Cases:
///    `history::the_newest_come_first_page_by_page`.
#[async_trait]
pub trait History: Send + Sync {
    /// The newest `limit` entries of one job, or of all, with a fence below `before` if given;
    /// the highest fence first.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn entries(
        &self,
        name: Option<&str>,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<HistoryEntry>>;
}

/// One entry: one run, or one range of occurrences that were missed or skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HistoryEntry {
    /// The job.
    pub name: String,
    /// The run's fence. A range that was not run has a fence of its own. With the name, it is the
    /// entry's key.
    pub fence: i64,
    /// The occurrence that was run, or the first of the range.
    pub occurrence: Occurrence,
    /// The last scheduled time of a range.
    pub last: Option<Time>,
    /// The number of occurrences in a range; `None` if they were not counted. For a run: 1.
    pub count: Option<u64>,
    /// The number of the attempt; for a range: 0.
    pub attempt: u32,
    /// The node that ran the occurrence or moved the cursor past it.
    pub node: String,
    /// The time of the record, by the clock that decided.
    pub recorded_at: Time,
    /// The result.
    pub outcome: Outcome,
}

impl HistoryEntry {
    /// An entry for one run, at its first attempt, without a node: for backends that read it back.
    pub fn new(
        name: impl Into<String>,
        fence: i64,
        occurrence: Occurrence,
        recorded_at: Time,
        outcome: Outcome,
    ) -> Self {
        let (name, node) = (name.into(), String::new());
        Self {
            name,
            fence,
            occurrence,
            last: None,
            count: Some(1),
            attempt: 1,
            node,
            recorded_at,
            outcome,
        }
    }

    /// Sets the node and the attempt.
    #[must_use]
    pub fn by(mut self, node: impl Into<String>, attempt: u32) -> Self {
        self.node = node.into();
        self.attempt = attempt;
        self
    }

    /// Makes it a range up to `last`, with the number of its occurrences, if they were counted.
    #[must_use]
    pub fn range(mut self, last: Option<Time>, count: Option<u64>) -> Self {
        self.last = last;
        self.count = count;
        self
    }
}

/// The result of an occurrence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// It was claimed, and its run has not ended.
    Running,
    /// It succeeded.
    Succeeded,
    /// It failed with this error. An at-least-once run may be tried again.
    Failed(String),
    /// It failed with this error, and its attempts are used up.
    Dead(String),
    /// A stopping node cancelled it.
    Cancelled,
    /// It was released before it ran.
    Released,
    /// It was skipped: the previous run was still active.
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
            Outcome::Failed(error) | Outcome::Dead(error) => error,
            _ => "",
        }
    }
}
