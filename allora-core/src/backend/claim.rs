//! A claim of an occurrence, and what it grants.
//!
//! A claim names the fence that was read. The network may deliver it after its run was released or
//! waits for a retry; then the record has a higher fence, and the claim fails, although nobody waits
//! for it any more. To remember the ids of ended claims would not do: one id is too few once two
//! nodes have released the occurrence.

use super::{NextRun, NotRun, Occurrence, OnExpiry, Sharing};
use crate::time::Time;
use std::time::Duration;

/// Claims an occurrence, if nothing of the job was claimed or changed since it was read, the expected
/// occurrence is offered, and it is due. Offered is the head; and the cursor's occurrence while the
/// head is a trigger.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Claim {
    /// A random number for this claim. A claim whose reply was lost is sent again with the same
    /// number.
    pub claim_id: u128,
    /// The record's fence that was read. Every claim and every change of the definition leaves a
    /// higher one, so that a claim that the network delivers late, when its run was released or
    /// waits to be retried, does not succeed for a node that no longer waits for it.
    pub fence: i64,
    /// The head that was read, or the cursor's occurrence if the head is a trigger.
    pub expected: Occurrence,
    /// The occurrence to start: the expected one, or a later one of the same schedule if `not_run`
    /// accounts for those before it. A later one is not after the store's now.
    pub start: Occurrence,
    /// The earliest time of a claim of a later `start`; the head's own is in the record.
    pub start_due_at: Option<Time>,
    /// The occurrences from `expected` up to `start` that are not run.
    pub not_run: Option<NotRun>,
    /// The claim is rejected after this time, unless it was carried out before. Nodes set it to their
    /// estimate of the store's clock plus the time for which they wait for the reply, so that a store
    /// that hung carries out nothing for which nobody waits any more.
    pub not_after: Option<Time>,
    /// The cursor's move. With a lease that is lost on expiry it is made by the claim: `To` for the
    /// cursor's own occurrence, `AfterEnd` if the next one follows its end, `Keep` for any other. With a
    /// lease that is retried on expiry it is `Keep`: the completion moves the cursor.
    pub then: Cursor,
    /// The lease of the run.
    pub lease: LeaseTerms,
}

impl Claim {
    /// Claims the expected occurrence itself, at most once: a run whose lease ends is lost.
    pub fn at_most_once(
        claim_id: u128,
        fence: i64,
        expected: Occurrence,
        then: Cursor,
        lease: Duration,
        sharing: Sharing,
    ) -> Self {
        let lease = LeaseTerms { duration: lease, on_expiry: OnExpiry::Lost, sharing };
        Self::new(claim_id, fence, expected, then, lease)
    }

    /// Claims the expected occurrence itself, at least once: a run whose lease ends is run again.
    pub fn at_least_once(
        claim_id: u128,
        fence: i64,
        expected: Occurrence,
        lease: Duration,
    ) -> Self {
        let (on_expiry, sharing) = (OnExpiry::Retry, Sharing::Exclusive);
        let lease = LeaseTerms { duration: lease, on_expiry, sharing };
        Self::new(claim_id, fence, expected, Cursor::Keep, lease)
    }

    fn new(
        claim_id: u128,
        fence: i64,
        expected: Occurrence,
        then: Cursor,
        lease: LeaseTerms,
    ) -> Self {
        let start = expected.clone();
        Self {
            claim_id,
            fence,
            expected,
            start,
            start_due_at: None,
            not_run: None,
            not_after: None,
            then,
            lease,
        }
    }

    /// Starts a later occurrence, and accounts for those before it.
    #[must_use]
    pub fn starting(mut self, start: NextRun, not_run: NotRun) -> Self {
        self.start = start.scheduled_at.into();
        self.start_due_at = Some(start.due_at);
        self.not_run = Some(not_run);
        self
    }

    /// Rejected after this time at the latest.
    pub(crate) fn until(mut self, until: Time) -> Self {
        self.not_after = Some(self.not_after.map_or(until, |end| end.min(until)));
        self
    }

    /// Checks the conditions that are independent of the record: an occurrence that is started instead
    /// of the expected one is not in the future, the cursor moves forward, and occurrences that are not
    /// run are counted. The store checks them because `next_at` is user code. The scheduled time of the
    /// expected one may be in the future: a calendar may have moved it to an earlier day.
    pub(crate) fn is_sound(&self, now: Time) -> bool {
        let forward = match self.then {
            Cursor::To(Some(next)) => next.scheduled_at > self.start.scheduled_at,
            _ => true,
        };
        let accounted = match self.not_run {
            None => self.start == self.expected,
            Some(not_run) => {
                self.start.trigger.is_none()
                    && self.expected.trigger.is_none()
                    && (self.expected.scheduled_at..self.start.scheduled_at).contains(&not_run.last)
            }
        };
        let in_time = self.not_after.is_none_or(|until| now <= until);
        let has_come = self.not_run.is_none() || self.start.scheduled_at <= now;
        forward && accounted && in_time && has_come
    }
}

/// The lease that a claim asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTerms {
    /// The length of the lease unless it is extended, from the store's now.
    pub duration: Duration,
    /// The result of the run when the lease ends.
    pub on_expiry: OnExpiry,
    /// `Shared` if other runs of the job may be alive at the same time. A run that is retried on
    /// expiry is always exclusive.
    pub sharing: Sharing,
}

/// A move of the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cursor {
    /// The cursor stays.
    Keep,
    /// The cursor moves to the next occurrence; `None` is the end of the schedule.
    To(Option<NextRun>),
    /// The cursor stays on the occurrence until its last attempt has ended. Then it moves to the time that
    /// the definition, a schedule by [`after_end`](crate::after_end()), gives for that instant. Of both deliveries:
    /// the record moves it wherever an end is recorded, also that of a lost run.
    AfterEnd,
}

/// A claimed occurrence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claimed {
    /// The occurrence to run.
    pub occurrence: Occurrence,
    /// The fencing token: grows with every claim of the job.
    pub fence: i64,
    /// The number of this attempt at the occurrence, from 1.
    pub attempt: u32,
    /// The incarnation of the name: changes when a deleted job is created again.
    pub incarnation: i64,
    /// The end of the lease.
    pub until: Time,
    /// The data of a trigger that has any of its own. `None`: that of the schedule.
    pub data: Option<Vec<u8>>,
    /// The last [checkpoint](super::Operation::checkpoint) of the attempts before this one.
    pub checkpoint: Option<Vec<u8>>,
}

impl Claimed {
    /// A claimed occurrence at the first attempt, with the data of the schedule.
    pub fn new(occurrence: Occurrence, fence: i64, incarnation: i64, until: Time) -> Self {
        Self { occurrence, fence, attempt: 1, incarnation, until, data: None, checkpoint: None }
    }
}
