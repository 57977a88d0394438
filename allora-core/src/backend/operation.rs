//! Operations on records: the request of [`Backend::reschedule`](super::Backend::reschedule).

use super::{
    Claim, ClaimKey, Cursor, FollowUp, Follower, ImportedProgress, NextRun, NotRun, Occurrence, On,
};
use crate::{record::TRIGGER_RETENTION, time::Time};
use allora_schedule::Excluded;
use std::{fmt, time::Duration};

/// The node name of operators' and clients' batches, as history shows it.
pub const OPERATOR: &str = "operator";

/// A batch of operations of one node, each decided alone.
///
/// `Copy`, so that a batch whose reply was lost is sent again with the same claim ids.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Batch<'a> {
    /// The id of the node, or of the client, that sends the batch. No other process ever has it.
    pub node: &'a str,
    /// The clock that decides.
    pub time: TimeSource,
    /// Any number of operations. Operations with the same name are applied in their order.
    pub operations: &'a [Operation<'a>],
}

impl<'a> Batch<'a> {
    /// These operations, sent by `node`.
    pub fn new(node: &'a str, time: TimeSource, operations: &'a [Operation<'a>]) -> Self {
        Self { node, time, operations }
    }
}

/// The clock that decides what is due and which lease has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeSource {
    /// The store's own clock, read inside the deciding operation.
    Store {
        /// The node's wall clock, for a store that has no clock.
        fallback: Time,
    },
    /// This time: for tests and for tools that replay.
    Fixed(Time),
}

impl TimeSource {
    /// The time in the request, for a store that has no clock.
    pub fn without_store_clock(self) -> Time {
        match self {
            TimeSource::Store { fallback } => fallback,
            TimeSource::Fixed(at) => at,
        }
    }

    /// `true` if the store's own clock is used.
    pub fn is_store(self) -> bool {
        matches!(self, TimeSource::Store { .. })
    }
}

/// The largest number of bytes of one request of a scheduler, unless it has one operation.
pub(crate) const MAX_BYTES: usize = 1 << 20;

/// An upper bound for what an operation has beside texts of any length: names, ids, times.
pub(crate) const OPERATION_BYTES: usize = 1_000;

/// The person or program that makes a change, its way, and its reason.
///
/// ```
/// use allora::backend::Author;
///
/// let author = Author::new("ann").via("console").note("the mail server is down");
/// assert_eq!(author.to_string(), "ann (console)");
/// assert_eq!(Author::from("ann"), Author::new("ann"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Author {
    /// The actor: a person, an API token, a program, a crontab. The same rules as for a name.
    pub actor: String,
    /// The way: the console, the API, the command. Default: empty. The same rules as for a name.
    pub via: String,
    /// The reason, for readers. Default: empty. Range: 0 to [1 KiB](crate::record::MAX_NOTE).
    pub note: String,
}

impl Author {
    /// This actor.
    pub fn new(actor: impl Into<String>) -> Self {
        Self { actor: actor.into(), via: String::new(), note: String::new() }
    }

    /// By this way.
    #[must_use]
    pub fn via(mut self, via: impl Into<String>) -> Self {
        self.via = via.into();
        self
    }

    /// For this reason.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }
}

impl From<&str> for Author {
    fn from(actor: &str) -> Self {
        Self::new(actor)
    }
}

impl From<String> for Author {
    fn from(actor: String) -> Self {
        Self::new(actor)
    }
}

impl fmt::Display for Author {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.via {
            "" => f.write_str(&self.actor),
            via => write!(f, "{} ({via})", self.actor),
        }
    }
}

/// One operation on the record of one job.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Operation<'a> {
    /// The job.
    pub name: &'a str,
    /// The change.
    pub action: Action<'a>,
    /// The output of the run that the operation ends, for the history. Default: none. It is kept up
    /// to a length of 1 KiB. The record does not have it.
    pub output: Option<&'a str>,
    /// The value of the run that the operation ends, for the history: JSON of at most 4 KiB. Default:
    /// none. A longer one is not kept. The record does not have it.
    pub value: Option<&'a str>,
    /// With an extension, a retry or a release: what the run leaves for the next attempt at its occurrence,
    /// in place of what was left before. Default: none, and what was left before stays. Range: 0 to
    /// [64 KiB](crate::record::MAX_CHECKPOINT); a longer one is not kept. It is forgotten when the occurrence
    /// ends, unless that is a dead letter.
    pub checkpoint: Option<&'a [u8]>,
    /// Of a completion: the occurrences between its own and the next one that the schedule's calendar
    /// excludes, for the history. Default: none. The record does not have them, and no counter counts
    /// them.
    pub excluded: Option<Excluded>,
    /// Of a completion as succeeded: the run works on, so its lease stays, [marked as
    /// completed](super::Lease::completed). Its extensions go on, with the reply
    /// [`Completed`](super::Reply::Completed), and another completion ends the lease and changes nothing
    /// else. Default: `false`, and the lease ends.
    pub works_on: bool,
    /// The author of a client's change, which is then [noted](crate::record::Change) with it. Default:
    /// none, and nothing is noted.
    pub author: Option<&'a Author>,
}

impl<'a> Operation<'a> {
    /// `action` on the record of `name`.
    pub fn new(name: &'a str, action: Action<'a>) -> Self {
        let (output, value, checkpoint) = (None, None, None);
        Self {
            name,
            action,
            output,
            value,
            checkpoint,
            excluded: None,
            works_on: false,
            author: None,
        }
    }

    /// Made by this author.
    #[must_use]
    pub fn by(mut self, author: Option<&'a Author>) -> Self {
        self.author = author;
        self
    }

    /// With the output of the run that it ends.
    #[must_use]
    pub fn output(mut self, output: Option<&'a str>) -> Self {
        self.output = output;
        self
    }

    /// With the value of the run that it ends.
    #[must_use]
    pub fn value(mut self, value: Option<&'a str>) -> Self {
        self.value = value;
        self
    }

    /// With what the run leaves for the next attempt.
    #[must_use]
    pub fn checkpoint(mut self, checkpoint: Option<&'a [u8]>) -> Self {
        self.checkpoint = checkpoint;
        self
    }

    /// With the occurrences after its own that the calendar excludes.
    #[must_use]
    pub fn excluded(mut self, excluded: Option<Excluded>) -> Self {
        self.excluded = excluded;
        self
    }

    /// Of a run that works on after it.
    #[must_use]
    pub fn works_on(mut self) -> Self {
        self.works_on = true;
        self
    }

    /// Reads the record of `name`.
    pub fn read(name: &'a str) -> Self {
        Self::new(name, Action::Read)
    }

    /// Claims an occurrence of `name`.
    pub fn claim(name: &'a str, claim: Claim) -> Self {
        Self::new(name, Action::Claim(claim))
    }

    /// Completes the run of `name` under `fence`.
    pub fn complete(name: &'a str, fence: i64, then: Cursor, completion: Completion<'a>) -> Self {
        Self::new(name, Action::Complete { fence, then, completion })
    }
}

/// A change of one record. Each is atomic and durable.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Action<'a> {
    /// Changes nothing.
    Read,
    /// Creates the record of a job in code if the name is free. An existing record stays as it is.
    Register {
        /// The definition as text.
        definition: &'a str,
        /// The version that the user's build declares. Default: 0.
        version: u64,
        /// The first occurrence; `None` if there is none.
        first: Option<NextRun>,
    },
    /// Replaces the definition of a job in code, if the record still has this generation and the
    /// cursor of the plan, and a version that is not higher.
    Redefine {
        /// The generation that was read.
        generation: i64,
        /// The new definition.
        definition: &'a str,
        /// The version that the user's build declares. Default: 0.
        version: u64,
        /// The cursor under the new definition.
        plan: Replan,
    },
    /// Claims an occurrence for this node.
    Claim(Claim),
    /// Claims a place of the concurrency key whose record this is.
    ClaimKey(ClaimKey<'a>),
    /// Releases a place of a concurrency key.
    ReleaseKey {
        /// The fence of the key's claim.
        fence: i64,
    },
    /// Moves the cursor without starting a run.
    Advance(Advance),
    /// Records as lost the at-most-once runs whose leases have ended.
    Reap,
    /// Extends the lease of a run that is alive. A lease never shrinks.
    Extend {
        /// The fence of the run's claim.
        fence: i64,
        /// The new length of the lease, from the store's now.
        duration: Duration,
    },
    /// Ends a run.
    Complete {
        /// The fence of the run's claim.
        fence: i64,
        /// The cursor's move, made if the cursor still is on the run's occurrence. `Keep` for a
        /// lease that is lost on expiry, whose cursor has moved already, and for a trigger.
        then: Cursor,
        /// The result of the run.
        completion: Completion<'a>,
    },
    /// Ends a run that failed or was interrupted, and schedules another attempt of the same
    /// occurrence. Of a run whose cancellation was requested, changes nothing: its node completes it.
    Retry {
        /// The fence of the run's claim.
        fence: i64,
        /// The earliest time of the next attempt.
        not_before: Time,
        /// The reason of the other attempt.
        cause: RetryCause<'a>,
    },
    /// Records as a dead letter an at-least-once occurrence that is due for another attempt: its
    /// lease has ended, or its last attempt failed. Records it as cancelled, if that was requested.
    /// Changes nothing, and returns the record, if the record is no longer so.
    GiveUp {
        /// If the occurrence is leased, the fence of its run's claim; else the record's fence.
        fence: i64,
        /// The occurrence.
        occurrence: Occurrence,
        /// The cursor's move, as by a completion.
        then: Cursor,
        /// The reason, for readers.
        error: &'a str,
    },
    /// Returns the occurrence as if it had not been claimed. The attempt is not counted, and the
    /// occurrence is due since its own time, so that it runs before later ones. Of a run whose
    /// cancellation was requested, changes nothing: its node completes it.
    Release {
        /// The fence of the run's claim.
        fence: i64,
    },
    /// Creates a stored schedule.
    Create(NewSchedule<'a>),
    /// Changes kind, definition or data of a job. Active runs continue.
    Modify(Edit<'a>),
    /// Pauses the schedule. Triggers still run, once: what waits for another attempt, of a trigger too,
    /// waits for the end of the pause. Pausing a paused schedule changes the note and the end only.
    Pause {
        /// The reason, for readers.
        note: &'a str,
        /// The time at which the pause ends by itself, in the future of the store: the next operation
        /// on the record that is not a read removes it. `None`: when the schedule is resumed.
        until: Option<Time>,
    },
    /// Resumes a paused schedule. Its cursor stays: the catch-up policy decides what becomes of the
    /// occurrences that passed.
    Resume,
    /// Moves the cursor past occurrences that an operator leaves out, due or not, paused or not, if
    /// generation and cursor are those that were read. The range begins with the cursor, or behind it
    /// if the cursor's occurrence was started: that one goes on.
    Skip(Advance),
    /// Adds one run beside the schedule. The same id (and time, if given) again changes nothing while
    /// its run waits or is active, and for the retention of the first trigger with it, which begins
    /// with that trigger. Of more than [`MAX_REMEMBERED`](crate::record::MAX_REMEMBERED) ids of one
    /// job, the oldest is forgotten first.
    Trigger {
        /// The trigger's own id; the same rules as for a name.
        id: &'a str,
        /// The scheduled time that the trigger stands for, at which it is due (a backfill). `None`:
        /// now.
        scheduled_at: Option<Time>,
        /// The time for which the id is remembered. 0: while its run waits or is active. Range: 0 to
        /// [30 days](crate::record::MAX_TRIGGER_RETENTION).
        retention: Duration,
        /// The data of its runs in place of the schedule's, at most
        /// [256 KiB](crate::record::MAX_TRIGGER_DATA) of all triggers of a job together. With other data,
        /// the same id is `AlreadyExists`. `None`: the schedule's, and whatever the id had before.
        data: Option<&'a [u8]>,
    },
    /// Runs a dead letter again as the same occurrence, with attempts counted from 1.
    Rerun {
        /// The dead letter's occurrence.
        occurrence: &'a Occurrence,
    },
    /// Requests the cancellation of active runs: their nodes learn it from the reply to the next
    /// extension, and at once where the store has notifications. The occurrence is not run again,
    /// even if its node has died. Triggers of the scope that wait and occurrences that wait for another
    /// attempt end as cancelled, too: that of the cursor when a node gives it up.
    Cancel(CancelScope<'a>),
    /// Requests the cancellation of all active at-most-once runs of the job, because its next
    /// occurrence is due and replaces them ([`Overlap::Replace`](crate::Overlap::Replace)): if the
    /// record still has this generation, and the cursor is due at `expected`. Otherwise nothing
    /// changes.
    Replace {
        /// The generation that was read.
        generation: i64,
        /// The cursor's scheduled time that was read.
        expected: Time,
        /// The scheduled time of the occurrence that replaces them: `expected`, or a later one, as the
        /// catch-up policy selects.
        by: Time,
    },
    /// Records that the work of an occurrence is done although no run of it has succeeded: a dead letter,
    /// which goes, or one that has failed, was lost or was not run. Its entry in the history has the
    /// author and the note, and counts as no run.
    MarkSucceeded {
        /// The occurrence.
        occurrence: &'a Occurrence,
    },
    /// Removes a dead letter.
    Dismiss {
        /// The dead letter's occurrence.
        occurrence: &'a Occurrence,
    },
    /// Starts the schedule again under a new incarnation, if the record still has this one: for a
    /// job whose record holds times that the store's clock reached by mistake. Kind, definition,
    /// data, pause, counters and dead letters stay. Active runs are recorded as lost; retries and
    /// triggers of scheduled times after now are recorded as missed.
    Reset {
        /// The incarnation that was read. Another one in the record is an error.
        incarnation: i64,
        /// The next occurrence; `None` if there is none.
        first: Option<NextRun>,
    },
    /// Deletes the job and requests the cancellation of its active runs, which are recorded as
    /// cancelled. A tombstone keeps its name and fence for seven days, so that late writers are
    /// rejected, and the leases of these runs. A job that is created again under this name has them,
    /// too: its exclusive runs wait for their ends.
    Delete,
    /// Notes that a job runs after this one. If there is no job of this name, one that is created later
    /// has the note.
    Follow {
        /// The name of the job that runs after this one.
        job: &'a str,
        /// The ends that it follows.
        on: On,
    },
    /// Adds a run that follows the end of an occurrence of another job, unless it was added before.
    /// `Invalid` if this job does not run after that one. If too many triggers wait, the run is recorded
    /// as missed.
    FollowUp {
        /// The name of the job whose occurrence has ended.
        from: &'a str,
        /// The follow-up, as the outbox of that job has it.
        follow_up: &'a FollowUp,
    },
    /// Removes these follow-ups from the outbox, and these followers if they are as they were read.
    /// Without any, reads the outbox, also that of a deleted job.
    Confirm {
        /// The follow-ups that were delivered.
        done: &'a [FollowUp],
        /// The jobs that do not run after this one any more.
        gone: &'a [Follower],
    },
    /// Deletes the record, as [`Delete`](Self::Delete), if it is the one that was read and nothing
    /// waits in it: no run, retry, trigger, dead letter or pause. Otherwise changes nothing.
    Prune {
        /// The fence that was read.
        fence: i64,
        /// The cursor that was read.
        cursor: Option<Time>,
    },
}

impl<'a> Action<'a> {
    /// A trigger now, whose id is remembered for [24 h](TRIGGER_RETENTION).
    pub fn trigger(id: &'a str) -> Self {
        Action::Trigger { id, scheduled_at: None, retention: TRIGGER_RETENTION, data: None }
    }
}

/// The runs and occurrences that a cancellation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CancelScope<'a> {
    /// All active runs of the job, the triggers that wait, and the occurrences that wait for another
    /// attempt.
    All,
    /// The active run with this fence.
    Run(i64),
    /// The triggers with this id, whether they wait, are active or wait for another attempt.
    Trigger(&'a str),
}

impl CancelScope<'_> {
    /// `true` if it ends every run of the occurrence.
    pub(crate) fn has(self, occurrence: &Occurrence) -> bool {
        match self {
            CancelScope::All => true,
            CancelScope::Run(_) => false,
            CancelScope::Trigger(id) => occurrence.trigger.as_deref() == Some(id),
        }
    }
}

/// The result of a run. An error is kept up to a length of 1 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion<'a> {
    /// The run succeeded.
    Succeeded,
    /// The run failed with this error, and the occurrence is not tried again.
    Failed(&'a str),
    /// The run failed with this error and no attempts are left: a dead letter.
    Dead(&'a str),
    /// A stopping node cancelled the run, or an operator.
    Cancelled,
}

/// The end of an attempt that another one follows. An error is kept up to a length of 1 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryCause<'a> {
    /// The run failed with this error.
    Failed(&'a str),
    /// The run was cancelled: its code had begun, and was dropped before it ended.
    Interrupted,
    /// The run gave the occurrence back for a while. The attempt is not counted.
    Released,
}

/// A move of the cursor without a run, made if the record still has this generation and its head
/// is the expected one and due.
///
/// The holder of a lease makes it with the [fence](Self::by_holder) of the lease, if the catch-up
/// policy leaves out the occurrence that [`claim_due`](super::Queries::claim_due) has claimed. If the
/// new cursor is due, the lease is kept for it under a new fence, and the reply is `Claimed`. Otherwise
/// the lease ends as if the occurrence had not been claimed. Repeated after a lost reply, it changes
/// nothing, and the record shows the lease with its `claim_id`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Advance {
    /// The fence of the lease of the expected occurrence; `None` if it is not leased. Default: `None`.
    pub holder: Option<i64>,
    /// The generation that was read.
    pub generation: i64,
    /// The cursor that was read.
    pub expected: Time,
    /// The occurrences from `expected` up to the new cursor.
    pub not_run: NotRun,
    /// The new cursor, later than `expected`.
    pub then: Option<NextRun>,
    /// The occurrences between the two cursors that the schedule's calendar excludes, for the history.
    /// Default: none. No counter counts them.
    pub excluded: Option<Excluded>,
}

impl Advance {
    /// Moves the cursor from `expected` to `then`.
    pub fn new(generation: i64, expected: Time, not_run: NotRun, then: Option<NextRun>) -> Self {
        Self { holder: None, generation, expected, not_run, then, excluded: None }
    }

    /// With the occurrences between the two cursors that the calendar excludes.
    #[must_use]
    pub fn excluded(mut self, excluded: Option<Excluded>) -> Self {
        self.excluded = excluded;
        self
    }

    /// `true` if the occurrences that are not run are between the old cursor and the new one.
    pub(crate) fn is_forward(&self) -> bool {
        self.not_run.last >= self.expected
            && self.then.is_none_or(|next| next.scheduled_at > self.not_run.last)
    }

    /// Made by the holder of the lease under this fence.
    #[must_use]
    pub fn by_holder(mut self, fence: i64) -> Self {
        self.holder = Some(fence);
        self
    }
}

/// The cursor under another definition. The plan holds for the cursor that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replan {
    /// The cursor that was read.
    pub expected: Option<Time>,
    /// The occurrences that have come under the former definition and are not run: the first of
    /// them, and the range. An occurrence that the new cursor passes over without it is recorded as
    /// missed, without a number.
    pub not_run: Option<(Time, NotRun)>,
    /// The new cursor, later than the last started occurrence and the range.
    pub then: Option<NextRun>,
}

impl Replan {
    /// Moves the cursor from `expected` to `then`.
    pub fn new(expected: Option<NextRun>, then: Option<NextRun>) -> Self {
        Self { expected: expected.map(|next| next.scheduled_at), not_run: None, then }
    }
}

/// A schedule to create.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NewSchedule<'a> {
    /// The kind, which selects the nodes that run it; the same rules as for a name.
    pub kind: &'a str,
    /// The definition as text.
    pub definition: &'a str,
    /// The first occurrence; `None` if only triggers run.
    pub first: Option<NextRun>,
    /// The data of its runs. Range: 0 to 1 MiB.
    pub data: &'a [u8],
    /// Progress from another store. Default: none.
    pub progress: ImportedProgress<'a>,
}

impl<'a> NewSchedule<'a> {
    /// A schedule without data.
    pub fn new(kind: &'a str, definition: &'a str, first: Option<NextRun>) -> Self {
        let progress = ImportedProgress::default();
        Self { kind, definition, first, data: &[], progress }
    }

    /// With data for its runs.
    #[must_use]
    pub fn data(mut self, data: &'a [u8]) -> Self {
        self.data = data;
        self
    }

    /// Continues where another store stopped.
    #[must_use]
    pub fn progress(mut self, progress: ImportedProgress<'a>) -> Self {
        self.progress = progress;
        self
    }
}

/// A change of a job's kind, definition or data.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Edit<'a> {
    /// The generation that was read. Another generation in the record is an error, so that two
    /// editors do not overwrite each other.
    pub generation: i64,
    /// The new kind, if it changes; not for a job in code.
    pub kind: Option<&'a str>,
    /// The new definition and the cursor under it, if it changes. A cursor other than the one that
    /// was read is an error (`Invalid`).
    pub definition: Option<(&'a str, Replan)>,
    /// The new data, if it changes.
    pub data: Option<&'a [u8]>,
}

impl<'a> Edit<'a> {
    /// An edit of this generation that changes nothing yet.
    pub fn of(generation: i64) -> Self {
        Self { generation, kind: None, definition: None, data: None }
    }
}
