//! Ends of runs whose outcome is not known.
//!
//! A ballot that is overtaken, or whose call was dropped, may still be committed by the node that
//! overtakes it. When the next ballot reads the record, the record may remember only a later end.
//! But a run whose lease was there was either ended by its own node, or has expired or was lost, and
//! the record counts those.

use allora_core::{
    Result,
    backend::{Action, Operation, Reply},
    record::Record,
};
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The most runs that are remembered. If a run is dropped, the repetition of its end may get the
/// reply that its lease is lost.
const MOST: usize = 65_536;

/// The part of a record that tells whether a lease was ended by another node.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct LeaseState {
    incarnation: i64,
    /// The runs that expired or were lost, and whose ends are not accepted any more.
    ended_by_others: u64,
    /// True if the record accepts the end of the run that is to be ended.
    is_held: bool,
}

impl LeaseState {
    /// `None` if the operation ends no run, or there is no record.
    pub(crate) fn of(record: Option<&Record>, operation: &Operation<'_>) -> Option<Self> {
        let record = record?;
        let fence = fence(operation)?;
        Some(Self {
            incarnation: record.incarnation,
            ended_by_others: (record.counters.expired + record.counters.lost)
                .saturating_sub(record.lost.len() as u64),
            is_held: record.run(fence).is_some(),
        })
    }
}

/// The fence of the run that the operation ends. An extension ends none.
fn fence(operation: &Operation<'_>) -> Option<i64> {
    match operation.action {
        Action::Complete { fence, .. }
        | Action::Retry { fence, .. }
        | Action::Release { fence } => Some(fence),
        _ => None,
    }
}

/// The state in which each run was last seen that is to be ended here, by name and fence.
#[derive(Default)]
pub(crate) struct Unacknowledged(Mutex<HashMap<(String, i64), LeaseState>>);

impl Unacknowledged {
    /// The reply to the end of a run, also if an earlier ballot has carried it out.
    pub(crate) fn judge(
        &self,
        operation: &Operation<'_>,
        lease_state: Option<LeaseState>,
        reply: Reply,
    ) -> Reply {
        let (Some(lease_state), Some(fence)) = (lease_state, fence(operation)) else {
            return reply;
        };
        let mut runs = self.runs();
        let run = (operation.name.to_owned(), fence);
        if lease_state.is_held {
            if runs.len() >= MOST {
                runs.clear();
            }
            runs.insert(run, lease_state);
            return reply;
        }
        let as_before = runs.get(&run) == Some(&LeaseState { is_held: true, ..lease_state });
        if reply == Reply::LeaseLost && as_before { Reply::Accepted } else { reply }
    }

    /// Drops a run whose outcome is known now.
    pub(crate) fn forget(&self, operation: &Operation<'_>, reply: &Result<Reply>) {
        if let Some(fence) = fence(operation)
            && reply.is_ok()
        {
            self.runs().remove(&(operation.name.to_owned(), fence));
        }
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<(String, i64), LeaseState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allora_core::backend::{Completion, Cursor};

    #[test]
    fn a_run_that_ended_and_neither_expired_nor_was_lost_was_ended_here() {
        let complete = Operation::complete("job", 7, Cursor::Keep, Completion::Succeeded);
        let lease_state = |ended_by_others, is_held| {
            Some(LeaseState { incarnation: 1, ended_by_others, is_held })
        };
        let lost = |before, now| {
            let unacknowledged = Unacknowledged::default();
            unacknowledged.judge(&complete, before, Reply::Accepted);
            unacknowledged.judge(&complete, now, Reply::LeaseLost)
        };
        assert_eq!(lost(lease_state(3, true), lease_state(3, false)), Reply::Accepted);
        assert_eq!(
            lost(lease_state(3, true), lease_state(4, false)),
            Reply::LeaseLost,
            "another node took it over"
        );
        assert_eq!(
            lost(lease_state(3, false), lease_state(3, false)),
            Reply::LeaseLost,
            "it never was there"
        );
        assert_eq!(lost(None, None), Reply::LeaseLost);
        let again = Some(LeaseState { incarnation: 2, ended_by_others: 3, is_held: false });
        assert_eq!(lost(lease_state(3, true), again), Reply::LeaseLost, "the name came back");
    }

    #[test]
    fn an_acknowledged_end_is_forgotten_and_an_extension_is_not_remembered() {
        let release = Operation::new("job", Action::Release { fence: 7 });
        let held = Some(LeaseState { incarnation: 1, ended_by_others: 0, is_held: true });
        let unacknowledged = Unacknowledged::default();
        let extend = Action::Extend { fence: 7, duration: std::time::Duration::ZERO };
        let extend = Operation::new("job", extend);
        let until = allora_core::time::from_millis(0).unwrap();
        unacknowledged.judge(&extend, held, Reply::Extended(until));
        assert!(unacknowledged.runs().is_empty(), "another node may release the run");
        for reply in [Reply::Accepted, Reply::Invalid, Reply::LeaseLost, Reply::Deleted] {
            unacknowledged.judge(&release, held, Reply::Accepted);
            unacknowledged.forget(&extend, &Ok(Reply::Extended(until)));
            assert_eq!(unacknowledged.runs().len(), 1);
            unacknowledged.forget(&release, &Ok(reply));
            assert!(unacknowledged.runs().is_empty());
        }
    }
}
