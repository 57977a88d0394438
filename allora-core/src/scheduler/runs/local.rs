//! The backend of jobs that run on every node: their records are in this node's memory.

use crate::{
    backend::{Action, Applied, Backend, Batch, Operation},
    error::Result,
    record::{HistoryBuffer, OpContext, Record, apply},
};
use async_trait::async_trait;
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

#[derive(Debug, Default)]
pub(crate) struct LocalBackend {
    records: Mutex<Records>,
}

#[derive(Debug, Default)]
struct Records {
    by_name: HashMap<String, Option<Record>>,
    /// The records of removed jobs that still have active runs.
    removed: Vec<(String, Option<Record>)>,
    /// The highest fence of a removed record.
    min_fence: i64,
}

impl LocalBackend {
    /// Removes the record of a job. Its active runs can be extended and ended.
    pub(in crate::scheduler) fn remove(&self, name: &str) {
        let mut records = self.records();
        let Some((name, Some(record))) = records.by_name.remove_entry(name) else { return };
        records.min_fence = records.min_fence.max(record.fence);
        if !record.leases.is_empty() {
            records.removed.push((name, Some(record)));
        }
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Backend for LocalBackend {
    async fn reschedule(&self, batch: Batch<'_>) -> Result<Applied> {
        let now = batch.time.without_store_clock();
        let mut records = self.records();
        let context = OpContext { min_fence: records.min_fence, ..OpContext::new(batch.node, now) };
        let replies = batch.operations.iter().map(|operation| records.apply(operation, context));
        Ok(Applied::new(now, replies.collect()))
    }
}

impl Records {
    fn apply(
        &mut self,
        operation: &Operation<'_>,
        context: OpContext<'_>,
    ) -> Result<crate::backend::Reply> {
        let history = &mut HistoryBuffer::off();
        let Some(i) = self.removed_with(operation) else {
            let record = self.by_name.entry(operation.name.to_owned()).or_default();
            return apply(record, operation, context, history);
        };
        let (_, record) = &mut self.removed[i];
        let reply = apply(record, operation, context, history);
        if record.as_ref().is_none_or(|record| record.leases.is_empty()) {
            self.removed.swap_remove(i);
        }
        reply
    }

    /// The removed record that has the run of this extension or end.
    fn removed_with(&self, operation: &Operation<'_>) -> Option<usize> {
        let (Action::Extend { fence, .. }
        | Action::Complete { fence, .. }
        | Action::Retry { fence, .. }
        | Action::Release { fence }) = &operation.action
        else {
            return None;
        };
        let has_run = |record: &Record| record.leases.iter().any(|lease| lease.fence == *fence);
        self.removed.iter().position(|(name, record)| {
            name == operation.name && record.as_ref().is_some_and(has_run)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        backend::{Claim, Completion, Cursor, NextRun, Reply, TimeSource},
        time::from_millis,
    };
    use futures::FutureExt;
    use std::time::Duration;

    fn send(local: &LocalBackend, action: Action<'_>) -> Reply {
        let time = TimeSource::Fixed(from_millis(10_000).unwrap());
        let operations = [Operation::new("job", action)];
        let applied = local.reschedule(Batch::new("node", time, &operations)).now_or_never();
        applied.unwrap().unwrap().single().unwrap()
    }

    #[test]
    fn a_removed_record_lasts_until_its_runs_have_ended() {
        let local = LocalBackend::default();
        let first = Some(NextRun::from(from_millis(5_000).unwrap()));
        let register = || Action::Register { definition: "x", version: 0, first };
        let state = send(&local, register()).state().unwrap();
        let lease = Duration::from_secs(5);
        let claim = Claim::at_least_once(1, state.fence, state.head.unwrap(), lease);
        let fence = send(&local, Action::Claim(claim)).claimed().unwrap().fence;
        local.remove("job");
        assert!(send(&local, register()).state().unwrap().fence > fence);
        let extended = send(&local, Action::Extend { fence, duration: lease });
        assert!(extended.extended().is_some());
        let end = || Action::Complete {
            fence,
            then: Cursor::To(None),
            completion: Completion::Succeeded,
        };
        assert_eq!(send(&local, end()), Reply::Accepted);
        assert_eq!(send(&local, end()), Reply::LeaseLost);
        local.remove("job");
        let records = local.records();
        assert!(records.by_name.is_empty() && records.removed.is_empty());
    }
}
