//! The state of a job, as a backend shows it.

use super::{Chain, NotRunReason, Outcome, Streak, Waiter};
use crate::time::Time;
use std::time::Duration;

/// One scheduled time of one job, or a manual trigger.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
pub struct Occurrence {
    /// The nominal time. Of a trigger: when it was made, or the time that it stands for.
    #[cfg_attr(feature = "json", serde(deserialize_with = "crate::json::instant"))]
    pub scheduled_at: Time,
    /// The trigger's own id.
    pub trigger: Option<String>,
}

impl From<Time> for Occurrence {
    fn from(scheduled_at: Time) -> Self {
        Self { scheduled_at, trigger: None }
    }
}

/// The next occurrence of a schedule, and when it may be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
pub struct NextRun {
    /// The nominal time.
    #[cfg_attr(feature = "json", serde(deserialize_with = "crate::json::instant"))]
    pub scheduled_at: Time,
    /// The earliest time of a claim: the same, or later by delay and jitter.
    #[cfg_attr(feature = "json", serde(deserialize_with = "crate::json::instant"))]
    pub due_at: Time,
}

impl From<Time> for NextRun {
    fn from(scheduled_at: Time) -> Self {
        Self { scheduled_at, due_at: scheduled_at }
    }
}

/// The state of one job.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct JobState {
    /// The name.
    pub name: String,
    /// The kind of a stored schedule, which selects the nodes that run it; empty for a job in code.
    pub kind: String,
    /// The definition as text.
    pub definition: String,
    /// The lease with which [a query may claim it](crate::record::due_claim); `None` if it has to be
    /// planned first.
    pub due_lease: Option<Duration>,
    /// The version that the registering build declared. Default: 0.
    pub version: u64,
    /// The incarnation of the name: changes when a deleted job is created again.
    pub incarnation: i64,
    /// The generation: changes with definition, kind and data.
    pub generation: i64,
    /// The data of a stored schedule.
    pub data: Vec<u8>,
    /// The occurrence that is offered next: of pending retries, triggers and the cursor, the one
    /// that is due first.
    pub head: Option<Occurrence>,
    /// The earliest time at which the head may be claimed.
    pub due_at: Option<Time>,
    /// The number of counted attempts at the head.
    pub attempts: u32,
    /// The next occurrence of the schedule.
    pub next: Option<NextRun>,
    /// The last occurrence of the schedule that was started.
    pub last_started: Option<Time>,
    /// The highest fence of the job, at least that of its last claim.
    pub fence: i64,
    /// The leases of the active runs; of a concurrency key, those of its holders.
    pub leases: Vec<Lease>,
    /// Of a concurrency key: the jobs that wait for it, in their order.
    pub waiters: Vec<Waiter>,
    /// The pause, if the schedule is paused. Triggers still run. One that has [ended by
    /// itself](Pause::until) may stay here until the record is written:
    /// [`is_paused`](Self::is_paused) decides.
    pub paused: Option<Pause>,
    /// The dead letters, the oldest first.
    pub dead: Vec<DeadLetter>,
    /// The [checkpoints](crate::Run::checkpoint) of occurrences that run, wait for another attempt, or are dead
    /// letters: the one saved last is the last. Most jobs have none.
    pub checkpoints: Vec<Checkpoint>,
    /// The reason why the record cannot be read, if so. No node runs such a job.
    pub unreadable: Option<String>,
    /// The outcome of the last run.
    pub last: Option<Outcome>,
    /// Its failed occurrences in a row, if it has a rule about them and the last one has failed.
    pub streak: Option<Streak>,
    /// The totals since the job was created.
    pub counters: Counters,
    /// The jobs that run after it, and the runs of them that are to be triggered. `None` for most jobs.
    pub chain: Option<Box<Chain>>,
}

impl JobState {
    /// A state with this name and nothing else.
    pub fn empty(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// A record that cannot be read: listed, and run by no node.
    pub fn unreadable(name: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { unreadable: Some(reason.into()), ..Self::empty(name) }
    }

    /// `true` if the schedule is paused at this time of the store.
    pub fn is_paused(&self, now: Time) -> bool {
        self.paused.as_ref().is_some_and(|pause| pause.lasts(now))
    }
}

/// The lease of an active run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lease {
    /// The node that runs it.
    pub node: String,
    /// The claim that it was granted to.
    pub claim_id: u128,
    /// The fence.
    pub fence: i64,
    /// The occurrence.
    pub occurrence: Occurrence,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The earliest time at which this attempt could be claimed.
    pub due_at: Time,
    /// The time of the claim, by the clock that decided.
    pub started_at: Time,
    /// The end of the lease, unless it is extended.
    pub until: Time,
    /// The result of the run when the lease ends.
    pub on_expiry: OnExpiry,
    /// `Shared`: other runs of the job may be active at the same time. So the run may continue when
    /// its lease has ended, and its end is accepted after it was recorded as lost.
    pub sharing: Sharing,
    /// The cancellation of the run was requested. Default: `false`.
    pub cancel_requested: bool,
    /// The scheduled time of the occurrence because of which it was requested; `None` if an operator
    /// requested it.
    pub replaced_by: Option<Time>,
    /// Its run was [completed while it works on](super::Operation::works_on): the result is final, and
    /// nothing becomes of the run when the lease ends. Until then an exclusive run keeps others waiting.
    /// Default: `false`.
    pub completed: bool,
}

impl Lease {
    /// An exclusive lease of the first attempt, due and claimed at its scheduled time: for backends
    /// that read it back.
    pub fn new(
        node: impl Into<String>,
        claim_id: u128,
        fence: i64,
        occurrence: Occurrence,
        until: Time,
        on_expiry: OnExpiry,
    ) -> Self {
        let (due_at, started_at) = (occurrence.scheduled_at, occurrence.scheduled_at);
        Self {
            node: node.into(),
            claim_id,
            fence,
            occurrence,
            attempt: 1,
            due_at,
            started_at,
            until,
            on_expiry,
            sharing: Sharing::Exclusive,
            cancel_requested: false,
            replaced_by: None,
            completed: false,
        }
    }

    /// The reason of the requested cancellation; `None` if none was requested.
    pub fn cancel_reason(&self) -> Option<NotRunReason> {
        let reason = match self.replaced_by {
            Some(by) => NotRunReason::Replaced { by },
            None => NotRunReason::Operator,
        };
        self.cancel_requested.then_some(reason)
    }

    /// With this rule for other runs of the job.
    #[must_use]
    pub fn sharing(mut self, sharing: Sharing) -> Self {
        self.sharing = sharing;
        self
    }

    /// Of this attempt.
    #[must_use]
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.attempt = attempt;
        self
    }

    /// With the time at which it was due, and that of its claim.
    #[must_use]
    pub fn claimed_at(mut self, due_at: Time, started_at: Time) -> Self {
        (self.due_at, self.started_at) = (due_at, started_at);
        self
    }
}

/// The result of a run whose lease ends without an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExpiry {
    /// At most once: it is recorded as lost and not run again.
    Lost,
    /// At least once: the occurrence is offered again.
    Retry,
}

/// The rule for other live runs of the same job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// The run may start beside other live runs.
    Shared,
    /// The run starts only if no other run of the job has a live lease.
    Exclusive,
}

/// An at-least-once occurrence whose attempts are used up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
pub struct DeadLetter {
    /// The occurrence.
    pub occurrence: Occurrence,
    /// The number of attempts.
    pub attempts: u32,
    /// The time at which the last attempt ended, by the clock that decided.
    #[cfg_attr(feature = "json", serde(deserialize_with = "crate::json::instant"))]
    pub died_at: Time,
    /// The error of the last attempt.
    pub error: String,
}

/// A value from which the next attempt at an occurrence goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The occurrence.
    pub occurrence: Occurrence,
    /// The time at which it was saved, by the clock that decided.
    pub saved_at: Time,
    /// The value, of at most [64 KiB](crate::record::MAX_CHECKPOINT).
    pub value: Vec<u8>,
}

/// The time, the end and the reason of a pause.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
pub struct Pause {
    /// The time of the pause.
    #[cfg_attr(feature = "json", serde(deserialize_with = "crate::json::instant"))]
    pub since: Time,
    /// The time at which it ends by itself; `None` if it lasts until the schedule is resumed.
    #[cfg_attr(feature = "json", serde(default, deserialize_with = "crate::json::maybe_instant"))]
    pub until: Option<Time>,
    /// The operator's note; may be empty.
    pub note: String,
}

impl Pause {
    /// `true` before its end.
    pub fn lasts(&self, now: Time) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

/// The totals of a job's occurrences since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct Counters {
    /// Occurrences of the schedule that were started, without triggers and further attempts.
    pub started: u64,
    /// Runs that succeeded.
    pub succeeded: u64,
    /// Runs that failed, including attempts that are tried again.
    pub failed: u64,
    /// Runs that were cancelled, by a stopping node or an operator, including attempts that are
    /// tried again.
    pub cancelled: u64,
    /// Occurrences that were skipped because the run before them was still active.
    pub skipped: u64,
    /// Occurrences that were missed, as far as they were counted.
    pub missed: u64,
    /// At-most-once runs whose leases ended, without those that were extended or completed later.
    pub lost: u64,
    /// At-least-once runs whose leases ended, and whose occurrences were claimed again.
    pub expired: u64,
}

impl Counters {
    /// The counters by name, in the order in which stores and tables show them.
    pub fn each(mut self) -> [(&'static str, u64); 8] {
        self.each_mut().map(|(name, counter)| (name, *counter))
    }

    /// The counters by name, in the order of [`each`](Self::each), to be set.
    pub fn each_mut(&mut self) -> [(&'static str, &mut u64); 8] {
        let Self { started, succeeded, failed, cancelled, skipped, missed, lost, expired } = self;
        [
            ("started", started),
            ("succeeded", succeeded),
            ("failed", failed),
            ("cancelled", cancelled),
            ("skipped", skipped),
            ("missed", missed),
            ("lost", lost),
            ("expired", expired),
        ]
    }

    /// The counter of this name, to be set.
    pub fn by_name_mut(&mut self, name: &str) -> Option<&mut u64> {
        self.each_mut().into_iter().find_map(|(own, counter)| (own == name).then_some(counter))
    }
}

/// The progress that a schedule brings along when it moves to another store.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ImportedProgress<'a> {
    /// The last started occurrence, before the first one here.
    pub last_started: Option<Time>,
    /// The pause, if it is paused.
    pub paused: Option<&'a Pause>,
    /// The totals.
    pub counters: Counters,
    /// The dead letters; of more than [`MAX_DEAD`](crate::record::MAX_DEAD) the last ones.
    pub dead: &'a [DeadLetter],
}

impl<'a> ImportedProgress<'a> {
    /// The progress of a job elsewhere. A run that had started there and has not ended is started
    /// again here.
    pub fn of(state: &'a JobState) -> Self {
        let last = state.last_started;
        let started =
            last.is_some_and(|last| state.next.is_some_and(|next| next.scheduled_at <= last));
        let mut counters = state.counters;
        // It is counted when it is started again.
        counters.started = counters.started.saturating_sub(u64::from(started));
        Self {
            last_started: last.filter(|_| !started),
            paused: state.paused.as_ref(),
            counters,
            dead: &state.dead,
        }
    }
}
