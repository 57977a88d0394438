//! A claim of a concurrency key, and the queue of the jobs that wait for one.

use crate::time::Time;
use std::time::Duration;

/// Claims one of the places of a concurrency key, before an occurrence of the job is claimed.
///
/// Granted if the key has fewer live holders than `limit`, each other job that waits and comes
/// earlier in the queue has a place left, and no live holder has the key for the same occurrence. The
/// reply to a granted claim is [`Claimed`](super::Reply::Claimed); its occurrence has the job's name
/// as trigger, and as scheduled time the time since which the job has waited. A refused claim writes
/// the job into the queue, and its reply is the record: its leases are the holders, its waiters the
/// queue. The record is created if there is none.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ClaimKey<'a> {
    /// A random number for this claim. A claim whose reply was lost is sent again with the same
    /// number, and is granted again as long as its lease lasts.
    pub claim_id: u128,
    /// The largest number of live holders, with this one.
    pub limit: u32,
    /// The job.
    pub job: &'a str,
    /// The due time of the job's occurrence. The queue is ordered by it, then by name.
    pub due_at: Time,
    /// The time since which the job has waited, if this node knows it.
    pub since: Option<Time>,
    /// The length of the lease, from the store's now.
    pub duration: Duration,
    /// The length by which the holder extends it, if this node knows it. A lease that ends later than
    /// this explains was written by a clock that was ahead.
    pub extended_by: Option<Duration>,
    /// No place is granted after this time, and the job gets no place in the queue, unless the claim
    /// was carried out before. Nodes set it as that of a [`Claim`](super::Claim): a store that hung
    /// gives no place to a claim for which nobody waits any more.
    pub not_after: Option<Time>,
}

impl<'a> ClaimKey<'a> {
    /// A claim for the occurrence of `job` that is due since `due_at`.
    pub fn new(claim_id: u128, limit: u32, job: &'a str, due_at: Time, duration: Duration) -> Self {
        let (since, extended_by, not_after) = (None, None, None);
        Self { claim_id, limit, job, due_at, since, duration, extended_by, not_after }
    }

    /// With the time since which the job has waited.
    #[must_use]
    pub fn waiting_since(mut self, since: Option<Time>) -> Self {
        self.since = since;
        self
    }

    /// With the length by which the holder extends the lease.
    #[must_use]
    pub fn extended_by(mut self, extended_by: Duration) -> Self {
        self.extended_by = Some(extended_by);
        self
    }

    /// Carried out no later than `not_after`.
    #[must_use]
    pub fn not_after(mut self, not_after: Option<Time>) -> Self {
        self.not_after = not_after;
        self
    }

    /// `true` if it comes too late.
    pub(crate) fn is_late(&self, now: Time) -> bool {
        self.not_after.is_some_and(|end| end < now)
    }

    /// The job's place in the queue.
    pub(crate) fn place(&self) -> (Time, &str) {
        (self.due_at, self.job)
    }
}

/// A job that waits for a concurrency key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// The job.
    pub job: String,
    /// The due time of its occurrence.
    pub due_at: Time,
    /// The time since which it waits.
    pub since: Time,
    /// The end of its place in the queue, unless a node asks again for it before.
    pub until: Time,
}

impl Waiter {
    /// A job with its place in the queue: for backends that read it back.
    pub fn new(job: impl Into<String>, due_at: Time, since: Time, until: Time) -> Self {
        Self { job: job.into(), due_at, since, until }
    }

    /// Its place in the queue.
    pub(crate) fn place(&self) -> (Time, &str) {
        (self.due_at, &self.job)
    }
}
