//! One job on one node: what node and store have agreed on, and the exchange between them.

use super::{backlog::Backlog, known::Known};
use crate::{
    backend::{Claim, Cursor, NextRun, NotRun, OPERATION_BYTES},
    condition::Condition,
    event::Event,
    job::{CheckedSchedule, Delivery, InvalidNextAt, JobSpec, Progress},
    planner::wake_up::When,
    time::{Time, saturating_add},
};
use allora_schedule::stable_hash;
use std::{borrow::Cow, sync::Arc, time::Duration};

/// The shortest time between two reads of a record because another node may end a run.
const SHORTEST_RECHECK: Duration = Duration::from_millis(1_500);

/// One job of this node.
pub(crate) struct Slot {
    pub(crate) name: Arc<str>,
    /// The job as this node runs it: for a job in code that was adopted, under the stored definition.
    pub(crate) spec: JobSpec,
    pub(crate) origin: Origin,
    /// Its rank in this node's order of the jobs.
    pub(crate) rank: u32,
    pub(crate) phase: Phase,
    pub(crate) exchange: Exchange,
    /// The latest wake-up in the queue; earlier entries are stale.
    pub(in crate::planner) wake_at: Option<When>,
    /// The generation of the definition that this node and the store last agreed on.
    pub(crate) agreed: Option<i64>,
    /// The highest fence that was seen.
    pub(crate) fence: Option<i64>,
    /// The last tick in which something was asked about it.
    pub(crate) asked_in: u64,
    /// The last tick in which a reply about it was applied.
    pub(crate) replied_in: u64,
    /// Boxed: most jobs are idle, and a node may have many.
    pub(crate) rare: Option<Box<Rare>>,
}

/// The part of a job's state that it does not have before its first run, if nothing is unusual.
#[derive(Default)]
pub(crate) struct Rare {
    /// The job as its program has it, while it runs by another definition, which is in the store.
    pub(crate) own: Option<JobSpec>,
    /// Its due occurrences, if its schedule can only be walked.
    pub(crate) backlog: Option<Box<Backlog>>,
    /// The wake-up with which it was put aside, because its handler has no capacity.
    pub(in crate::planner) aside: Option<When>,
    /// The last known cursor of an at-least-once job. If the store is emptied, the job is registered
    /// again with it.
    pub(crate) cursor: Option<NextRun>,
    /// The fence of this node's last claim of the cursor's occurrence.
    pub(crate) cursor_claim: Option<i64>,
    /// The last tick in which an update of one of its runs was applied.
    pub(crate) updated_in: u64,
    /// The number of successive requests that the store rejected although it returned the record as
    /// due.
    pub(crate) refused: u32,
    /// The reported reason why this node does not run it.
    pub(crate) reported: Option<Off>,
}

/// The place that defines a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A program.
    Code,
    /// The store. The job has a slot only while it wants attention.
    Stored,
}

/// The agreement of this node and the store about a job.
#[derive(Debug)]
pub(crate) enum Phase {
    /// To be registered, with this definition; `None` if it is not computed yet. It is kept until the
    /// store has replied, and computed again when the store has another one.
    New(Option<Box<str>>),
    /// The store has another definition, which this node replaces.
    Redefine(Box<Former>),
    /// In agreement with the store.
    Known(Known),
    /// To be read.
    Stale,
    /// Not run by this node. The record is read again when `wake_at` comes, or after a
    /// notification.
    Off(Off),
}

/// The state in the store under a definition that this node replaces.
#[derive(Debug)]
pub(crate) struct Former {
    pub(crate) generation: i64,
    pub(crate) version: u64,
    pub(crate) definition: String,
    /// This node's own definition, which replaces it.
    pub(crate) own: Box<str>,
    pub(crate) progress: Progress,
    /// No node has run the job by that definition for a while.
    pub(crate) is_abandoned: bool,
    /// The job was reset, and its definition may stay.
    pub(crate) was_reset: bool,
    /// The definition stays. These had passed when the job was registered, and are recorded as missed.
    pub(crate) missed: Option<(Time, NotRun)>,
}

/// The reason why this node does not run a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Off {
    /// This incarnation was deleted, which is final. Read again when the next occurrence would be
    /// due: a node that started later may have created another one.
    Deleted,
    /// The definition in the store is one that this node cannot run, for this reason. Read again
    /// after a minute.
    Conflict(&'static str),
    /// The schedule is faulty, or the name is that of a stored schedule. Tried again after a
    /// minute.
    Invalid(String),
    /// Its record cannot be read. Read again after a minute.
    Unreadable(String),
    /// Its record has times of a store whose clock was ahead. It is reported, and is no phase: the
    /// job runs when its time comes. Read again after a minute.
    Ahead(Time),
    /// The node does not have it any more. The slot is freed when the conversation ends.
    Removed,
}

impl Off {
    pub(in crate::planner) fn condition(&self, job: Arc<str>) -> Option<Condition> {
        Some(match self {
            Off::Deleted => Condition::JobDeleted { job },
            Off::Conflict(reason) => {
                Condition::DefinitionConflict { job, reason: (*reason).to_owned() }
            }
            Off::Invalid(reason) => Condition::JobInvalid { job, reason: reason.clone() },
            Off::Unreadable(reason) => Condition::RecordUnreadable { job, reason: reason.clone() },
            Off::Ahead(until) => Condition::ClockWasAhead { job, until: *until },
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

/// A claim on its way to the store.
#[derive(Debug)]
pub(crate) struct PendingClaim {
    pub(in crate::planner) claim: Claim,
    /// The cursor's move by the completion.
    pub(in crate::planner) then: Cursor,
    pub(in crate::planner) late: Duration,
    /// The number of the schedule's occurrences that were started, including this one.
    pub(in crate::planner) started: u64,
    /// It is a repetition, because a reply was lost: the end of the lease that the first claim has,
    /// if it succeeded.
    pub(in crate::planner) lease_end: Option<Time>,
    /// The instant at which the job was due, while its claim counts among the [own](crate::planner::own_claims)
    /// ones that are on their way.
    pub(in crate::planner) own_instant: Option<Time>,
}

impl Exchange {
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self, Exchange::Idle)
    }

    /// `true` if an operation is on its way.
    pub(crate) fn is_asked(&self) -> bool {
        matches!(self, Exchange::Asked { .. })
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
            phase: Phase::New(None),
            exchange: Exchange::Idle,
            wake_at: None,
            agreed: None,
            fence: None,
            asked_in: 0,
            replied_in: 0,
            rare: None,
        }
    }

    pub(crate) fn is_stored(&self) -> bool {
        self.origin == Origin::Stored
    }

    /// `true` for a job in code that runs by another definition, which is in the store.
    pub(crate) fn is_adopted(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.own.is_some())
    }

    /// The job as its program has it.
    pub(crate) fn own(&self) -> &JobSpec {
        self.rare.as_ref().and_then(|rare| rare.own.as_ref()).unwrap_or(&self.spec)
    }

    /// Runs the job by this definition, which is in the store.
    pub(crate) fn adopt(&mut self, spec: JobSpec) {
        let before = std::mem::replace(&mut self.spec, spec);
        self.rare.get_or_insert_default().own.get_or_insert(before);
    }

    /// Runs the job as its program has it.
    pub(crate) fn restore_own(&mut self) {
        if let Some(own) = self.rare.as_mut().and_then(|rare| rare.own.take()) {
            self.spec = own;
        }
    }

    /// The definition of a job in code as text. Calls user code, unless a definition is on its way to
    /// the store.
    pub(crate) fn definition(&self) -> Result<Cow<'_, str>, InvalidNextAt> {
        match &self.phase {
            Phase::New(Some(definition)) => Ok(Cow::Borrowed(definition)),
            Phase::Redefine(former) => Ok(Cow::Borrowed(&former.own)),
            _ => CheckedSchedule::definition(self.own()).map(Cow::Owned),
        }
    }

    /// Reports the reason why this node does not run it, in place of the one before, or that there is
    /// none.
    pub(in crate::planner) fn report(&mut self, off: Option<Off>, events: &mut Vec<Event>) {
        if self.reported() == off.as_ref() {
            return;
        }
        let name = &self.name;
        let of = |off: &Off| off.condition(name.clone());
        let (before, after) = (self.reported().and_then(of), off.as_ref().and_then(of));
        let is_same =
            |one: &Condition| after.as_ref().is_some_and(|after| after.code() == one.code());
        events.extend(before.filter(|before| !is_same(before)).map(Event::Ended));
        events.extend(after.map(Event::Began));
        if off.is_some() || self.rare.is_some() {
            self.rare.get_or_insert_default().reported = off;
        }
    }

    /// The time at which its record is read again, although nothing is due by what is known. While a run
    /// lasts whose end decides when the next one is due, that is after the delay between them at the latest:
    /// its node may be gone when that is over.
    pub(crate) fn recheck_at(&self, known: &Known, poll: Duration, is_told: bool) -> Time {
        let at = known.recheck_at(poll, is_told);
        if known.cursor.is_none() || known.open_cursor().is_some() {
            return at;
        }
        match CheckedSchedule::of(&self.name, &self.spec).delay_after_end() {
            Some(delay) => at.min(saturating_add(known.as_of, delay.max(SHORTEST_RECHECK))),
            None => at,
        }
    }

    /// The reported reason why this node does not run it.
    pub(crate) fn reported(&self) -> Option<&Off> {
        self.rare.as_ref()?.reported.as_ref()
    }

    /// The last tick in which an update of one of its runs was applied; 0 if there was none.
    pub(crate) fn updated_in(&self) -> u64 {
        self.rare.as_ref().map_or(0, |rare| rare.updated_in)
    }

    pub(crate) fn take_backlog(&mut self) -> Option<Box<Backlog>> {
        self.rare.as_mut()?.backlog.take()
    }

    pub(crate) fn set_backlog(&mut self, backlog: Option<Box<Backlog>>) {
        if backlog.is_some() {
            self.rare.get_or_insert_default().backlog = backlog;
        }
    }

    /// The store has rejected its last request, or returned the record as due.
    pub(crate) fn was_refused(&mut self) {
        let rare = self.rare.get_or_insert_default();
        rare.refused = rare.refused.saturating_add(1);
    }

    /// The last time at which the store may carry out a claim that is sent now. It is not before the
    /// store's time in the last reply about the job, and a claim that was refused gets longer: a wrong
    /// estimate of the store's clock refuses a claim once.
    pub(crate) fn claim_until(&self, now: Time, timeout: Duration) -> Time {
        let now = match &self.phase {
            Phase::Known(known) => now.max(known.as_of),
            _ => now,
        };
        let refused = self.rare.as_ref().map_or(0, |rare| rare.refused);
        saturating_add(now, timeout.saturating_mul(refused.saturating_add(1)))
    }

    /// The store has accepted its last request, or returned it as not due.
    pub(crate) fn was_not_refused(&mut self) {
        if let Some(rare) = &mut self.rare {
            rare.refused = 0;
        }
    }

    /// The cursor of an at-least-once job, if it is known.
    pub(crate) fn leased_cursor(&self) -> Option<NextRun> {
        self.rare.as_ref()?.cursor.filter(|_| self.is_at_least_once())
    }

    /// Notes the cursor for the case that the store is emptied. At most once, another node may have run
    /// what this node last knew to be next.
    pub(crate) fn note_cursor(&mut self, cursor: Option<NextRun>) {
        if self.is_at_least_once() && !self.is_stored() {
            self.rare.get_or_insert_default().cursor = cursor;
        }
    }

    fn is_at_least_once(&self) -> bool {
        matches!(self.spec.settings.delivery, Delivery::AtLeastOnce { .. })
    }

    /// The handler of its kind, if this node limits its runs.
    pub(crate) fn limited(&self) -> Option<usize> {
        self.spec.payload.as_ref()?.limited
    }

    /// The largest size of its next operation.
    pub(crate) fn operation_bytes(&self) -> usize {
        let definition = match (&self.origin, &self.phase) {
            (Origin::Stored, _) | (_, Phase::Known(_) | Phase::Stale) => 0,
            (Origin::Code, _) => self.definition().map_or(0, |text| text.len()),
        };
        OPERATION_BYTES + definition
    }

    pub(crate) fn is_removed(&self) -> bool {
        matches!(self.phase, Phase::Off(Off::Removed))
    }

    /// `true` for a job in code that was not removed.
    pub(crate) fn is_in_code(&self) -> bool {
        !self.is_stored() && !self.is_removed()
    }

    /// `true` if the schedule of this job in code has ended, and nothing is under way.
    pub(crate) fn is_finished(&self) -> bool {
        let Phase::Known(known) = &self.phase else { return false };
        let is_plain = self.rare.as_ref().is_none_or(|rare| {
            rare.own.is_none() && rare.aside.is_none() && rare.reported.is_none()
        });
        let has_ended = known.cursor.is_none() && known.wants_attention().is_none();
        has_ended && is_plain && !known.is_ahead && !self.is_stored() && self.exchange.is_idle()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_small_because_a_node_may_have_very_many() {
        assert!(size_of::<Slot>() <= 264, "{}", size_of::<Slot>());
    }
}
