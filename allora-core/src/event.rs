//! Events: the changes that a scheduler reports about itself.

use crate::{
    backend::{NotRunReason, Outcome, StreakChange, StreakReport},
    condition::Condition,
    error::Error,
    schedule::Warning,
    time::Time,
};
use std::{sync::Arc, time::Duration};

mod line;

pub(crate) use line::log;

/// A change that happened on this node.
///
/// The scheduler passes each event to the closure of
/// [`SchedulerBuilder::on_event`](crate::SchedulerBuilder::on_event), in the order in which the events happen, and
/// logs it through `tracing` under the target `allora`; the start and the end of each run under
/// `allora::run`. `Display` writes the same line, without time, level and node.
///
/// # Conditions
/// A [`Condition`] is a state in which something does not run, or needs an operator. It has an event
/// when it begins, one when it ends, and between them a line in [`Health`](crate::Health).
///
/// An operator's or a user's own decision is no condition, and only a figure of `Health`: a paused job,
/// the limit of a kind. An occurrence that waits because of overlap, retry or delay waits by its own
/// policy.
///
/// # What happens at a moment
/// All other events report moments: nothing ends them, and `Health` has no line for them. These are
/// about something that did not run:
///
/// | event | what did not run |
/// |---|---|
/// | [`OccurrencesMissed`](Self::OccurrencesMissed), [`OccurrencesSkipped`](Self::OccurrencesSkipped) | these occurrences, for good |
/// | [`RunLost`](Self::RunLost) | the rest of the run, probably; it is not run again |
/// | [`RunExpired`](Self::RunExpired) | the rest of the run, probably; the occurrence is run again |
/// | [`LeaseLost`](Self::LeaseLost), [`LeaseRenewalFailed`](Self::LeaseRenewalFailed) | the rest of the run, unless it continues |
/// | [`AfterCompletion`](Self::AfterCompletion) | the rest of the run, after its completion |
/// | [`EndRejected`](Self::EndRejected) | nothing, or the occurrence once more, at least once; its result is lost |
/// | [`FailureStreak`](Self::FailureStreak), if the job has paused itself | the job, until a run succeeds or it is resumed |
/// | [`GivenUp`](Self::GivenUp) | the occurrence, until its dead letter is rerun; the job continues |
/// | [`ClaimAbandoned`](Self::ClaimAbandoned) | the occurrence, if the claim had succeeded, at most once |
/// | [`ScheduleLost`](Self::ScheduleLost) | the stored schedule, from now on: the store has lost it |
/// | [`Reregistered`](Self::Reregistered) | triggers, and what was to be caught up, of a store that was emptied; the job continues |
/// | [`Pruned`](Self::Pruned) | nothing: the job had no further occurrence, or no program declared it |
/// | [`ClockWasSetBack`](Self::ClockWasSetBack) | the jobs that wait, each with its [`ClockWasAhead`](Condition::ClockWasAhead) |
/// | [`TimerDelayed`](Self::TimerDelayed) | all jobs of the node for this time; they are late |
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A condition has begun.
    Began(Condition),
    /// A condition has ended, with its last evidence.
    Ended(Condition),
    /// A job was added whose schedule is legal and seldom intended, such as sixty runs for
    /// `* 2 * * *`. The scheduler runs it as it is written.
    ScheduleWarning {
        /// The job.
        name: Arc<str>,
        /// The meaning of the schedule, and the probable intention.
        warning: Warning,
    },
    /// The scheduler has reached its store for the first time.
    Ready {
        /// This node's id.
        node: Arc<str>,
        /// The number of jobs registered on this node.
        jobs: usize,
    },
    /// A run has started.
    RunStarted {
        /// The job.
        name: Arc<str>,
        /// The kind of a stored schedule; empty for a job in code.
        kind: Arc<str>,
        /// This node's id.
        node: Arc<str>,
        /// The nominal time.
        scheduled_at: Time,
        /// The number of the attempt, from 1.
        attempt: u32,
        /// Its fence.
        fence: i64,
        /// The time between `due_at` and the start.
        late: Duration,
    },
    /// A run has ended.
    RunEnded {
        /// The job.
        name: Arc<str>,
        /// The kind of a stored schedule; empty for a job in code.
        kind: Arc<str>,
        /// This node's id.
        node: Arc<str>,
        /// The nominal time.
        scheduled_at: Time,
        /// The number of the attempt, from 1.
        attempt: u32,
        /// Its fence.
        fence: i64,
        /// The result of the run.
        outcome: Outcome,
        /// [`Shutdown`](NotRunReason::Shutdown) if a stop of this node cut the run off before it
        /// ended; else `None`. The history has the reason of a requested cancellation.
        reason: Option<NotRunReason>,
        /// The duration of the run.
        took: Duration,
    },
    /// An at-most-once run of a node is recorded as lost, because its lease has ended. This node has
    /// recorded it. It is not run again.
    ///
    /// No node has this event if an operation of a client has recorded the loss, such as a trigger or a
    /// cancellation by [`Schedules`](crate::Schedules). The history and the counters of the job show it
    /// in any case.
    RunLost {
        /// The job.
        name: Arc<str>,
        /// The nominal time.
        scheduled_at: Time,
        /// The run's fence.
        fence: i64,
        /// The node that ran it.
        node: Arc<str>,
        /// The time since the run began.
        age: Duration,
    },
    /// The lease of an at-least-once run of a node has ended. This node has recorded it, and the
    /// occurrence is run again. As [`RunLost`](Self::RunLost), no node has it if a client has recorded
    /// it.
    RunExpired {
        /// The job.
        name: Arc<str>,
        /// The nominal time.
        scheduled_at: Time,
        /// The run's fence.
        fence: i64,
        /// The node that ran it.
        node: Arc<str>,
        /// The time since the run began.
        age: Duration,
    },
    /// A job with a rule about failures in a row fails, has paused itself, or succeeds again. Of all nodes
    /// only the one has it that has recorded the end of the run; none, if the store's reply was lost: the
    /// job is paused nevertheless, and its record shows it.
    FailureStreak {
        /// The job.
        name: Arc<str>,
        /// The kind of a stored schedule; empty for a job in code.
        kind: Arc<str>,
        /// The nominal time of the occurrence that has ended.
        scheduled_at: Time,
        /// The number of failed occurrences in a row.
        failures: u32,
        /// The change.
        change: StreakChange,
    },
    /// Two jobs of one concurrency key have different limits. Each compares the number of holders
    /// with its own.
    KeyLimitsDiffer {
        /// The job.
        name: Arc<str>,
        /// The key.
        key: Arc<str>,
        /// The job's limit.
        limit: u32,
        /// The limit of the run that last had the key.
        other: u64,
    },
    /// Occurrences were missed: they could not be run in time.
    OccurrencesMissed {
        /// The job.
        name: Arc<str>,
        /// The kind of a stored schedule; empty for a job in code.
        kind: Arc<str>,
        /// The first of them.
        first: Time,
        /// The last of them.
        last: Time,
        /// The number of occurrences; `None` if counting them would take too long.
        count: Option<u64>,
        /// The reason.
        reason: NotRunReason,
    },
    /// Occurrences were skipped: a policy decided so.
    OccurrencesSkipped {
        /// The job.
        name: Arc<str>,
        /// The kind of a stored schedule; empty for a job in code.
        kind: Arc<str>,
        /// The first of them.
        first: Time,
        /// The last of them.
        last: Time,
        /// The number of occurrences; `None` if counting them would take too long.
        count: Option<u64>,
        /// The reason.
        reason: NotRunReason,
    },
    /// Another node has claimed the run's occurrence, or the run is recorded as lost, or the lease
    /// on its concurrency key belongs to another run. The run is cancelled.
    LeaseLost {
        /// The job.
        name: Arc<str>,
        /// The kind of a stored schedule; empty for a job in code.
        kind: Arc<str>,
        /// The concurrency key; `None` for the run's own lease.
        key: Option<Arc<str>>,
        /// The run's fence.
        fence: i64,
    },
    /// The store confirmed no extension before the end of the run's lease, or of the lease on its
    /// concurrency key. The run is cancelled, unless runs of its job may overlap
    /// ([`Overlap::Allow`](crate::Overlap::Allow), at most once, without a concurrency key): then it
    /// continues, and is recorded as lost until the store answers.
    LeaseRenewalFailed {
        /// The job.
        name: Arc<str>,
        /// The kind of a stored schedule; empty for a job in code.
        kind: Arc<str>,
        /// The concurrency key; `None` for the run's own lease.
        key: Option<Arc<str>>,
        /// The run's fence.
        fence: i64,
        /// `true` if the run continues.
        continues: bool,
    },
    /// A run continued after the end of its lease, and the store has accepted its extension or its
    /// end. If it was recorded as lost, that is replaced.
    Recovered {
        /// The job.
        name: Arc<str>,
        /// The kind of a stored schedule; empty for a job in code.
        kind: Arc<str>,
        /// The scheduled time of its occurrence.
        scheduled_at: Time,
        /// The run's fence.
        fence: i64,
    },
    /// The code of a run has completed it in a transaction of its own
    /// ([`Run::complete`](crate::Run::complete)), and then failed, panicked, or was dropped. The occurrence
    /// has succeeded. Have the code handle what can fail after the commit.
    AfterCompletion {
        /// The job.
        name: Arc<str>,
        /// The kind of a stored schedule; empty for a job in code.
        kind: Arc<str>,
        /// The run's fence.
        fence: i64,
        /// The error, or what became of the run.
        what: String,
    },
    /// The store rejected the end of a run each time, until the run's lease had ended. The run is
    /// recorded as lost, or as expired and run again, although it has ended. The store's error is in
    /// this event alone: the entry in the history is written by the claim that finds the lease ended,
    /// which any node may send.
    EndRejected {
        /// The job.
        name: Arc<str>,
        /// The kind of a stored schedule; empty for a job in code.
        kind: Arc<str>,
        /// The nominal time.
        scheduled_at: Time,
        /// The run's fence.
        fence: i64,
        /// The error of the last request.
        error: Arc<Error>,
    },
    /// An occurrence was given up: its attempts are used up, and the last one ended without a result;
    /// or the job runs at most once now, which allows no other attempt. It is a dead letter. Correct
    /// the cause, then rerun or dismiss it.
    GivenUp {
        /// The job.
        name: Arc<str>,
        /// The kind of a stored schedule; empty for a job in code.
        kind: Arc<str>,
        /// The nominal time.
        scheduled_at: Time,
        /// The number of attempts.
        attempts: u32,
    },
    /// The store had another definition of the job. It was replaced by this node's definition.
    Redefined {
        /// The job.
        name: Arc<str>,
        /// A due occurrence had waited for a minute for a node that can run the former definition.
        was_abandoned: bool,
    },
    /// Another node has changed the job's definition. This node runs the job by the stored schedule
    /// and settings, with its own code.
    DefinitionAdopted {
        /// The job.
        name: Arc<str>,
    },
    /// The store had no record of the job any more, and the job was registered again. The store may
    /// have been emptied.
    Reregistered {
        /// The job.
        name: Arc<str>,
    },
    /// The store had no record of a stored schedule any more, although it was not deleted. The store
    /// was emptied, and the definition is gone with it: create the schedule again.
    ScheduleLost {
        /// The stored schedule.
        name: Arc<str>,
    },
    /// The store's clock was set back, and jobs of this node wait for times that it showed before.
    /// Their number is reported once they have been read: after the start of the node, and each time
    /// the clock is set back. Each of them has its [`ClockWasAhead`](Condition::ClockWasAhead). Nothing
    /// runs twice: the jobs continue with their next occurrences, or when they are reset.
    ClockWasSetBack {
        /// `false`: jobs in code. `true`: stored schedules of this node's kinds.
        stored: bool,
        /// The number of jobs that wait. At least 1.
        waiting: usize,
        /// The time at which the last of them continues.
        until: Time,
    },
    /// The record of an orphaned job in code, or of a one-off schedule that has ended, was removed
    /// after its retention period
    /// ([`SchedulerBuilder::prune_orphans_after`](crate::SchedulerBuilder::prune_orphans_after),
    /// [`SchedulerBuilder::prune_finished_after`](crate::SchedulerBuilder::prune_finished_after)).
    Pruned {
        /// The job.
        name: Arc<str>,
    },
    /// The reply to a claim was lost, and nothing resolved the claim before the end of its lease. If
    /// it had succeeded, its run is recorded as lost, or run again at least once.
    ClaimAbandoned {
        /// The job.
        name: Arc<str>,
        /// The nominal time of the last occurrence that was claimed.
        scheduled_at: Time,
    },
    /// A timer of the scheduler fired late: a task blocks the executor, or the machine slept. Move
    /// blocking work to a thread of its own.
    TimerDelayed {
        /// The delay.
        by: Duration,
    },
    /// The scheduler has stopped.
    Stopped {
        /// The number of runs cancelled at the end of the grace period.
        cancelled: usize,
        /// The number of runs whose result was not recorded in the store.
        unrecorded: usize,
        /// The number of claims whose reply was lost and that could not be repeated, so that their
        /// occurrences may belong to this node.
        unresolved: usize,
    },
}

impl Event {
    /// The job that the event is about.
    pub fn job(&self) -> Option<&str> {
        match self {
            Event::Began(condition) | Event::Ended(condition) => condition.job(),
            Event::RunStarted { name, .. }
            | Event::RunEnded { name, .. }
            | Event::OccurrencesMissed { name, .. }
            | Event::OccurrencesSkipped { name, .. }
            | Event::RunLost { name, .. }
            | Event::FailureStreak { name, .. }
            | Event::RunExpired { name, .. }
            | Event::LeaseLost { name, .. }
            | Event::KeyLimitsDiffer { name, .. }
            | Event::LeaseRenewalFailed { name, .. }
            | Event::Recovered { name, .. }
            | Event::AfterCompletion { name, .. }
            | Event::Redefined { name, .. }
            | Event::DefinitionAdopted { name }
            | Event::Reregistered { name }
            | Event::ScheduleLost { name }
            | Event::Pruned { name }
            | Event::EndRejected { name, .. }
            | Event::GivenUp { name, .. }
            | Event::ScheduleWarning { name, .. }
            | Event::ClaimAbandoned { name, .. } => Some(name),
            Event::Ready { .. }
            | Event::ClockWasSetBack { .. }
            | Event::TimerDelayed { .. }
            | Event::Stopped { .. } => None,
        }
    }

    /// The remedy, if a condition has begun, or something happened that needs an operator.
    pub fn remedy(&self) -> Option<&'static str> {
        Some(match self {
            Event::Began(condition) => condition.remedy(),
            Event::ClockWasSetBack { .. } => "resume the jobs with `allora reset JOB`",
            Event::KeyLimitsDiffer { .. } => "give all jobs of the key the same limit",
            Event::RunLost { .. } => {
                "look at the node; trigger the job if the occurrence is to run all the same"
            }
            Event::FailureStreak { change: StreakChange::Paused { .. }, .. } => {
                "correct the cause; then trigger the job, which resumes it if the run succeeds, or resume it"
            }
            Event::FailureStreak { change: StreakChange::Failing, .. } => "correct the cause",
            Event::AfterCompletion { .. } => {
                "handle what can fail after the commit, because the occurrence is not run again"
            }
            Event::RunEnded { reason: Some(NotRunReason::Shutdown), .. } => {
                "set a longer grace period, or have the job end when it is cancelled; trigger it if \
                 the occurrence is to run all the same"
            }
            Event::EndRejected { .. } => {
                "correct what the error names; rerun the job if its work is not done"
            }
            Event::GivenUp { .. } => "correct the cause, then rerun or dismiss the dead letter",
            Event::ClaimAbandoned { .. } => {
                "look at the store and the network; trigger the job if the occurrence is to run all \
                 the same"
            }
            Event::ScheduleLost { .. } => "create the schedule again, or import it from an export",
            Event::Reregistered { .. } => {
                "find out why the store lost its records; stored schedules are to be created again"
            }
            Event::TimerDelayed { .. } => "move blocking work to a thread of its own",
            _ => return None,
        })
    }
}

impl From<StreakReport> for Event {
    fn from(report: StreakReport) -> Self {
        let StreakReport { name, kind, scheduled_at, failures, change } = report;
        Event::FailureStreak {
            name: name.into(),
            kind: kind.into(),
            scheduled_at,
            failures,
            change,
        }
    }
}

/// A duration for a field of a log line or of an object.
pub(crate) fn millis(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap_or(u64::MAX)
}
