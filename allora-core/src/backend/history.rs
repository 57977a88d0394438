//! What happened to every occurrence.

use super::Occurrence;
use crate::{error::Result, time::Time};
use async_trait::async_trait;

/// What happened to every occurrence, within the size the backend keeps.
///
/// # Promises
/// Each names the cases of the conformance suite that ask for it.
/// 1. *One entry for each attempt*, from its start to its end, and one for each range that was
///    passed over. Cases: `history::a_run_is_told_from_its_start_to_its_end`,
///    `history::every_outcome_is_told`, `history::what_is_passed_over_is_told_as_a_range`.
/// 2. *Silence is told*: runs that were abandoned or lost. Cases:
///    `history::an_abandoned_run_and_its_successor_are_two_entries`,
///    `history::a_lost_run_is_told`.
/// 3. *The newest come first*, page by page. Cases:
///    `history::the_newest_come_first_page_by_page`.
#[async_trait]
pub trait History: Send + Sync {
    /// The newest `limit` entries of one job, or of all, with a fence below `before` if given;
    /// the highest fence first.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn past(
        &self,
        name: Option<&str>,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<Past>>;
}

/// One entry: one run, or one range of instants that were passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Past {
    /// The job.
    pub name: String,
    /// The run's fence; a passed range has one of its own. With the name, the entry's key.
    pub fence: i64,
    /// What was run, or the first that was passed over.
    pub occurrence: Occurrence,
    /// Of a passed range, its last instant.
    pub last: Option<Time>,
    /// Of a passed range, how many; `None` if they were not counted. 1 for a run.
    pub count: Option<u64>,
    /// Which attempt; 0 for a passed range.
    pub attempt: u32,
    /// The node that ran it or passed it over.
    pub node: String,
    /// When this was recorded, by the clock that decided.
    pub at: Time,
    /// What became of it.
    pub outcome: Outcome,
}

impl Past {
    /// An entry for one run, at its first attempt, by an unnamed node: for backends that read it
    /// back.
    pub fn new(
        name: impl Into<String>,
        fence: i64,
        occurrence: Occurrence,
        at: Time,
        outcome: Outcome,
    ) -> Self {
        let (name, node) = (name.into(), String::new());
        Self { name, fence, occurrence, last: None, count: Some(1), attempt: 1, node, at, outcome }
    }

    /// By this node, at this attempt.
    #[must_use]
    pub fn by(mut self, node: impl Into<String>, attempt: u32) -> Self {
        self.node = node.into();
        self.attempt = attempt;
        self
    }

    /// Of a range up to `last`, if that is given, with so many instants, if they were counted.
    #[must_use]
    pub fn range(mut self, last: Option<Time>, count: Option<u64>) -> Self {
        self.last = last;
        self.count = count;
        self
    }
}

/// What became of an occurrence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// It was taken and nobody has ended it.
    Running,
    /// It ended well.
    Ran,
    /// It ended with this error; an at-least-once run may be tried again.
    Failed(String),
    /// It ended with this error and no attempts were left.
    Dead(String),
    /// A stopping node cancelled it.
    Cancelled,
    /// It was given back before it ran.
    Released,
    /// Passed over: the one before was still running.
    Skipped,
    /// Passed over: its time was gone.
    Missed,
    /// At-most-once: its node kept silent, and it is not run again.
    Lost,
    /// At-least-once: its node kept silent, and another took it over.
    Abandoned,
}

impl Outcome {
    /// The word for it, as stores and tables show it.
    pub fn word(&self) -> &'static str {
        match self {
            Outcome::Running => "running",
            Outcome::Ran => "ran",
            Outcome::Failed(_) => "failed",
            Outcome::Dead(_) => "dead",
            Outcome::Cancelled => "cancelled",
            Outcome::Released => "released",
            Outcome::Skipped => "skipped",
            Outcome::Missed => "missed",
            Outcome::Lost => "lost",
            Outcome::Abandoned => "abandoned",
        }
    }

    /// The outcome of this [`word`](Self::word), with the error it may carry; `None` for an
    /// unknown word.
    pub fn from_word(word: &str, error: &str) -> Option<Self> {
        Some(match word {
            "running" => Outcome::Running,
            "ran" => Outcome::Ran,
            "failed" => Outcome::Failed(error.to_owned()),
            "dead" => Outcome::Dead(error.to_owned()),
            "cancelled" => Outcome::Cancelled,
            "released" => Outcome::Released,
            "skipped" => Outcome::Skipped,
            "missed" => Outcome::Missed,
            "lost" => Outcome::Lost,
            "abandoned" => Outcome::Abandoned,
            _ => return None,
        })
    }

    /// The error it carries, or nothing.
    pub fn error(&self) -> &str {
        match self {
            Outcome::Failed(error) | Outcome::Dead(error) => error,
            _ => "",
        }
    }
}
