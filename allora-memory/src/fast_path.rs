//! Claims, extensions and ends of runs, applied to the records in their place: the general path
//! copies each record twice.

use crate::Memory;
use allora_core::{
    backend::{Action, Batch, Operation, Reply},
    record::{HistoryBuffer, OpContext, Record, apply},
    store::FastPath,
};

impl Memory {
    /// Applies a batch in place if it is about runs alone.
    pub(crate) fn apply_in_place(&self, batch: Batch<'_>) -> FastPath<u64> {
        // Operations on one name keep their order.
        if !batch.operations.iter().all(is_about_a_run) {
            return FastPath::none();
        }
        let mut index = self.index();
        let now = self.now(batch.time);
        let context = OpContext::new(batch.node, now);
        let mut fast = FastPath::none();
        fast.now = Some(now);
        fast.replies.reserve_exact(batch.operations.len());
        let mut history = match self.pruning.is_on() {
            true => self.pruning.buffer(),
            false => HistoryBuffer::lapsed(),
        };
        for (position, operation) in batch.operations.iter().enumerate() {
            // Two names are enough: a notification names at most one.
            let is_noted = fast.due.len() < 2;
            let reply = index.change(operation.name, |record| {
                let reply = apply(record, operation, context, &mut history);
                let has_ended = is_noted && matches!(reply, Ok(Reply::Accepted));
                let head = record.as_ref().filter(|_| has_ended).and_then(Record::head);
                let has_outbox = record.as_ref().is_some_and(Record::has_outbox);
                (reply, head.is_some_and(|head| head.due_at <= now), has_outbox)
            });
            let Some((reply, is_due, has_outbox)) = reply else { continue };
            fast.replies.push((position, reply));
            fast.due.extend(is_due.then(|| operation.name.to_owned()));
            fast.outboxes.extend(has_outbox.then(|| operation.name.to_owned()));
        }
        fast.reports = history.take_reports();
        let entries = history.take();
        fast.lapsed = entries.iter().filter(|entry| entry.has_lapsed()).cloned().collect();
        if self.pruning.is_on() {
            self.pruning.appended(entries.iter().map(|entry| &*entry.name));
            index.append_history(entries);
        }
        fast
    }
}

/// `true` for a claim, and for an extension or an end of a run.
fn is_about_a_run(operation: &Operation<'_>) -> bool {
    matches!(
        operation.action,
        Action::Claim(_)
            | Action::Extend { .. }
            | Action::Complete { .. }
            | Action::Retry { .. }
            | Action::Release { .. }
    )
}
