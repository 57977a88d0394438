//! The data that the engine and a store exchange: snapshots of records, and drafts of new ones.

use crate::{
    backend::{HistoryEntry, Notification, Reply, StreakReport, TimeSource},
    error::Result,
    record::{Change, FlagChanges, Record},
    time::Time,
};

/// A request for records.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Load<'a> {
    /// The node that sends the request.
    pub node: &'a str,
    /// The clock that decides.
    pub time: TimeSource,
    /// Distinct names.
    pub names: &'a [&'a str],
    /// `true` if a cached record must not be used: it lost a commit, or lacks its data.
    pub fresh: bool,
}

impl<'a> Load<'a> {
    /// These records, cached or not.
    pub fn new(node: &'a str, time: TimeSource, names: &'a [&'a str]) -> Self {
        Self { node, time, names, fresh: false }
    }
}

/// Records at one time.
#[derive(Debug)]
#[non_exhaustive]
pub struct Snapshot<V> {
    /// The time that decides: that of [`TimeSource::Fixed`], or the store's clock.
    pub now: Time,
    /// No fence at or below it is given out to a name without a record. The store keeps it for the
    /// names whose tombstones it has removed. May be 0 if every name has a record.
    pub min_fence: i64,
    /// `records[i]` belongs to `names[i]`. An error concerns the operations on its name only: its
    /// part of the store (a shard) did not answer.
    pub records: Vec<Result<Loaded<V>>>,
}

impl<V> Snapshot<V> {
    /// The records at `now`, in a store that has removed no tombstone.
    pub fn new(now: Time, records: Vec<Loaded<V>>) -> Self {
        Self::partial(now, records.into_iter().map(Ok).collect())
    }

    /// The records at `now`, in a store of which some parts did not answer.
    pub fn partial(now: Time, records: Vec<Result<Loaded<V>>>) -> Self {
        Self { now, min_fence: 0, records }
    }

    /// In a store that has removed tombstones with fences up to this one.
    #[must_use]
    pub fn min_fence(mut self, min_fence: i64) -> Self {
        self.min_fence = min_fence;
        self
    }
}

/// One record as a store has it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Loaded<V> {
    /// The stored record or tombstone; `None` if there is none. The reason, and the fence if that
    /// much is known, of a record that cannot be read.
    pub record: Result<Option<Record>, Unreadable>,
    /// The record to decide on, where it differs from the stored one: etcd shows the leases of
    /// other nodes by their liveness.
    pub view: Option<Box<Record>>,
    /// The time that decides on this record, if it differs from [`Snapshot::now`]: the clock of the
    /// server that has the record, in a store of several.
    pub now: Option<Time>,
    /// The value that the commit compares.
    pub version: V,
    /// The snapshot may be old, or lack the data: only a commit proves a decision on it. The engine
    /// loads again with [`Load::fresh`] whatever a commit would not prove.
    pub must_confirm: bool,
}

/// A record that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The reason, for an operator.
    pub reason: String,
    /// The record's fence; 0 if unknown.
    pub fence: i64,
}

impl<V> Loaded<V> {
    /// A record with its version.
    pub fn new(record: Option<Record>, version: V) -> Self {
        Self { record: Ok(record), view: None, now: None, version, must_confirm: false }
    }

    /// A record that cannot be read.
    pub fn unreadable(reason: impl Into<String>, fence: i64, version: V) -> Self {
        let record = Err(Unreadable { reason: reason.into(), fence });
        Self { record, view: None, now: None, version, must_confirm: false }
    }

    /// Decided on as `view` shows it.
    #[must_use]
    pub fn view(mut self, view: Record) -> Self {
        self.view = Some(Box::new(view));
        self
    }

    /// Decided on by the clock of its own server.
    #[must_use]
    pub fn read_at(mut self, now: Time) -> Self {
        self.now = Some(now);
        self
    }

    /// Possibly old, or without its data.
    #[must_use]
    pub fn must_confirm(mut self) -> Self {
        self.must_confirm = true;
        self
    }

    /// The stored record or tombstone.
    pub fn stored(&self) -> Option<&Record> {
        self.record.as_ref().ok().and_then(Option::as_ref)
    }
}

/// Changed records to write.
#[derive(Debug)]
#[non_exhaustive]
pub struct Commit<'a, V> {
    /// The node that sends the request.
    pub node: &'a str,
    /// The clock that decides.
    pub time: TimeSource,
    /// The time at which the drafts were decided.
    pub now: Time,
    /// Drafts of distinct names.
    pub drafts: Vec<Draft<'a, V>>,
}

/// One changed record.
#[derive(Debug)]
#[non_exhaustive]
pub struct Draft<'a, V> {
    /// The job.
    pub name: &'a str,
    /// The record as it was loaded.
    pub loaded: Loaded<V>,
    /// The record to write in its place.
    pub after: Record,
    /// The history entries to write with it. A later entry replaces an earlier one with the same
    /// fence.
    pub history: Vec<HistoryEntry>,
    /// The changes to write with it; none, unless the store has a
    /// [record of them](super::RecordStore::change_store).
    pub changes: Vec<Change>,
    /// The last moment at which the draft may be written, by the store's clock; only where that
    /// decides.
    pub not_after: Option<Time>,
    /// The notification that follows from the change. A store whose commit sends it returns an
    /// outcome with [`Outcome::Written`]`{ notified: true }`.
    pub notification: Option<Notification>,
}

impl<'a, V> Commit<'a, V> {
    /// Writes these drafts at this time.
    pub fn new(node: &'a str, now: Time, drafts: Vec<Draft<'a, V>>) -> Self {
        Self { node, time: TimeSource::Fixed(now), now, drafts }
    }
}

impl<'a, V> Draft<'a, V> {
    /// Writes `after` in the place of what was loaded, without a history and a notification.
    pub fn new(name: &'a str, loaded: Loaded<V>, after: Record) -> Self {
        let (history, changes) = (Vec::new(), Vec::new());
        Self { name, loaded, after, history, changes, not_after: None, notification: None }
    }
}

impl<V> Draft<'_, V> {
    /// The flags that the job gets and loses with this draft, for the index of a
    /// [`FlagStore`](super::FlagStore): none for most claims and ends of runs.
    pub fn flag_changes(&self) -> FlagChanges {
        FlagChanges::of(self.name, self.loaded.stored(), &self.after)
    }
}

/// The outcome of one draft.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome<V> {
    /// The draft is durable.
    Written {
        /// The commit has sent the draft's notification.
        notified: bool,
    },
    /// Another write came first. The current record, if the same round trip has read it.
    Conflict(Option<Box<Loaded<V>>>),
}

/// The result of [`RecordStore::fast_path`](super::RecordStore::fast_path).
#[derive(Debug)]
#[non_exhaustive]
pub struct FastPath<V> {
    /// The time that decided; `None` if nothing was asked.
    pub now: Option<Time>,
    /// Replies with the positions of their operations.
    pub replies: Vec<(usize, Result<Reply>)>,
    /// The names whose next occurrence became due by an applied operation, or two of them: a
    /// notification names at most one.
    pub due: Vec<String>,
    /// The entries of the runs that were recorded as lost or expired, also without a history
    /// ([`HistoryBuffer::lapsed`](crate::record::HistoryBuffer::lapsed)).
    pub lapsed: Vec<HistoryEntry>,
    /// The changes of failures in a row.
    pub reports: Vec<StreakReport>,
    /// The jobs of these operations whose outbox is not empty
    /// ([`Record::has_outbox`](crate::record::Record::has_outbox)).
    pub outboxes: Vec<String>,
    /// The records of names without replies, if the same round trip has read them all: in the
    /// order in which the names first occur among the operations without replies.
    pub snapshot: Option<Snapshot<V>>,
}

impl<V> FastPath<V> {
    /// Nothing was applied.
    pub fn none() -> Self {
        let (replies, due) = (Vec::new(), Vec::new());
        let (lapsed, reports, outboxes) = (Vec::new(), Vec::new(), Vec::new());
        Self { now: None, replies, due, lapsed, reports, outboxes, snapshot: None }
    }
}
