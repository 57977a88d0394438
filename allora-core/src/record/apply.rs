//! The one entry point of the state machine: an operation applied to a record.

use super::{
    HistoryBuffer, OpContext, Record, chain, claim, complete, define, key, live, note, operate,
    trigger,
};
use crate::{
    backend::{Action, FOLLOW_UP, JobState, NewSchedule, Operation, Reply, Triggered},
    error::{Error, ErrorKind, Result},
};

/// Applies an operation to a record or a free name (`None`), and returns the reply. Notes for
/// readers of the history go to `history`.
///
/// Pure: equal arguments give equal results, on every store. A reply that is an error, `Absent`,
/// `Deleted`, `LeaseLost` or `Invalid` leaves the record as it was, and so does a read; but a change by
/// an [author](Operation::author), even one that is refused, draws a fence of a live record, and a note
/// of it goes to `history`. Any other reply is to a record without a pause that has
/// [ended by itself](crate::backend::Pause::until).
///
/// # Errors
/// Only of operations for clients (create, modify and those of operators): `NotFound`, also of a
/// dead letter; `AlreadyExists` if the name is taken, or the generation is not the one that was
/// read; `Invalid` for input that cannot be stored, a cursor that would move back, or a bad author.
///
/// ```
/// use allora::{
///     backend::{Operation, Reply},
///     record::{HistoryBuffer, OpContext, apply},
///     time::from_millis,
/// };
///
/// let context = OpContext::new("node-1", from_millis(0).unwrap());
/// let reply = apply(&mut None, &Operation::read("report"), context, &mut HistoryBuffer::off());
/// assert_eq!(reply.unwrap(), Reply::Absent);
/// ```
pub fn apply(
    record: &mut Option<Record>,
    operation: &Operation<'_>,
    context: OpContext<'_>,
    history: &mut HistoryBuffer,
) -> Result<Reply> {
    // Before the change is noted: its author has not ended that pause.
    let ended = record.as_mut().and_then(|record| record.end_pause(context.now));
    let reply = match operation.author {
        None => decide(record, operation, context, history),
        Some(author) => note::noted(record, operation, author, context, history, decide),
    };
    let changes = !matches!(operation.action, Action::Read)
        && !matches!(reply, Err(_) | Ok(Reply::LeaseLost | Reply::Invalid));
    let Some(record) = record else { return reply };
    match (ended, changes) {
        (_, true) => record.forget_occurrence_data(),
        (Some(pause), false) => record.paused = Some(pause),
        (None, false) => {}
    }
    reply
}

/// As [`apply()`], whoever the author is, on a record without a pause that has ended.
fn decide(
    record: &mut Option<Record>,
    operation: &Operation<'_>,
    context: OpContext<'_>,
    history: &mut HistoryBuffer,
) -> Result<Reply> {
    let name = operation.name;
    match &operation.action {
        Action::Create(new) => define::create(record, name, new, context)?,
        Action::Modify(edit) => define::modify(record, name, edit, context, history)?,
        Action::Delete => {
            define::delete(record, name, context, history)?;
            return Ok(Reply::Deleted);
        }
        Action::Pause { .. }
        | Action::Resume
        | Action::Skip(_)
        | Action::Rerun { .. }
        | Action::Dismiss { .. }
        | Action::MarkSucceeded { .. }
        | Action::Cancel(_)
        | Action::Reset { .. } => {
            operate::operate(live(record, name)?, operation, context, history)?;
        }
        Action::Trigger { id, scheduled_at, retention, data } => {
            let record = live(record, name)?;
            if id.starts_with(FOLLOW_UP) {
                let own = format!(
                    "the id {id:?} of a trigger begins with {FOLLOW_UP:?}, which is reserved for runs after \
                     other jobs; use another id"
                );
                return Err(Error::invalid(own));
            }
            let (scheduled_at, retention, data) = (*scheduled_at, *retention, *data);
            let new = trigger::NewTrigger { id, scheduled_at, retention, data };
            let (occurrence, status) = record.trigger(name, &new, context.now)?;
            let triggered = Triggered { occurrence, status, state: record.state(name) };
            return Ok(Reply::Triggered(Box::new(triggered)));
        }
        Action::Extend { fence, .. }
        | Action::Complete { fence, .. }
        | Action::Retry { fence, .. }
        | Action::Release { fence } => {
            let reply = match record {
                None => Reply::Absent,
                Some(record) => match complete::end(record, operation, *fence, context, history) {
                    Reply::LeaseLost if !record.is_live() => record.gone(),
                    reply => reply,
                },
            };
            return Ok(reply);
        }
        Action::Follow { job, on } => return chain::follow(record, name, (job, *on), context),
        // A tombstone has an outbox as well.
        Action::Confirm { done, gone } => {
            return Ok(match record {
                None => Reply::Absent,
                Some(record) => record.confirm(done, gone),
            });
        }
        Action::FollowUp { from, follow_up } => {
            return Ok(match record {
                None => Reply::Absent,
                Some(record) if !record.is_live() => record.gone(),
                Some(record) => record.receive(name, from, follow_up, context, history),
            });
        }
        Action::ClaimKey(claim) => return Ok(key::claim(record, name, claim, context)),
        Action::ReleaseKey { fence } => {
            return Ok(match record {
                None => Reply::Absent,
                Some(record) if !record.is_live() => record.gone(),
                Some(record) => record.release_key(*fence),
            });
        }
        Action::Register { definition, version, first } => {
            define::register(record, definition, *version, *first, context);
        }
        Action::Read
        | Action::Redefine { .. }
        | Action::Claim(_)
        | Action::Advance(_)
        | Action::GiveUp { .. }
        | Action::Prune { .. }
        | Action::Replace { .. }
        | Action::Reap => {}
    }
    let record = match record {
        None => return Ok(Reply::Absent),
        Some(record) if !record.is_live() => return Ok(record.gone()),
        Some(record) => record,
    };
    match &operation.action {
        Action::Redefine { generation, definition, version, plan } => {
            let redefinition = define::Redefinition {
                generation: *generation,
                definition,
                version: *version,
                plan: *plan,
            };
            record.redefine_if(name, &redefinition, context, history);
        }
        Action::Claim(claim) => {
            if let Some(claimed) = claim::claim(record, name, claim, context, history) {
                return Ok(Reply::Claimed(claimed));
            }
        }
        Action::Advance(advance) => {
            if let Some(claimed) = claim::advance(record, name, advance, context, history) {
                return Ok(Reply::Claimed(claimed));
            }
        }
        Action::GiveUp { fence, occurrence, then, error } => {
            let given_up = complete::GivenUp { fence: *fence, occurrence, then: *then, error };
            let is_given_up = complete::give_up(record, name, given_up, context, history);
            if is_given_up {
                return Ok(Reply::Accepted);
            }
        }
        Action::Reap => record.reap(name, context.now, history),
        Action::Replace { .. } => operate::operate(record, operation, context, history)?,
        Action::Prune { fence, cursor } if record.is_unused(name, *fence, *cursor, context.now) => {
            // Those of a key have ended.
            record.leases.clear();
            record.bury(name, context);
            return Ok(Reply::Deleted);
        }
        _ => {}
    }
    Ok(Reply::State(Box::new(record.state(name))))
}

/// Replies to an operation on a record that cannot be read, for `reason`. Only a deletion changes
/// it: `instead` becomes the tombstone that takes its place.
///
/// # Errors
/// `Other` for an operation of a client other than a deletion.
pub fn apply_unreadable(
    reason: &str,
    operation: &Operation<'_>,
    context: OpContext<'_>,
    instead: &mut Option<Record>,
    history: &mut HistoryBuffer,
) -> Result<Reply> {
    let name = operation.name;
    match &operation.action {
        // Nothing tells whether a run still has its lease.
        Action::Extend { .. }
        | Action::Complete { .. }
        | Action::Retry { .. }
        | Action::Release { .. }
        | Action::ReleaseKey { .. } => Ok(Reply::LeaseLost),
        Action::Read
        | Action::ClaimKey(_)
        | Action::FollowUp { .. }
        | Action::Confirm { .. }
        | Action::Register { .. }
        | Action::Redefine { .. }
        | Action::Claim(_)
        | Action::Advance(_)
        | Action::GiveUp { .. }
        | Action::Prune { .. }
        | Action::Reap => Ok(unreadable(name, reason)),
        Action::Delete => {
            define::create(instead, name, &NewSchedule::new("unreadable", "", None), context)?;
            apply(instead, operation, context, history)
        }
        _ => {
            let text = format!(
                "the record of {name:?} cannot be read: {reason}; delete it and create it again"
            );
            Err(Error::new(ErrorKind::Other, text))
        }
    }
}

/// The reply that shows a record that cannot be read.
pub(crate) fn unreadable(name: &str, reason: impl Into<String>) -> Reply {
    Reply::State(Box::new(JobState::unreadable(name, reason)))
}
