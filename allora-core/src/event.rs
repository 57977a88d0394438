//! Events: the changes that a scheduler reports about itself.

use crate::{
    backend::{NotRunReason, Outcome},
    error::Error,
    health::{KeyWait, ProblemReason},
    schedule::Warning,
    time::Time,
};
use std::{sync::Arc, time::Duration};

mod line;
#[cfg(test)]
mod table;

pub(crate) use line::log;

/// A change that happened on this node.
///
/// The scheduler passes each event to the closure of
/// [`Builder::on_event`](crate::Builder::on_event), in the order in which the events happen, and
/// logs it through `tracing` under the target `allora`; the start and the end of each run under
/// `allora::run`. `Display` writes the same line, without time, level and node.
///
/// # What keeps jobs from running
/// Each condition has one event when it starts and one when it ends, and between them a line in
/// [`Health`](crate::Health). [`remedy`](Self::remedy) returns what ends it.
///
/// | condition | start | end | in `Health` |
/// |---|---|---|---|
/// | the store does not answer, or too slowly | [`StoreDown`](Self::StoreDown) | [`StoreUp`](Self::StoreUp) | `store.failing`, not rejected |
/// | the store rejects requests | [`StoreError`](Self::StoreError) | [`StoreUp`](Self::StoreUp) | `store.failing`, rejected |
/// | no notifications: changes are found late, by the poll | [`NotificationsDown`](Self::NotificationsDown) | [`NotificationsUp`](Self::NotificationsUp) | `notifications` |
/// | the capacity is used up | [`CapacityFull`](Self::CapacityFull) | [`CapacityFree`](Self::CapacityFree) | `capacity.full_since` |
/// | the node's clock differs from the store's | [`ClockSkew`](Self::ClockSkew) | [`ClocksAgree`](Self::ClocksAgree) | `clock_offset_ms` |
/// | a record cannot be read | [`JobUnreadable`](Self::JobUnreadable) | [`JobResumed`](Self::JobResumed) | problem *unreadable* |
/// | the store has a definition that this node cannot run | [`DefinitionConflict`](Self::DefinitionConflict) | [`JobResumed`](Self::JobResumed) | problem *definition conflict* |
/// | the schedule panics or goes back, the name is that of a stored schedule, a stored definition cannot be read | [`JobInvalid`](Self::JobInvalid) | [`JobResumed`](Self::JobResumed) | problem *invalid* |
/// | more than 100 stored schedules with such a definition: their number instead | [`SchedulesInvalid`](Self::SchedulesInvalid) | [`SchedulesResumed`](Self::SchedulesResumed) | `invalid_schedules` |
/// | the job was deleted in the store | [`Deleted`](Self::Deleted) | [`JobResumed`](Self::JobResumed) | problem *deleted* |
/// | the store's clock was ahead | [`ClockWasAhead`](Self::ClockWasAhead), one [`ClockWasSetBack`](Self::ClockWasSetBack) | [`JobResumed`](Self::JobResumed) | problem *clock was ahead* |
/// | due for a minute, and no lease; not while the store is down or the capacity is full | [`JobOverdue`](Self::JobOverdue) | [`JobResumed`](Self::JobResumed) | problem *overdue*, in any case |
/// | due stored schedules of a kind that no node handles | [`KindUnhandled`](Self::KindUnhandled) | [`KindHandled`](Self::KindHandled) | `unhandled_kinds` |
/// | the data of a stored schedule does not fit the handler's type | [`DataMismatch`](Self::DataMismatch) | [`DataMatches`](Self::DataMatches) | `data_mismatches` |
/// | a label that no live node has | [`LabelUnmatched`](Self::LabelUnmatched) | [`LabelMatched`](Self::LabelMatched) | `unmatched_labels` |
/// | a node died | [`NodeDead`](Self::NodeDead) | [`NodeAlive`](Self::NodeAlive), or after a day | `nodes.dead` |
/// | jobs in code that no live build declares | [`JobsOrphaned`](Self::JobsOrphaned) | [`OrphansGone`](Self::OrphansGone) | `orphans` |
/// | the program reports a condition of its own ([`Handle::report`](crate::Handle::report)) | none | none | `conditions` |
/// | live nodes differ where they should agree | none | none | `disagreements` |
/// | claims without a reply, which reserve capacity; a part of what the store does not answer | [`StoreDown`](Self::StoreDown) | [`StoreUp`](Self::StoreUp) | `unresolved_claims` |
/// | the concurrency key of a due occurrence is busy | [`KeyBusy`](Self::KeyBusy) | [`KeyFree`](Self::KeyFree) | `key_waits` |
/// | a job is paused, by an operator's decision | none | none | `paused` |
/// | a kind has as many runs as its handler may have, by a setting | none | none | `kind_capacity` |
///
/// An occurrence that waits because of overlap, retry or delay waits by its own policy.
///
/// # What happens at a moment
/// These events report moments and not states: nothing ends them, and `Health` has no line for them.
///
/// | event | what did not run |
/// |---|---|
/// | [`OccurrencesMissed`](Self::OccurrencesMissed), [`OccurrencesSkipped`](Self::OccurrencesSkipped) | these occurrences, for good |
/// | [`RunLost`](Self::RunLost) | the rest of the run, probably; it is not run again |
/// | [`RunExpired`](Self::RunExpired) | the rest of the run, probably; the occurrence is run again |
/// | [`LeaseLost`](Self::LeaseLost), [`LeaseRenewalFailed`](Self::LeaseRenewalFailed) | the rest of the run, unless it continues |
/// | [`AfterCompletion`](Self::AfterCompletion) | the rest of the run, after its completion |
/// | [`EndRejected`](Self::EndRejected) | nothing, or the occurrence once more, at least once; its result is lost |
/// | [`GivenUp`](Self::GivenUp) | the occurrence, until its dead letter is rerun; the job continues |
/// | [`ClaimAbandoned`](Self::ClaimAbandoned) | the occurrence, if the claim had succeeded, at most once |
/// | [`ScheduleLost`](Self::ScheduleLost) | the stored schedule, from now on: the store has lost it |
/// | [`Reregistered`](Self::Reregistered) | triggers, and what was to be caught up, of a store that was emptied; the job continues |
/// | [`Pruned`](Self::Pruned) | nothing: the job had no further occurrence, or no program declared it |
/// | [`TimerDelayed`](Self::TimerDelayed) | all jobs of the node for this time; they are late |
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The scheduler has jobs that run at most once, and the store, in its present setup, can lose
    /// the record of their runs.
    DurabilityWarning {
        /// The risk and its remedy.
        what: String,
    },
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
    Started {
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
    Ended {
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
    /// cancellation by [`Schedules`](crate::Schedules). The history and the counters of the job show it in any
    /// case.
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
    /// occurrence is run again. As [`RunLost`](Self::RunLost), no node has it if a client has recorded it.
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
    /// An occurrence is due, and its concurrency key is busy: it waits.
    KeyBusy {
        /// The job.
        name: Arc<str>,
        /// The key, and its holders.
        wait: Arc<KeyWait>,
    },
    /// The wait for a concurrency key is over: this node has the key, or the occurrence does not
    /// wait any more.
    KeyFree {
        /// The job.
        name: Arc<str>,
        /// The key.
        key: Arc<str>,
        /// The time of waiting.
        waited: Duration,
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
    /// The code of a run has completed it in a transaction of its own ([`Run::complete`](crate::Run::complete)),
    /// and then failed, panicked, or worked on until its future was dropped. The occurrence has succeeded.
    /// Let the job return right after the commit.
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
    /// The store rejected the end of a run each time, until the run's lease had ended. The run is recorded
    /// as lost, or as expired and run again, although it has ended. The store's error is in this event alone:
    /// the entry in the history is written by the claim that finds the lease ended, which any node may send.
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
        /// A due occurrence had waited for a node that can run the former definition for
        /// [a while](crate::Builder::abandoned_after).
        was_abandoned: bool,
    },
    /// Another node has changed the job's definition. This node runs the job by the stored schedule
    /// and settings, with its own code.
    DefinitionAdopted {
        /// The job.
        name: Arc<str>,
    },
    /// The store has a definition of the job that this node cannot run. It leaves the job to other
    /// nodes, and reads the definition again once a minute. If a due occurrence waits for
    /// [a while](crate::Builder::abandoned_after), this node sets its own definition
    /// ([`Redefined`](Self::Redefined)).
    DefinitionConflict {
        /// The job.
        name: Arc<str>,
        /// The reason.
        reason: &'static str,
    },
    /// The job was deleted in the store. This node does not run the job until it is restarted, or
    /// another node has registered it again.
    Deleted {
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
    /// The record of the job in the store cannot be read. This node reads it again once a minute.
    JobUnreadable {
        /// The job.
        name: Arc<str>,
        /// The reason.
        reason: String,
    },
    /// The store's clock was ahead of the present, and has left times in the record of the job that
    /// its schedule does not explain. The job waits for them. `allora reset JOB` or
    /// [`Schedules::reset`](crate::Schedules::reset) resumes it.
    ///
    /// With a `key`: a run of the job holds this concurrency key since the clock was ahead, and its node has
    /// been silent for half of its lease since the clock is right. Jobs of this node wait for the key. A reset
    /// of the job frees it.
    ClockWasAhead {
        /// The job. With a `key`, this node need not have it.
        name: Arc<str>,
        /// The time until which the job waits, or holds the key.
        until: Time,
        /// The concurrency key that the job holds, if that is the problem.
        key: Option<Arc<str>>,
    },
    /// The store's clock was set back, and jobs of this node wait for times that it showed before. Their
    /// number is reported once they have been read: after the start of the node, and each time the clock
    /// is set back. Each of them has its [`ClockWasAhead`](Self::ClockWasAhead). Nothing runs twice: the
    /// jobs continue with their next occurrences, or when they are reset.
    ClockWasSetBack {
        /// `false`: jobs in code. `true`: stored schedules of this node's kinds.
        stored: bool,
        /// The number of jobs that wait. At least 1.
        waiting: usize,
        /// The time at which the last of them continues.
        until: Time,
    },
    /// An occurrence of the job has been due for more than a minute, this node can run it, and no
    /// node has claimed it.
    JobOverdue {
        /// The job.
        name: Arc<str>,
        /// The time since which it is due.
        due_at: Time,
    },
    /// A stored schedule has been due for more than a minute, and no live node has a handler for its
    /// kind.
    KindUnhandled {
        /// The kind.
        kind: Arc<str>,
        /// The stored schedule.
        example: Arc<str>,
        /// The time since which it is due.
        due_at: Time,
        /// The number of stored schedules of the kind that wait; at least that number, if it is 100.
        waiting: usize,
    },
    /// The data of a stored schedule does not fit the type of this node's handler. The node gives the
    /// occurrence back, and leaves the schedule to other nodes first; if it gets the occurrence again, the
    /// run fails, and is tried again by the retry policy. Reported for the first schedule of a kind.
    DataMismatch {
        /// The kind.
        kind: Arc<str>,
        /// The stored schedule.
        example: Arc<str>,
        /// The error, with line and column.
        error: String,
        /// The versions of the builds that handle the kind
        /// ([`Builder::build_version`](crate::Builder::build_version)), here and on other live nodes.
        builds: String,
    },
    /// The data of every stored schedule of the kind fits the handler again; or what did not fit has not
    /// come to this node for an hour.
    DataMatches {
        /// The kind.
        kind: Arc<str>,
    },
    /// No stored schedule of the kind is overdue any more, or a live node handles the kind.
    KindHandled {
        /// The kind.
        kind: Arc<str>,
    },
    /// The programs of live nodes need a label that no live node has.
    LabelUnmatched {
        /// The label.
        label: Arc<str>,
        /// The number of live nodes whose programs need it.
        nodes: usize,
    },
    /// A live node has the label, or no live node needs it any more.
    LabelMatched {
        /// The label.
        label: Arc<str>,
    },
    /// A node that this node has seen alive has not written its record for three
    /// [heartbeats](crate::Builder::heartbeat). It has ended, or does not reach the store.
    NodeDead {
        /// The node's id.
        node: Arc<str>,
        /// Its last write, by the store's clock.
        last_seen: Time,
    },
    /// A node that was reported as dead has written its record again.
    NodeAlive {
        /// The node's id.
        node: Arc<str>,
    },
    /// The store has records of jobs in code that no live build declares. One of the nodes looks
    /// for them, once an hour and when the jobs of the nodes have changed.
    JobsOrphaned {
        /// Their number.
        count: usize,
        /// The first of them by name.
        example: Arc<str>,
    },
    /// The store has no orphaned job in code any more.
    OrphansGone,
    /// The record of an orphaned job in code, or of a one-off schedule that has ended, was removed
    /// after its retention period ([`Builder::prune_orphans_after`](crate::Builder::prune_orphans_after),
    /// [`Builder::prune_finished_after`](crate::Builder::prune_finished_after)).
    Pruned {
        /// The job.
        name: Arc<str>,
    },
    /// This node cannot run the job. It tries again once a minute.
    JobInvalid {
        /// The job.
        name: Arc<str>,
        /// The reason and its remedy.
        reason: String,
    },
    /// This node cannot run very many due stored schedules. The first 100 have a
    /// [`JobInvalid`](Self::JobInvalid) or [`JobUnreadable`](Self::JobUnreadable) each; the others are
    /// only counted, in [`Health`](crate::Health). They delay no schedule that can be run.
    SchedulesInvalid {
        /// The number of all of them.
        count: usize,
        /// One of those that are only counted.
        example: Arc<str>,
    },
    /// No stored schedule is only counted any more among those that this node cannot run.
    SchedulesResumed,
    /// The reason for which this node did not run the job is over: of its
    /// [`Deleted`](Self::Deleted), [`DefinitionConflict`](Self::DefinitionConflict),
    /// [`JobInvalid`](Self::JobInvalid), [`JobUnreadable`](Self::JobUnreadable),
    /// [`ClockWasAhead`](Self::ClockWasAhead) or [`JobOverdue`](Self::JobOverdue). Either the node
    /// runs the job again, or a stored schedule with a problem is gone.
    JobResumed {
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
    /// The store does not answer, or too slowly. The scheduler tries again after at most 800 ms.
    StoreDown {
        /// The error of the request.
        error: Arc<Error>,
    },
    /// The store answers again.
    StoreUp,
    /// The store rejected a request. Waiting does not help.
    StoreError {
        /// The error of the request.
        error: Arc<Error>,
    },
    /// The store sends no notifications to this node. The poll finds what changes.
    NotificationsDown {
        /// The error of the subscription.
        error: Arc<Error>,
    },
    /// Notifications arrive again.
    NotificationsUp,
    /// Occurrences have been due for 1 s, and this node runs as many jobs as it may. Other nodes may
    /// claim them. Start more nodes, or set a larger
    /// [concurrency](crate::Builder::concurrency).
    CapacityFull {
        /// The largest number of simultaneous runs.
        concurrency: usize,
    },
    /// Nothing waits for capacity on this node any more.
    CapacityFree,
    /// This node's clock differs from the store's by more than 1 s. This does no harm: the
    /// scheduler uses the store's clock.
    ClockSkew {
        /// `true` if the node's clock is ahead.
        ahead: bool,
        /// The difference.
        by: Duration,
    },
    /// This node's clock and the store's agree again.
    ClocksAgree,
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
            Event::Started { name, .. }
            | Event::Ended { name, .. }
            | Event::OccurrencesMissed { name, .. }
            | Event::OccurrencesSkipped { name, .. }
            | Event::RunLost { name, .. }
            | Event::RunExpired { name, .. }
            | Event::LeaseLost { name, .. }
            | Event::KeyBusy { name, .. }
            | Event::KeyFree { name, .. }
            | Event::KeyLimitsDiffer { name, .. }
            | Event::LeaseRenewalFailed { name, .. }
            | Event::AfterCompletion { name, .. }
            | Event::Redefined { name, .. }
            | Event::DefinitionAdopted { name }
            | Event::DefinitionConflict { name, .. }
            | Event::Deleted { name }
            | Event::Reregistered { name }
            | Event::ScheduleLost { name }
            | Event::JobUnreadable { name, .. }
            | Event::ClockWasAhead { name, .. }
            | Event::JobOverdue { name, .. }
            | Event::JobInvalid { name, .. }
            | Event::JobResumed { name }
            | Event::Pruned { name }
            | Event::EndRejected { name, .. }
            | Event::GivenUp { name, .. }
            | Event::ScheduleWarning { name, .. }
            | Event::ClaimAbandoned { name, .. } => Some(name),
            _ => None,
        }
    }

    /// The remedy, if the event reports the start of a condition that keeps jobs from running, or
    /// something that needs an operator.
    pub fn remedy(&self) -> Option<&'static str> {
        Some(match self {
            Event::DefinitionConflict { .. } => ProblemReason::DefinitionConflict.remedy(),
            Event::Deleted { .. } => ProblemReason::Deleted.remedy(),
            Event::JobUnreadable { .. } => ProblemReason::Unreadable.remedy(),
            Event::ClockWasAhead { .. } | Event::ClockWasSetBack { .. } => {
                ProblemReason::ClockWasAhead.remedy()
            }
            Event::JobOverdue { .. } => ProblemReason::Overdue.remedy(),
            Event::JobInvalid { .. } | Event::SchedulesInvalid { .. } => {
                ProblemReason::Invalid.remedy()
            }
            Event::KeyLimitsDiffer { .. } => "give all jobs of the key the same limit",
            Event::KindUnhandled { .. } => "start a node with a handler for the kind",
            Event::DataMismatch { .. } => {
                "deploy one build on all nodes, or change the type in steps that can read both; then \
                 rerun the dead letters"
            }
            Event::LabelUnmatched { .. } => "start a node with the label",
            Event::RunLost { .. } => {
                "look at the node; trigger the job if the occurrence is to run all the same"
            }
            Event::AfterCompletion { .. } => "let the job return right after the commit",
            Event::Ended { reason: Some(NotRunReason::Shutdown), .. } => {
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
            Event::NodeDead { .. } => "look at the node, and at its connection to the store",
            Event::JobsOrphaned { .. } => "delete the jobs, or deploy the build that declares them",
            Event::ScheduleLost { .. } => "create the schedule again, or import it from an export",
            Event::Reregistered { .. } => {
                "find out why the store lost its records; stored schedules are to be created again"
            }
            Event::StoreDown { .. } => {
                "look at the store and the network; the node tries again by itself"
            }
            Event::StoreError { .. } => "correct what the error names; waiting does not help",
            Event::NotificationsDown { .. } => {
                "correct what the error names; until then the poll finds changes"
            }
            Event::CapacityFull { .. } => "start more nodes, or set a larger concurrency",
            Event::ClockSkew { .. } => "synchronize the clocks; the store's is used",
            Event::TimerDelayed { .. } => "move blocking work to a thread of its own",
            _ => return None,
        })
    }
}

/// A duration for a field of a log line or of an object.
pub(crate) fn millis(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap_or(u64::MAX)
}
