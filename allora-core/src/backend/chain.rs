//! Jobs that run after other jobs: what the record of the job before knows of those after it.

use super::Outcome;
use crate::{
    schedule::{Field, ParseError},
    time::Time,
};
use std::{fmt, str::FromStr};

/// The beginning of the ids of triggers that are [follow-ups](FollowUp). No client can use it.
pub const FOLLOW_UP: &str = "allora:after:";

/// The largest number of jobs that run after one job.
pub const MAX_FOLLOWERS: usize = 64;

/// The largest number of follow-ups of one job that wait to be delivered. Of more, the oldest is dropped,
/// and the history has it as [missed](super::NotRunReason::TooManyTriggers).
pub const MAX_OUTBOX: usize = 1_000;

/// The largest number of jobs in a chain, each of which runs after the one before it. A longer one is
/// taken for a cycle.
pub const MAX_CHAIN: u32 = 32;

/// The ends of a job that are followed by a run of another job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum On {
    /// It succeeded.
    Success,
    /// It failed and is not tried again, or was lost.
    Failure,
    /// It succeeded, failed, was lost, or was cancelled after it had begun.
    End,
}

impl On {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Success, Self::Failure, Self::End];

    /// Its word in texts and stores.
    pub fn word(self) -> &'static str {
        match self {
            Self::Success => "succeeded",
            Self::Failure => "failed",
            Self::End => "ended",
        }
    }

    /// The one with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|on| on.word() == word)
    }

    /// `true` if this outcome is such an end.
    pub fn is(self, outcome: &Outcome) -> bool {
        match outcome {
            Outcome::Succeeded => self != Self::Failure,
            Outcome::Failed(_) | Outcome::Dead(_) | Outcome::Lost => self != Self::Success,
            Outcome::Cancelled => self == Self::End,
            _ => false,
        }
    }
}

/// The job after whose ends a job runs: `import succeeded`.
///
/// ```
/// use allora::{After, On};
///
/// let after: After = "nightly import failed".parse()?;
/// assert_eq!(after, After::new("nightly import", On::Failure));
/// assert_eq!("import".parse::<After>()?.on, On::Success);
/// # Ok::<(), allora::schedule::ParseError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct After {
    /// The name of the job before.
    pub job: String,
    /// The ends that are followed.
    pub on: On,
}

impl After {
    /// After these ends of this job.
    pub fn new(job: impl Into<String>, on: On) -> Self {
        Self { job: job.into(), on }
    }
}

impl fmt::Display for After {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.job, self.on.word())
    }
}

/// Reads a name, and `succeeded`, `failed` or `ended` after it. Without that word: `succeeded`.
impl FromStr for After {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim_matches(' ');
        let split = text.rsplit_once(' ');
        let ending =
            split.and_then(|(job, word)| Some((job.trim_matches(' '), On::from_word(word)?)));
        let (job, on) = ending.unwrap_or((text, On::Success));
        if job.is_empty() {
            return Err(ParseError::new(Field::Setting, 0, text, "names no job")
                .remedy("write the name of the job before, such as import, or import failed"));
        }
        Ok(Self::new(job, on))
    }
}

/// The part of a record that has to do with jobs that run one after the other. Most records have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// The jobs that run after this one.
    pub followers: Vec<Follower>,
    /// The outbox: runs of other jobs that are to be triggered, the oldest first. They were added by the
    /// same writes that ended the occurrences of this job, and stay until each trigger is confirmed.
    pub outbox: Vec<FollowUp>,
    /// The last number that was given to a follow-up. It only grows.
    pub number: i64,
    /// Of a job that runs after another one: that job, and the number of the last follow-up that came
    /// from it. One with this number or a lower one has come before.
    pub received: Option<(String, i64)>,
}

/// A job that runs after another one, in the record of the latter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follower {
    /// Its name.
    pub job: String,
    /// The ends that it follows.
    pub on: On,
    /// The time at which this was noted last.
    pub since: Time,
}

/// A run of a job that is to be triggered because an occurrence of another job has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowUp {
    /// The job to trigger.
    pub job: String,
    /// The id of the trigger: [`FOLLOW_UP`], the length of the chain, and the key of the occurrence
    /// that has ended.
    pub id: String,
    /// Its number among the follow-ups of the job that has ended. It grows with each end.
    pub number: i64,
    /// The time of that end, which is the scheduled time of the trigger.
    pub ended_at: Time,
}

impl Follower {
    /// This job, after these ends.
    pub fn new(job: impl Into<String>, on: On, since: Time) -> Self {
        Self { job: job.into(), on, since }
    }
}

impl FollowUp {
    /// A run of this job with this id.
    pub fn new(job: impl Into<String>, id: impl Into<String>, number: i64, ended_at: Time) -> Self {
        Self { job: job.into(), id: id.into(), number, ended_at }
    }
}

impl Chain {
    /// `true` if nothing of it has to be kept while the fence of the record is this one: a later number
    /// is higher than the fence.
    pub(crate) fn is_empty(&self, fence: i64) -> bool {
        self.followers.is_empty()
            && self.outbox.is_empty()
            && self.received.is_none()
            && self.number <= fence
    }
}

/// The occurrence that a follow-up with this id follows: `import/INCARNATION/2026-03-02T02:00:00.000Z`,
/// as in [`Run::occurrence_key`](crate::Run::occurrence_key) without the namespace. `None` for the id of
/// another trigger.
///
/// ```
/// use allora::backend::followed;
///
/// let id = "allora:after:1:import/7/2026-03-02T02:00:00.000Z";
/// assert_eq!(followed(id), Some("import/7/2026-03-02T02:00:00.000Z"));
/// assert_eq!(followed("order 7"), None);
/// ```
pub fn followed(id: &str) -> Option<&str> {
    id.strip_prefix(FOLLOW_UP)?.split_once(':').map(|(_, key)| key)
}
