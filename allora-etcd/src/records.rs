//! Load, commit and scan.
//!
//! A record is decided on as it was read, and written by a transaction that compares the revision
//! under which it was read. Cached records save the read: the commit proves them.

use crate::{
    cache::Place,
    client::{Pipeline, gets},
    encoding::{Stored, number},
    error::unexpected_response,
    keys::end_of,
    liveness::{LiveNodes, LivenessView},
    store::{Etcd, Store},
};
use allora_core::{
    Result, Time,
    backend::{Batch, Due, DueQuery, Notifier, Page, TimeSource},
    record::Record,
    store::{
        ChangeStore, Commit, FastPath, FlagStore, HistoryStore, Load, Loaded, Outcome, RecordStore,
        Snapshot,
    },
};
use async_trait::async_trait;
use etcd_client::{GetOptions, Txn, TxnOp};
use futures::FutureExt;
use std::sync::Arc;

/// The name of the calls of the write path in errors.
pub(crate) const OP: &str = "reschedule";

/// The values that a commit compares.
#[derive(Debug)]
pub struct Version {
    /// The revision of the record's last write; 0 if there is none.
    pub(crate) revision: i64,
    /// The revision of the minimum fence; `None` if it was not read.
    pub(crate) min_fence: Option<i64>,
    /// The view of other nodes' leases that the node decided on.
    pub(crate) liveness: LivenessView,
}

#[async_trait]
impl RecordStore for Etcd {
    type Version = Version;

    async fn load(&self, load: Load<'_>) -> Result<Snapshot<Version>> {
        self.store.load(load).await
    }

    async fn commit(&self, commit: Commit<'_, Version>) -> Result<Vec<Result<Outcome<Version>>>> {
        let now = commit.now;
        let outcomes = self.store.commit(commit).await;
        // No list may show a kind without schedules for long.
        if !self.store.left_kinds().is_empty() {
            drop(self.store.start_pruning(now));
        }
        outcomes
    }

    fn security_warning(&self) -> Option<&str> {
        self.store.security_warning.as_deref()
    }

    fn grants(&self, login: &str) -> Option<Vec<String>> {
        let keys = self.store.keys.all();
        Some(vec![
            format!("etcdctl role add {login}"),
            format!("etcdctl role grant-permission {login} --prefix=true readwrite {keys}"),
            format!("etcdctl user grant-role {login} {login}"),
        ])
    }

    async fn scan(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Result<Record, String>)>> {
        let from = self.store.first_key(prefix, after);
        let page = self.store.names("scan", prefix, from, limit, |_| true).await?;
        self.store.records("scan", page.names).await
    }

    async fn fast_path(&self, batch: Batch<'_>) -> Result<FastPath<Version>> {
        self.store.prepare(batch).await?;
        Ok(FastPath::none())
    }

    /// etcd has no clock.
    async fn now(&self, time: TimeSource) -> Result<Time> {
        Ok(time.without_store_clock())
    }

    fn namespace(&self) -> &str {
        &self.store.namespace
    }

    fn flag_store(&self) -> Option<&dyn FlagStore> {
        Some(self)
    }

    fn history_store(&self) -> Option<&dyn HistoryStore> {
        self.store.history.is_on().then_some(self as _)
    }

    /// The work goes on beside the batches if the caller does not wait for it. It waits for no pruning
    /// that was under way.
    fn change_store(&self) -> Option<&dyn ChangeStore> {
        Some(self)
    }

    async fn prune(&self, now: Time) -> Result {
        self.store.start_pruning(now).await;
        Ok(())
    }

    fn notifier(&self) -> Option<&dyn Notifier> {
        Some(self)
    }

    async fn find_due(&self, query: DueQuery<'_>, time: TimeSource) -> Result<Due> {
        self.store.find_due(query, time).await
    }

    async fn list(&self, page: Page<'_>) -> Result<Vec<(String, Result<Record, String>)>> {
        self.store.list(page).await
    }

    async fn kinds(&self) -> Result<Vec<String>> {
        self.store.kinds().await
    }
}

/// A record as it was read, and what was read with it.
pub(crate) struct Row {
    pub(crate) stored: Stored,
    /// The minimum fence and its revision.
    min_fence: (i64, i64),
    pub(crate) live: Arc<LiveNodes>,
}

/// The parts of a record that are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parts {
    WithoutCold,
    All,
}

/// A page of names.
pub(crate) struct Names {
    pub(crate) names: Vec<String>,
    /// The key behind the last one that was read; `None` behind the end.
    pub(crate) next: Option<Vec<u8>>,
}

impl Store {
    async fn load(&self, load: Load<'_>) -> Result<Snapshot<Version>> {
        let view = View::new(load.node, load.time);
        let cached = match load.fresh {
            true => load.names.iter().map(|_| None).collect(),
            false => self.cache.get(load.names, self.client.timeline(), |record, revision| {
                let stored = Stored { record: Ok(Some(record.clone())), revision };
                view.loaded(stored, None, None).must_confirm()
            }),
        };
        let missing = load.names.iter().zip(&cached).filter(|(_, cached)| cached.is_none());
        let missing: Vec<&str> = missing.map(|(name, _)| *name).collect();
        let mut rows = self.read(OP, &missing).await?.into_iter();
        let mut min_fence = 0;
        let read = cached.into_iter().map(|cached| {
            if let Some(loaded) = cached {
                return Ok(Ok(loaded));
            }
            let Row { stored, min_fence: (fence, revision), live } =
                rows.next().ok_or_else(|| unexpected_response(OP))?;
            min_fence = min_fence.max(fence);
            Ok(Ok(view.loaded(stored, Some(revision), Some(&live))))
        });
        let records = read.collect::<Result<_>>()?;
        Ok(Snapshot::partial(load.time.without_store_clock(), records).min_fence(min_fence))
    }

    /// Reads the records of these names with their data, the minimum fence and the sessions; those
    /// with cold parts a second time, together with these.
    pub(crate) async fn read(&self, op: &'static str, names: &[&str]) -> Result<Vec<Row>> {
        let mut rows = self.read_parts(op, names, Parts::WithoutCold).await?;
        let incomplete = |(_, row): &(usize, &Row)| row.stored.lacks_cold();
        let incomplete = rows.iter().enumerate().filter(incomplete);
        let incomplete: Vec<usize> = incomplete.map(|(at, _)| at).collect();
        if !incomplete.is_empty() {
            let again: Vec<&str> = incomplete.iter().map(|at| names[*at]).collect();
            let complete = self.read_parts(op, &again, Parts::All).await?;
            incomplete.into_iter().zip(complete).for_each(|(at, row)| rows[at] = row);
        }
        Ok(rows)
    }

    /// Reads these parts of the records, the minimum fence and the sessions. A record that was read
    /// with all its parts is kept in the cache.
    pub(crate) async fn read_parts(
        &self,
        op: &'static str,
        names: &[&str],
        parts: Parts,
    ) -> Result<Vec<Row>> {
        let timeline = self.client.timeline();
        let mut pipeline = Pipeline::new();
        let keys_of_each = if parts == Parts::All { 3 } else { 2 };
        for chunk in names.chunks((self.client.max_operations() - 2) / keys_of_each) {
            let mut ops = vec![TxnOp::get(self.keys.min_fence(), None), self.sessions.read()];
            for name in chunk {
                ops.push(TxnOp::get(self.keys.job(name), None));
                ops.push(TxnOp::get(self.keys.data(name), None));
                if parts == Parts::All {
                    ops.push(TxnOp::get(self.keys.cold(name), None));
                }
            }
            pipeline.push(self.client.txn(op, Txn::new().and_then(ops))).await?;
        }
        let mut rows = Vec::with_capacity(names.len());
        for reply in pipeline.replies().await? {
            let mut replies = gets(&reply).into_iter();
            let (Some(min_fence), Some(sessions)) = (replies.next(), replies.next()) else {
                return Err(unexpected_response(op));
            };
            let min_fence = number(&min_fence);
            let live = Arc::new(self.sessions.live_nodes(&sessions));
            while let (Some(job), Some(data)) = (replies.next(), replies.next()) {
                let mut stored = Stored::decode(&job, &data);
                if parts == Parts::All {
                    stored =
                        stored.with_cold(&replies.next().ok_or_else(|| unexpected_response(op))?);
                }
                rows.push(Row { stored, min_fence, live: live.clone() });
            }
        }
        let complete = |(_, row): &(&&str, &Row)| !row.stored.lacks_cold();
        for (name, row) in names.iter().zip(&rows).filter(complete) {
            let at = Place { timeline, revision: row.stored.revision };
            self.cache.put(name, row.stored.record().cloned(), at);
        }
        Ok(rows)
    }

    /// Reads a page of at most `limit` records from this key on, and returns the names of those that
    /// are wanted.
    pub(crate) async fn names(
        &self,
        op: &'static str,
        prefix: &str,
        from: Vec<u8>,
        limit: usize,
        is_wanted: impl Fn(&Stored) -> bool,
    ) -> Result<Names> {
        let jobs = self.keys.job("");
        let end = end_of(&self.keys.job(prefix));
        let mut ends = self.name_pages.ends();
        let (mut from, mut read) = (from, Vec::new());
        let (mut counted, mut ranges) = (0, 0);
        while read.len() < limit {
            let to = from.strip_prefix(jobs.as_bytes()).and_then(|from| ends.next(from));
            let to = to.map(|to| [jobs.as_bytes(), &to].concat()).filter(|to| *to < end);
            let missing = i64::try_from(limit - read.len()).unwrap_or(i64::MAX);
            let range = GetOptions::new().with_range(to.as_ref().unwrap_or(&end).clone());
            let get = TxnOp::get(from, Some(range.with_limit(missing)));
            let reply = self.client.txn(op, Txn::new().and_then([get])).await?;
            for rows in gets(&reply) {
                counted += rows.count() - i64::try_from(rows.kvs().len()).unwrap_or(0);
                read.extend(rows.kvs().to_vec());
            }
            ranges += 1;
            let Some(to) = to else { break };
            from = to;
        }
        if let (Some(first), Some(last)) = (read.first(), read.last()) {
            self.name_pages.on_page(&first.key()[jobs.len()..], &last.key()[jobs.len()..]);
            if let Some(hint) = self.name_pages.to_store(counted, ranges) {
                let put = Txn::new().and_then([TxnOp::put(self.keys.page_hint(), hint, None)]);
                let stored = self.client.txn(op, put);
                // Without it, the next process counts again.
                self.client.spawn(stored.map(drop));
            }
        }
        let (mut names, mut next) = (Vec::new(), None);
        for kv in &read {
            next = Some([kv.key(), &[0]].concat());
            let Some(Ok(name)) = kv.key().strip_prefix(jobs.as_bytes()).map(str::from_utf8) else {
                continue;
            };
            if is_wanted(&Stored::of(kv, Vec::new())) {
                names.push(name.to_owned());
            }
        }
        Ok(Names { names, next })
    }

    /// The key of the first record after `after` whose name begins with `prefix`.
    pub(crate) fn first_key(&self, prefix: &str, after: Option<&str>) -> Vec<u8> {
        // The first key behind a name: that name and the smallest byte.
        let after = after.map(|after| format!("{}\0", self.keys.job(after)));
        self.keys.job(prefix).max(after.unwrap_or_default()).into_bytes()
    }

    /// The records of these names as they are now; without those that do not exist any more.
    pub(crate) async fn records(
        &self,
        op: &'static str,
        names: Vec<String>,
    ) -> Result<Vec<(String, Result<Record, String>)>> {
        let read: Vec<&str> = names.iter().map(String::as_str).collect();
        let rows = self.read(op, &read).await?;
        let record = |(name, row): (String, Row)| {
            let record = row.stored.record.map_err(|unreadable| unreadable.reason).transpose()?;
            Some((name, record))
        };
        Ok(names.into_iter().zip(rows).filter_map(record).collect())
    }
}

/// The point of view of the node that asks.
pub(crate) struct View<'a> {
    node: &'a str,
    /// The local time. `None`: the instant of the request decides on every lease.
    now: Option<Time>,
}

impl<'a> View<'a> {
    pub(crate) fn new(node: &'a str, time: TimeSource) -> Self {
        Self { node, now: time.is_store().then(|| time.without_store_clock()) }
    }

    /// The record as it was read, with what a commit compares, and with the view of it.
    pub(crate) fn loaded(
        &self,
        stored: Stored,
        min_fence: Option<i64>,
        live: Option<&LiveNodes>,
    ) -> Loaded<Version> {
        let (view, liveness) = match (stored.record(), self.now) {
            (Some(record), Some(now)) if self.is_foreign(record) => {
                let mut view = record.clone();
                let liveness = LivenessView::apply(&mut view, self.node, now, live);
                (Some(view), liveness)
            }
            _ => (None, LivenessView::default()),
        };
        let version = Version { revision: stored.revision, min_fence, liveness };
        let loaded = match stored.record {
            Ok(record) => Loaded::new(record, version),
            Err(unreadable) => Loaded::unreadable(unreadable.reason, unreadable.fence, version),
        };
        match view {
            Some(view) => loaded.view(view),
            None => loaded,
        }
    }

    /// True if a lease is by another clock.
    fn is_foreign(&self, record: &Record) -> bool {
        record.leases.iter().any(|lease| lease.node != self.node)
    }
}
