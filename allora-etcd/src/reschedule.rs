//! Plans, and what stored schedules want attention.

use crate::{
    Etcd,
    exchange::gets,
    keys::{Due, Keys, after_all, plain},
    store::{Asker, Done, Slot, Store},
};
use allora_core::{
    Backend, Result, Time,
    backend::{
        Act, Answer, Deliver, Find, History, Leases, Now, Plan, Reschedule, Rescheduled, Schedules,
        State, Watch,
    },
    record::step,
};
use async_trait::async_trait;
use chrono::TimeDelta;
use etcd_client::{Compare, CompareOp, GetOptions, GetResponse, Txn, TxnOp};
use std::{collections::BTreeSet, time::Duration};

const OP: &str = "reschedule";

#[async_trait]
impl Backend for Etcd {
    async fn reschedule(&self, request: Reschedule<'_>) -> Result<Rescheduled> {
        let store = &self.store;
        let asker = Asker { op: OP, node: request.node, now: request.now };
        if let Now::Store { node: wall } = request.now {
            store.marks.seen(request.node, wall);
            if let Some(promise) = request.plans.iter().filter_map(promise).max() {
                store.promise(OP, request.node, promise).await?;
            }
        }
        let names: Vec<&str> = request.plans.iter().map(|plan| plan.name).collect();
        let work = |i: usize, slot: Slot<'_>, at: allora_core::record::At<'_>, ledger: &mut _| {
            let plan: &Plan<'_> = &request.plans[i];
            let answer = match slot {
                Slot::Sound(record) => step(record, plan, at, ledger),
                Slot::Parked { reason, .. } => {
                    Answer::State(Box::new(State::parked(plan.name, reason)))
                }
            };
            let is_proved = matches!(answer, Answer::Taken(_));
            Done { answer, hint: None, is_proved }
        };
        let answers = store.with(asker, &names, true, work).await?;
        store.trim(OP).await?;
        let (found, next_due) = match request.find {
            Some(find) => store.find(asker, find).await?,
            None => (Vec::new(), None),
        };
        Ok(Rescheduled::new(request.now.here(), answers).found(found, next_due))
    }

    fn namespace(&self) -> &str {
        &self.store.namespace
    }

    fn leases(&self) -> Option<&dyn Leases> {
        Some(self)
    }

    fn schedules(&self) -> Option<&dyn Schedules> {
        Some(self)
    }

    fn history(&self) -> Option<&dyn History> {
        (self.store.history > 0).then_some(self as _)
    }

    fn watch(&self) -> Option<&dyn Watch> {
        Some(self)
    }
}

/// For how long the run of this plan is promised to be kept, if it is.
fn promise(plan: &Plan<'_>) -> Option<Duration> {
    match &plan.act {
        Act::Take(take) => match take.deliver {
            Deliver::AtLeastOnce { lease } => Some(lease),
            Deliver::AtMostOnce { mark, .. } => mark.map(|mark| mark.lasts),
        },
        _ => None,
    }
}

/// What was read of the index at once.
struct Indexed {
    due: Vec<Due>,
    /// The keys of what was found, to be cleared if they are wrong.
    keys: Vec<(Vec<u8>, String)>,
}

impl Store {
    /// The records looked for, the earliest first, and when the next one wants attention.
    async fn find(&self, asker: Asker<'_>, find: Find<'_>) -> Result<(Vec<State>, Option<Time>)> {
        let kinds: BTreeSet<&str> = find.kinds.iter().copied().collect();
        let mut found = Indexed { due: Vec::new(), keys: Vec::new() };
        let mut prefixes: Vec<String> = kinds.iter().map(|kind| self.keys.dues(kind)).collect();
        match asker.now {
            // Of its own runs a node knows the ends; of others', whether their nodes are there.
            Now::Store { .. } => {
                prefixes.extend(kinds.iter().map(|kind| self.keys.helds_of(asker.node, kind)));
                let dead = self.indexed(asker, &prefixes, &find, &mut found).await?;
                for node in dead {
                    self.find_left(asker, &node, &kinds, &find, &mut found).await?;
                }
            }
            Now::At(_) => {
                self.indexed(asker, &prefixes, &find, &mut found).await?;
                self.find_held(asker, &kinds, &mut found).await?;
            }
        }
        found.due.sort_unstable();
        found.due.dedup();
        let ready = found.due.iter().take(find.limit).take_while(|due| due.at < find.until);
        let ready = ready.count();
        let next_due = found.due.get(ready).map(|due| due.at);
        found.due.truncate(ready);
        let names: Vec<&str> = found.due.iter().map(|due| &*due.name).collect();
        let mut states = Vec::with_capacity(names.len());
        if names.is_empty() {
            return Ok((states, next_due));
        }
        let mut wrong = Vec::new();
        for (name, (state, revision)) in names.iter().zip(self.states(asker, &names).await?) {
            let parked = state.as_ref().is_none_or(|state| state.parked.is_some());
            if parked {
                wrong.push((*name, revision));
            }
            states.extend(state);
        }
        for (name, revision) in wrong {
            self.clear(asker, name, revision, &found.keys).await?;
        }
        Ok((states, next_due))
    }

    /// Reads these parts of the index; answers with the nodes that were there and are not.
    async fn indexed(
        &self,
        asker: Asker<'_>,
        prefixes: &[String],
        find: &Find<'_>,
        found: &mut Indexed,
    ) -> Result<Vec<String>> {
        let limit = i64::try_from(find.limit.saturating_add(1)).unwrap_or(i64::MAX);
        let all = |prefix: String| {
            let options = GetOptions::new().with_prefix().with_keys_only();
            TxnOp::get(prefix, Some(options))
        };
        let first = [all(self.keys.marks()), all(self.keys.fleets())];
        let mut ops: Vec<TxnOp> = first.into();
        ops.extend(prefixes.iter().map(|prefix| {
            let options =
                GetOptions::new().with_range(after_all(prefix)).with_keys_only().with_limit(limit);
            TxnOp::get(prefix.clone(), Some(options))
        }));
        let answers = self.gets(asker.op, ops).await?;
        for (prefix, answer) in prefixes.iter().zip(answers.iter().skip(2)) {
            for kv in answer.kvs() {
                let Some(due) = Keys::read(prefix, kv.key()) else { continue };
                found.keys.push((kv.key().to_vec(), due.name.clone()));
                found.due.push(due);
            }
        }
        let (Some(alive), Some(fleet)) = (answers.first(), answers.get(1)) else {
            return Ok(Vec::new());
        };
        let alive = self.nodes_in(alive);
        let fleets = self.keys.fleets();
        let id = |kv: &etcd_client::KeyValue| {
            let id = kv.key().strip_prefix(fleets.as_bytes())?;
            (!alive.contains(id)).then(|| String::from_utf8_lossy(id).into_owned())
        };
        let me = plain(asker.node);
        Ok(fleet.kvs().iter().filter_map(id).filter(|id| *id != me).collect())
    }

    /// Reads of any number, so many at once as the server allows.
    async fn gets(&self, op: &'static str, mut ops: Vec<TxnOp>) -> Result<Vec<GetResponse>> {
        let mut answers = Vec::with_capacity(ops.len());
        while !ops.is_empty() {
            let rest = ops.split_off(ops.len().min(self.operations));
            let answer = self.txn(op, Txn::new().and_then(ops)).await?;
            answers.extend(gets(&answer));
            ops = rest;
        }
        Ok(answers)
    }

    /// What a node that is gone has left, all of it due now. A node that left nothing is forgotten.
    async fn find_left(
        &self,
        asker: Asker<'_>,
        node: &str,
        kinds: &BTreeSet<&str>,
        find: &Find<'_>,
        found: &mut Indexed,
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
            let forget = Txn::new()
                .when([Compare::create_revision(mark, CompareOp::Equal, 0)])
                .and_then([TxnOp::delete(fleet, None)]);
            self.txn(asker.op, forget).await?;
            return Ok(());
        }
        for (prefix, answer) in prefixes.iter().zip(answers.iter().skip(1)) {
            for kv in answer.kvs() {
                let Some(due) = Keys::read(prefix, kv.key()) else { continue };
                found.keys.push((kv.key().to_vec(), due.name.clone()));
                // Over, and so before the end of whatever is asked for.
                found.due.push(Due { at: due.at.min(over), name: due.name });
            }
        }
        Ok(())
    }

    /// What waits for the ends of runs, of all nodes: for requests that bring their own instant.
    async fn find_held(
        &self,
        asker: Asker<'_>,
        kinds: &BTreeSet<&str>,
        found: &mut Indexed,
    ) -> Result {
        let held = GetOptions::new().with_prefix().with_keys_only();
        let op = TxnOp::get(self.keys.all_helds(), Some(held));
        let answer = self.txn(asker.op, Txn::new().and_then([op])).await?;
        for kv in gets(&answer).iter().flat_map(|answer| answer.kvs()) {
            let Some((kind, due)) = self.keys.read_held(kv.key()) else { continue };
            if kinds.contains(&*kind) {
                found.keys.push((kv.key().to_vec(), due.name.clone()));
                found.due.push(due);
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

#[cfg(test)]
mod tests {
    use super::*;
    use allora_core::backend::{Beside, Cursor, Mark, Occurrence, Take};

    #[test]
    fn a_take_promises_what_its_lease_or_mark_lasts() {
        let lasts = Duration::from_secs(7);
        let of = |deliver| {
            let at = Occurrence::from(allora_core::time::end_of_time());
            promise(&Plan::new("job", Act::Take(Take::new(1, 1, at, deliver))))
        };
        let mark = Some(Mark { lasts, beside: Beside::Others });
        assert_eq!(of(Deliver::AtLeastOnce { lease: lasts }), Some(lasts));
        assert_eq!(of(Deliver::AtMostOnce { then: Cursor::Keep, mark }), Some(lasts));
        assert_eq!(of(Deliver::AtMostOnce { then: Cursor::Keep, mark: None }), None);
        assert_eq!(promise(&Plan::new("job", Act::Look)), None);
    }
}
