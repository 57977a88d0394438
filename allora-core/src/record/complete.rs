//! Extending a lease, and ending a run: complete, retry, release.
//!
//! A released occurrence keeps its own due time: due from now on, it would wait behind all that is
//! being caught up. A run that shares its job with others may end after it was recorded as lost, and
//! its end replaces the loss.
//!
//! A run that completes itself and works on is a state of its own: all of its end is recorded, and its lease
//! stays, marked as completed. It is lost on expiry from then on, so that an exclusive claim waits for its
//! end, but nothing becomes of it: an extension prolongs it, any end removes it, and if none comes, it is
//! reaped without a trace.

use super::{
    Accepted, EndedBy, Head, HistoryBuffer, MAX_DEAD, OpContext, PendingRetry, Record, claim,
};
use crate::{
    backend::{
        Action, Completion, Cursor, DeadLetter, HistoryEntry, Lease, NotRunReason, Occurrence,
        OnExpiry, Operation, Outcome, Reply, RetryCause,
    },
    time::{Time, saturating_add, whole_millis},
};

/// Applies an operation on the run under `fence`. It is accepted even after the lease's end, also
/// after the run was recorded as lost, if the run shares the job; after another claim of its
/// occurrence it is rejected. An end that was accepted before is accepted again.
pub(super) fn end(
    record: &mut Record,
    operation: &Operation<'_>,
    fence: i64,
    context: OpContext<'_>,
    history: &mut HistoryBuffer,
) -> Reply {
    if let (Action::Complete { then, .. }, Some(run)) = (&operation.action, record.run(fence))
        && !record.is_recorded(run)
        && !record.may_move(&run.occurrence, *then)
    {
        return Reply::Invalid;
    }
    let was_lost = record.lost.iter().any(|lease| lease.fence == fence);
    let Some(i) = record.recover(fence) else {
        let end = accepted_end(&operation.action, fence);
        let repeated = end.is_some() && end == record.ended;
        if !repeated {
            return Reply::LeaseLost;
        }
        if let Action::Complete {
            completion: Completion::Failed(_) | Completion::Dead(_), ..
        } = operation.action
        {
            record.report_again(operation.name, history);
        }
        return Reply::Accepted;
    };
    if was_lost {
        let occurrence = record.leases[i].occurrence.clone();
        record.uncount_failure(operation.name, &occurrence, history);
    }
    if let Some(checkpoint) = operation.checkpoint {
        record.keep_checkpoint(i, checkpoint, context.now);
    }
    let outcome = match &operation.action {
        Action::Extend { duration, .. } => {
            let lease = &mut record.leases[i];
            lease.until = lease.until.max(whole_millis(saturating_add(context.now, *duration)));
            return match lease.cancel_requested {
                true => Reply::CancelRequested(lease.until),
                false if lease.completed => Reply::Completed(lease.until),
                false => Reply::Extended(lease.until),
            };
        }
        // A repetition of the completion after which it works on.
        Action::Complete { .. } if operation.works_on && record.leases[i].completed => {
            return Reply::Accepted;
        }
        // It has its end: it was recorded as cancelled when its job was deleted, or has completed itself.
        Action::Complete { .. } if record.is_recorded(&record.leases[i]) => {
            let lease = record.leases.remove(i);
            record.has_returned(operation.name, &lease, history);
            record.ended = accepted_end(&operation.action, fence);
            return Reply::Accepted;
        }
        // Whatever it returned comes too late.
        _ if record.leases[i].completed => {
            let lease = record.leases.remove(i);
            record.has_returned(operation.name, &lease, history);
            return Reply::LeaseLost;
        }
        Action::Complete { completion, .. } => record.count(*completion),
        // Only a completion has the cursor's move.
        _ if record.leases[i].cancel_requested => {
            return Reply::CancelRequested(record.leases[i].until);
        }
        Action::Retry { cause: RetryCause::Failed(error), .. } => {
            record.counters.failed += 1;
            Outcome::Retried(bounded(error))
        }
        Action::Retry { cause: RetryCause::Interrupted, .. } => {
            record.counters.cancelled += 1;
            Outcome::Interrupted
        }
        // At once, or for a while.
        _ => Outcome::Released,
    };
    let lease = record.leases.remove(i);
    if operation.works_on && outcome == Outcome::Succeeded {
        let (on_expiry, completed) = (OnExpiry::Lost, true);
        record.leases.insert(i, Lease { on_expiry, completed, ..lease.clone() });
    }
    record.ended = accepted_end(&operation.action, fence);
    // Nobody has requested it: its node was stopped.
    let reason = (outcome == Outcome::Cancelled)
        .then(|| lease.cancel_reason().unwrap_or(NotRunReason::Shutdown));
    let entry = || HistoryEntry {
        reason,
        output: operation.output.map(bounded),
        value: operation.value.filter(|value| value.len() <= MAX_VALUE).map(str::to_owned),
        ..claim::entry(&lease, operation.name, &record.kind, context.now, outcome.clone())
    };
    // Whoever has triggered it may wait for its entry, and a loss must not stay.
    let is_ordinary = lease.occurrence.trigger.is_none() && !was_lost;
    match outcome == Outcome::Succeeded && is_ordinary {
        true => history.push_success(entry),
        false => history.push(entry),
    }
    match &outcome {
        // It is ended with the lease: nobody hears what a transaction of the run's own reports.
        Outcome::Succeeded if operation.works_on => {}
        Outcome::Succeeded => record.end_streak(operation.name, &lease.occurrence, history),
        Outcome::Failed(error) | Outcome::Dead(error) => {
            record.count_failure(operation.name, &lease.occurrence, error, context.now, history);
        }
        _ => {}
    }
    let now = whole_millis(context.now);
    match &operation.action {
        Action::Complete { then, .. } => {
            // At most once, the claim has moved the cursor.
            let moves = lease.on_expiry == OnExpiry::Lost || record.is_at_cursor(&lease.occurrence);
            let excluded = operation.excluded.filter(|_| moves);
            record.followed(operation.name, &lease.occurrence, &outcome, now, history);
            record.conclude(lease.occurrence, lease.attempt, *then, &outcome, now);
            if let Some(excluded) = excluded {
                // No fence is drawn: nodes expect the one that they know. The next claim's is higher;
                // if the store's clock was set back, it may be the same, and its entry takes this one's
                // place.
                let (fence, job) = (fence.saturating_add(1), (operation.name, &*record.kind));
                history.push(|| claim::excluded_entry(fence, job, excluded, context));
            }
        }
        Action::Retry { not_before, cause, .. } => record.retries.push(PendingRetry {
            occurrence: lease.occurrence,
            attempts: lease.attempt.saturating_sub(u32::from(*cause == RetryCause::Released)),
            not_before: whole_millis(*not_before),
        }),
        _ => {
            // Due since its own time. Due from now on, it would wait behind the occurrences that
            // are being caught up with.
            let not_before = lease.occurrence.scheduled_at.min(now);
            let attempts = lease.attempt.saturating_sub(1);
            record.retries.push(PendingRetry {
                occurrence: lease.occurrence,
                attempts,
                not_before,
            });
        }
    }
    if outcome != Outcome::Released {
        record.last = Some(outcome);
    }
    Reply::Accepted
}

/// An occurrence that is not attempted again.
pub(super) struct GivenUp<'a> {
    /// If it is leased, the fence of its run; else the record's.
    pub(super) fence: i64,
    pub(super) occurrence: &'a Occurrence,
    pub(super) then: Cursor,
    pub(super) error: &'a str,
}

/// Ends as a dead letter, or as cancelled, an occurrence that is due for another attempt: its lease has
/// ended, or its last attempt failed. No end of its last run is accepted any more. Returns whether it
/// did.
pub(super) fn give_up(
    record: &mut Record,
    name: &str,
    given_up: GivenUp<'_>,
    context: OpContext<'_>,
    history: &mut HistoryBuffer,
) -> bool {
    let GivenUp { fence, occurrence, then, error } = given_up;
    let is_over = |lease: &Lease| {
        lease.fence == fence && lease.on_expiry == OnExpiry::Retry && lease.until <= context.now
    };
    let is_expected = |lease: &Lease| is_over(lease) && lease.occurrence == *occurrence;
    if let Some(lease) = record.leases.iter().find(|lease| is_expected(lease)) {
        let completion = match lease.cancel_requested {
            true => Completion::Cancelled,
            false => Completion::Dead(error),
        };
        let ended = record.ended;
        let over = Operation::complete(name, fence, then, completion);
        let reply = end(record, &over, fence, context, history);
        record.ended = ended;
        return reply == Reply::Accepted;
    }
    let is_due = |head: Head<'_>| head.occurrence.is(occurrence) && head.due_at <= context.now;
    if record.fence != fence
        || !record.head().is_some_and(is_due)
        || !record.may_move(occurrence, then)
    {
        return false;
    }
    let Some(i) = record.retries.iter().position(|retry| retry.occurrence == *occurrence) else {
        return false;
    };
    let PendingRetry { occurrence, attempts, not_before } = record.retries.remove(i);
    let outcome = Outcome::Dead(bounded(error));
    let (fence, now) = (record.draw_fence(context.now), whole_millis(context.now));
    history.push(|| HistoryEntry {
        kind: record.kind.clone(),
        due_at: Some(not_before),
        attempt: attempts,
        node: context.node.to_owned(),
        ended_at: Some(now),
        ..HistoryEntry::new(name, fence, occurrence.clone(), outcome.clone())
    });
    record.count_failure(name, &occurrence, error, context.now, history);
    record.followed(name, &occurrence, &outcome, now, history);
    record.conclude(occurrence, attempts, then, &outcome, now);
    record.last = Some(outcome);
    true
}

/// The longest value of a run, in bytes.
pub const MAX_VALUE: usize = 65_536;

/// The longest text of an error or an output that a record or a history entry keeps, in bytes.
const MAX_ERROR: usize = 1_024;

/// The error as it is kept: cut to [`MAX_ERROR`].
pub(crate) fn bounded(error: &str) -> String {
    bounded_to(error, MAX_ERROR)
}

/// A text, cut to at most so many bytes.
pub(crate) fn bounded_to(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most - '…'.len_utf8()).rev().find(|end| text.is_char_boundary(*end));
    format!("{}…", &text[..end.unwrap_or(0)])
}

/// The part of an accepted end that the record keeps. An extension is not an end.
fn accepted_end(action: &Action<'_>, fence: i64) -> Option<Accepted> {
    let by = match action {
        Action::Complete { .. } => EndedBy::Completed,
        Action::Retry { .. } => EndedBy::Retried,
        Action::Release { .. } => EndedBy::Released,
        _ => return None,
    };
    Some(Accepted { fence, by })
}

impl Record {
    /// The lease of a run whose end is recorded is over.
    pub(super) fn has_returned(&mut self, name: &str, lease: &Lease, history: &mut HistoryBuffer) {
        if lease.completed && !self.is_former(lease) {
            self.end_streak(name, &lease.occurrence, history);
        }
    }

    /// `true` if the completion of this occurrence may move the cursor to `then`: forward, and away
    /// from an occurrence that was started and would never be offered again.
    fn may_move(&self, occurrence: &Occurrence, then: Cursor) -> bool {
        match then {
            Cursor::To(next) => next.is_none_or(|next| next.scheduled_at > occurrence.scheduled_at),
            Cursor::Keep => !self.is_at_cursor(occurrence),
        }
    }

    /// Moves the cursor away from an occurrence that has ended, and keeps it if it is dead.
    fn conclude(
        &mut self,
        occurrence: Occurrence,
        attempts: u32,
        then: Cursor,
        outcome: &Outcome,
        died_at: Time,
    ) {
        if let Cursor::To(next) = then
            && self.is_at_cursor(&occurrence)
        {
            self.cursor = next;
        }
        if let Outcome::Dead(error) = outcome {
            let error = error.clone();
            self.add_dead_letter(DeadLetter { occurrence, attempts, died_at, error });
        }
    }

    /// Keeps a dead letter. Of too many, the oldest is removed.
    fn add_dead_letter(&mut self, letter: DeadLetter) {
        self.dead.retain(|other| other.occurrence != letter.occurrence);
        self.dead.push(letter);
        let excess = self.dead.len().saturating_sub(MAX_DEAD);
        self.dead.drain(..excess);
    }

    fn count(&mut self, completion: Completion<'_>) -> Outcome {
        let counters = &mut self.counters;
        let (counter, outcome) = match completion {
            Completion::Succeeded => (&mut counters.succeeded, Outcome::Succeeded),
            Completion::Failed(error) => (&mut counters.failed, Outcome::Failed(bounded(error))),
            Completion::Dead(error) => (&mut counters.failed, Outcome::Dead(bounded(error))),
            Completion::Cancelled => (&mut counters.cancelled, Outcome::Cancelled),
        };
        *counter += 1;
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_error_is_cut_between_two_characters_and_once() {
        for (error, kept) in [("x".repeat(MAX_ERROR), MAX_ERROR), ("ä".repeat(MAX_ERROR), 1_023)] {
            let cut = bounded(&error);
            assert_eq!(cut.len(), kept);
            assert!(cut == error || error.starts_with(cut.strip_suffix('…').unwrap()));
            assert_eq!(bounded(&cut), cut);
        }
        assert_eq!(bounded_to(&"ä".repeat(200), 200).len(), 199);
    }
}
