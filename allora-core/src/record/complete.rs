//! Extending a lease, and ending a run: complete, retry, release.

use super::{Accepted, HistoryBuffer, How, MAX_DEAD, OpContext, PendingRetry, Record, claim};
use crate::{
    backend::{
        Action, Completion, Cursor, DeadLetter, HistoryEntry, Lease, NotRunReason, Occurrence,
        OnExpiry, Operation, Outcome, Reply, RetryCause,
    },
    time::{saturating_add, whole_millis},
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
        && !record.is_former(run)
        && !record.may_move(&run.occurrence, *then)
    {
        return Reply::Invalid;
    }
    let Some(i) = record.recover(operation.name, fence, context.now, history) else {
        let end = accepted_end(&operation.action, fence);
        let repeated = end.is_some() && end == record.ended;
        return if repeated { Reply::Accepted } else { Reply::LeaseLost };
    };
    let outcome = match &operation.action {
        Action::Extend { duration, .. } => {
            let lease = &mut record.leases[i];
            lease.until = lease.until.max(whole_millis(saturating_add(context.now, *duration)));
            return match lease.cancel_requested {
                true => Reply::CancelRequested(lease.until),
                false => Reply::Extended(lease.until),
            };
        }
        // It was recorded as cancelled when its job was deleted.
        Action::Complete { .. } if record.is_former(&record.leases[i]) => {
            record.leases.remove(i);
            record.ended = accepted_end(&operation.action, fence);
            return Reply::Accepted;
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
        _ => Outcome::Released,
    };
    let lease = record.leases.remove(i);
    record.ended = accepted_end(&operation.action, fence);
    let asked = lease.cancel_requested.then_some(NotRunReason::Operator);
    let reason = asked.filter(|_| outcome == Outcome::Cancelled);
    history.push(|| HistoryEntry {
        reason,
        output: operation.output.map(bounded),
        ..claim::entry(&lease, operation.name, &record.kind, context.now, outcome.clone())
    });
    let now = whole_millis(context.now);
    match &operation.action {
        Action::Complete { then, .. } => {
            if let Cursor::To(next) = then
                && record.is_at_cursor(&lease.occurrence)
            {
                record.cursor = *next;
            }
            if let Outcome::Dead(error) = &outcome {
                record.add_dead_letter(DeadLetter {
                    occurrence: lease.occurrence,
                    attempts: lease.attempt,
                    died_at: now,
                    error: error.clone(),
                });
            }
        }
        Action::Retry { not_before, .. } => record.retries.push(PendingRetry {
            occurrence: lease.occurrence,
            attempts: lease.attempt,
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

/// Ends an occurrence whose lease has ended as a dead letter, or as cancelled. Its run has sent no
/// end, and none is accepted any more. Returns whether it did.
pub(super) fn give_up(
    record: &mut Record,
    name: &str,
    (fence, then, error): (i64, Cursor, &str),
    context: OpContext<'_>,
    history: &mut HistoryBuffer,
) -> bool {
    let is_over = |lease: &Lease| {
        lease.fence == fence && lease.on_expiry == OnExpiry::Retry && lease.until <= context.now
    };
    let Some(lease) = record.leases.iter().find(|lease| is_over(lease)) else { return false };
    let completion = match lease.cancel_requested {
        true => Completion::Cancelled,
        false => Completion::Dead(error),
    };
    let ended = record.ended;
    let over = Operation::complete(name, fence, then, completion);
    let reply = end(record, &over, fence, context, history);
    record.ended = ended;
    reply == Reply::Accepted
}

/// The longest text of an error or an output that a record or a history entry keeps, in bytes.
const MAX_ERROR: usize = 1_024;

/// The error as it is kept: cut to [`MAX_ERROR`].
pub(crate) fn bounded(error: &str) -> String {
    if error.len() <= MAX_ERROR {
        return error.to_owned();
    }
    let end = (0..=MAX_ERROR - '…'.len_utf8()).rev().find(|end| error.is_char_boundary(*end));
    format!("{}…", &error[..end.unwrap_or(0)])
}

/// The part of an accepted end that the record keeps. An extension is not an end.
fn accepted_end(action: &Action<'_>, fence: i64) -> Option<Accepted> {
    let how = match action {
        Action::Complete { .. } => How::Completed,
        Action::Retry { .. } => How::Retried,
        Action::Release { .. } => How::Released,
        _ => return None,
    };
    Some(Accepted { fence, how })
}

impl Record {
    /// `true` if the completion of this occurrence may move the cursor to `then`: forward, and away
    /// from an occurrence that was started and would never be offered again.
    fn may_move(&self, occurrence: &Occurrence, then: Cursor) -> bool {
        match then {
            Cursor::To(next) => next.is_none_or(|next| next.scheduled_at > occurrence.scheduled_at),
            Cursor::Keep => !self.is_at_cursor(occurrence),
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
    }
}
