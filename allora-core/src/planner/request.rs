//! One operation on its way to the store, with what the planner needs when the reply comes.

use super::{
    job::decide::{GiveUp, Replacement},
    job::slot::PendingClaim,
    key::KeyClaim,
    release::Release,
    slot_id::SlotId,
    unplanned::Unplanned,
};
use crate::backend::{Action, Advance, NextRun, Operation, Replan};
use std::sync::Arc;

/// One operation on its way to the store.
#[derive(Debug)]
pub(crate) struct Request {
    /// The place of its job; `None` if it belongs to no job of this planner.
    pub(super) slot: Option<SlotId>,
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
    /// Gives a claim back, which is no slot's any more.
    Release(Box<Release>),
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

impl Request {
    /// Gives a claim back.
    pub(super) fn release(release: Release) -> Self {
        let (slot, name) = (None, release.name.clone());
        Self { slot, name, action: RequestAction::Release(Box::new(release)) }
    }

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
            RequestAction::Release(release) => return release.operation(),
            RequestAction::GiveUp(give_up) => {
                let GiveUp { fence, occurrence, then, error, .. } = &**give_up;
                Action::GiveUp { fence: *fence, occurrence: occurrence.clone(), then: *then, error }
            }
        };
        Operation::new(&self.name, action)
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
        match &self.action {
            RequestAction::ClaimKey(_) => true,
            RequestAction::Release(release) => release.is_of_key(),
            _ => false,
        }
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
