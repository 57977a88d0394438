//! Batches of operations, as changes of registers.

use super::{
    RedisQuorum,
    change::{Changed, Slot},
    proposer::majority,
    round::Clock,
    unacknowledged::LeaseState,
};
use allora_core::{
    Backend, Error, ErrorKind, Result, Time,
    backend::{Action, Applied, Batch, HistoryEntry, Operation, Reply, TimeSource},
    record::{HistoryBuffer, OpContext, Record, apply, apply_unreadable},
    store::too_long,
    time::saturating_add,
};
use async_trait::async_trait;
use chrono::TimeDelta;
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

#[async_trait]
impl Backend for RedisQuorum {
    async fn reschedule(&self, batch: Batch<'_>) -> Result<Applied> {
        self.apply(batch).await.map_err(|error| error.op("reschedule"))
    }

    fn namespace(&self) -> &str {
        &self.inner.prefix
    }

    fn security_warning(&self) -> Option<&str> {
        self.inner.security_warning.as_deref()
    }
}

impl RedisQuorum {
    async fn apply(&self, batch: Batch<'_>) -> Result<Applied> {
        let operations = batch.operations;
        let mut replies: Vec<Option<Result<Reply>>> = operations.iter().map(too_long).collect();
        let groups = groups(operations, &replies);
        if groups.is_empty() {
            let now = self.now(batch.time).await?;
            return Ok(Applied::new(now, replies.into_iter().flatten().collect()));
        }
        let of = |group: usize| groups[group].positions.iter().map(|i| &operations[*i]);
        let is_likely = |group: usize| of(group).any(is_likely);
        // The runs that each group has recorded as lost or expired when it was applied last.
        let lapsed = Mutex::new(vec![(Vec::new(), Vec::new()); groups.len()]);
        let outboxes = Mutex::new(vec![false; groups.len()]);
        let work = |group: usize, slot: &mut Slot, clock: Clock| {
            let mut history = HistoryBuffer::lapsed();
            let apply =
                |operation| self.apply_one(operation, slot, batch.node, clock, &mut history);
            let replies = of(group).map(apply).collect();
            let reports = history.take_reports();
            let mut entries = history.take();
            entries.retain(HistoryEntry::has_lapsed);
            lapsed.lock().unwrap_or_else(PoisonError::into_inner)[group] = (entries, reports);
            let has_outbox = slot.record.as_ref().is_some_and(Record::has_outbox);
            outboxes.lock().unwrap_or_else(PoisonError::into_inner)[group] = has_outbox;
            replies
        };
        let names: Vec<&str> = groups.iter().map(|group| group.name).collect();
        let changed = self.inner.change(&names, batch.time, is_likely, work).await?;
        let Changed { now, replies: by_group } = changed;
        for (group, answers) in groups.iter().zip(by_group) {
            for (position, reply) in group.positions.iter().zip(answers) {
                self.inner.unacknowledged.forget(&operations[*position], &reply);
                replies[*position] = Some(reply);
            }
        }
        let now = now.unwrap_or(batch.time.without_store_clock());
        let replies = replies.into_iter().map(|reply| {
            reply.unwrap_or_else(|| {
                let none = "the quorum has no reply to an operation; report it as a fault";
                Err(Error::new(ErrorKind::Other, none))
            })
        });
        let told = lapsed.into_inner().unwrap_or_else(PoisonError::into_inner);
        let (lapsed, reports): (Vec<_>, Vec<_>) = told.into_iter().unzip();
        let outboxes = outboxes.into_inner().unwrap_or_else(PoisonError::into_inner);
        let named = groups.iter().zip(outboxes).filter(|(_, has_outbox)| *has_outbox);
        let outboxes = named.map(|(group, _)| group.name.to_owned()).collect();
        let applied = Applied::new(now, replies.collect()).lapsed(lapsed.concat());
        Ok(applied.reports(reports.concat()).outboxes(outboxes))
    }

    /// The time that decides, for a batch without names.
    async fn now(&self, time: TimeSource) -> Result<Time> {
        match time {
            TimeSource::Fixed(at) => Ok(at),
            TimeSource::Store { .. } => {
                let responses = self.inner.handshake().await?;
                // Fewer servers claim nothing, and their clocks may all be wrong.
                let is_majority = responses.counted() >= majority(self.inner.servers.len());
                let clock = responses.clock().filter(|_| is_majority);
                Ok(clock.ok_or_else(|| self.inner.too_few(&responses))?.now)
            }
        }
    }

    /// Applies one operation to the record as a majority has it.
    fn apply_one(
        &self,
        operation: &Operation<'_>,
        slot: &mut Slot,
        node: &str,
        clock: Clock,
        history: &mut HistoryBuffer,
    ) -> Result<Reply> {
        let lease_state = LeaseState::of(slot.record.as_ref(), operation);
        let reply = apply_by(clock, operation, slot, node, history)?;
        Ok(self.inner.unacknowledged.judge(operation, lease_state, reply))
    }
}

/// True if the operation probably changes the record.
fn is_likely(operation: &Operation<'_>) -> bool {
    !matches!(operation.action, Action::Read | Action::Register { .. } | Action::Reap)
}

/// Applies an operation by the lower clock; a lease ends by the upper one.
fn apply_by(
    clock: Clock,
    operation: &Operation<'_>,
    slot: &mut Slot,
    node: &str,
    history: &mut HistoryBuffer,
) -> Result<Reply> {
    let now = match &operation.action {
        Action::Extend { .. } => saturating_add(clock.now, clock.spread),
        _ => clock.now,
    };
    let context = OpContext { min_fence: slot.min_fence, ..OpContext::new(node, now) };
    let longer = longer(operation, clock.spread);
    let applied = longer.as_ref().unwrap_or(operation);
    let Slot { record, unreadable, .. } = slot;
    let mut reply = match unreadable {
        Some(reason) if record.is_none() => {
            apply_unreadable(reason, applied, context, record, history)
        }
        _ => apply(record, applied, context, history),
    };
    if let Ok(Reply::Claimed(claimed)) = &mut reply {
        // The node counts from the lower clock, by which the lease began. Whole milliseconds are stored.
        claimed.until -= TimeDelta::from_std(clock.spread).unwrap_or_default();
        let mut leases = record.iter().flat_map(|record| &record.leases);
        if let Action::Claim(claim) = &operation.action
            && let Some(lease) = leases.find(|lease| lease.fence == claimed.fence)
        {
            let least = saturating_add(lease.started_at, claim.lease.duration);
            claimed.until = claimed.until.max(least);
        }
    }
    reply
}

/// The claim with a lease that ends by the upper clock; `None` if nothing changes.
fn longer<'a>(operation: &Operation<'a>, spread: Duration) -> Option<Operation<'a>> {
    let Action::Claim(claim) = &operation.action else { return None };
    if spread.is_zero() {
        return None;
    }
    let mut claim = claim.clone();
    claim.lease.duration = claim.lease.duration.saturating_add(spread);
    Some(Operation::claim(operation.name, claim))
}

/// The operations on one name.
struct Group<'a> {
    name: &'a str,
    /// Their positions in the batch, in their order.
    positions: Vec<usize>,
}

/// The operations that have no reply yet, by name.
fn groups<'a>(operations: &[Operation<'a>], replies: &[Option<Result<Reply>>]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    let mut by_name: HashMap<&str, usize> = HashMap::new();
    let open = operations.iter().zip(replies).enumerate();
    for (i, (operation, _)) in open.filter(|(_, (_, reply))| reply.is_none()) {
        let group = *by_name.entry(operation.name).or_insert_with(|| {
            groups.push(Group { name: operation.name, positions: Vec::new() });
            groups.len() - 1
        });
        groups[group].positions.push(i);
    }
    groups
}

/// The error of a setting.
pub(super) fn invalid_setting(what: String) -> Error {
    Error::new(ErrorKind::Invalid, what).op("connect")
}

#[cfg(test)]
mod tests {
    use super::*;
    use allora_core::{
        backend::{Claim, NextRun},
        time::from_millis,
    };

    /// Whatever the clocks say to the repetition, which may reach other servers.
    #[test]
    fn a_claim_and_its_repetition_last_at_least_from_the_lower_clock_of_the_first() {
        let (due, lease) = (from_millis(1_250).unwrap(), Duration::from_secs(5));
        let mut slot = Slot { record: None, unreadable: None, min_fence: 0 };
        let mut apply = |operation: &Operation<'_>, micros, spread| {
            let now = saturating_add(due, Duration::from_micros(micros));
            let clock = Clock { now, spread: Duration::from_micros(spread) };
            apply_by(clock, operation, &mut slot, "n", &mut HistoryBuffer::lapsed()).unwrap()
        };
        let first = Some(NextRun::from(due));
        let register = Action::Register { definition: "every 1s", version: 0, first };
        let seen = apply(&Operation::new("job", register), 0, 0).state().unwrap();
        let claim = Claim::at_least_once(1, seen.fence, due.into(), lease);
        let claim = Operation::claim("job", claim);
        let mut began =
            |micros, spread| apply(&claim, micros, spread).claimed().unwrap().until - lease;
        for (micros, spread) in [(479, 500), (479, 500), (90_000, 2_000)] {
            assert_eq!(began(micros, spread), due, "{micros}, {spread}");
        }
        assert!(began(91_000, 0) >= due);
    }
}
