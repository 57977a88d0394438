//! The state machine on a plain map: the model that every backend is compared with.

use allora_core::{
    Result, Time,
    backend::{
        Applied, Batch, Claim, ClaimDue, Claimed, ClaimedDue, Due, DueQuery, Flag, HistoryCursor,
        HistoryEntry, HistoryLimits, HistoryQuery, HistoryTrim, JobState, Lease, Operation, Page,
        Reply,
    },
    is_internal,
    record::{Change, HistoryBuffer, OpContext, Record, apply},
};
use chrono::TimeDelta;
use std::collections::{BTreeMap, BTreeSet};

/// A store without lock, index, clock or `async`, which removes nothing by itself.
///
/// For differential tests of a backend, and as a start for backends that are broken on purpose.
///
/// ```
/// use allora_conformance::reference::ReferenceModel;
/// use allora_core::{backend::{Batch, Operation, Reply, TimeSource}, time::from_millis};
///
/// let now = TimeSource::Fixed(from_millis(0).unwrap());
/// let batch = [Operation::read("report")];
/// let applied = ReferenceModel::default().reschedule(Batch::new("node", now, &batch));
/// assert_eq!(applied.single().unwrap(), Reply::Absent);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ReferenceModel {
    records: BTreeMap<String, Option<Record>>,
    history: BTreeMap<HistoryCursor, HistoryEntry>,
    changes: BTreeMap<HistoryCursor, Change>,
    /// Successes have no entries, as with
    /// [`HistoryLimits::without_successes`](allora_core::backend::HistoryLimits::without_successes).
    pub without_successes: bool,
}

impl ReferenceModel {
    /// Applies one operation.
    ///
    /// # Errors
    /// As [`apply`].
    pub fn apply(&mut self, operation: &Operation<'_>, context: OpContext<'_>) -> Result<Reply> {
        self.with(operation.name, |record, history| apply(record, operation, context, history))
    }

    /// Calls `change` with the record of `name`, and keeps the history and the changes that it records.
    pub fn with<T>(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut Option<Record>, &mut HistoryBuffer) -> T,
    ) -> T {
        let mut history = match self.without_successes {
            true => HistoryBuffer::without_successes(),
            false => HistoryBuffer::kept(),
        };
        let result = change(self.records.entry(name.to_owned()).or_default(), &mut history);
        let entries = history.take().into_iter();
        self.history.extend(entries.map(|entry| (entry.cursor(), entry)));
        let changes = history.take_changes().into_iter();
        self.changes.extend(changes.map(|change| (change.cursor(), change)));
        result
    }

    /// The record of `name`, or its tombstone.
    pub fn record(&self, name: &str) -> Option<&Record> {
        self.records.get(name)?.as_ref()
    }

    /// Writes the record of `name` as it was `before`: the fault of a store that reads and writes
    /// without comparing.
    pub fn put_back(&mut self, name: &str, before: Option<Record>) {
        self.records.insert(name.to_owned(), before);
    }

    /// As [`Backend::reschedule`](allora_core::Backend::reschedule).
    pub fn reschedule(&mut self, batch: Batch<'_>) -> Applied {
        let now = batch.time.without_store_clock();
        let context = OpContext::new(batch.node, now);
        let replies = batch.operations.iter().map(|operation| self.apply(operation, context));
        let replies = replies.collect();
        Applied::new(now, replies)
    }

    /// As [`Queries::find_due`](allora_core::backend::Queries::find_due).
    pub fn find_due(&self, query: DueQuery<'_>, now: Time) -> Due {
        let mut due: Vec<(Time, &str)> = Vec::new();
        for kind in query.kinds {
            let of_kind = self.live().filter(|(_, record)| record.kind == *kind);
            let indexed = of_kind.filter_map(|(name, record)| Some((record.index_at()?, name)));
            let mut indexed: Vec<_> = indexed.collect();
            indexed.sort_unstable();
            due.extend(indexed.into_iter().skip(query.skip));
        }
        due.sort_unstable();
        due.dedup();
        let ready = due.iter().take(query.limit).take_while(|(at, _)| *at < query.until).count();
        let found = due[..ready].iter().filter_map(|(_, name)| self.get(name));
        Due::new(now, found.collect(), due.get(ready).map(|(at, _)| *at))
    }

    /// As [`Queries::claim_due`](allora_core::backend::Queries::claim_due): by the claim that `of`
    /// gives for the state of a record, as [`due_claim`](allora_core::record::due_claim) does.
    pub fn claim_due(
        &mut self,
        query: ClaimDue<'_>,
        now: Time,
        of: impl Fn(&JobState, u128) -> Option<Claim>,
    ) -> ClaimedDue {
        let mut claimed = Vec::new();
        if query.is_repeated {
            let leases = self.live().flat_map(|(name, record)| {
                let is_it = |lease: &&Lease| {
                    lease.claim_id == query.claim_id
                        && query.kinds.contains(&&*record.kind)
                        && lease.fence >= record.incarnation
                        && !lease.cancel_requested
                        && !lease.completed
                };
                record.leases.iter().filter(is_it).map(|lease| {
                    let Lease { occurrence, fence, until, .. } = lease.clone();
                    let claimed = Claimed::new(occurrence, fence, record.incarnation, until);
                    (record.state(name), claimed)
                })
            });
            claimed.extend(leases);
            return ClaimedDue::new(now, claimed);
        }
        let until = now + TimeDelta::milliseconds(1);
        let due = self.find_due(DueQuery::new(query.kinds, until, usize::MAX), now);
        for state in due.found {
            let claim = of(&state, query.claim_id).filter(|_| claimed.len() < query.limit);
            let Some(mut claim) = claim else { continue };
            claim.not_after = query.not_after;
            let context = OpContext::new(query.node, now);
            let operation = Operation::claim(&state.name, claim);
            let reply = self
                .with(&state.name, |record, history| apply(record, &operation, context, history));
            if let Ok(Reply::Claimed(granted)) = reply {
                claimed.extend(self.get(&state.name).map(|state| (state, granted)));
            }
        }
        ClaimedDue::new(now, claimed)
    }

    /// As [`Queries::get`](allora_core::backend::Queries::get); `None` if there is no such job.
    pub fn get(&self, name: &str) -> Option<JobState> {
        self.record(name).filter(|record| record.is_live()).map(|record| record.state(name))
    }

    /// As [`Queries::list`](allora_core::backend::Queries::list).
    pub fn list(&self, page: Page<'_>) -> Vec<JobState> {
        let shows_internal = is_internal(page.prefix);
        self.live()
            .filter(|(name, _)| shows_internal || !is_internal(name))
            .filter(|(name, _)| page.after.is_none_or(|after| *name > after))
            .filter(|(name, _)| name.starts_with(page.prefix))
            .filter(|(_, record)| page.kind.is_none_or(|kind| record.kind == kind))
            .map(|(name, record)| record.state(name))
            .take(page.limit)
            .collect()
    }

    /// As [`Queries::kinds`](allora_core::backend::Queries::kinds).
    pub fn kinds(&self) -> Vec<String> {
        let indexed = self.live().filter(|(_, record)| record.index_at().is_some());
        let kinds: BTreeSet<&str> = indexed.map(|(_, record)| &*record.kind).collect();
        kinds.into_iter().filter(|kind| !kind.is_empty()).map(str::to_owned).collect()
    }

    /// As [`History::entries`](allora_core::backend::History::entries).
    pub fn entries(&self, query: HistoryQuery<'_>) -> Vec<HistoryEntry> {
        let has_owner = |entry: &HistoryEntry| {
            query.owner.is_none_or(|owner| {
                let mut of_job = self.live().filter(|(name, _)| *name == entry.name);
                of_job.any(|(name, it)| Flag::Owner(owner).holds(&it.state(name), Time::UNIX_EPOCH))
            })
        };
        self.history
            .iter()
            .rev()
            .filter(|(_, entry)| query.admits(entry) && has_owner(entry))
            .take(query.limit)
            .map(|(_, entry)| entry.clone())
            .collect()
    }

    /// As [`Queries::changes`](allora_core::backend::Queries::changes).
    pub fn changes(&self, query: HistoryQuery<'_>) -> Vec<Change> {
        self.changes
            .iter()
            .rev()
            .filter(|(cursor, _)| query.before.is_none_or(|before| *cursor < before))
            .filter(|(cursor, _)| query.name.is_none_or(|name| cursor.name == name))
            .take(query.limit)
            .map(|(_, change)| change.clone())
            .collect()
    }

    /// Keeps the history entries for which this returns `true`.
    pub fn retain_history(&mut self, mut keep: impl FnMut(&HistoryEntry) -> bool) {
        self.history.retain(|_, entry| keep(entry));
    }

    /// Removes what is beyond the limits: as [`Backend::prune`](allora_core::Backend::prune), at once.
    pub fn prune_history(&mut self, limits: &HistoryLimits, now: Time) {
        let mut kept: BTreeMap<String, HistoryTrim> = BTreeMap::new();
        let newest_first: Vec<HistoryEntry> = self.history.values().rev().cloned().collect();
        for entry in newest_first {
            let of_job = kept.entry(entry.name.clone()).or_insert_with(|| limits.at(now));
            if of_job.removes(entry.fence, entry.outcome.is_failure()) {
                self.history.remove(&entry.cursor());
            }
        }
    }

    /// Removes the changes that are too old or too many: as [`Backend::prune`](allora_core::Backend::prune).
    pub fn prune_changes(&mut self, limits: &HistoryLimits, now: Time) {
        let mut kept = limits.changes_at(now);
        let removed = self.changes.keys().rev().filter(|at| kept.removes(at.fence)).count();
        for _ in 0..removed {
            self.changes.pop_first();
        }
    }

    fn live(&self) -> impl Iterator<Item = (&str, &Record)> {
        let records = self.records.iter();
        let records = records.filter_map(|(name, slot)| Some((&**name, slot.as_ref()?)));
        records.filter(|(_, record)| record.is_live())
    }
}
