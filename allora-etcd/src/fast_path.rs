//! The preparation of a batch: the node's session, and the records that a cache cannot show.
//!
//! etcd has no statement that claims without a read, so that no operation is answered here: the
//! cache saves the read instead.

use crate::{records::OP, store::Store};
use allora_core::{
    Result,
    backend::{Action, Batch, Operation, TimeSource},
};
use etcd_client::{Txn, TxnOp};
use std::time::Duration;

impl Store {
    /// Prepares load and commit of a batch.
    pub(crate) async fn prepare(&self, batch: Batch<'_>) -> Result {
        if batch.operations.is_empty() {
            // etcd has no clock to read. Without an exchange, a node or `doctor` would believe that
            // it has reached a cluster that is down.
            let read = TxnOp::get(self.keys.min_fence(), None);
            self.client.txn(OP, Txn::new().and_then([read])).await?;
        }
        if let TimeSource::Store { fallback } = batch.time {
            self.sessions.keep(batch.node, fallback);
            if let Some(lease) = batch.operations.iter().filter_map(lease_of).max() {
                self.sessions.ensure_session(OP, batch.node, lease).await?;
            }
        }
        // Read in the same exchange as the records that are not cached.
        let shown = batch.operations.iter().filter(|operation| shows_record(operation));
        self.cache.must_read(shown.map(|operation| operation.name));
        Ok(())
    }
}

/// The length of the lease that an operation asks for.
fn lease_of(operation: &Operation<'_>) -> Option<Duration> {
    match &operation.action {
        Action::Claim(claim) => Some(claim.lease.duration),
        Action::ClaimKey(claim) => Some(claim.duration),
        Action::Extend { duration, .. } => Some(*duration),
        _ => None,
    }
}

/// True if the reply shows the record, with its data, whatever becomes of the operation. The other
/// operations have replies that a commit proves.
fn shows_record(operation: &Operation<'_>) -> bool {
    !matches!(
        operation.action,
        Action::Claim(_)
            | Action::Extend { .. }
            | Action::Complete { .. }
            | Action::Retry { .. }
            | Action::Release { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use allora_core::backend::{Claim, Cursor, Sharing};

    #[test]
    fn claims_and_extensions_ask_for_a_session_and_reads_for_the_record() {
        let lease = Duration::from_secs(7);
        let head = || allora_core::time::end_of_time().into();
        let at_least = Claim::at_least_once(1, 1, head(), lease);
        let at_most = Claim::at_most_once(1, 1, head(), Cursor::Keep, lease, Sharing::Shared);
        let extend = Action::Extend { fence: 1, duration: lease };
        let actions = [Action::Claim(at_least), Action::Claim(at_most), extend];
        for operation in actions.map(|action| Operation::new("job", action)) {
            assert_eq!((lease_of(&operation), shows_record(&operation)), (Some(lease), false));
        }
        let read = Operation::read("job");
        assert_eq!((lease_of(&read), shows_record(&read)), (None, true));
        let release = Operation::new("job", Action::Release { fence: 1 });
        assert_eq!((lease_of(&release), shows_record(&release)), (None, false));
    }
}
