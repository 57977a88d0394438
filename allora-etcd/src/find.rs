//! What stored schedules want attention.

use crate::{
    exchange::gets,
    keys::{Due, Keys, after_all, plain},
    store::{Asker, Store},
};
use allora_core::{
    Result, Time,
    backend::{Find, Now, State},
};
use chrono::TimeDelta;
use etcd_client::{Compare, CompareOp, DeleteOptions, GetOptions, GetResponse, Txn, TxnOp};
use std::collections::BTreeSet;

/// What was found in the index.
#[derive(Default)]
struct Found {
    due: Vec<Due>,
    /// The keys of what was found, to be cleared if they are wrong.
    keys: Vec<(Vec<u8>, String)>,
}

impl Found {
    fn add(&mut self, due: Due, key: &[u8]) {
        self.keys.push((key.to_vec(), due.name.clone()));
        self.due.push(due);
    }
}

impl Store {
    /// The records looked for, the earliest first, and when the next one wants attention.
    pub(crate) async fn find(
        &self,
        asker: Asker<'_>,
        find: Find<'_>,
    ) -> Result<(Vec<State>, Option<Time>)> {
        let kinds: BTreeSet<&str> = find.kinds.iter().copied().collect();
        let mut found = Found::default();
        let mut besides: Vec<String> = kinds.iter().map(|kind| self.keys.dues(kind)).collect();
        let alone = matches!(asker.now, Now::At(_));
        if !alone {
            // Of its own runs a node knows the ends; of others', whether their nodes are there.
            besides.extend(kinds.iter().map(|kind| self.keys.helds_of(asker.node, kind)));
        }
        let all = GetOptions::new().with_prefix().with_keys_only();
        let nodes = [self.all_marks(), TxnOp::get(self.keys.fleets(), Some(all))];
        let (parts, nodes) = self.parts(asker.op, besides, &find, &nodes).await?;
        for part in &parts {
            part.due.iter().for_each(|(due, key)| found.add(due.clone(), key));
            found.due.extend(part.next.clone());
        }
        if alone {
            self.find_held(asker, &kinds, &mut found).await?;
        } else {
            for node in self.gone(asker, &nodes) {
                self.find_left(asker, &node, &kinds, &find, &mut found).await?;
            }
        }
        found.due.sort_unstable();
        found.due.dedup();
        let ready = found.due.iter().take(find.limit).take_while(|due| due.at < find.until);
        let ready = ready.count();
        let next_due = found.due.get(ready).map(|due| due.at);
        found.due.truncate(ready);
        let names: Vec<&str> = found.due.iter().map(|due| &*due.name).collect();
        if names.is_empty() {
            return Ok((Vec::new(), next_due));
        }
        let raised = self.raise(asker.op, &parts, &find, names.len());
        let (read, ()) = futures::try_join!(self.states(asker, &names), raised)?;
        let mut states = Vec::with_capacity(names.len());
        for (name, (state, revision)) in names.iter().zip(read) {
            if state.as_ref().is_none_or(|state| state.parked.is_some()) {
                self.clear(asker, name, revision, &found.keys).await?;
            }
            states.extend(state);
        }
        Ok((states, next_due))
    }

    /// The nodes that were there and are not.
    fn gone(&self, asker: Asker<'_>, nodes: &[GetResponse]) -> Vec<String> {
        let [alive, fleet] = nodes else { return Vec::new() };
        let alive = self.nodes_in(alive);
        let fleets = self.keys.fleets();
        let id = |kv: &etcd_client::KeyValue| {
            let id = kv.key().strip_prefix(fleets.as_bytes())?;
            (!alive.contains(id)).then(|| String::from_utf8_lossy(id).into_owned())
        };
        let me = plain(asker.node);
        fleet.kvs().iter().filter_map(id).filter(|id| *id != me).collect()
    }

    /// What a node that is gone has left, all of it due now. A node that left nothing is forgotten.
    async fn find_left(
        &self,
        asker: Asker<'_>,
        node: &str,
        kinds: &BTreeSet<&str>,
        find: &Find<'_>,
        found: &mut Found,
    ) -> Result {
        let over = asker.now.here() - TimeDelta::milliseconds(1);
        let left = format!("{}{node}\0", self.keys.all_helds());
        let limit = i64::try_from(find.limit.saturating_add(1)).unwrap_or(i64::MAX);
        let few = GetOptions::new().with_range(after_all(&left)).with_keys_only().with_limit(1);
        let mut ops = vec![TxnOp::get(left.clone(), Some(few))];
        let prefixes: Vec<String> = kinds.iter().map(|kind| format!("{left}{kind}\0")).collect();
        ops.extend(prefixes.iter().map(|prefix| {
            let range = GetOptions::new().with_range(after_all(prefix)).with_keys_only();
            TxnOp::get(prefix.clone(), Some(range.with_limit(limit)))
        }));
        let answers = self.gets(asker.op, ops).await?;
        if answers.first().is_some_and(|any| any.kvs().is_empty()) {
            let mark = format!("{}{node}", self.keys.marks());
            let fleet = format!("{}{node}", self.keys.fleets());
            let (low, lows) = (self.keys.low(&left), DeleteOptions::new().with_prefix());
            let forget = Txn::new()
                .when([Compare::create_revision(mark, CompareOp::Equal, 0)])
                .and_then([TxnOp::delete(fleet, None), TxnOp::delete(low, Some(lows))]);
            self.txn(asker.op, forget).await?;
            return Ok(());
        }
        for (prefix, answer) in prefixes.iter().zip(answers.iter().skip(1)) {
            for kv in answer.kvs() {
                let Some(due) = Keys::read(prefix, kv.key()) else { continue };
                // Over, and so before the end of whatever is asked for.
                found.add(Due { at: due.at.min(over), name: due.name }, kv.key());
            }
        }
        Ok(())
    }

    /// What waits for the ends of runs, of all nodes: for requests that bring their own instant.
    async fn find_held(
        &self,
        asker: Asker<'_>,
        kinds: &BTreeSet<&str>,
        found: &mut Found,
    ) -> Result {
        let held = GetOptions::new().with_prefix().with_keys_only();
        let op = TxnOp::get(self.keys.all_helds(), Some(held));
        let answer = self.txn(asker.op, Txn::new().and_then([op])).await?;
        for kv in gets(&answer).iter().flat_map(|answer| answer.kvs()) {
            let Some((kind, due)) = self.keys.read_held(kv.key()) else { continue };
            if kinds.contains(&*kind) {
                found.add(due, kv.key());
            }
        }
        Ok(())
    }

    /// Clears what the index has of a record that is not there or cannot be read: told once.
    async fn clear(
        &self,
        asker: Asker<'_>,
        name: &str,
        revision: i64,
        keys: &[(Vec<u8>, String)],
    ) -> Result {
        let wrong = keys.iter().filter(|(_, of)| of == name);
        let deletes: Vec<TxnOp> = wrong.map(|(key, _)| TxnOp::delete(key.clone(), None)).collect();
        let same = Compare::mod_revision(self.keys.job(name), CompareOp::Equal, revision);
        let txn = Txn::new().when([same]).and_then(deletes);
        self.txn(asker.op, txn).await.map(drop)
    }
}
