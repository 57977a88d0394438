//! Load, commit and scan.

use crate::{
    Redis,
    cache::CachedRecord,
    encoding::{Fields, PARTS, history, ms},
    script::Call,
    shards::Part,
    store::{Store, StoredRecord, Version},
};
use allora_core::{
    ErrorKind, Result, Time,
    backend::{
        Batch, ClaimDue, ClaimedDue, Due, DueQuery, HistoryEntry, Lease, Notification, Notifier,
        Page, TimeSource,
    },
    record::{Change, FlagChanges, Record, TOMBSTONE, codec},
    store::{
        ChangeStore, Commit, Draft, FastPath, FlagStore, HistoryStore, Load, Outcome, RecordStore,
        Snapshot,
    },
    time::saturating_add,
};
use async_trait::async_trait;
use futures::{StreamExt, stream::FuturesUnordered};
use redis::Value;
use std::time::Duration;

const OP: &str = "reschedule";

/// The number of the first key of the parts beside the hot record, among those of `write.lua`.
const FIRST_PART: usize = 3;

#[async_trait]
impl RecordStore for Redis {
    type Version = Version;

    async fn load(&self, load: Load<'_>) -> Result<Snapshot<Version>> {
        self.store.load(load).await
    }

    async fn commit(&self, commit: Commit<'_, Version>) -> Result<Vec<Result<Outcome<Version>>>> {
        self.store.commit(commit).await
    }

    async fn scan(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Result<Record, String>)>> {
        let page = Page::first(limit).prefix(prefix);
        self.store.list(after.map_or(page, |after| page.after(after))).await
    }

    async fn fast_path(&self, batch: Batch<'_>) -> Result<FastPath<Version>> {
        self.store.fast_path(batch).await
    }

    async fn now(&self, time: TimeSource) -> Result<Time> {
        self.store.now(time).await
    }

    fn namespace(&self) -> &str {
        &self.store.keys.prefix
    }

    fn durability_warning(&self) -> Option<&str> {
        self.store.durability_warning.as_deref()
    }

    fn security_warning(&self) -> Option<&str> {
        self.store.security_warning.as_deref()
    }

    fn grants(&self, login: &str) -> Option<Vec<String>> {
        Some(vec![self.store.keys.grant(login)])
    }

    fn history_store(&self) -> Option<&dyn HistoryStore> {
        self.store.history.is_on().then_some(self as _)
    }

    fn change_store(&self) -> Option<&dyn ChangeStore> {
        Some(self)
    }

    fn flag_store(&self) -> Option<&dyn FlagStore> {
        Some(self)
    }

    async fn prune(&self, now: Time) -> Result {
        self.store.purge_tombstones(now).await
    }

    fn notifier(&self) -> Option<&dyn Notifier> {
        Some(self)
    }

    async fn notify(&self, notifications: Vec<Notification>) {
        self.store.notify(notifications);
    }

    fn claims_due(&self) -> bool {
        self.store.claims_due()
    }

    async fn claim_due(&self, query: ClaimDue<'_>, time: TimeSource) -> Result<ClaimedDue> {
        self.store.claim_due(query, time).await
    }

    async fn find_due(&self, query: DueQuery<'_>, time: TimeSource) -> Result<Due> {
        let due = self.store.find_due(query, time).await?;
        if time.is_store() {
            self.store.delete_unused().await;
        }
        Ok(due)
    }

    async fn list(&self, page: Page<'_>) -> Result<Vec<(String, Result<Record, String>)>> {
        self.store.list(page).await
    }

    async fn kinds(&self) -> Result<Vec<String>> {
        self.store.kinds().await
    }
}

/// A changed record to write.
pub(crate) struct Write<'a> {
    pub(crate) name: &'a str,
    pub(crate) version: &'a Version,
    /// The record that was read, if it was readable.
    pub(crate) before: Option<&'a Record>,
    pub(crate) is_unreadable: bool,
    pub(crate) after: &'a Record,
    pub(crate) history: &'a [HistoryEntry],
    pub(crate) changes: &'a [Change],
    pub(crate) not_after: Option<Time>,
    /// The time at which the change was decided.
    pub(crate) decided_at: Time,
    /// It changes nothing but the version stamp, and proves the record to replicas.
    pub(crate) is_proof: bool,
}

impl Store {
    async fn load(&self, load: Load<'_>) -> Result<Snapshot<Version>> {
        let names = load.names;
        if names.is_empty() {
            return Ok(Snapshot::new(self.now(load.time).await?, Vec::new()));
        }
        let read = |Part { shard, which, within }| async move {
            let names = which.iter().map(|i| names[*i]);
            let mut call = self.read_call(&self.keys.shard(shard), names.clone());
            // After a lost commit: an earlier copy of a claim may have been applied in between.
            (call.within, call.confirm) = (Some(within), self.confirm.filter(|_| load.fresh));
            let (prelude, values) = self.call(OP, shard, &call).await?;
            let read = self.stored(OP, names, values)?;
            self.remember(read.iter().filter_map(StoredRecord::cached));
            let is_mine = |lease: &Lease| lease.node == load.node;
            let mut records = read.iter().filter_map(StoredRecord::readable);
            if load.fresh && records.any(|record| record.leases.iter().any(is_mine)) {
                self.check_confirmed(OP, &prelude)?;
            }
            let now = prelude.now(load.time);
            Ok(read.into_iter().map(|stored| stored.loaded(&prelude, now)).collect())
        };
        let records = self.call_shards(names.iter().copied(), |_| 0, read).await?;
        let now = records.iter().flatten().filter_map(|loaded| loaded.now).max();
        let min_fence = records.iter().flatten().map(|loaded| loaded.version.min_fence).max();
        let now = now.unwrap_or_else(|| load.time.without_store_clock());
        Ok(Snapshot::partial(now, records).min_fence(min_fence.unwrap_or(0)))
    }

    /// The time that decides: that of the shard that answers first, because a server that hangs must
    /// not hide that the others answer.
    pub(crate) async fn now(&self, time: TimeSource) -> Result<Time> {
        if let TimeSource::Fixed(at) = time {
            return Ok(at);
        }
        let shards = self.keys.all().map(|(shard, _)| self.read(OP, shard, &[]));
        let mut answers: FuturesUnordered<_> = shards.collect();
        let mut unavailable = None;
        while let Some(answer) = answers.next().await {
            match answer {
                Ok((prelude, _)) => return Ok(prelude.now(time)),
                Err(error) if error.kind() == ErrorKind::Unavailable => unavailable = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(unavailable.unwrap_or_else(|| self.unexpected_response(OP)))
    }

    async fn commit(&self, commit: Commit<'_, Version>) -> Result<Vec<Result<Outcome<Version>>>> {
        let writes: Vec<Write<'_>> =
            commit.drafts.iter().map(|draft| Write::of(draft, commit.now)).collect();
        let writes = &writes;
        let write = |Part { shard, which, within }| async move {
            let part: Vec<&Write<'_>> = which.iter().map(|i| &writes[*i]).collect();
            let written = self.write(OP, shard, &part, within).await?;
            let outcome = |(written, write): (Written, &&Write<'_>)| match written {
                Written::Unconfirmed(replicas) if write.claims() => {
                    Err(self.unconfirmed(OP, replicas))
                }
                Written::Yes | Written::Unconfirmed(_) => Ok(Outcome::Written { notified: false }),
                Written::No => Ok(Outcome::Conflict(None)),
            };
            Ok(written.into_iter().zip(&part).map(outcome).collect())
        };
        let names = writes.iter().map(|write| write.name);
        let outcomes = self.call_shards(names, |i| writes[i].size(), write).await?;
        Ok(outcomes.into_iter().map(Result::flatten).collect())
    }

    /// Writes the records of one shard that still are as they were read. Claims among them wait for
    /// replicas.
    pub(crate) async fn write(
        &self,
        op: &'static str,
        shard: u32,
        writes: &[&Write<'_>],
        within: Duration,
    ) -> Result<Vec<Written>> {
        let (keys, stamp) = (self.keys.shard(shard), self.version_stamp());
        let mut all = keys.records().to_vec();
        all.extend([keys.kinds(), keys.names(), keys.tombstones(), keys.history()]);
        all.extend([keys.history_entries(), keys.flags(), keys.changes(), keys.change_entries()]);
        let mut call = Call::new(&self.scripts.write, &all);
        call.arg(keys.due("")).arg(keys.failures_of("")).arg(keys.history_of(""));
        call.arg(keys.flag("")).arg(writes.len());
        for write in writes {
            call.arg(write.name);
        }
        let written: Vec<Fields> =
            writes.iter().map(|write| write.args(&mut call, &stamp)).collect();
        call.within = Some(within);
        call.confirm = self.confirm.filter(|_| writes.iter().any(|write| write.claims()));
        let response = self.connection.call(&call).await.map_err(|cause| self.failed(op, cause))?;
        let few = self.too_few(response.replicas);
        let Value::Array(replies) = response.value else {
            return Err(self.unexpected_response(op));
        };
        if replies.len() != writes.len() {
            return Err(self.unexpected_response(op));
        }
        let replies: Vec<bool> = replies.into_iter().map(|reply| reply == Value::Int(1)).collect();
        let seen = writes.iter().zip(written).zip(&replies).filter(|(_, written)| **written);
        let seen = seen.filter_map(|((write, fields), _)| {
            let cached = CachedRecord::of(&fields.record().ok()?, &stamp)?;
            Some((write.name.to_owned(), cached))
        });
        self.remember(seen);
        let written = |written| match (written, few) {
            (false, _) => Written::No,
            (true, None) => Written::Yes,
            (true, Some(replicas)) => Written::Unconfirmed(replicas),
        };
        Ok(replies.into_iter().map(written).collect())
    }
}

/// The outcome of one write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Written {
    Yes,
    /// Only this number of replicas have it.
    Unconfirmed(u32),
    /// The record was another one.
    No,
}

impl<'a> Write<'a> {
    fn of(draft: &'a Draft<'_, Version>, now: Time) -> Self {
        Self {
            name: draft.name,
            version: &draft.loaded.version,
            before: draft.loaded.stored(),
            is_unreadable: draft.loaded.record.is_err(),
            after: &draft.after,
            history: &draft.history,
            changes: &draft.changes,
            not_after: draft.not_after,
            decided_at: draft.loaded.now.unwrap_or(now),
            is_proof: false,
        }
    }

    /// True if it grants a lease, or writes one again.
    fn claims(&self) -> bool {
        if self.is_proof {
            return true;
        }
        let before = self.before.map(|before| before.leases.as_slice()).unwrap_or_default();
        let is_new = |lease: &Lease| before.iter().all(|other| other.claim_id != lease.claim_id);
        self.after.leases.iter().any(is_new)
    }

    /// The same write, as a proof of the record to replicas.
    pub(crate) fn proof(self) -> Self {
        Self { is_proof: true, ..self }
    }

    /// The bytes of the large parts that are written.
    fn size(&self) -> usize {
        let after = self.after;
        let changes = self.changes.iter().map(Change::size).sum::<usize>();
        let (data, definition) = (after.data.len(), after.definition.len() + changes);
        match self.before {
            Some(before) if before.data == after.data => definition,
            _ => data + definition,
        }
    }

    /// Adds the arguments of this write, and returns the fields that it writes.
    fn args(&self, call: &mut Call<'_>, stamp: &str) -> Fields {
        let Self { version, before, after, .. } = self;
        let fields = Fields::of(after, stamp, self.decided_at.timestamp_micros());
        let nothing = Fields::default();
        let stored = version.fields.as_ref().unwrap_or(&nothing);
        call.arg(version.min_fence).arg(&stored.hot).arg(&fields.hot);
        call.optional(self.not_after.map(|last| last.timestamp_micros()));
        let is_new = self.is_unreadable || version.fields.is_none();
        let changed: Vec<_> =
            (0..PARTS).filter(|i| is_new || stored.parts()[*i] != fields.parts()[*i]).collect();
        call.arg(changed.len());
        for i in changed {
            call.arg(FIRST_PART + i).arg(fields.parts()[i]);
        }
        let (was, is) = (before.and_then(indexed), indexed(after));
        let removed = was.filter(|(kind, _)| is.is_none_or(|(other, _)| other != *kind));
        call.arg(usize::from(removed.is_some()) + usize::from(is.is_some()));
        if let Some((kind, _)) = removed {
            call.arg(kind).arg("");
        }
        if let Some((kind, at)) = is {
            call.arg(kind).arg(at);
        }
        let was_live = before.is_some_and(Record::is_live) || self.is_unreadable;
        call.arg(match (was_live, after.is_live()) {
            (false, true) => "+",
            (true, false) => "-",
            _ => "",
        });
        match (&version.fields, after.deleted_at) {
            (_, Some(deleted_at)) => call.arg(ms(saturating_add(deleted_at, TOMBSTONE))),
            (Some(_), None) if !was_live => call.arg("-"),
            _ => call.arg(""),
        };
        call.arg(self.history.len() + self.changes.len());
        for entry in self.history {
            let member = history::member(&entry.cursor());
            call.arg(member).arg(entry.fence).arg(codec::encode_entry(entry));
            call.arg(if entry.outcome.is_failure() { "1" } else { "" });
        }
        for change in self.changes {
            let member = history::member(&change.cursor());
            call.arg(member).arg(change.sequence).arg(codec::encode_change(change)).arg("c");
        }
        let FlagChanges { added, removed } = FlagChanges::of(self.name, *before, after);
        call.arg(added.len() + removed.len());
        for (flags, sign) in [(added, "+"), (removed, "-")] {
            for flag in flags {
                call.arg(flag).arg(sign);
            }
        }
        fields
    }
}

/// The kind and the time under which the due index lists a record.
fn indexed(record: &Record) -> Option<(&str, i64)> {
    record.index_at().map(|at| (record.kind.as_str(), ms(at)))
}
