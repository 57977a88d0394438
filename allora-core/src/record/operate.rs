//! Operators' changes of a job: pause, resume, skip, cancel, dead letters, and reset; and the cancellation of
//! runs that a later occurrence replaces. Triggers are in `trigger.rs`.
//!
//! A cancellation is a flag of the lease, because an operator must end a run whose node is unknown
//! and may be dead, in a store that may have no notifications. The node's next extension shows it;
//! if the lease ends first, whoever reads the record next ends the occurrence as cancelled. A reset
//! is a new incarnation: an occurrence that ran too early runs again at its true time under another
//! key, and no late write of the former incarnation is accepted.

use super::{HeadOccurrence, HistoryBuffer, OpContext, PendingRetry, Record};
use crate::{
    backend::{
        Action, Advance, Author, CancelScope, DeadLetter, HistoryEntry, Lease, NextRun, NotRun,
        NotRunReason, Occurrence, OnExpiry, Operation, Outcome, Pause, Sharing,
    },
    error::{Error, ErrorKind, Result},
    time::{Time, whole_millis},
};

/// Applies such an operation to a record that was not deleted.
pub(super) fn operate(
    record: &mut Record,
    operation: &Operation<'_>,
    context: OpContext<'_>,
    history: &mut HistoryBuffer,
) -> Result {
    let name = operation.name;
    let now = whole_millis(context.now);
    match &operation.action {
        Action::Pause { note, until } => {
            let until = until.map(whole_millis);
            check_end(name, until, now)?;
            record.take_over_pause(false);
            let since = record.paused.take().map_or(now, |pause| pause.since);
            record.paused = Some(Pause { since, until, note: (*note).to_owned() });
        }
        Action::Resume => {
            record.paused = None;
            record.take_over_pause(true);
        }
        Action::Skip(skip) => {
            record.check_skip(name, skip)?;
            let first = Occurrence::from(skip.expected);
            record.skip(name, first, skip.not_run, context, history);
            history.annotate(operation.author.map(told));
            record.cursor = skip.then;
        }
        Action::Rerun { occurrence } => {
            let letter = record.remove_dead_letter(name, occurrence)?;
            if !record.started().any(|other| *other == letter.occurrence) {
                let occurrence = letter.occurrence;
                record.retries.push(PendingRetry { occurrence, attempts: 0, not_before: now });
            }
        }
        Action::Dismiss { occurrence } => {
            record.remove_dead_letter(name, occurrence)?;
        }
        Action::MarkSucceeded { occurrence } => {
            record.mark_succeeded(operation, occurrence, context, history)?;
        }
        Action::Cancel(scope) => {
            record.reap(name, context.now, history);
            let is_it = |lease: &&mut Lease| match scope {
                CancelScope::Run(fence) => lease.fence == *fence,
                scope => scope.has(&lease.occurrence),
            };
            // A run that was recorded as lost may be active, too.
            for lease in record.leases.iter_mut().chain(&mut record.lost).filter(is_it) {
                lease.cancel_requested = true;
            }
            record.cancel_waiting(name, *scope, context, history);
        }
        Action::Replace { generation, expected, by } => {
            record.reap(name, context.now, history);
            record.replace_runs(*generation, *expected, *by, context.now);
        }
        Action::Reset { incarnation, first } => {
            record.check_reset(name, *incarnation, *first, context.now)?;
            record.reset(name, *first, context, history);
        }
        _ => {}
    }
    Ok(())
}

/// The text of the entry of a change: who made it, and why.
pub(super) fn told(author: &Author) -> String {
    match author.note.is_empty() {
        true => format!("by {author}"),
        false => format!("by {author}: {}", author.note),
    }
}

/// Checks that a pause does not end before it begins.
fn check_end(name: &str, until: Option<Time>, now: Time) -> Result {
    match until {
        Some(until) if until <= now => Err(Error::invalid(format!(
            "{name:?} cannot be paused until {until}: the store's time is {now}; give a later time"
        ))),
        _ => Ok(()),
    }
}

/// The largest number of history entries of one cancellation: the last one is for all further
/// occurrences.
const CANCELLED_ENTRIES: usize = 16;

impl Record {
    /// Ends the triggers of this scope that wait, and its occurrences that wait for another attempt.
    /// Only a node, which has the schedule, can move the cursor away from a started occurrence: that one becomes a
    /// lease that is over and whose run was to be cancelled, which a node gives up.
    fn cancel_waiting(
        &mut self,
        name: &str,
        scope: CancelScope<'_>,
        context: OpContext<'_>,
        history: &mut HistoryBuffer,
    ) {
        let now = whole_millis(context.now);
        let triggers = self.triggers.extract_if(.., |trigger| scope.has(trigger));
        let triggers = triggers.map(|occurrence| {
            let not_before = occurrence.scheduled_at;
            PendingRetry { occurrence, attempts: 0, not_before }
        });
        let retries = self.retries.extract_if(.., |retry| scope.has(&retry.occurrence));
        let waiting: Vec<_> = retries.chain(triggers).collect();
        // The history of a store is written with the record, in one transaction of limited size.
        let (mut entries, mut rest): (usize, Option<HistoryEntry>) = (0, None);
        for PendingRetry { occurrence, attempts, not_before } in waiting {
            let fence = self.draw_fence(context.now);
            if self.is_at_cursor(&occurrence) {
                self.leases.push(Lease {
                    node: context.node.to_owned(),
                    claim_id: 0,
                    fence,
                    occurrence,
                    attempt: attempts,
                    due_at: not_before,
                    started_at: now,
                    until: now,
                    on_expiry: OnExpiry::Retry,
                    sharing: Sharing::Exclusive,
                    cancel_requested: true,
                    replaced_by: None,
                    completed: false,
                });
                continue;
            }
            self.counters.cancelled += 1;
            if attempts > 0 {
                self.last = Some(Outcome::Cancelled);
                self.followed(name, &occurrence, &Outcome::Cancelled, now, history);
            }
            if let Some(rest) = &mut rest {
                rest.count = rest.count.map(|count| count + 1);
                rest.last = rest.last.max(Some(occurrence.scheduled_at));
                continue;
            }
            let entry = HistoryEntry {
                kind: self.kind.clone(),
                due_at: Some(not_before),
                attempt: attempts,
                node: context.node.to_owned(),
                ended_at: Some(now),
                reason: Some(NotRunReason::Operator),
                ..HistoryEntry::new(name, fence, occurrence, Outcome::Cancelled)
            };
            entries += 1;
            if entries < CANCELLED_ENTRIES {
                history.push(|| entry);
            } else {
                let last = Some(entry.occurrence.scheduled_at);
                rest = Some(HistoryEntry { last, count: Some(1), ..entry });
            }
        }
        if let Some(rest) = rest {
            history.push(|| rest);
        }
    }

    /// Requests the cancellation of the active at-most-once runs, if the cursor's occurrence is offered
    /// and due. A request that was made before keeps its reason.
    fn replace_runs(&mut self, generation: i64, expected: Time, by: Time, now: Time) {
        let is_due = self.offered(&Occurrence::from(expected)).is_some_and(|head| {
            matches!(head.occurrence, HeadOccurrence::Cursor(_)) && head.due_at <= now
        });
        if self.generation != generation || by < expected || !is_due {
            return;
        }
        let may_be_replaced =
            |lease: &&mut Lease| lease.on_expiry == OnExpiry::Lost && !lease.cancel_requested;
        for lease in self.leases.iter_mut().filter(may_be_replaced) {
            (lease.cancel_requested, lease.replaced_by) = (true, Some(whole_millis(by)));
        }
    }

    /// Checks that the skipped range begins at this cursor.
    fn check_skip(&self, name: &str, skip: &Advance) -> Result {
        let follows = self.cursor.is_some_and(|cursor| {
            match self.last_started >= Some(cursor.scheduled_at) {
                true => cursor.scheduled_at < skip.expected,
                false => cursor.scheduled_at == skip.expected,
            }
        });
        if self.generation != skip.generation || !follows {
            let changed = format!("{name:?} was changed since it was read; read it again");
            return Err(Error::new(ErrorKind::AlreadyExists, changed));
        }
        let last = skip.not_run.last;
        if last < skip.expected || skip.then.is_some_and(|next| next.scheduled_at <= last) {
            return Err(Error::invalid(format!(
                "the cursor of {name:?} cannot go back to {last} or before it"
            )));
        }
        Ok(())
    }

    fn check_reset(
        &self,
        name: &str,
        incarnation: i64,
        first: Option<NextRun>,
        now: Time,
    ) -> Result {
        if self.incarnation != incarnation {
            let changed = format!("{name:?} was created again since it was read; read it again");
            return Err(Error::new(ErrorKind::AlreadyExists, changed));
        }
        match (first, self.last_started.filter(|last| *last <= now)) {
            (Some(first), Some(last)) if first.scheduled_at <= last => {
                Err(Error::invalid(format!(
                    "{name:?} cannot go back to {}: its occurrence of {last} was started already",
                    first.scheduled_at
                )))
            }
            _ => Ok(()),
        }
    }

    /// Forgets what lies after now. The new incarnation gives the occurrences between now and the
    /// times that are forgotten new keys.
    fn reset(
        &mut self,
        name: &str,
        first: Option<NextRun>,
        context: OpContext<'_>,
        history: &mut HistoryBuffer,
    ) {
        let now = context.now;
        for lease in std::mem::take(&mut self.leases) {
            self.lose(&lease, name, now, history);
        }
        self.lost.clear();
        self.streak = None;
        let is_ahead = |occurrence: &Occurrence| occurrence.scheduled_at > now;
        let retries = self.retries.extract_if(.., |retry| is_ahead(&retry.occurrence));
        let mut missed: Vec<Occurrence> = retries.map(|retry| retry.occurrence).collect();
        missed.extend(self.triggers.extract_if(.., |trigger| is_ahead(trigger)));
        for occurrence in missed {
            let last = occurrence.scheduled_at;
            let not_run = NotRun { count: Some(1), last, reason: NotRunReason::CatchUp };
            self.skip(name, occurrence, not_run, context, history);
        }
        for retry in &mut self.retries {
            retry.not_before = retry.not_before.min(whole_millis(now));
        }
        self.forget_triggers_ahead(now);
        self.last_started = self.last_started.filter(|last| *last <= now);
        self.cursor = first;
        self.incarnation = self.draw_fence(now);
        self.generation = self.incarnation;
    }

    /// Writes the entry of an occurrence whose work is done without a run.
    fn mark_succeeded(
        &mut self,
        operation: &Operation<'_>,
        occurrence: &Occurrence,
        context: OpContext<'_>,
        history: &mut HistoryBuffer,
    ) -> Result {
        let (name, now) = (operation.name, whole_millis(context.now));
        let is_ahead = occurrence.trigger.is_none()
            && self.cursor.is_some_and(|next| next.scheduled_at <= occurrence.scheduled_at);
        let waits =
            self.triggers.contains(occurrence) || self.started().any(|other| other == occurrence);
        if waits || is_ahead || occurrence.scheduled_at > now {
            return Err(Error::invalid(format!(
                "the occurrence of {name:?} at {} has not ended; wait for its end, cancel it or skip it",
                occurrence.scheduled_at
            )));
        }
        self.dead.retain(|letter| letter.occurrence != *occurrence);
        let fence = self.draw_fence(context.now);
        history.push(|| HistoryEntry {
            kind: self.kind.clone(),
            attempt: 0,
            node: context.node.to_owned(),
            ended_at: Some(now),
            reason: Some(NotRunReason::Operator),
            output: operation.author.map(told),
            ..HistoryEntry::new(name, fence, occurrence.clone(), Outcome::Succeeded)
        });
        Ok(())
    }

    fn remove_dead_letter(&mut self, name: &str, occurrence: &Occurrence) -> Result<DeadLetter> {
        let place = self.dead.iter().position(|letter| letter.occurrence == *occurrence);
        let place = place.ok_or_else(|| {
            let none = format!("{name:?} has no dead letter of {}", occurrence.scheduled_at);
            Error::new(ErrorKind::NotFound, none)
        })?;
        Ok(self.dead.remove(place))
    }
}
