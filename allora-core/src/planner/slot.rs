//! The state of one job on one node.

use crate::{
    backend::{JobState, NextRun, Occurrence, OnExpiry},
    job::JobSpec,
    time::Time,
};
use allora_schedule::stable_hash;
use std::sync::Arc;

/// One job of this node.
pub(crate) struct Slot {
    pub(crate) name: Arc<str>,
    pub(crate) spec: JobSpec,
    /// Its rank in this node's order of the jobs.
    pub(crate) rank: u32,
    pub(crate) phase: Phase,
    /// The id of a claim whose reply was lost. The next claim repeats it.
    pub(crate) claim_id: Option<u128>,
    /// The latest wake-up in the queue; earlier entries are stale.
    pub(crate) wake_at: Option<Time>,
    /// It is in the list of pending registrations.
    pub(crate) listed: bool,
    /// The generation of the definition that this node and the store last agreed on.
    pub(crate) agreed: Option<i64>,
    /// An operation on it is on its way to the store.
    pub(crate) asked: bool,
    /// A notification came meanwhile, which the reply may not reflect.
    pub(crate) is_dirty: bool,
    /// The last tick in which an end of one of its runs was recorded.
    pub(crate) ended_in: u64,
    /// It was removed from this node. Its slot stays, since runs and replies refer to it.
    pub(crate) removed: bool,
    /// The number of successive requests that the store rejected although it returned the record as
    /// due.
    pub(crate) refused: u32,
    /// A stored schedule: it has a slot only while it wants attention.
    pub(crate) stored: bool,
    /// It is in the list of slots that may be idle.
    pub(crate) is_idle: bool,
}

impl Slot {
    /// `seed`: a random number of this node.
    pub(crate) fn new(name: Arc<str>, spec: JobSpec, seed: u64) -> Self {
        Self {
            rank: stable_hash(&[&seed.to_le_bytes(), name.as_bytes()]) as u32,
            name,
            spec,
            phase: Phase::New,
            claim_id: None,
            wake_at: None,
            listed: false,
            agreed: None,
            asked: false,
            is_dirty: false,
            ended_in: 0,
            removed: false,
            refused: 0,
            stored: false,
            is_idle: false,
        }
    }
}

/// The agreement of this node and the store about a job.
#[derive(Debug)]
pub(crate) enum Phase {
    /// To be registered.
    New,
    /// The store has another definition, of this generation. `started` occurrences were started;
    /// that of `cursor` was not.
    Redefine { generation: i64, after: Time, cursor: Option<NextRun>, started: u64 },
    /// In agreement with the store.
    Known(Known),
    /// To be read.
    Stale,
    /// Ignored until the scheduler is restarted.
    Off,
}

/// The current state as of the last reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// The time of that reply, by the store's clock.
    pub(crate) as_of: Time,
    pub(crate) generation: i64,
    /// The record's fence. A different fence means a different state.
    pub(crate) fence: i64,
    pub(crate) head: Option<Occurrence>,
    pub(crate) due_at: Option<Time>,
    pub(crate) cursor: Option<NextRun>,
    pub(crate) last_started: Option<Time>,
    pub(crate) started: u64,
    pub(crate) paused: bool,
    /// Fence and lease end of the active runs.
    pub(crate) lease_ends: Vec<(i64, Time)>,
}

impl Known {
    pub(crate) fn of(state: &JobState, now: Time) -> Self {
        let lost = state.leases.iter().filter(|lease| lease.on_expiry == OnExpiry::Lost);
        Self {
            as_of: now,
            generation: state.generation,
            fence: state.fence,
            head: state.head.clone(),
            due_at: state.due_at,
            cursor: state.cursor,
            last_started: state.last_started,
            started: state.counters.started,
            paused: state.paused.is_some(),
            lease_ends: lost.map(|lease| (lease.fence, lease.until)).collect(),
        }
    }

    /// `true` if the head is the schedule's next occurrence and was not started. Otherwise the head
    /// is the occurrence of an expired or failed run, and is claimed as it is.
    pub(crate) fn head_is_cursor(&self) -> bool {
        self.head_is_at_cursor() && self.last_started < self.cursor.map(|next| next.scheduled_at)
    }

    /// `true` if the head is the occurrence at the cursor, started or not.
    pub(crate) fn head_is_at_cursor(&self) -> bool {
        match (&self.head, self.cursor) {
            (Some(head), Some(next)) => {
                head.trigger.is_none() && head.scheduled_at == next.scheduled_at
            }
            _ => false,
        }
    }

    /// The time at which the record must be read or claimed.
    pub(crate) fn wants_attention(&self) -> Option<Time> {
        self.due_at.into_iter().chain(self.next_lease_end()).min()
    }

    /// Applies a move of the cursor, when nothing else is known to wait.
    pub(crate) fn go_to(&mut self, next: Option<NextRun>) {
        self.cursor = next;
        self.head = next.map(|next| Occurrence::from(next.scheduled_at));
        self.due_at = next.map(|next| next.due_at);
    }

    /// The earliest lease end of the active runs.
    pub(crate) fn next_lease_end(&self) -> Option<Time> {
        self.lease_ends.iter().map(|(_, until)| *until).min()
    }
}
