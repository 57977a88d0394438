//! The record of a job and its state machine, as pure functions that every store shares.
//!
//! [`apply`] is the contract in code: it applies one operation to one record. The
//! [engine](crate::store) runs it between a load and a commit; a fast path in SQL or Lua is tested
//! to give the same results.

mod apply;
mod chain;
mod change;
mod claim;
#[cfg(feature = "codec")]
pub mod codec;
mod complete;
mod define;
mod flags;
mod history;
mod key;
#[cfg(test)]
mod moves_tests;
mod note;
mod occurrence_data;
mod operate;
mod streak;
mod trigger;

pub use apply::{apply, apply_unreadable};
pub use change::{Change, ChangeAction, ChangeResult, MAX_CHANGE_DATA, MAX_CHANGES, MAX_NOTE};
pub use claim::{KEEP_LOST, MAX_LEASES, MAX_LOST, due_claim};
pub use define::{MAX_DATA, MAX_DEAD, TOMBSTONE};
pub use flags::{FlagChanges, FlagSummary};
pub use history::HistoryBuffer;
pub use key::{KEEP_WAITER, MAX_WAITERS};
pub use occurrence_data::{MAX_CHECKPOINT, MAX_CHECKPOINTS, OccurrenceData, SavedValue};
pub use trigger::{
    MAX_REMEMBERED, MAX_TRIGGER_DATA, MAX_TRIGGER_RETENTION, MAX_TRIGGERS, RememberedTrigger,
    TRIGGER_RETENTION,
};

pub(crate) use apply::unreadable;
pub(crate) use claim::may_overtake;
pub use complete::MAX_VALUE;
pub(crate) use complete::{bounded, bounded_to};
pub(crate) use key::{is_left, job_of, on};

use crate::{
    backend::{
        Chain, Counters, DeadLetter, JobState, Lease, NextRun, Occurrence, OnExpiry, Outcome,
        Pause, Streak, Waiter,
    },
    error::{Error, ErrorKind, Result},
    time::{Time, saturating_add},
};
use std::time::Duration;

/// The record of one job, stored under the job's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The kind of a stored schedule; empty for a job in code.
    pub kind: String,
    /// The definition as text.
    pub definition: String,
    /// The lease with which a query may claim a stored schedule, as its definition says; `None` if it
    /// has to be planned first, and for a job in code. It is computed when the definition is written.
    pub due_lease: Option<Duration>,
    /// The version that the registering build declared. Default: 0.
    pub version: u64,
    /// The incarnation of the name.
    pub incarnation: i64,
    /// The generation: changes with definition, kind and data.
    pub generation: i64,
    /// The data of a stored schedule.
    pub data: Vec<u8>,
    /// The next occurrence of the schedule.
    pub cursor: Option<NextRun>,
    /// The last occurrence of the schedule that was started.
    pub last_started: Option<Time>,
    /// The highest fence that was drawn, for any purpose.
    pub fence: i64,
    /// The leases of the active runs.
    pub leases: Vec<Lease>,
    /// The last runs that were recorded as lost and may still be active, because they share the job
    /// with other runs. An extension or an end with the fence of one of them is accepted.
    pub lost: Vec<Lease>,
    /// Occurrences that wait for another attempt.
    pub retries: Vec<PendingRetry>,
    /// Manual triggers that wait, in the order in which they were made.
    pub triggers: Vec<Occurrence>,
    /// The data of triggers that have [any of their own](crate::backend::Action::Trigger::data), and the
    /// [checkpoints](crate::backend::Operation::checkpoint) of runs, as long as their occurrences wait, run,
    /// or are dead letters.
    pub occurrence_data: Vec<OccurrenceData>,
    /// The last triggers that were accepted, the oldest first. Their ids are not accepted again for a
    /// while. Only a trigger and a reset change them, so that a store may keep them apart, as the dead
    /// letters.
    pub remembered: Vec<RememberedTrigger>,
    /// Of a concurrency key: the jobs that wait for it, in the order of their due times and names.
    pub waiters: Vec<Waiter>,
    /// The dead letters, the oldest first.
    pub dead: Vec<DeadLetter>,
    /// The pause, if the schedule is paused.
    pub paused: Option<Pause>,
    /// The time of the deletion: a tombstone, which keeps fence and name.
    pub deleted_at: Option<Time>,
    /// The last accepted end of a run, so that its repetition is accepted.
    pub ended: Option<Accepted>,
    /// The outcome of the last run.
    pub last: Option<Outcome>,
    /// The failed occurrences in a row, of a job that has a rule about them. While there are some, the last
    /// outcome is no success, so that no fast path completes a run without ending them.
    pub streak: Option<Streak>,
    /// The totals of its occurrences.
    pub counters: Counters,
    /// The last changes by clients, the oldest first, in a store without a
    /// [record of all](crate::store::ChangeStore). Only such changes alter them, so that a store may keep
    /// them apart, as the dead letters.
    pub changes: Vec<Change>,
    /// The jobs that run after it, and what came from the one before it; `None` for most jobs. It is carried on by
    /// a tombstone.
    pub chain: Option<Box<Chain>>,
}

/// An occurrence that waits for another attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingRetry {
    /// The occurrence.
    pub occurrence: Occurrence,
    /// The number of attempts so far.
    pub attempts: u32,
    /// The earliest time of the next attempt.
    pub not_before: Time,
}

/// An accepted end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The fence of the run.
    pub fence: i64,
    /// The operation that ended it.
    pub by: EndedBy,
}

/// The operation that ended a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// A completion.
    Completed,
    /// A retry.
    Retried,
    /// A release.
    Released,
}

/// The context of an operation: what [`apply`] needs beside the record.
#[derive(Clone, Copy, Debug)]
pub struct OpContext<'a> {
    /// The node or client that sends the operation.
    pub node: &'a str,
    /// The time that decides. Its microseconds go into fences.
    pub now: Time,
    /// No fence at or below it is given out. The store keeps it for the names whose tombstones it
    /// has removed. 0 if there are none.
    pub min_fence: i64,
}

impl<'a> OpContext<'a> {
    /// An operation of `node` at `now`, in a store that has removed no tombstone.
    pub fn new(node: &'a str, now: Time) -> Self {
        Self { node, now, min_fence: 0 }
    }
}

/// The occurrence that a record offers next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// The occurrence to claim.
    pub occurrence: HeadOccurrence<'a>,
    /// The earliest time of a claim.
    pub due_at: Time,
    /// The number of counted attempts at it.
    pub attempts: u32,
}

/// The occurrence of a head, without a copy of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadOccurrence<'a> {
    /// The cursor's occurrence.
    Cursor(Time),
    /// A trigger, or the occurrence of an expired or failed run.
    Other(&'a Occurrence),
}

impl Head<'_> {
    /// A pause holds back the schedule's occurrences, started or not, and the runs after other jobs, which
    /// no person has triggered. Triggers still run, but wait for
    /// the end of the pause once an attempt has failed.
    fn is_held_by_a_pause(&self) -> bool {
        match self.occurrence {
            HeadOccurrence::Other(occurrence) => {
                occurrence.trigger.is_none() || self.attempts > 0 || occurrence.is_follow_up()
            }
            HeadOccurrence::Cursor(_) => true,
        }
    }
}

impl HeadOccurrence<'_> {
    /// `true` if it is this occurrence.
    pub fn is(&self, occurrence: &Occurrence) -> bool {
        match self {
            HeadOccurrence::Cursor(at) => {
                occurrence.trigger.is_none() && occurrence.scheduled_at == *at
            }
            HeadOccurrence::Other(mine) => *mine == occurrence,
        }
    }

    /// A copy of it.
    pub fn to_occurrence(&self) -> Occurrence {
        match self {
            HeadOccurrence::Cursor(at) => Occurrence::from(*at),
            HeadOccurrence::Other(occurrence) => (*occurrence).clone(),
        }
    }
}

/// The next fence. It grows, never repeats, and, by the store's clock in microseconds, stays ahead
/// of what a failover may have forgotten.
///
/// ```
/// use allora::record::next_fence;
/// use allora::time::from_millis;
///
/// let now = from_millis(1_000).unwrap();
/// assert_eq!(next_fence(7, now), 1_000_000);
/// assert_eq!(next_fence(2_000_000, now), 2_000_001);
/// ```
pub fn next_fence(stored: i64, now: Time) -> i64 {
    now.timestamp_micros().max(stored.saturating_add(1))
}

/// The highest fence with which a record can be read. A store's clock reaches it in the year
/// 148 000; far beyond it, numbers of the store would overflow.
pub const MAX_FENCE: i64 = i64::MAX / 2;

impl Record {
    /// The record as it was read, if its fence can be drawn from: for stores that read it back.
    ///
    /// # Errors
    /// The reason why it cannot be read.
    pub fn checked(self) -> std::result::Result<Self, String> {
        match self.fence {
            ..=MAX_FENCE => Ok(self),
            fence => Err(format!("its fence {fence} is higher than any that was drawn")),
        }
    }

    /// The occurrence that is offered next: of pending retries, triggers and the cursor, the one
    /// that is due first. While a lease that is retried on expiry lasts, it is the leased occurrence,
    /// due at the lease's end. What a pause holds back is due at its end. Depends on no clock.
    pub fn head(&self) -> Option<Head<'_>> {
        if self.deleted_at.is_some() {
            return None;
        }
        let leased = self.leases.iter().find(|lease| lease.on_expiry == OnExpiry::Retry);
        let leased_head = leased.map(|lease| Head {
            occurrence: HeadOccurrence::Other(&lease.occurrence),
            due_at: lease.until,
            attempts: lease.attempt,
        });
        match &self.paused {
            Some(pause) if leased.is_none_or(|lease| lease.occurrence.trigger.is_none()) => {
                self.head_beside(pause, leased_head)
            }
            // Of equals, `min_by_key` keeps the first: a started occurrence goes before a new one, and what
            // was made first.
            _ => leased_head.or_else(|| self.waiting_heads().min_by_key(|head| head.due_at)),
        }
    }

    /// The occurrences that wait: retries, triggers and the cursor.
    fn waiting_heads(&self) -> impl Iterator<Item = Head<'_>> {
        let retries = self.retries.iter().map(|retry| Head {
            occurrence: HeadOccurrence::Other(&retry.occurrence),
            due_at: retry.not_before,
            attempts: retry.attempts,
        });
        let triggers = self.triggers.iter().map(|trigger| Head {
            occurrence: HeadOccurrence::Other(trigger),
            due_at: trigger.scheduled_at,
            attempts: 0,
        });
        retries.chain(triggers).chain(self.cursor_head())
    }

    /// The occurrence that is offered next beside a pause. What the pause holds back is due at its end, and
    /// no run starts beside one that is leased.
    fn head_beside<'a>(&'a self, pause: &Pause, leased: Option<Head<'a>>) -> Option<Head<'a>> {
        let until = leased.as_ref().map(|head| head.due_at);
        let waiting = self.waiting_heads().map(|head| (Some(head.due_at), head));
        let heads = leased.map(|head| (None, head)).into_iter().chain(waiting);
        let heads = heads.filter_map(|(was_due, head)| {
            let not_before = match head.is_held_by_a_pause() {
                true => until.max(Some(pause.until?)),
                false => until,
            };
            let due_at = not_before.map_or(head.due_at, |at| head.due_at.max(at));
            Some((was_due, Head { due_at, ..head }))
        });
        // Of those that become due together, the first is the one that is first without the pause.
        heads.min_by_key(|(was_due, head)| (head.due_at, *was_due)).map(|(_, head)| head)
    }

    /// Removes a pause that has ended by itself, and returns it.
    fn end_pause(&mut self, now: Time) -> Option<Pause> {
        self.paused.take_if(|pause| !pause.lasts(now))
    }

    /// `true` if the cursor is at this occurrence.
    fn is_at_cursor(&self, occurrence: &Occurrence) -> bool {
        occurrence.trigger.is_none()
            && self.cursor.is_some_and(|next| next.scheduled_at == occurrence.scheduled_at)
    }

    /// The cursor, unless its occurrence was started: then it is leased, or waits to be retried.
    fn cursor_head(&self) -> Option<Head<'_>> {
        let next = self.cursor?;
        let occurrence = HeadOccurrence::Cursor(next.scheduled_at);
        let started = self.last_started >= Some(next.scheduled_at);
        (!started).then_some(Head { occurrence, due_at: next.due_at, attempts: 0 })
    }

    /// The time at which a node should read the record: its head is due, or a lease has ended that
    /// is lost on expiry or whose run was to be cancelled.
    pub fn wake_at(&self) -> Option<Time> {
        let head = self.head().map(|head| head.due_at);
        let is_over = |lease: &&Lease| lease.on_expiry == OnExpiry::Lost || lease.cancel_requested;
        let lost = self.leases.iter().filter(is_over);
        let lost = lost.map(|lease| lease.until).min();
        head.into_iter().chain(lost.filter(|_| self.deleted_at.is_none())).min()
    }

    /// The time under which the due index lists the record. A stored schedule: whenever a node
    /// should read it. A job in code: only while a trigger or a retry waits, because the nodes know
    /// its schedule.
    pub fn index_at(&self) -> Option<Time> {
        if !self.kind.is_empty() {
            return self.wake_at();
        }
        if self.triggers.is_empty() && self.retries.is_empty() {
            return None;
        }
        self.head().map(|head| head.due_at)
    }

    /// The record as its readers see it.
    pub fn state(&self, name: &str) -> JobState {
        let head = self.head();
        JobState {
            name: name.to_owned(),
            kind: self.kind.clone(),
            definition: self.definition.clone(),
            due_lease: self.due_lease,
            version: self.version,
            incarnation: self.incarnation,
            generation: self.generation,
            data: self.data.clone(),
            head: head.map(|head| head.occurrence.to_occurrence()),
            due_at: head.map(|head| head.due_at),
            attempts: head.map_or(0, |head| head.attempts),
            next: self.cursor,
            last_started: self.last_started,
            fence: self.fence,
            leases: self.leases.clone(),
            waiters: self.waiters.clone(),
            paused: self.paused.clone(),
            dead: self.dead.clone(),
            checkpoints: self.checkpoints().collect(),
            unreadable: None,
            last: self.last.clone(),
            streak: self.streak.clone(),
            counters: self.counters,
            chain: self.chain.clone(),
        }
    }

    /// The lease of the run under this fence, also if the run was recorded as lost and its end is
    /// still accepted.
    pub fn run(&self, fence: i64) -> Option<&Lease> {
        self.leases.iter().chain(&self.lost).find(|lease| lease.fence == fence)
    }

    /// True for the lease of a run of the deleted job that had this name. Its run is being cancelled,
    /// and was recorded so. It has no occurrence here: it only keeps exclusive runs waiting.
    fn is_former(&self, lease: &Lease) -> bool {
        lease.fence < self.incarnation
    }

    /// True for the lease of a run whose end is recorded: it was completed and works on, or its job was
    /// deleted. It only keeps exclusive runs waiting.
    fn is_recorded(&self, lease: &Lease) -> bool {
        lease.completed || self.is_former(lease)
    }

    /// `true` unless it was deleted.
    pub fn is_live(&self) -> bool {
        self.deleted_at.is_none()
    }

    /// True for a tombstone whose [time](TOMBSTONE) is over. It is the same as no record, except that
    /// fences continue after its own.
    pub fn is_forgotten(&self, now: Time) -> bool {
        self.deleted_at.is_some_and(|deleted| saturating_add(deleted, TOMBSTONE) <= now)
    }

    fn draw_fence(&mut self, now: Time) -> i64 {
        self.fence = next_fence(self.fence, now);
        self.fence
    }
}

/// The error for a job that does not exist.
pub(crate) fn missing(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no job {name:?}"))
}

/// The record of a job that was not deleted.
fn live<'a>(slot: &'a mut Option<Record>, name: &str) -> Result<&'a mut Record> {
    slot.as_mut().filter(|record| record.is_live()).ok_or_else(|| missing(name))
}
