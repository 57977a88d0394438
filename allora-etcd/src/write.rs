//! What was decided, as transactions: one for each record, nested in as few as the server allows.

use crate::{
    base::{Base, Source, remember},
    error::strange,
    exchange::{Exchanges, gets},
    keys::Notice,
    store::{Asker, Group, Store},
};
use allora_core::{
    Error, Kind, Result,
    backend::Hint,
    record::{Record, codec},
};
use etcd_client::{Compare, CompareOp, Txn, TxnOp, TxnOpResponse};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// At most so many bytes in one transaction; the server's own limit is 1.5 MiB.
const BYTES: usize = 1 << 20;

/// A record to be written.
pub(crate) struct Write<T> {
    pub(crate) group: usize,
    pub(crate) compares: Vec<Compare>,
    pub(crate) puts: Vec<TxnOp>,
    pub(crate) bytes: usize,
    /// It has a new promise of the asking node.
    pub(crate) promises: bool,
    /// The kind that it has now, if it had another one or none.
    pub(crate) kind: Option<String>,
    /// What is put into the index.
    pub(crate) notice: Option<Notice>,
    /// Of which edition the record was.
    pub(crate) edition: Option<i64>,
    pub(crate) after: Option<Record>,
    pub(crate) answers: Vec<T>,
    pub(crate) hints: Vec<Hint>,
}

impl<T> Write<T> {
    /// Whether it is what was written before the answer was lost: the record has the edition that
    /// was drawn for it, or, where none was drawn, is the one that was to be. Editions are instants
    /// in microseconds: who has drawn the same one as another has asked for the same.
    fn is_in(&self, base: &Base) -> bool {
        let (Ok(Some(there)), Some(after)) = (&base.record, &self.after) else { return false };
        let drawn = Some(after.edition) != self.edition && there.edition == after.edition;
        // The data is not in what is to be written here, and without a new edition not changed.
        let same = || Record { data: Vec::new(), ..there.clone() } == *after;
        (drawn && there.definition == after.definition && there.kind == after.kind) || same()
    }
}

/// What goes into one request.
struct Batch<T> {
    writes: Vec<Write<T>>,
    bytes: usize,
    /// The most operations of one of them.
    weight: usize,
    /// The new kinds, each once.
    kinds: BTreeSet<String>,
    /// The parts of the index that are written to, with the earliest instant of each.
    parts: BTreeMap<String, String>,
    /// Whether there is something to be told to other nodes.
    hints: bool,
}

impl<T> Default for Batch<T> {
    fn default() -> Self {
        let (kinds, parts) = (BTreeSet::new(), BTreeMap::new());
        Self { writes: Vec::new(), bytes: 0, weight: 2, kinds, parts, hints: false }
    }
}

impl<T> Batch<T> {
    fn fits(&self, write: &Write<T>, operations: usize) -> bool {
        let kinds = self.kinds.len() + usize::from(write.kind.is_some());
        let parts = self.parts.len() + usize::from(write.notice.is_some());
        let weight = self.weight.max(write.compares.len()).max(write.puts.len());
        let hint = usize::from(self.hints || !write.hints.is_empty());
        // With the marks, which are read along.
        let beside = 1 + kinds + parts + hint;
        self.writes.len() + 1 + beside + weight <= operations && self.bytes + write.bytes <= BYTES
    }

    fn add(&mut self, mut write: Write<T>) {
        self.bytes += write.bytes;
        self.weight = self.weight.max(write.compares.len()).max(write.puts.len());
        self.hints |= !write.hints.is_empty();
        self.kinds.extend(write.kind.take().filter(|kind| !kind.is_empty()));
        if let Some(notice) = write.notice.take() {
            let first = self.parts.entry(notice.beside).or_insert_with(|| notice.at.clone());
            *first = notice.at.min(std::mem::take(first));
        }
        self.writes.push(write);
    }
}

impl Store {
    /// The transaction that makes `after` of what the base is, without what there is to answer.
    pub(crate) fn written<T>(
        &self,
        name: &str,
        base: &Base,
        before: Option<&Record>,
        mut after: Option<Record>,
        node: &str,
    ) -> Write<T> {
        let keys = &self.keys;
        let mut compares =
            vec![Compare::mod_revision(keys.job(name), CompareOp::Equal, base.revision)];
        if before.is_none()
            && let Some((_, revision)) = base.floor
        {
            compares.push(Compare::mod_revision(keys.floor(), CompareOp::Equal, revision));
        }
        let (mut puts, mut bytes, mut promises) = (Vec::new(), 0, false);
        let (was, is) = (keys.notice(name, before), keys.notice(name, after.as_ref()));
        let moved = was != is;
        puts.extend(was.filter(|_| moved).map(|was| TxnOp::delete(was.key(), None)));
        let notice = is.filter(|_| moved);
        puts.extend(notice.iter().map(|is| TxnOp::put(is.key(), "", None)));
        if let Some(record) = &mut after {
            let data = std::mem::take(&mut record.data);
            if before.map_or(&[][..], |before| &before.data) != data {
                bytes += data.len();
                puts.push(match data.is_empty() {
                    true => TxnOp::delete(keys.data(name), None),
                    false => TxnOp::put(keys.data(name), data, None),
                });
            }
            let value = codec::encode(record);
            bytes += value.len();
            puts.push(TxnOp::put(keys.job(name), value, None));
            if let Some(gone) = record.gone
                && before.is_none_or(|before| before.gone != record.gone)
            {
                puts.push(TxnOp::put(keys.gone(gone, name), "", None));
            }
            let held = before.map_or(&[][..], |before| &before.holds);
            promises = record.holds.iter().any(|hold| {
                hold.node == node
                    && !held.iter().any(|old| old.fence == hold.fence && old.until == hold.until)
            });
        }
        let had = before.map_or("", |before| &before.kind);
        let kind = after.as_ref().map(|after| after.kind.clone()).filter(|kind| *kind != had);
        let edition = before.map(|before| before.edition);
        let (answers, hints) = (Vec::new(), Vec::new());
        Write {
            group: 0,
            compares,
            puts,
            bytes,
            promises,
            kind,
            notice,
            edition,
            after,
            answers,
            hints,
        }
    }

    /// Sends what is to be written; whoever loses gets the truth as its base.
    pub(crate) async fn write<T: Send>(
        &self,
        asker: Asker<'_>,
        groups: &mut [Group<'_, T>],
        writes: Vec<Write<T>>,
    ) -> Result {
        let mut batches: Vec<Batch<T>> = Vec::new();
        for write in writes {
            let fits = batches.pop_if(|batch| batch.fits(&write, self.operations));
            let mut batch = fits.unwrap_or_default();
            batch.add(write);
            batches.push(batch);
        }
        let mut sent = Exchanges::new();
        for batch in &mut batches {
            let mut nested: Vec<TxnOp> = Vec::with_capacity(batch.writes.len() + 2);
            // Whoever loses has lost to a node: it must know whether that lives.
            nested.push(self.all_marks());
            for write in &mut batch.writes {
                let name = groups[write.group].name;
                let truth =
                    [TxnOp::get(self.keys.job(name), None), TxnOp::get(self.keys.data(name), None)];
                nested.push(TxnOp::txn(
                    Txn::new()
                        .when(std::mem::take(&mut write.compares))
                        .and_then(std::mem::take(&mut write.puts))
                        .or_else(truth),
                ));
            }
            let mut hints = batch.writes.iter().flat_map(|write| &write.hints);
            if let Some(hint) = hints.next() {
                let more = hints.next().is_some();
                let hint = if more { &Hint::Look } else { hint };
                nested.push(TxnOp::put(self.keys.told(), hint.to_string(), None));
            }
            let kinds = std::mem::take(&mut batch.kinds).into_iter();
            nested.extend(kinds.map(|kind| TxnOp::put(self.keys.kind(&kind), "", None)));
            let parts = std::mem::take(&mut batch.parts).into_iter();
            nested.extend(parts.map(|(beside, at)| self.lowered(&beside, at)));
            let mut txn = Txn::new();
            if batch.writes.iter().any(|write| write.promises) {
                let mark = self.keys.mark(asker.node);
                txn = txn.when([Compare::create_revision(mark, CompareOp::Greater, 0)]);
            }
            sent.add(self.txn_or_again(asker.op, txn.and_then(nested))).await?;
        }
        let answers = sent.answers().await?;
        for (batch, (answer, again)) in batches.into_iter().zip(answers) {
            if !answer.succeeded() {
                self.marks.is_gone(asker.node);
                let lost = "the node's mark was gone; ask again";
                return Err(Error::new(Kind::Unavailable, lost).op(asker.op));
            }
            let revision = answer.header().map_or(0, |header| header.revision());
            let mut known = self.known();
            let mut told = answer.op_responses().into_iter();
            let Some(TxnOpResponse::Get(marks)) = told.next() else {
                return Err(strange(asker.op));
            };
            let alive = Arc::new(self.nodes_in(&marks));
            for write in batch.writes {
                let Some(TxnOpResponse::Txn(answer)) = told.next() else {
                    return Err(strange(asker.op));
                };
                let group = &mut groups[write.group];
                if answer.succeeded() {
                    remember(&mut known, group.name, write.after, revision);
                    group.answers = Some(write.answers);
                } else {
                    let mut truth = gets(&answer).into_iter();
                    let (Some(job), Some(data)) = (truth.next(), truth.next()) else {
                        return Err(strange(asker.op));
                    };
                    let mut base = Base::read(&job, &data, Source::Told);
                    base.alive = Some(alive.clone());
                    // What was remembered is proved wrong: also where revisions began anew, as after
                    // a backup was brought back.
                    known.remove(group.name);
                    base.remember(&mut known, group.name);
                    if again && write.is_in(&base) {
                        group.answers = Some(write.answers);
                    } else {
                        group.base = Some(base);
                    }
                }
            }
        }
        Ok(())
    }
}
