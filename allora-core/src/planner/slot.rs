//! One job on one node: the agreement with the store about it, and the conversation.

use super::{backlog::Backlog, known::Known, request::PendingClaim};
use crate::{
    backend::{NextRun, OPERATION_BYTES},
    event::Event,
    job::{InvalidNextAt, JobSpec},
    time::Time,
};
use allora_schedule::stable_hash;
use std::sync::Arc;

/// One job of this node.
pub(crate) struct Slot {
    pub(crate) name: Arc<str>,
    pub(crate) spec: JobSpec,
    pub(crate) origin: Origin,
    /// Its rank in this node's order of the jobs.
    pub(crate) rank: u32,
    pub(crate) phase: Phase,
    pub(crate) exchange: Exchange,
    /// Its due occurrences, if its schedule can only be walked.
    pub(crate) backlog: Option<Box<Backlog>>,
    /// The latest wake-up in the queue; earlier entries are stale.
    pub(crate) wake_at: Option<Time>,
    /// The generation of the definition that this node and the store last agreed on.
    pub(crate) agreed: Option<i64>,
    /// The highest fence that was seen.
    pub(crate) fence: Option<i64>,
    /// The fence of this node's last claim of the cursor's occurrence.
    pub(crate) cursor_claim: Option<i64>,
    /// The last tick in which an update of one of its runs was applied.
    pub(crate) updated_in: u64,
    /// The last tick in which a reply about it was applied.
    pub(crate) replied_in: u64,
    /// The number of successive requests that the store rejected although it returned the record as
    /// due.
    pub(crate) refused: u32,
    /// The reported reason why this node does not run it.
    pub(crate) reported: Option<Box<Off>>,
}

/// The place that defines a job.
pub(crate) enum Origin {
    /// A program. The definition as text, computed once.
    Code(Result<Box<str>, InvalidNextAt>),
    /// The store. The job has a slot only while it wants attention.
    Stored,
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
    /// Not run by this node. The record is read again when `wake_at` comes, or after a
    /// notification.
    Off(Off),
}

/// The reason why this node does not run a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Off {
    /// This incarnation was deleted, which is final. Read again when the next occurrence would be
    /// due: a node that started later may have created another one.
    Deleted,
    /// Another node has defined it differently. Read again after a minute.
    Conflict,
    /// The schedule is faulty, or the name is that of a stored schedule. Tried again after a
    /// minute.
    Invalid(String),
    /// Its record cannot be read. Read again after a minute.
    Unreadable(String),
    /// The node does not have it any more. The slot is freed when the conversation ends.
    Removed,
}

impl Off {
    pub(crate) fn event(&self, name: Arc<str>) -> Option<Event> {
        Some(match self {
            Off::Deleted => Event::Deleted { name },
            Off::Conflict => Event::DefinitionConflict { name },
            Off::Invalid(reason) => Event::JobInvalid { name, reason: reason.clone() },
            Off::Unreadable(reason) => Event::JobInvalid {
                name,
                reason: format!("its record in the store cannot be read: {reason}"),
            },
            Off::Removed => return None,
        })
    }
}

/// The conversation with the store about a job. At most one operation is on its way.
#[derive(Debug)]
pub(crate) enum Exchange {
    Idle,
    /// An operation is on its way. `newer`: a notification came since, which the reply may not
    /// reflect.
    Asked {
        newer: bool,
    },
    /// The reply to a claim was lost. Nothing else is asked until the claim's own reply resolves
    /// it.
    Unresolved {
        claim: Box<PendingClaim>,
        newer: bool,
    },
}

impl Exchange {
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self, Exchange::Idle)
    }

    /// Notes that the record has changed. Returns `false` if nothing is on its way or unresolved:
    /// then the record can be read now.
    pub(crate) fn note_newer(&mut self) -> bool {
        match self {
            Exchange::Idle => return false,
            Exchange::Asked { newer } | Exchange::Unresolved { newer, .. } => *newer = true,
        }
        true
    }

    /// Asks an unresolved claim again, and returns it. Any other conversation continues.
    pub(crate) fn repeat(&mut self) -> Option<Box<PendingClaim>> {
        let Exchange::Unresolved { newer, .. } = *self else { return None };
        match std::mem::replace(self, Exchange::Asked { newer }) {
            Exchange::Unresolved { claim, .. } => Some(claim),
            Exchange::Idle | Exchange::Asked { .. } => None,
        }
    }

    /// Ends the conversation. Returns whether the record has changed since the request.
    pub(crate) fn end(&mut self) -> bool {
        match std::mem::replace(self, Exchange::Idle) {
            Exchange::Idle => false,
            Exchange::Asked { newer } | Exchange::Unresolved { newer, .. } => newer,
        }
    }
}

impl Slot {
    /// `seed`: a random number of this node.
    pub(crate) fn new(name: Arc<str>, spec: JobSpec, origin: Origin, seed: u64) -> Self {
        Self {
            rank: stable_hash(&[&seed.to_le_bytes(), name.as_bytes()]) as u32,
            name,
            spec,
            origin,
            phase: Phase::New,
            exchange: Exchange::Idle,
            backlog: None,
            wake_at: None,
            agreed: None,
            fence: None,
            cursor_claim: None,
            updated_in: 0,
            replied_in: 0,
            refused: 0,
            reported: None,
        }
    }

    pub(crate) fn is_stored(&self) -> bool {
        matches!(self.origin, Origin::Stored)
    }

    /// The largest size of its next operation.
    pub(crate) fn operation_bytes(&self) -> usize {
        let definition = match (&self.origin, &self.phase) {
            (Origin::Stored, _) | (_, Phase::Known(_) | Phase::Stale) => 0,
            (Origin::Code(definition), _) => definition.as_ref().map_or(0, |text| text.len()),
        };
        OPERATION_BYTES + definition
    }

    pub(crate) fn is_removed(&self) -> bool {
        matches!(self.phase, Phase::Off(Off::Removed))
    }
}
