//! Operations of one tick on their way to the store, and the runs that they start.

use super::{
    decide::{GiveUp, Replacement},
    due_queries::{DueRequest, Unplanned},
    key::{HeldKey, KeyClaim, KeyRelease},
    slot::PendingClaim,
    slot_id::SlotId,
};
use crate::{
    backend::{Action, Advance, Claimed, Cursor, NextRun, Occurrence, Operation, Replan},
    job::{CheckedSchedule, JobSpec},
    time::Time,
};
use allora_schedule::Excluded;
use std::{sync::Arc, time::Duration};

/// The result of one tick of the planner.
pub(crate) struct Tick {
    /// The operations to send.
    pub(crate) requests: Vec<Request>,
    /// The last operations on these jobs failed. What is due else need not wait for this request.
    pub(crate) are_suspects: bool,
    /// The query that finds and claims, to send beside them.
    pub(crate) query: Option<DueRequest>,
    /// The time of the next tick, if nothing happens before. If the capacity is used up, what is due
    /// has no time.
    pub(crate) wake_at: Option<Time>,
    /// Something is due that is not among the requests.
    pub(crate) more: bool,
    /// Something is due, and the node's capacity is used up.
    pub(crate) full: bool,
    /// Jobs that were removed, to be dropped without a lock.
    pub(crate) removed: Vec<JobSpec>,
}

/// One operation on its way to the store.
#[derive(Debug)]
pub(crate) struct Request {
    pub(super) slot: SlotId,
    pub(crate) name: Arc<str>,
    pub(super) action: RequestAction,
}

/// The part of [`Action`] that the planner uses, with what the planner needs when the reply comes.
#[derive(Debug)]
pub(super) enum RequestAction {
    Read,
    Register {
        definition: Box<str>,
        version: u64,
        first: Option<NextRun>,
    },
    Redefine {
        generation: i64,
        definition: Box<str>,
        version: u64,
        plan: Replan,
    },
    Claim(Box<PendingClaim>),
    Advance(Advance),
    Replace(Replacement),
    Reap,
    GiveUp(Box<GiveUp>),
    /// Moves, ends or keeps the lease of an occurrence that a query has claimed.
    Claimed(Box<Unplanned>),
    /// Claims the concurrency key of the job.
    ClaimKey(Box<KeyClaim>),
    /// Releases a place of a concurrency key, which is no slot's any more.
    ReleaseKey(Box<KeyRelease>),
    /// Reads or writes the mark.
    Mark(MarkAction),
}

/// An operation on the record of the [mark](super::mark).
#[derive(Debug)]
pub(super) enum MarkAction {
    Read,
    /// `generation`: that of the record as it was last read; `None` if there was none.
    Write {
        generation: Option<i64>,
        text: Box<str>,
    },
}

impl RequestAction {
    /// `true` if it changes the record of a job whose occurrence is not claimed with it.
    pub(super) fn is_write(&self) -> bool {
        matches!(
            self,
            RequestAction::Advance(_)
                | RequestAction::Replace(_)
                | RequestAction::Reap
                | RequestAction::GiveUp(_)
        )
    }
}

/// A run to start.
pub(crate) struct Start {
    pub(crate) slot: SlotId,
    pub(crate) name: Arc<str>,
    pub(crate) spec: JobSpec,
    pub(crate) claimed: Claimed,
    /// The cursor's move by its completion.
    pub(crate) then: Cursor,
    pub(crate) late: Duration,
    /// The scheduled times from which and to which the cursor moves for it, if it moves.
    pub(crate) passes: Option<(Time, Time)>,
    /// The job's concurrency key.
    pub(crate) key: Option<HeldKey>,
    /// `false`: an unresolved claim has won, and the node's capacity is used up meanwhile. It is released.
    pub(crate) has_room: bool,
}

impl Start {
    /// The occurrences that the calendar excludes where the cursor moves. Calls the user's schedule.
    pub(crate) fn excluded(&self) -> Option<Excluded> {
        let (after, until) = self.passes?;
        CheckedSchedule::of(&self.name, &self.spec).excluded(after, until).ok().flatten()
    }
}

/// The scheduled times from which and to which one of these moves takes the cursor.
pub(super) fn moved(from: &Occurrence, moves: [Cursor; 2]) -> Option<(Time, Time)> {
    let to = |cursor: Cursor| match cursor {
        Cursor::To(next) => next.map(|next| next.scheduled_at),
        Cursor::Keep => None,
    };
    let until = moves.into_iter().find_map(to).filter(|_| from.trigger.is_none())?;
    Some((from.scheduled_at, until))
}

impl Request {
    pub(crate) fn operation(&self) -> Operation<'_> {
        let action = match &self.action {
            RequestAction::Read | RequestAction::Mark(MarkAction::Read) => Action::Read,
            RequestAction::Register { definition, version, first } => {
                Action::Register { definition, version: *version, first: *first }
            }
            RequestAction::Redefine { generation, definition, version, plan } => {
                let (generation, version, plan) = (*generation, *version, *plan);
                Action::Redefine { generation, definition, version, plan }
            }
            RequestAction::Mark(MarkAction::Write { generation: Some(generation), text }) => {
                let (generation, version, plan) = (*generation, 0, Replan::default());
                Action::Redefine { generation, definition: text, version, plan }
            }
            RequestAction::Mark(MarkAction::Write { generation: None, text }) => {
                Action::Register { definition: text, version: 0, first: None }
            }
            RequestAction::Claim(pending) => Action::Claim(pending.claim.clone()),
            RequestAction::Advance(advance) => Action::Advance(*advance),
            RequestAction::Replace(Replacement { generation, expected, by }) => {
                Action::Replace { generation: *generation, expected: *expected, by: *by }
            }
            RequestAction::Reap => Action::Reap,
            RequestAction::Claimed(unplanned) => unplanned.action(),
            RequestAction::ClaimKey(claim) => {
                return Operation::new(claim.record(), Action::ClaimKey(claim.operation()));
            }
            RequestAction::ReleaseKey(release) => return release.operation(),
            RequestAction::GiveUp(give_up) => {
                let GiveUp { fence, occurrence, then, error, .. } = &**give_up;
                Action::GiveUp { fence: *fence, occurrence: occurrence.clone(), then: *then, error }
            }
        };
        Operation::new(&self.name, action)
    }

    /// The place of its job.
    pub(crate) fn slot(&self) -> SlotId {
        self.slot
    }

    /// `true` if it is about the mark. Nothing waits for its reply.
    pub(super) fn is_about_mark(&self) -> bool {
        matches!(self.action, RequestAction::Mark(_))
    }

    /// `true` if it changes the record of a job whose occurrence is not claimed with it.
    pub(super) fn is_write(&self) -> bool {
        self.action.is_write()
    }

    /// `true` if it is about the record of a concurrency key.
    pub(crate) fn is_about_key(&self) -> bool {
        matches!(self.action, RequestAction::ClaimKey(_) | RequestAction::ReleaseKey(_))
    }

    /// `true` if it claims an occurrence.
    pub(crate) fn claims_occurrence(&self) -> bool {
        matches!(self.action, RequestAction::Claim(_))
    }

    /// `true` if a run may follow, which needs capacity.
    pub(crate) fn is_claim(&self) -> bool {
        matches!(self.action, RequestAction::Claim(_) | RequestAction::ClaimKey(_))
    }
}
