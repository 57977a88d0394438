//! Claiming an occurrence, moving the cursor without a run, and recording lost runs.

use super::{Head, HeadOccurrence, HistoryBuffer, OpContext, PendingRetry, Record};
use crate::{
    backend::{
        Advance, Claim, Claimed, Cursor, HistoryEntry, JobState, Lease, NextRun, NotRun,
        NotRunReason, Occurrence, OnExpiry, Outcome, Sharing,
    },
    time::{Time, saturating_add, whole_millis},
};
use allora_schedule::Excluded;
use std::time::Duration;

/// The largest number of active runs of one job, over all nodes. Further runs wait.
pub const MAX_LEASES: usize = 64;

/// The largest number of lost runs of one job whose ends are still accepted. Of more, the oldest is
/// removed.
pub const MAX_LOST: usize = 64;

/// The time for which the end of a lost run is accepted after its lease has ended: longer than an
/// outage of a store.
pub const KEEP_LOST: Duration = Duration::from_secs(24 * 60 * 60);

/// Claims the head, if nothing was claimed or changed since it was read. A claim whose id is in the
/// record gets the same reply again: the first reply was lost.
pub(super) fn claim(
    record: &mut Record,
    name: &str,
    claim: &Claim,
    context: OpContext<'_>,
    history: &mut HistoryBuffer,
) -> Option<Claimed> {
    let is_it = |lease: &&Lease| lease.claim_id == claim.claim_id && !record.is_recorded(lease);
    if let Some(lease) = record.leases.iter().find(is_it) {
        return Some(record.claimed(lease));
    }
    record.reap(name, context.now, history);
    let head = record.claimable(claim, context.now)?;
    let of_head = (head.attempts, head.due_at);
    Some(record.claim(name, claim, of_head, context, history))
}

/// The claim of the head as it is, if [`claim_due`](crate::backend::Queries::claim_due) may make it:
/// the cursor's first occurrence of a stored schedule that runs at least once, without a concurrency
/// key, a pause, a lease, or an attempt before. A store may make fewer claims. Whether it is due is
/// left to the claim.
///
/// The claim starts the head without a plan. If the catch-up policy leaves the head out, the holder
/// [advances](Advance::by_holder).
pub fn due_claim(state: &JobState, claim_id: u128) -> Option<Claim> {
    let cursor = state.next?;
    let is_open = state.last_started < Some(cursor.scheduled_at);
    let is_head = |head: &Occurrence| *head == Occurrence::from(cursor.scheduled_at);
    let is_plain = !state.kind.is_empty()
        && state.unreadable.is_none()
        && state.paused.is_none()
        && state.leases.is_empty()
        && state.attempts == 0;
    let head = state.head.as_ref().filter(|head| is_plain && is_open && is_head(head))?;
    Some(Claim::at_least_once(claim_id, state.fence, head.clone(), state.due_lease?))
}

/// Moves the cursor past occurrences that are not run, if the record is the one that was read. Returns
/// the claimed occurrence, if the holder of a lease keeps it for the new cursor.
pub(super) fn advance(
    record: &mut Record,
    name: &str,
    advance: &Advance,
    context: OpContext<'_>,
    history: &mut HistoryBuffer,
) -> Option<Claimed> {
    if let Some(fence) = advance.holder {
        return record.advance_leased(name, advance, fence, context, history);
    }
    record.reap(name, context.now, history);
    if record.may_advance(advance, context.now) {
        let first = Occurrence::from(advance.expected);
        record.skip(name, first, advance.not_run, context, history);
        record.pass_excluded(name, advance, context, history);
        record.cursor = advance.then;
    }
    None
}

/// `true` if the cursor's occurrence may be claimed before this other one, which is the head: triggers
/// do not keep the schedule waiting. One whose run has a lease that is retried on expiry goes first,
/// because no run starts beside that lease. A record that grants claims and a node that makes them
/// agree by this function.
pub(crate) fn may_overtake(head: &Occurrence, is_leased: bool, is_paused: bool) -> bool {
    head.trigger.is_some() && !is_leased && !is_paused
}

impl Record {
    /// The claim of a query with this id, if its lease still is one without a request to cancel.
    pub fn claimed_by(&self, claim_id: u128) -> Option<Claimed> {
        let lease = self.leases.iter().find(|lease| self.is_claim(lease, claim_id));
        lease.map(|lease| self.claimed(lease))
    }

    pub(crate) fn is_claim(&self, lease: &Lease, claim_id: u128) -> bool {
        lease.claim_id == claim_id && !self.is_recorded(lease) && !lease.cancel_requested
    }

    pub(crate) fn claimed(&self, lease: &Lease) -> Claimed {
        let kept = self.data_of(&lease.occurrence);
        Claimed {
            occurrence: lease.occurrence.clone(),
            fence: lease.fence,
            attempt: lease.attempt,
            incarnation: self.incarnation,
            until: lease.until,
            data: kept.and_then(|kept| kept.data.clone()),
            checkpoint: kept.and_then(|kept| Some(kept.checkpoint.as_ref()?.value.clone())),
        }
    }

    /// The head that the claim expects, if it may have it.
    fn claimable(&self, claim: &Claim, now: Time) -> Option<Head<'_>> {
        let head = self.offered(&claim.expected)?;
        let may_claim = self.fence == claim.fence
            && head.due_at <= now
            && claim.is_sound(now)
            && self.moves_as_delivered(claim, head.occurrence)
            && self.has_room(claim, now);
        may_claim.then_some(head)
    }

    /// The head, if it is this occurrence; or the cursor, if it is this occurrence and may
    /// [overtake](may_overtake) the head.
    pub(super) fn offered(&self, expected: &Occurrence) -> Option<Head<'_>> {
        let head = self.head()?;
        if head.occurrence.is(expected) {
            return Some(head);
        }
        let HeadOccurrence::Other(other) = head.occurrence else { return None };
        let is_leased = self.leases.iter().any(|lease| lease.on_expiry == OnExpiry::Retry);
        let may_overtake = may_overtake(other, is_leased, self.paused.is_some());
        self.cursor_head().filter(|cursor| may_overtake && cursor.occurrence.is(expected))
    }

    /// `true` if the claimed run may start beside the live ones. A run that is retried on expiry is
    /// always alone. If one was to be cancelled, it is [given up](super::complete::give_up) first.
    fn has_room(&self, claim: &Claim, now: Time) -> bool {
        let is_cancelled =
            |lease: &Lease| lease.on_expiry == OnExpiry::Retry && lease.cancel_requested;
        if self.leases.iter().any(is_cancelled) {
            return false;
        }
        let mut live = self
            .leases
            .iter()
            .filter(|lease| lease.on_expiry == OnExpiry::Lost && lease.until > now);
        match (claim.lease.on_expiry, claim.lease.sharing) {
            (OnExpiry::Lost, Sharing::Shared) => self.leases.len() < MAX_LEASES,
            _ => live.next().is_none(),
        }
    }

    fn claim(
        &mut self,
        name: &str,
        claim: &Claim,
        (attempts, due_at): (u32, Time),
        context: OpContext<'_>,
        history: &mut HistoryBuffer,
    ) -> Claimed {
        let now = context.now;
        let attempt = attempts.saturating_add(1);
        let due_at = claim.not_run.and(claim.start_due_at).unwrap_or(due_at);
        if let Some(not_run) = claim.not_run {
            self.skip(name, claim.expected.clone(), not_run, context, history);
        }
        self.expire(name, &claim.expected, now, history);
        let is_first_start = self.remove_source(claim);
        let fence = self.draw_fence(now);
        let occurrence = claim.start.clone();
        if let Cursor::To(next) = claim.then {
            self.cursor = next;
        }
        if is_first_start {
            self.last_started = Some(occurrence.scheduled_at);
            self.counters.started += 1;
        }
        let lease = Lease {
            node: context.node.to_owned(),
            claim_id: claim.claim_id,
            fence,
            occurrence,
            attempt,
            due_at: whole_millis(due_at),
            started_at: whole_millis(now),
            until: whole_millis(saturating_add(now, claim.lease.duration)),
            on_expiry: claim.lease.on_expiry,
            sharing: match claim.lease.on_expiry {
                OnExpiry::Lost => claim.lease.sharing,
                OnExpiry::Retry => Sharing::Exclusive,
            },
            cancel_requested: false,
            replaced_by: None,
            completed: false,
        };
        let claimed = self.claimed(&lease);
        self.leases.push(lease);
        claimed
    }

    /// Removes the occurrence from the place where it waited. Returns whether it is the cursor's,
    /// started for the first time. With a lease that is retried on expiry the cursor then stays on
    /// the started occurrence.
    fn remove_source(&mut self, claim: &Claim) -> bool {
        let expected = &claim.expected;
        if let Some(i) = self.retries.iter().position(|retry| retry.occurrence == *expected) {
            self.retries.remove(i);
            return false;
        }
        if let Some(i) = self.triggers.iter().position(|trigger| trigger == expected) {
            self.triggers.remove(i);
            return false;
        }
        let started = self.last_started >= Some(expected.scheduled_at);
        match &mut self.cursor {
            Some(next)
                if expected.trigger.is_none() && next.scheduled_at == expected.scheduled_at =>
            {
                if claim.start != *expected {
                    let at = claim.start.scheduled_at;
                    let due_at = claim.start_due_at.map_or(at, |due_at| due_at.max(at));
                    *next = NextRun { scheduled_at: at, due_at: whole_millis(due_at) };
                }
                !started
            }
            _ => false,
        }
    }

    /// Ends the leases that are retried on expiry: the claimed occurrence runs again now; another
    /// one, if a trigger of a paused schedule is claimed, waits to be retried.
    fn expire(&mut self, name: &str, claimed: &Occurrence, now: Time, history: &mut HistoryBuffer) {
        for lease in self.leases.extract_if(.., |lease| lease.on_expiry == OnExpiry::Retry) {
            self.counters.expired += 1;
            history.push_lapsed(|| entry(&lease, name, &self.kind, now, Outcome::Expired));
            if lease.occurrence != *claimed {
                let Lease { occurrence, attempt: attempts, until: not_before, .. } = lease;
                self.retries.push(PendingRetry { occurrence, attempts, not_before });
            }
        }
    }

    /// `true` if the claim moves the cursor exactly as its delivery requires. At most once the
    /// cursor moves with the cursor's own occurrence, started or not, and with nothing else; at
    /// least once it stays. A started occurrence is never skipped.
    fn moves_as_delivered(&self, claim: &Claim, head: HeadOccurrence<'_>) -> bool {
        let moves = matches!(claim.then, Cursor::To(_));
        let fits = match claim.lease.on_expiry {
            OnExpiry::Lost => moves == self.is_at_cursor(&claim.expected),
            OnExpiry::Retry => !moves,
        };
        fits && (matches!(head, HeadOccurrence::Cursor(_)) || claim.start == claim.expected)
    }

    fn may_advance(&self, advance: &Advance, now: Time) -> bool {
        let expected = Occurrence::from(advance.expected);
        self.generation == advance.generation
            && self.head().is_some_and(|head| {
                matches!(head.occurrence, HeadOccurrence::Cursor(_))
                    && head.occurrence.is(&expected)
                    && head.due_at <= now
            })
            && advance.is_forward()
    }

    /// Moves the cursor past the leased occurrence, which the policy leaves out. The lease goes to the
    /// new cursor if that is due; otherwise nothing was started.
    fn advance_leased(
        &mut self,
        name: &str,
        advance: &Advance,
        fence: i64,
        context: OpContext<'_>,
        history: &mut HistoryBuffer,
    ) -> Option<Claimed> {
        let now = context.now;
        let is_it = |lease: &Lease| lease.fence == fence && lease.on_expiry == OnExpiry::Retry;
        let i = self.leases.iter().position(is_it).filter(|i| !self.is_former(&self.leases[*i]))?;
        let lease = &self.leases[i];
        let due = advance.then.filter(|next| next.due_at.max(next.scheduled_at) <= now);
        let expected = Occurrence::from(advance.expected);
        let may_advance = self.generation == advance.generation
            && lease.occurrence == expected
            && lease.attempt == 1
            && !lease.cancel_requested
            && self.is_at_cursor(&expected)
            && advance.is_forward();
        if !may_advance {
            return None;
        }
        self.cursor = advance.then;
        // Its entry takes the place of the run's, which had not begun.
        self.skip_under(fence, name, expected, advance.not_run, context, history);
        self.pass_excluded(name, advance, context, history);
        let fence = self.draw_fence(now);
        let Some(next) = due else {
            self.leases.remove(i);
            self.counters.started = self.counters.started.saturating_sub(1);
            return None;
        };
        self.last_started = Some(next.scheduled_at);
        let lease = &mut self.leases[i];
        lease.occurrence = next.scheduled_at.into();
        (lease.fence, lease.due_at) = (fence, whole_millis(next.due_at));
        Some(self.claimed(&self.leases[i]))
    }

    /// Records as lost the at-most-once runs whose leases have ended, or as cancelled. A lost run that
    /// shares the job may still be active: its lease is kept for a while.
    pub(super) fn reap(&mut self, name: &str, now: Time, history: &mut HistoryBuffer) {
        let has_ended = |lease: &mut Lease| lease.on_expiry == OnExpiry::Lost && lease.until <= now;
        let ended: Vec<Lease> = self.leases.extract_if(.., has_ended).collect();
        for lease in ended {
            self.lose(&lease, name, now, history);
            if lease.sharing == Sharing::Shared && !lease.cancel_requested && !lease.completed {
                self.lost.push(lease);
            }
        }
        self.lost.retain(|lease| now < saturating_add(lease.until, KEEP_LOST));
        let excess = self.lost.len().saturating_sub(MAX_LOST);
        self.lost.drain(..excess);
    }

    /// Records that a run without an end is over. One that was completed, and that of a deleted job, has
    /// its entry already.
    pub(super) fn lose(
        &mut self,
        lease: &Lease,
        name: &str,
        now: Time,
        history: &mut HistoryBuffer,
    ) {
        if self.is_recorded(lease) {
            return self.has_returned(name, lease, history);
        }
        let (counter, outcome) = match lease.cancel_requested {
            true => (&mut self.counters.cancelled, Outcome::Cancelled),
            false => (&mut self.counters.lost, Outcome::Lost),
        };
        *counter += 1;
        self.last = Some(outcome.clone());
        if outcome == Outcome::Lost {
            self.count_failure(name, &lease.occurrence, "its run was lost", now, history);
        }
        self.followed(name, &lease.occurrence, &outcome, now, history);
        let reason = lease.cancel_reason();
        let run = || entry(lease, name, &self.kind, now, outcome);
        history.push_lapsed(|| HistoryEntry { reason, ..run() });
    }

    /// Makes the run under this fence active again, if it was recorded as lost. Returns the place of
    /// its lease. The entry of the loss stays until the run's end replaces it.
    pub(super) fn recover(&mut self, fence: i64) -> Option<usize> {
        if let Some(i) = self.lost.iter().position(|lease| lease.fence == fence) {
            let lease = self.lost.remove(i);
            self.counters.lost = self.counters.lost.saturating_sub(1);
            let place = self.leases.partition_point(|other| other.fence < fence);
            self.leases.insert(place, lease);
        }
        self.leases.iter().position(|lease| lease.fence == fence)
    }

    /// Records a range of occurrences that are not run.
    pub(super) fn skip(
        &mut self,
        name: &str,
        first: Occurrence,
        not_run: NotRun,
        context: OpContext<'_>,
        history: &mut HistoryBuffer,
    ) {
        let fence = self.draw_fence(context.now);
        self.skip_under(fence, name, first, not_run, context, history);
    }

    fn skip_under(
        &mut self,
        fence: i64,
        name: &str,
        first: Occurrence,
        not_run: NotRun,
        context: OpContext<'_>,
        history: &mut HistoryBuffer,
    ) {
        let count = not_run.count.unwrap_or(0);
        let outcome = not_run.outcome();
        let counter = match outcome {
            Outcome::Skipped => &mut self.counters.skipped,
            Outcome::Cancelled => &mut self.counters.cancelled,
            _ => &mut self.counters.missed,
        };
        *counter = counter.saturating_add(count);
        history.push(|| range_entry(fence, (name, &self.kind), first, not_run, context));
    }

    /// Records what the calendar excludes between the cursors of an advance.
    fn pass_excluded(
        &mut self,
        name: &str,
        advance: &Advance,
        context: OpContext<'_>,
        history: &mut HistoryBuffer,
    ) {
        let Some(excluded) = advance.excluded else { return };
        let fence = self.draw_fence(context.now);
        history.push(|| excluded_entry(fence, (name, &self.kind), excluded, context));
    }
}

/// The history entry of occurrences that a calendar excludes.
pub(super) fn excluded_entry(
    fence: i64,
    (name, kind): (&str, &str),
    excluded: Excluded,
    context: OpContext<'_>,
) -> HistoryEntry {
    let Excluded { first, last, count } = excluded;
    let not_run = NotRun { count, last, reason: NotRunReason::Calendar };
    range_entry(fence, (name, kind), first.into(), not_run, context)
}

/// The history entry of occurrences that are not run.
fn range_entry(
    fence: i64,
    (name, kind): (&str, &str),
    first: Occurrence,
    not_run: NotRun,
    context: OpContext<'_>,
) -> HistoryEntry {
    HistoryEntry {
        kind: kind.to_owned(),
        last: Some(not_run.last),
        count: not_run.count,
        attempt: 0,
        node: context.node.to_owned(),
        ended_at: Some(whole_millis(context.now)),
        reason: Some(not_run.reason),
        ..HistoryEntry::new(name, fence, first, not_run.outcome())
    }
}

/// The history entry of a run with this lease that has ended.
pub(super) fn entry(
    lease: &Lease,
    name: &str,
    kind: &str,
    now: Time,
    outcome: Outcome,
) -> HistoryEntry {
    let ended_at = Some(whole_millis(now));
    HistoryEntry { ended_at, outcome, ..HistoryEntry::running(name, kind, lease) }
}
