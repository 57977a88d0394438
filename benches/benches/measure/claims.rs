//! A store that notes the claims of jobs in code, and whether they have won.

use allora_conformance::faults::Hooks;
use allora_core::{
    Result, async_trait,
    backend::{Action, Applied, Backend, Batch, Operation, Reply},
};
use std::{
    ops::Range,
    sync::{Arc, Mutex},
};

/// The answered claims of all nodes: the second of the occurrence, and whether the node has it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims(Arc<Mutex<Vec<(i64, bool)>>>);

impl Claims {
    /// The claims of the occurrences in these seconds, and those of them that failed.
    pub(crate) fn within(&self, seconds: &Range<i64>) -> (usize, usize) {
        let claims = self.0.lock().unwrap();
        let ours = || claims.iter().filter(|(second, _)| seconds.contains(second));
        (ours().count(), ours().filter(|(_, is_won)| !is_won).count())
    }
}

/// The store of one node, whose claims are noted. A claim without a reply is sent again, and is noted
/// when it is answered.
#[async_trait]
impl Hooks for Claims {
    async fn reschedule(&self, store: &Arc<dyn Backend>, batch: Batch<'_>) -> Result<Applied> {
        let seconds: Vec<Option<i64>> = batch.operations.iter().map(claimed_second).collect();
        let applied = store.reschedule(batch).await?;
        let answered = seconds.into_iter().zip(&applied.replies).filter_map(|(second, reply)| {
            Some((second?, matches!(reply.as_ref().ok()?, Reply::Claimed(_))))
        });
        self.0.lock().unwrap().extend(answered);
        Ok(applied)
    }
}

fn claimed_second(operation: &Operation<'_>) -> Option<i64> {
    match &operation.action {
        Action::Claim(claim) => Some(claim.start.scheduled_at.timestamp()),
        _ => None,
    }
}
