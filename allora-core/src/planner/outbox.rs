//! Operations that are sent, lost or failing.
//!
//! If the reply to a claim is lost, the claim may have won. So it reserves capacity, and is
//! repeated with the same id, until a reply resolves it.
//!
//! A job whose last operation failed, or was in a lost request, must not delay others: perhaps one
//! shard of the store fails or hangs, or one record. So it waits by itself, and requests about it
//! contain no healthy jobs. A lost request does not show which of its operations hangs. So its jobs
//! are divided among several requests, down to one job each. Operations that belong to no job
//! (`None`) wait in the same way: releases of keys, and what queries have claimed.

use super::{
    capacity::Reserved, congestion_window::CongestionWindow, slot_id::SlotId, wake_up::When,
};
use crate::{
    backoff::after,
    time::{Time, from_millis, saturating_add},
};
use std::{
    collections::{HashMap, VecDeque},
    mem,
    time::Duration,
};

/// The number of parts into which the jobs of a lost request are divided.
const PARTS: usize = 16;

/// The time after which a failure shows nothing about the store any more, if nothing is asked about its
/// job: the node is full, or nothing of the job is due. A multiple of the longest wait.
const RECENT: Duration = Duration::from_secs(10);

/// The largest number of requests on their way about jobs whose operations fail.
const SUSPECTS: usize = 16;

#[derive(Default)]
pub(super) struct Outbox {
    /// The jobs whose claims are on their way: `true` if the reply to an earlier request for the same
    /// was lost. Each reserves capacity.
    claims: HashMap<SlotId, bool>,
    /// The number of those for which that is `true`.
    repeated: usize,
    /// The jobs with unresolved claims, in the order in which the replies were lost. Each reserves
    /// capacity.
    unresolved: VecDeque<SlotId>,
    /// The jobs whose last operation failed.
    waits: HashMap<Option<SlotId>, Wait>,
    /// Jobs that were answered again, and whose runs on this node are recorded first, at most until
    /// this time.
    held: HashMap<SlotId, Time>,
    /// The last request was about jobs whose operations fail, or consisted of unresolved claims.
    had_suspects: bool,
    /// The requests on their way.
    on_way: OnWay,
    window: CongestionWindow,
}

/// The requests on their way when others are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OnWay {
    /// The number of operations in requests with more than one.
    pub(crate) operations: usize,
    /// The number of requests about jobs whose operations fail.
    pub(crate) suspects: usize,
}

impl OnWay {
    /// With a request with this number of operations.
    pub(crate) fn with(self, operations: usize, are_suspects: bool) -> Self {
        Self {
            operations: self.operations + counted(operations),
            suspects: self.suspects + usize::from(are_suspects),
        }
    }

    pub(crate) fn without(self, operations: usize, are_suspects: bool) -> Self {
        Self {
            operations: self.operations - counted(operations),
            suspects: self.suspects - usize::from(are_suspects),
        }
    }
}

/// A single operation is never too much for the store.
fn counted(operations: usize) -> usize {
    if operations > 1 { operations } else { 0 }
}

/// The wait of one job.
struct Wait {
    /// The number of failures in a row, and the time of the last one.
    failures: u32,
    failed_at: Time,
    /// The time of the next operation.
    until: When,
    /// The largest number of operations in its next request.
    most: usize,
    /// A request about it alone was lost.
    was_alone: bool,
}

impl Outbox {
    pub(super) fn set_on_way(&mut self, on_way: OnWay) {
        self.on_way = on_way;
    }

    /// The largest number of operations in the next request, beside those on their way.
    pub(super) fn window_left(&self) -> usize {
        self.window.size().saturating_sub(self.on_way.operations).max(1)
    }

    /// As [`window_left`](Self::window_left), in one about jobs whose operations fail. The others have
    /// the rest.
    pub(super) fn window_of_suspects(&self) -> usize {
        (self.window.size() / 2).max(1)
    }

    /// `true` if a request about jobs whose operations fail can be sent when so many more are. None of
    /// them waits for capacity: it may be reserved for what they resolve.
    pub(super) fn takes_suspects(&self, sent: usize) -> bool {
        self.on_way.suspects + sent < SUSPECTS
    }

    /// Returns whether the last request was about such jobs, and notes that this one is not.
    pub(super) fn take_had_suspects(&mut self) -> bool {
        mem::take(&mut self.had_suspects)
    }

    pub(super) fn has_suspects(&mut self) {
        self.had_suspects = true;
    }

    /// A request with this number of operations was answered.
    pub(super) fn request_answered(&mut self, operations: usize) {
        self.window.answered(operations);
    }

    /// No reply came to a request about these jobs. `load`: the number of operations that were on their
    /// way with it, if they may have been too much for the store.
    pub(super) fn request_lost(
        &mut self,
        jobs: impl Iterator<Item = Option<SlotId>>,
        operations: usize,
        load: Option<usize>,
        now: Time,
    ) {
        if let Some(load) = load {
            self.window.lost(load);
        }
        for id in jobs {
            let wait = self.wait(id, now);
            wait.most = operations.div_ceil(PARTS).max(1);
            wait.was_alone |= operations == 1;
        }
    }

    /// Notes that an operation on this job has failed: the next one is sent after a while, twice as
    /// long each time. The times are on a grid, so that jobs that fail together share requests.
    pub(super) fn failed(&mut self, id: Option<SlotId>, now: Time) {
        self.wait(id, now);
    }

    fn wait(&mut self, id: Option<SlotId>, now: Time) -> &mut Wait {
        let (failed_at, until) = (now, When::At(now));
        let new = Wait { failures: 0, failed_at, until, most: usize::MAX, was_alone: false };
        let wait = self.waits.entry(id).or_insert(new);
        (wait.failures, wait.failed_at) = (wait.failures.saturating_add(1), now);
        let pause = i64::try_from(after(wait.failures).as_millis()).unwrap_or(i64::MAX);
        let half_later = now.timestamp_millis().saturating_add(pause / 2);
        let on_grid = half_later.div_euclid(pause).saturating_add(1).saturating_mul(pause);
        wait.until = When::At(from_millis(on_grid).unwrap_or(now));
        wait
    }

    /// Notes that an operation on this job was answered.
    pub(super) fn answered(&mut self, id: Option<SlotId>) {
        self.waits.remove(&id);
        self.release(id);
    }

    /// `true` if the last operation on this job has failed.
    pub(super) fn is_failing(&self, id: Option<SlotId>) -> bool {
        self.waits.contains_key(&id)
    }

    /// The jobs whose last operation failed: `true` if that was less than [`RECENT`] before `now`.
    pub(super) fn failing(&self, now: Time) -> impl Iterator<Item = (Option<SlotId>, bool)> {
        let is_recent = move |wait: &Wait| now < saturating_add(wait.failed_at, RECENT);
        self.waits.iter().map(move |(id, wait)| (*id, is_recent(wait)))
    }

    /// The place of this job among those that fail: first those that may only have shared a request
    /// with one that hangs.
    pub(super) fn suspicion(&self, id: SlotId) -> (bool, u32) {
        self.waits.get(&Some(id)).map_or((false, 0), |wait| (wait.was_alone, wait.failures))
    }

    /// The largest number of operations in a request about this job.
    pub(super) fn most(&self, id: Option<SlotId>) -> usize {
        self.waits.get(&id).map_or(usize::MAX, |wait| wait.most)
    }

    /// The earliest time of an operation on this job that is due at `at`.
    pub(super) fn delay(&self, id: Option<SlotId>, at: When) -> When {
        let wait = self.waits.get(&id).map(|wait| wait.until);
        let held = id.and_then(|id| self.held.get(&id)).map(|until| When::At(*until));
        wait.into_iter().chain(held).fold(at, When::max)
    }

    /// Sends nothing about this job before this time.
    pub(super) fn hold(&mut self, id: SlotId, until: Time) {
        self.held.insert(id, until);
    }

    /// Ends [`hold`](Self::hold). Returns whether the job was held.
    pub(super) fn release(&mut self, id: Option<SlotId>) -> bool {
        id.is_some_and(|id| self.held.remove(&id).is_some())
    }

    /// Ends all waits: their times are of a clock that was ahead.
    pub(super) fn clock_was_set_back(&mut self) {
        self.waits.values_mut().for_each(|wait| wait.until = When::Next);
        self.held.clear();
    }

    /// A claim is on its way.
    pub(super) fn claim_sent(&mut self, id: SlotId, is_repeated: bool) {
        self.repeated += usize::from(is_repeated);
        self.claims.insert(id, is_repeated);
    }

    /// A claim is on its way no more, if there was one. Returns whether the reply to an earlier request
    /// for the same was lost.
    pub(super) fn claim_ended(&mut self, id: SlotId) -> bool {
        let was_repeated = self.claims.remove(&id).unwrap_or(false);
        self.repeated -= usize::from(was_repeated);
        was_repeated
    }

    /// The reply to a claim was lost.
    pub(super) fn claim_lost(&mut self, id: SlotId) {
        self.unresolved.push_back(id);
    }

    /// The number of unresolved claims.
    pub(super) fn unresolved(&self) -> usize {
        self.unresolved.len()
    }

    /// The time of the first repetition of an unresolved claim.
    pub(super) fn repeat_at(&self) -> Option<When> {
        self.unresolved.iter().map(|id| self.delay(Some(*id), When::Next)).min()
    }

    /// The jobs whose claims are repeated now, at most so many in one request. They have their capacity
    /// already.
    pub(super) fn take_repeated(&mut self, now: Time, mut most: usize) -> Vec<SlotId> {
        let mut unresolved = mem::take(&mut self.unresolved);
        unresolved.make_contiguous().sort_by_key(|id| self.suspicion(*id));
        let mut repeated = Vec::new();
        unresolved.retain(|id| {
            let with_it = most.min(self.most(Some(*id)));
            let is_due = repeated.len() < with_it && self.delay(Some(*id), When::Next).is_due(now);
            if is_due {
                most = with_it;
                repeated.push(*id);
            }
            !is_due
        });
        self.unresolved = unresolved;
        repeated
    }

    /// Hands over the jobs with unresolved claims.
    pub(super) fn take_unresolved(&mut self) -> VecDeque<SlotId> {
        mem::take(&mut self.unresolved)
    }

    /// The jobs whose claims reserve capacity, and whether a reply was lost.
    pub(super) fn claims(&self) -> impl Iterator<Item = (SlotId, bool)> {
        let on_way = self.claims.iter().map(|(id, is_repeated)| (*id, *is_repeated));
        on_way.chain(self.unresolved.iter().map(|id| (*id, true)))
    }

    /// The number of such claims.
    pub(super) fn reserved(&self) -> Reserved {
        let firm = self.claims.len() - self.repeated;
        Reserved { firm, unresolved: self.repeated + self.unresolved.len() }
    }
}
