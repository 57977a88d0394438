//! Queries: due records, lists, kinds.

use crate::{
    client::gets,
    due_index::Part,
    encoding::Stored,
    keys::{IndexEntry, Keys, end_of, escape},
    records::{Parts, View},
    store::Store,
};
use allora_core::{
    Result, Time,
    backend::{Due, DueQuery, JobState, Page, TimeSource},
    record::Record,
};
use chrono::TimeDelta;
use etcd_client::{Compare, CompareOp, DeleteOptions, GetOptions, GetResponse, Txn, TxnOp};
use std::collections::BTreeSet;

/// The number of records of a list that one exchange reads.
const LIST_PAGE: usize = 500;

const FIND_DUE: &str = "find due";

/// The entries of the index that a query has found.
#[derive(Default)]
struct Found {
    due: Vec<IndexEntry>,
    /// The keys of the entries, to be removed if they are wrong.
    keys: Vec<(Vec<u8>, String)>,
}

impl Found {
    fn add(&mut self, entry: IndexEntry, key: &[u8]) {
        self.keys.push((key.to_vec(), entry.name.clone()));
        self.due.push(entry);
    }

    /// Keeps the entries that the query asks for, of those found in their order. Returns the time of
    /// the first that is left out.
    fn choose(&mut self, query: &DueQuery<'_>) -> Option<Time> {
        let ready = self.due.partition_point(|entry| entry.at < query.until);
        let next_due = self.due.get(ready).map(|entry| entry.at);
        self.due.truncate(ready);
        if ready <= query.limit {
            return next_due;
        }
        if let Some(preferred) = query.preferred {
            self.due.sort_by_cached_key(|entry| preferred.rank(&entry.name));
        }
        let left_out = self.due.split_off(query.limit);
        self.due.sort_unstable();
        left_out.into_iter().map(|entry| entry.at).min()
    }
}

impl Store {
    /// The records that want attention, the earliest first, and when the next one does.
    pub(crate) async fn find_due(&self, query: DueQuery<'_>, time: TimeSource) -> Result<Due> {
        let now = time.without_store_clock();
        let kinds: BTreeSet<&str> = query.kinds.iter().copied().collect();
        let mut found = Found::default();
        let mut prefixes: Vec<String> = kinds.iter().map(|kind| self.keys.due(kind)).collect();
        if time.is_store() && !query.node.is_empty() {
            self.sessions.keep(query.node, now);
            // The node's own leases end by its own clock, those of others with their sessions.
            prefixes.extend(kinds.iter().map(|kind| self.keys.leased_by_of(query.node, kind)));
        }
        let all = GetOptions::new().with_prefix().with_keys_only();
        let nodes = [self.sessions.read(), TxnOp::get(self.keys.nodes(), Some(all))];
        let (parts, nodes) = self.due_index.read(FIND_DUE, prefixes, &query, &nodes).await?;
        for part in &parts {
            part.due.iter().for_each(|(entry, key)| found.add(entry.clone(), key));
            found.due.extend(part.next.clone());
        }
        if time.is_store() {
            for node in self.dead_nodes(query.node, &nodes) {
                self.find_left(&node, &kinds, &query, now, &mut found).await?;
            }
        } else {
            self.find_leased(&kinds, &mut found).await?;
        }
        found.due.sort_unstable();
        found.due.dedup();
        let next_due = found.choose(&query);
        let names: Vec<&str> = found.due.iter().map(|entry| &*entry.name).collect();
        if names.is_empty() {
            return Ok(Due::new(now, Vec::new(), next_due));
        }
        let view = View::new(query.node, time);
        let states = self.found_states(&parts, &query, view, &names);
        let mut shown = Vec::with_capacity(names.len());
        for (name, (state, revision)) in names.iter().zip(states.await?) {
            // A record that cannot be read stays: a newer build may read it.
            if state.is_none() {
                self.remove_from_index(name, revision, &found.keys).await?;
            }
            shown.extend(state);
        }
        Ok(Due::new(now, shown, next_due))
    }

    /// Reads the found records, and raises the low marks at the same time. Returns the state of each
    /// as `view` shows it, if the job exists, with the record's revision.
    async fn found_states(
        &self,
        parts: &[Part],
        query: &DueQuery<'_>,
        view: View<'_>,
        names: &[&str],
    ) -> Result<Vec<(Option<JobState>, i64)>> {
        let raised = self.due_index.raise(FIND_DUE, parts, query.until, names.len());
        let (rows, ()) =
            futures::try_join!(self.read_parts(FIND_DUE, names, Parts::WithoutCold), raised)?;
        let states = names.iter().zip(rows).map(|(name, row)| {
            let revision = row.stored.revision;
            let loaded = view.loaded(row.stored.without_cold(), None, Some(&row.live));
            let state = match &loaded.record {
                Err(unreadable) => Some(JobState::unreadable(*name, &*unreadable.reason)),
                Ok(record) => {
                    let record = loaded.view.as_deref().or(record.as_ref());
                    record.filter(|record| record.is_live()).map(|record| record.state(name))
                }
            };
            (state, revision)
        });
        Ok(states.collect())
    }

    /// The other nodes that have had a session and have none, as their ids are in the keys.
    fn dead_nodes(&self, node: &str, nodes: &[GetResponse]) -> Vec<String> {
        let [sessions, nodes] = nodes else { return Vec::new() };
        let live = self.sessions.live_nodes(sessions);
        let prefix = self.keys.nodes();
        let own = escape(node);
        let id = |kv: &etcd_client::KeyValue| {
            let id = kv.key().strip_prefix(prefix.as_bytes())?;
            (!live.has_id(id)).then(|| String::from_utf8_lossy(id).into_owned())
        };
        nodes.kvs().iter().filter_map(id).filter(|id| *id != own).collect()
    }

    /// The records that a dead node has left, all of them due now. A node without any is removed.
    async fn find_left(
        &self,
        node: &str,
        kinds: &BTreeSet<&str>,
        query: &DueQuery<'_>,
        now: Time,
        found: &mut Found,
    ) -> Result {
        let over = now - TimeDelta::milliseconds(1);
        let left = format!("{}{node}\0", self.keys.all_leased());
        let limit = i64::try_from(query.limit.saturating_add(1)).unwrap_or(i64::MAX);
        let any = GetOptions::new().with_range(end_of(&left)).with_keys_only().with_limit(1);
        let mut ops = vec![TxnOp::get(left.clone(), Some(any))];
        let prefixes: Vec<String> = kinds.iter().map(|kind| format!("{left}{kind}\0")).collect();
        ops.extend(prefixes.iter().map(|prefix| {
            let range = GetOptions::new().with_range(end_of(prefix)).with_keys_only();
            TxnOp::get(prefix.clone(), Some(range.with_limit(limit)))
        }));
        let replies = self.client.get_all(FIND_DUE, ops).await?;
        if replies.first().is_some_and(|any| any.kvs().is_empty()) {
            return self.remove_node(node, &left).await;
        }
        for (prefix, reply) in prefixes.iter().zip(replies.iter().skip(1)) {
            for kv in reply.kvs() {
                let Some(entry) = Keys::index_entry(prefix, kv.key()) else { continue };
                // Over, and so before the end of any query.
                found.add(IndexEntry { at: entry.at.min(over), name: entry.name }, kv.key());
            }
        }
        Ok(())
    }

    /// Removes a node without a session and without leases from the nodes that may have left runs.
    /// Both are compared: the node may have come back, and may have died with a run again.
    async fn remove_node(&self, node: &str, left: &str) -> Result {
        let session = format!("{}{node}", self.keys.sessions());
        let node = format!("{}{node}", self.keys.nodes());
        let (low, lows) = (self.keys.low_mark(left), DeleteOptions::new().with_prefix());
        let nothing_left = Compare::create_revision(left, CompareOp::Equal, 0);
        let remove = Txn::new()
            .when([
                Compare::create_revision(session, CompareOp::Equal, 0),
                nothing_left.with_range(end_of(left)),
            ])
            .and_then([TxnOp::delete(node, None), TxnOp::delete(low, Some(lows))]);
        self.client.txn(FIND_DUE, remove).await.map(drop)
    }

    /// The records that wait for the end of a lease, of all nodes: for requests that bring their own
    /// instant.
    async fn find_leased(&self, kinds: &BTreeSet<&str>, found: &mut Found) -> Result {
        let leased = GetOptions::new().with_prefix().with_keys_only();
        let op = TxnOp::get(self.keys.all_leased(), Some(leased));
        let reply = self.client.txn(FIND_DUE, Txn::new().and_then([op])).await?;
        for kv in gets(&reply).iter().flat_map(|reply| reply.kvs()) {
            let Some((kind, entry)) = self.keys.leased_entry(kv.key()) else { continue };
            if kinds.contains(&*kind) {
                found.add(entry, kv.key());
            }
        }
        Ok(())
    }

    /// Removes the index entries of a record that does not exist.
    async fn remove_from_index(
        &self,
        name: &str,
        revision: i64,
        keys: &[(Vec<u8>, String)],
    ) -> Result {
        let wrong = keys.iter().filter(|(_, of)| of == name);
        let deletes: Vec<TxnOp> = wrong.map(|(key, _)| TxnOp::delete(key.clone(), None)).collect();
        let same = Compare::mod_revision(self.keys.job(name), CompareOp::Equal, revision);
        let txn = Txn::new().when([same]).and_then(deletes);
        self.client.txn(FIND_DUE, txn).await.map(drop)
    }

    /// A page of the list.
    pub(crate) async fn list(
        &self,
        page: Page<'_>,
    ) -> Result<Vec<(String, Result<Record, String>)>> {
        const OP: &str = "list";
        let is_of_kind =
            |record: &Record| record.is_live() && page.kind.is_none_or(|kind| record.kind == kind);
        let mut from = self.first_key(page.prefix, page.after);
        let mut listed: Vec<(String, Result<Record, String>)> = Vec::new();
        while listed.len() < page.limit {
            let missing = page.limit - listed.len();
            // Without a filter, few records are read in vain.
            let limit = page.kind.map_or(missing, |_| LIST_PAGE).min(LIST_PAGE);
            let is_wanted = |stored: &Stored| match &stored.record {
                Ok(record) => record.as_ref().is_some_and(is_of_kind),
                // Its kind is unknown.
                Err(_) => page.kind.is_none(),
            };
            let names = self.names(OP, page.prefix, from, limit, is_wanted).await?;
            // A record that has changed meanwhile is listed as it is now.
            let records = self.records(OP, names.names).await?.into_iter();
            let records = records.filter(|(_, record)| match record {
                Ok(record) => is_of_kind(record),
                Err(_) => page.kind.is_none(),
            });
            listed.extend(records.take(missing));
            let Some(next) = names.next else { break };
            from = next;
        }
        Ok(listed)
    }

    /// The kinds that stored schedules have; shortly after the last deletion, also one that they had.
    pub(crate) async fn kinds(&self) -> Result<Vec<String>> {
        let range = GetOptions::new().with_prefix().with_keys_only();
        let all = self.keys.kind("");
        let op = TxnOp::get(all.clone(), Some(range));
        let reply = self.client.txn("kinds", Txn::new().and_then([op])).await?;
        let kind = |kv: &etcd_client::KeyValue| {
            String::from_utf8(kv.key().strip_prefix(all.as_bytes())?.to_vec()).ok()
        };
        Ok(gets(&reply).iter().flat_map(|reply| reply.kvs()).filter_map(kind).collect())
    }
}
