//! Replies to operations.

use super::{
    Chain, Claimed, Ended, History, HistoryEntry, HistoryQuery, JobState, Occurrence, StreakReport,
};
use crate::{
    error::{Error, ErrorKind, Result},
    time::Time,
};

/// The replies to a batch.
#[derive(Debug)]
#[non_exhaustive]
pub struct Applied {
    /// The time that decided.
    pub now: Time,
    /// `replies[i]` belongs to `operations[i]`. An error concerns its operation only.
    pub replies: Vec<Result<Reply>>,
    /// The highest fence of the tombstones that the store has removed, or that are as good as
    /// removed. It tells a job whose tombstone is gone from a store that was emptied. Default: 0.
    pub min_fence: i64,
    /// The history entries of the runs whose leases had ended, and that these operations recorded as
    /// lost or expired. Default: empty.
    pub lapsed: Vec<HistoryEntry>,
    /// The changes of failures in a row that these operations have made. A repeated operation makes none.
    /// Default: empty.
    pub reports: Vec<StreakReport>,
    /// The jobs of these operations whose [outbox](super::Chain::outbox) is not empty. Default: empty.
    pub outboxes: Vec<String>,
}

impl Applied {
    /// The replies to operations that were decided at `now`.
    pub fn new(now: Time, replies: Vec<Result<Reply>>) -> Self {
        let (lapsed, reports, outboxes) = (Vec::new(), Vec::new(), Vec::new());
        Self { now, replies, min_fence: 0, lapsed, reports, outboxes }
    }

    /// With the highest fence of the removed tombstones.
    #[must_use]
    pub fn min_fence(mut self, min_fence: i64) -> Self {
        self.min_fence = min_fence;
        self
    }

    /// With the entries of lost and expired runs.
    #[must_use]
    pub fn lapsed(mut self, lapsed: Vec<HistoryEntry>) -> Self {
        self.lapsed = lapsed;
        self
    }

    /// With the changes of failures in a row.
    #[must_use]
    pub fn reports(mut self, reports: Vec<StreakReport>) -> Self {
        self.reports = reports;
        self
    }

    /// With the jobs whose outboxes are not empty.
    #[must_use]
    pub fn outboxes(mut self, outboxes: Vec<String>) -> Self {
        self.outboxes = outboxes;
        self
    }

    /// These replies, if there is one to each of so many operations.
    pub(crate) fn checked(self, asked: usize) -> Result<Self> {
        let given = self.replies.len();
        if given == asked {
            return Ok(self);
        }
        let wrong = format!(
            "the backend returned {given} replies to {asked} operations; report it to its author"
        );
        Err(Error::new(ErrorKind::Other, wrong).op("reschedule"))
    }

    /// The only reply to a batch of one operation.
    ///
    /// # Errors
    /// The reply's own error; `Other` if the backend returned no reply.
    pub fn single(mut self) -> Result<Reply> {
        self.replies.pop().unwrap_or_else(|| Err(no_reply()))
    }
}

/// The error of an operation to which the backend has returned no reply.
pub(crate) fn no_reply() -> Error {
    let none = "the backend returned no reply to an operation; report it to its author";
    Error::new(ErrorKind::Other, none)
}

/// The reply to one operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The store has no record of this name, and no tombstone: it was never there, its tombstone
    /// was removed, or the store was emptied.
    Absent,
    /// The job was deleted.
    Deleted,
    /// The occurrence belongs to this node.
    Claimed(Claimed),
    /// The lease lasts until this time.
    Extended(Time),
    /// The same of a run that was [completed while it works on](super::Operation::works_on).
    Completed(Time),
    /// The cancellation of the run was requested: its node ends and completes it. The lease lasts
    /// until this time, after an extension as after a retry or a release, which was not made.
    CancelRequested(Time),
    /// The run's end was recorded, now or by an earlier copy of the same operation.
    Accepted,
    /// Another claim took the occurrence, or the run was recorded as lost.
    LeaseLost,
    /// The operation contradicts the record, and nothing was changed: the cursor would not move
    /// forward.
    Invalid,
    /// The triggered occurrence, and the record.
    Triggered(Box<Triggered>),
    /// The followers and the outbox.
    Outbox(Box<Chain>),
    /// The record after the change, or the unchanged record if the condition did not hold.
    State(Box<JobState>),
}

/// The reply to a trigger: the occurrence of its id, which was added now or by an earlier trigger with
/// the same id.
#[derive(Clone, Debug, PartialEq)]
pub struct Triggered {
    /// The occurrence. Its [`scheduled_at`](Occurrence::scheduled_at) is the time of the first trigger
    /// with the id.
    pub occurrence: Occurrence,
    /// The effect of this trigger.
    pub status: TriggerStatus,
    /// The job.
    pub state: JobState,
}

impl Triggered {
    /// `false` if the id was triggered before, and this trigger has changed nothing. If the reply to an
    /// earlier copy of the same request was lost, that copy was the first.
    pub fn is_new(&self) -> bool {
        self.status == TriggerStatus::New
    }

    /// The fence above which the history has the entries of the occurrence: all of them if its run has
    /// ended, else those from the present attempt on. A dead letter that is run again has an earlier
    /// end.
    pub fn entries_after(&self) -> i64 {
        if self.status == TriggerStatus::Ended {
            // Fences are drawn by the store's clock, and no claim comes before the occurrence's time.
            return self.occurrence.scheduled_at.timestamp_micros() - 1;
        }
        let lease = self.state.leases.iter().find(|lease| lease.occurrence == self.occurrence);
        lease.map_or(self.state.fence, |lease| lease.fence - 1)
    }
}

/// The outcome of a triggered occurrence, if it has ended.
pub(crate) async fn end_of_trigger(
    history: &dyn History,
    triggered: &Triggered,
) -> Result<Option<Ended>> {
    const PAGE: usize = 100;
    let Triggered { occurrence, state, .. } = triggered;
    let after = triggered.entries_after();
    let mut before = None;
    loop {
        let query = HistoryQuery {
            name: Some(&state.name),
            before: before.as_ref(),
            ..HistoryQuery::new(PAGE)
        };
        let entries = history.entries(query).await?;
        for entry in entries.iter().take_while(|entry| entry.fence > after) {
            if entry.is_final() && entry.occurrence == *occurrence {
                return Ok(Some(entry.into()));
            }
        }
        before = match entries.last() {
            Some(last) if entries.len() == PAGE && last.fence > after => Some(last.cursor()),
            _ => return Ok(None),
        };
    }
}

/// The effect of a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TriggerStatus {
    /// It has added the occurrence.
    New,
    /// None: the occurrence was added before, perhaps by an earlier attempt of this call whose reply
    /// was lost. It waits, or its run is active.
    Pending,
    /// None: the occurrence was added before, and its run has ended.
    Ended,
}

impl Reply {
    /// The record.
    pub fn state(self) -> Option<JobState> {
        match self {
            Reply::State(state) => Some(*state),
            Reply::Triggered(triggered) => Some(triggered.state),
            _ => None,
        }
    }

    /// The triggered occurrence.
    pub fn triggered(self) -> Option<Triggered> {
        match self {
            Reply::Triggered(triggered) => Some(*triggered),
            _ => None,
        }
    }

    /// The claimed occurrence.
    pub fn claimed(self) -> Option<Claimed> {
        match self {
            Reply::Claimed(claimed) => Some(claimed),
            _ => None,
        }
    }

    /// The new end of an extended lease.
    pub fn extended(&self) -> Option<Time> {
        match self {
            Reply::Extended(until) | Reply::Completed(until) | Reply::CancelRequested(until) => {
                Some(*until)
            }
            _ => None,
        }
    }

    /// `true` if the run's end was recorded.
    pub fn is_accepted(&self) -> bool {
        matches!(self, Reply::Accepted)
    }
}
