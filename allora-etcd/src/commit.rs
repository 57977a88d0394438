//! Drafts as transactions: one for each record, nested in as few as the members allow.

use crate::{
    cache::Place,
    client::{Pipeline, gets},
    encoding::{Stored, cold, has_same_cold, hot},
    error::unexpected_response,
    history::FAILURE,
    keys::{IndexKey, Log},
    records::{OP, Version, View},
    store::Store,
};
use allora_core::{
    Error, ErrorKind, Result,
    backend::{Lease, Notification, TimeSource},
    record::{FlagChanges, Record, codec},
    store::{Commit, Draft, Outcome},
};
use etcd_client::{Compare, CompareOp, Txn, TxnOp, TxnOpResponse, TxnResponse};
use futures::FutureExt;
use std::{
    collections::{BTreeMap, BTreeSet},
    vec,
};

/// The most bytes of one transaction. The server's own limit is 1.5 MiB.
const MAX_BYTES: usize = 1 << 20;

/// The number of operations on the history of a change from which they are nested in it, and the most
/// in one transaction of those: the members limit the operations along the depth.
const NESTED: usize = 16;

/// The change of one record, as the parts of a nested transaction.
struct Change<'a> {
    name: &'a str,
    compares: Vec<Compare>,
    ops: Vec<TxnOp>,
    /// The most operations of a transaction that is nested in it.
    nested: usize,
    bytes: usize,
    /// It grants or extends a lease of the node that sends the batch: its session must exist.
    needs_session: bool,
    /// The new kind, if it differs from the old one.
    kind: Option<String>,
    /// The flags with a text that the job gets.
    flags: Vec<String>,
    /// The old kind, which may have lost its last schedule.
    left_kind: Option<String>,
    /// The new key in the due index.
    index_key: Option<IndexKey>,
    notification: Option<Notification>,
    /// The generation of the record before the change.
    generation: Option<i64>,
    /// The new record, without its data.
    after: Record,
}

impl Change<'_> {
    /// The number of operations by which it, with what is nested in it, counts for the members' limit.
    fn width(&self) -> usize {
        self.compares.len().max(self.ops.len()) + self.nested
    }

    /// True if this record is the result of the change: the first copy of a request whose reply was
    /// lost has written it. The record has the generation that was drawn for it, or, if none was
    /// drawn, equals the new record. Generations are times in microseconds: two requests that have
    /// drawn the same one have asked for the same.
    fn is_in(&self, stored: &Stored) -> bool {
        let (Some(there), after) = (stored.record(), &self.after) else { return false };
        let is_drawn =
            Some(after.generation) != self.generation && there.generation == after.generation;
        // Without a new generation the data has not changed. Dead letters change with an outcome, and
        // remembered triggers with those that wait.
        let is_same = || hot(&mut there.clone()) == hot(&mut after.clone());
        (is_drawn && there.definition == after.definition && there.kind == after.kind) || is_same()
    }
}

/// The changes of one transaction.
struct Transaction<'a> {
    changes: Vec<Change<'a>>,
    bytes: usize,
    /// The most operations of one of them.
    widest: usize,
    /// The new kinds, each once.
    kinds: BTreeSet<String>,
    /// The new flags with a text, each once.
    flags: BTreeSet<String>,
    /// The parts of the index that are written to, with the earliest time of each.
    parts: BTreeMap<String, String>,
    notification: Option<Notification>,
}

impl<'a> Transaction<'a> {
    fn new() -> Self {
        Self {
            changes: Vec::new(),
            bytes: 0,
            widest: 2,
            kinds: BTreeSet::new(),
            flags: BTreeSet::new(),
            parts: BTreeMap::new(),
            notification: None,
        }
    }

    fn has_room_for(&self, change: &Change<'_>, max_operations: usize) -> bool {
        let kinds = self.kinds.len() + usize::from(change.kind.is_some());
        let parts = self.parts.len() + usize::from(change.index_key.is_some());
        let widest = self.widest.max(change.width());
        let notifications =
            usize::from(self.notification.is_some() || change.notification.is_some());
        let flags = (self.flags.len() + change.flags.len()).div_ceil(NESTED);
        // With the sessions, which are read along.
        let beside = 1 + kinds + flags + parts + notifications;
        self.changes.len() + 1 + beside + widest <= max_operations
            && self.bytes + change.bytes <= MAX_BYTES
    }

    fn add(&mut self, mut change: Change<'a>) {
        self.bytes += change.bytes;
        self.widest = self.widest.max(change.width());
        self.kinds.extend(change.kind.take());
        if !change.flags.is_empty() {
            self.widest = self.widest.max(NESTED);
            self.flags.append(&mut change.flags.drain(..).collect());
        }
        if let Some(key) = change.index_key.take() {
            let first = self.parts.entry(key.part).or_insert_with(|| key.at.clone());
            *first = key.at.min(std::mem::take(first));
        }
        self.notification = merged(self.notification.take(), change.notification.take());
        self.changes.push(change);
    }
}

/// The one notification that says the same as two.
fn merged(one: Option<Notification>, other: Option<Notification>) -> Option<Notification> {
    match (one, other) {
        (Some(Notification::DueAt(one)), Some(Notification::DueAt(other))) => {
            Some(Notification::DueAt(one.min(other)))
        }
        (Some(one), Some(other)) if one != other => Some(Notification::Changed),
        (one, other) => one.or(other),
    }
}

/// The kind of a stored schedule.
fn kind_of(record: &Record) -> Option<&str> {
    (record.is_live() && !record.kind.is_empty()).then_some(&*record.kind)
}

/// The error of a change that is larger than a transaction should be.
fn too_large(change: &Change<'_>, error: &Error) -> Error {
    let (name, mib) = (change.name, change.bytes as f64 / f64::from(1 << 20));
    let text = format!(
        "the record {name:?} needs a request of {mib:.1} MiB, which etcd did not accept ({error}); \
         shorten its data, dismiss dead letters, or raise the members' --max-request-bytes"
    );
    Error::new(error.kind(), text).op(OP)
}

/// The node that commits.
#[derive(Clone, Copy)]
struct Committer<'a> {
    node: &'a str,
    time: TimeSource,
    /// The number of the timeline before the commit is sent.
    timeline: u64,
}

impl Store {
    /// Writes drafts. The failing branch of each reads the current record in the same transaction.
    pub(crate) async fn commit(
        &self,
        commit: Commit<'_, Version>,
    ) -> Result<Vec<Result<Outcome<Version>>>> {
        let by =
            Committer { node: commit.node, time: commit.time, timeline: self.client.timeline() };
        let (mut drafts, mut left) = (commit.drafts.into_iter(), None);
        let mut transactions: Vec<Transaction<'_>> = Vec::new();
        let mut pipeline = Pipeline::new();
        // The members work on the first one while the next is made.
        while let Some(mut transaction) = self.next_changes(&mut drafts, &mut left, by) {
            let txn = self.transaction(&mut transaction, by.node);
            pipeline.push(self.client.txn_or_resent(OP, txn).map(Ok)).await?;
            transactions.push(transaction);
        }
        let mut outcomes = Vec::new();
        for (transaction, reply) in transactions.into_iter().zip(pipeline.replies().await?) {
            let (reply, resent) = match reply {
                Ok(reply) => reply,
                // It was sent alone, and harms no other.
                Err(error)
                    if transaction.bytes > MAX_BYTES && error.kind() == ErrorKind::Invalid =>
                {
                    let large = |change: &Change<'_>| Err(too_large(change, &error));
                    outcomes.extend(transaction.changes.iter().map(large));
                    continue;
                }
                Err(error) => return Err(error),
            };
            self.outcomes(transaction, &reply, resent, by, &mut outcomes)?;
        }
        Ok(outcomes)
    }

    /// The changes of the next drafts, as many as fit in one transaction; `None` if there are no more.
    /// `left` is the change that did not fit in the one before.
    fn next_changes<'a>(
        &self,
        drafts: &mut vec::IntoIter<Draft<'a, Version>>,
        left: &mut Option<Change<'a>>,
        by: Committer<'_>,
    ) -> Option<Transaction<'a>> {
        let mut next = || left.take().or_else(|| Some(self.change(drafts.next()?, by)));
        let mut transaction = Transaction::new();
        transaction.add(next()?);
        while let Some(change) = next() {
            if !transaction.has_room_for(&change, self.client.max_operations()) {
                *left = Some(change);
                break;
            }
            transaction.add(change);
        }
        Some(transaction)
    }

    /// The parts of the transaction that writes a draft.
    fn change<'a>(&self, draft: Draft<'a, Version>, by: Committer<'_>) -> Change<'a> {
        let Draft { name, loaded, mut after, history, changes, notification, .. } = draft;
        let (keys, version) = (&self.keys, &loaded.version);
        let before = loaded.stored();
        version.liveness.restore(&mut after);
        let mut compares =
            vec![Compare::mod_revision(keys.job(name), CompareOp::Equal, version.revision)];
        if before.is_none()
            && let Some(revision) = version.min_fence
        {
            compares.push(Compare::mod_revision(keys.min_fence(), CompareOp::Equal, revision));
        }
        for dead in version.liveness.dead() {
            compares.push(Compare::create_revision(keys.session(dead), CompareOp::Equal, 0));
        }
        let (mut ops, mut bytes) = (Vec::new(), 0);
        let (was, is) = (keys.index_key(name, before), keys.index_key(name, Some(&after)));
        let has_moved = was != is;
        ops.extend(was.filter(|_| has_moved).map(|was| TxnOp::delete(was.key(), None)));
        let index_key = is.filter(|_| has_moved);
        ops.extend(index_key.iter().map(|is| TxnOp::put(is.key(), "", None)));
        let data = std::mem::take(&mut after.data);
        if before.map_or(&[][..], |before| &before.data) != data {
            bytes += data.len();
            ops.push(match data.is_empty() {
                true => TxnOp::delete(keys.data(name), None),
                false => TxnOp::put(keys.data(name), data, None),
            });
        }
        if !has_same_cold(before, &after) {
            ops.push(match cold(&after) {
                None => TxnOp::delete(keys.cold(name), None),
                Some(value) => {
                    bytes += value.len();
                    TxnOp::put(keys.cold(name), value, None)
                }
            });
        }
        let value = hot(&mut after);
        bytes += value.len();
        ops.push(TxnOp::put(keys.job(name), value, None));
        if let Some(deleted_at) = after.deleted_at
            && before.is_none_or(|before| before.deleted_at != after.deleted_at)
        {
            ops.push(TxnOp::put(keys.tombstone(deleted_at, name), "", None));
        }
        let mut entries = Vec::with_capacity(history.len() * 2);
        for entry in &history {
            let value = codec::encode_entry(entry);
            bytes += value.len();
            let mark = if entry.outcome.is_failure() { FAILURE } else { "" };
            entries.push(TxnOp::put(keys.entry(Log::History, &entry.cursor()), value, None));
            entries.push(TxnOp::put(
                keys.entries_of_up_to(Log::History, name, entry.fence),
                mark,
                None,
            ));
        }
        for change in &changes {
            let value = codec::encode_change(change);
            bytes += value.len();
            entries.push(TxnOp::put(keys.entry(Log::Changes, &change.cursor()), value, None));
            entries.push(TxnOp::put(
                keys.entries_of_up_to(Log::Changes, name, change.sequence),
                "",
                None,
            ));
        }
        let FlagChanges { added, removed } = FlagChanges::of(name, before, &after);
        for flag in &added {
            entries.push(TxnOp::put(keys.flagged(flag, name), "", None));
        }
        for flag in &removed {
            entries.push(TxnOp::delete(keys.flagged(flag, name), None));
        }
        let nested = if entries.len() > NESTED { NESTED } else { 0 };
        match nested {
            0 => ops.extend(entries),
            // Many runs that end at once, or many tags.
            _ => {
                ops.extend(entries.chunks(NESTED).map(|some| TxnOp::txn(Txn::new().and_then(some))))
            }
        }
        let leases = before.map_or(&[][..], |before| &before.leases);
        let is_new = |lease: &Lease| {
            !leases.iter().any(|old| old.fence == lease.fence && old.until == lease.until)
        };
        let grants = after.leases.iter().any(|lease| lease.node == by.node && is_new(lease));
        let (had, has) = (before.and_then(kind_of), kind_of(&after));
        let has_moved = had != has;
        let (left_kind, kind) = (had.filter(|_| has_moved), has.filter(|_| has_moved));
        let (left_kind, kind) = (left_kind.map(str::to_owned), kind.map(str::to_owned));
        ops.extend(left_kind.iter().map(|kind| TxnOp::delete(keys.of_kind(kind, name), None)));
        ops.extend(kind.iter().map(|kind| TxnOp::put(keys.of_kind(kind, name), "", None)));
        Change {
            name,
            compares,
            ops,
            nested,
            bytes,
            needs_session: grants && by.time.is_store(),
            kind,
            flags: added.into_iter().filter(|flag| flag.contains(':')).collect(),
            left_kind,
            index_key,
            notification,
            generation: before.map(|before| before.generation),
            after,
        }
    }

    /// One request for several changes, each of which is decided alone.
    fn transaction(&self, transaction: &mut Transaction<'_>, node: &str) -> Txn {
        let mut ops: Vec<TxnOp> = Vec::with_capacity(transaction.changes.len() + 2);
        // A conflict was caused by another node, whose liveness decides the next attempt.
        ops.push(self.sessions.read());
        for change in &mut transaction.changes {
            let current = [
                TxnOp::get(self.keys.job(change.name), None),
                TxnOp::get(self.keys.data(change.name), None),
            ];
            ops.push(TxnOp::txn(
                Txn::new()
                    .when(std::mem::take(&mut change.compares))
                    .and_then(std::mem::take(&mut change.ops))
                    .or_else(current),
            ));
        }
        if let Some(notification) = &transaction.notification {
            ops.push(TxnOp::put(self.keys.notification(), notification.to_string(), None));
        }
        ops.extend(transaction.kinds.iter().map(|kind| TxnOp::put(self.keys.kind(kind), "", None)));
        let flags: Vec<TxnOp> = transaction
            .flags
            .iter()
            .map(|flag| TxnOp::put(self.keys.flag(flag), "", None))
            .collect();
        ops.extend(flags.chunks(NESTED).map(|some| TxnOp::txn(Txn::new().and_then(some))));
        let parts = std::mem::take(&mut transaction.parts).into_iter();
        ops.extend(parts.map(|(part, at)| self.due_index.lower(&part, at)));
        let mut txn = Txn::new();
        if transaction.changes.iter().any(|change| change.needs_session) {
            let session = self.keys.session(node);
            txn = txn.when([Compare::create_revision(session, CompareOp::Greater, 0)]);
        }
        txn.and_then(ops)
    }

    fn outcomes(
        &self,
        transaction: Transaction<'_>,
        reply: &TxnResponse,
        resent: bool,
        by: Committer<'_>,
        outcomes: &mut Vec<Result<Outcome<Version>>>,
    ) -> Result {
        if !reply.succeeded() {
            self.sessions.invalidate(by.node);
            let ended = "the node's session in etcd has ended; send the batch again";
            return Err(Error::new(ErrorKind::Unavailable, ended).op(OP));
        }
        let revision = reply.header().map_or(0, |header| header.revision());
        let mut replies = reply.op_responses().into_iter();
        let Some(TxnOpResponse::Get(sessions)) = replies.next() else {
            return Err(unexpected_response(OP));
        };
        let live = self.sessions.live_nodes(&sessions);
        let view = View::new(by.node, by.time);
        for change in transaction.changes {
            let Some(TxnOpResponse::Txn(reply)) = replies.next() else {
                return Err(unexpected_response(OP));
            };
            let written = Ok(Outcome::Written { notified: true });
            if reply.succeeded() {
                self.left_kinds().extend(change.left_kind);
                let at = Place { timeline: by.timeline, revision };
                self.cache.put(change.name, Some(change.after), at);
                outcomes.push(written);
                continue;
            }
            let mut current = gets(&reply).into_iter();
            let (Some(job), Some(data)) = (current.next(), current.next()) else {
                return Err(unexpected_response(OP));
            };
            let stored = Stored::decode(&job, &data);
            let at = Place { timeline: by.timeline, revision: stored.revision };
            let complete = stored.record().filter(|_| !stored.lacks_cold());
            self.cache.replace(change.name, complete.cloned(), at);
            if resent && change.is_in(&stored) {
                outcomes.push(written);
                continue;
            }
            // Without a record, the minimum fence is needed, too, and with cold parts these: the
            // next load reads them.
            let is_complete = stored.record().is_some() && !stored.lacks_cold();
            let current = is_complete.then(|| Box::new(view.loaded(stored, None, Some(&live))));
            outcomes.push(Ok(Outcome::Conflict(current)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allora_core::time::from_millis;

    #[test]
    fn several_notifications_become_one_that_says_at_least_as_much() {
        let due = |ms: i64| Some(Notification::DueAt(from_millis(ms).unwrap()));
        let job = |name: &str| Some(Notification::Job(name.into()));
        assert_eq!(merged(None, due(2)), due(2));
        assert_eq!(merged(due(3), due(2)), due(2));
        assert_eq!(merged(job("a"), job("a")), job("a"));
        assert_eq!(merged(job("a"), job("b")), Some(Notification::Changed));
        assert_eq!(merged(due(1), job("a")), Some(Notification::Changed));
    }
}
