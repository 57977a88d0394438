//! What is known of records: read, told by an answer, or remembered.

use crate::{
    error::strange,
    exchange::{Exchanges, gets, number},
    keys::plain,
    seen::Seen,
    store::{Asker, Store},
};
use allora_core::{
    Result,
    backend::{Now, State},
    record::{Record, codec},
};
use etcd_client::{GetResponse, Txn, TxnOp};
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, MutexGuard, PoisonError},
};

/// How many records are remembered.
const REMEMBERED: usize = 100_000;

/// What this node wrote or read last; without the data.
#[derive(Clone)]
pub(crate) struct Known {
    pub(crate) record: Record,
    pub(crate) revision: i64,
}

/// What is known of a record.
pub(crate) struct Base {
    pub(crate) record: Result<Option<Record>, String>,
    pub(crate) revision: i64,
    pub(crate) source: Source,
    /// The floor and its revision.
    pub(crate) floor: Option<(i64, i64)>,
    /// The nodes whose marks were there.
    pub(crate) alive: Option<Arc<HashSet<Vec<u8>>>>,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Source {
    /// Without data, and perhaps old.
    Remembered,
    /// By the answer to a write that lost.
    Told,
    Read,
}

impl Store {
    /// The records of these, with their data, as they are now.
    pub(crate) async fn read(&self, asker: Asker<'_>, names: &[&str]) -> Result<Vec<Base>> {
        let mut sent = Exchanges::new();
        for chunk in names.chunks((self.operations - 2) / 2) {
            let mut ops = vec![TxnOp::get(self.keys.floor(), None), self.all_marks()];
            for name in chunk {
                ops.push(TxnOp::get(self.keys.job(name), None));
                ops.push(TxnOp::get(self.keys.data(name), None));
            }
            sent.add(self.txn(asker.op, Txn::new().and_then(ops))).await?;
        }
        let mut bases = Vec::with_capacity(names.len());
        for answer in sent.answers().await? {
            let mut answers = gets(&answer).into_iter();
            let (Some(floor), Some(marks)) = (answers.next(), answers.next()) else {
                return Err(strange(asker.op));
            };
            let floor = number(&floor);
            let alive = Arc::new(self.nodes_in(&marks));
            while let (Some(job), Some(data)) = (answers.next(), answers.next()) {
                let mut base = Base::read(&job, &data, Source::Read);
                base.floor = Some(floor);
                base.alive = Some(alive.clone());
                bases.push(base);
            }
        }
        let mut known = self.known();
        for (name, base) in names.iter().zip(&bases) {
            base.remember(&mut known, name);
        }
        Ok(bases)
    }

    /// The states of these jobs as the asker is to see them, by position; `None` for a job that is
    /// not there.
    pub(crate) async fn states(
        &self,
        asker: Asker<'_>,
        names: &[&str],
    ) -> Result<Vec<(Option<State>, i64)>> {
        let bases = self.read(asker, names).await?;
        let state = |(name, base): (&&str, Base)| match base.record {
            Err(reason) => (Some(State::parked(*name, reason)), base.revision),
            Ok(record) => {
                let live = record.filter(Record::is_live);
                let state = live.map(|mut record| {
                    if matches!(asker.now, Now::Store { .. }) {
                        let here = asker.now.here();
                        Seen::of(&mut record, asker.node, here, base.alive.as_deref());
                    }
                    record.state(name)
                });
                (state, base.revision)
            }
        };
        Ok(names.iter().zip(bases).map(state).collect())
    }

    /// The jobs that this node knows to be run by another.
    pub(crate) fn run_by(&self, node: &str) -> Vec<String> {
        let by = |known: &Known| known.record.holds.iter().any(|hold| plain(&hold.node) == node);
        let known = self.known();
        known.iter().filter(|(_, known)| by(known)).map(|(name, _)| name.clone()).collect()
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Base {
    pub(crate) fn read(job: &GetResponse, data: &GetResponse, source: Source) -> Self {
        let (record, revision) = match job.kvs().first() {
            None => (Ok(None), 0),
            Some(kv) => match codec::decode(kv.value()) {
                Ok(mut record) => {
                    record.data =
                        data.kvs().first().map(|kv| kv.value().to_vec()).unwrap_or_default();
                    (Ok(Some(record)), kv.mod_revision())
                }
                Err(why) => (Err(why.to_string()), kv.mod_revision()),
            },
        };
        Self { record, revision, source, floor: None, alive: None }
    }

    pub(crate) fn remember(&self, known: &mut HashMap<String, Known>, name: &str) {
        let record = self.record.as_ref().ok().cloned().flatten();
        let record = record.map(|record| Record { data: Vec::new(), ..record });
        remember(known, name, record, self.revision);
    }
}

pub(crate) fn remember(
    known: &mut HashMap<String, Known>,
    name: &str,
    record: Option<Record>,
    revision: i64,
) {
    let Some(record) = record else {
        known.remove(name);
        return;
    };
    if known.get(name).is_some_and(|known| known.revision > revision) {
        return;
    }
    if known.len() >= REMEMBERED
        && !known.contains_key(name)
        && let Some(any) = known.keys().next().cloned()
    {
        known.remove(&any);
    }
    known.insert(name.to_owned(), Known { record, revision });
}
