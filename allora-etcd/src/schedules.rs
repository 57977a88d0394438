//! Stored schedules: added, changed and removed.

use crate::{
    Etcd,
    exchange::{gets, number},
    keys::{after_all, digits},
    store::{Asker, Done, Slot, Store},
};
use allora_core::{
    Error, Kind, MAX_NAME, Result, Time,
    backend::{Change, Hint, NewSchedule, Now, Page, Schedules, State},
    record::{At, Ledger, Record, TOMBSTONE, change, codec, create, delete},
    time::saturating_add,
};
use async_trait::async_trait;
use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp};
use std::sync::Arc;

/// What history shows as the node of an operator's change.
const OPERATOR: &str = "operator";

/// How many tombstones one deletion clears away.
const CLEARED: i64 = 20;

/// How many records of a list are read at once.
const AT_ONCE: usize = 500;

#[async_trait]
impl Schedules for Etcd {
    async fn add(&self, new: &[NewSchedule<'_>], now: Now) -> Result<Vec<Result<State>>> {
        // Names that are far too long for a key do not get that far.
        let checked: Vec<Result> =
            new.iter().map(|new| allora_core::check_name(new.name)).collect();
        let good: Vec<&NewSchedule<'_>> =
            new.iter().zip(&checked).filter(|(_, ok)| ok.is_ok()).map(|(new, _)| new).collect();
        let names: Vec<&str> = good.iter().map(|new| new.name).collect();
        let work = |i: usize, slot: Slot<'_>, at: At<'_>, _: &mut Ledger| {
            let new: &NewSchedule<'_> = good[i];
            let made = match slot {
                Slot::Sound(record) => {
                    create(record, new, at).and_then(|()| shown(new.name, record))
                }
                Slot::Parked { reason, .. } => Err(unreadable(new.name, reason)),
            };
            let due = made.as_ref().ok().and_then(|state: &State| state.due_at);
            Done { answer: made, hint: due.map(Hint::DueAt), is_proved: false }
        };
        let asker = Asker { op: "add", node: OPERATOR, now };
        let mut added = self.store.with(asker, &names, false, work).await?.into_iter();
        let answer = |(checked, new): (Result, &NewSchedule<'_>)| {
            checked.and_then(|()| added.next().unwrap_or_else(|| Err(missing(new.name))))
        };
        Ok(checked.into_iter().zip(new).map(answer).collect())
    }

    async fn get(&self, name: &str) -> Result<State> {
        if name.len() > MAX_NAME {
            return Err(missing(name));
        }
        let states = self.store.states(watcher("get"), &[name]).await?;
        states.into_iter().next().and_then(|(state, _)| state).ok_or_else(|| missing(name))
    }

    async fn list(&self, page: Page<'_>) -> Result<Vec<State>> {
        self.store.list(page).await
    }

    async fn kinds(&self) -> Result<Vec<String>> {
        let range = GetOptions::new().with_prefix().with_keys_only();
        let all = self.store.keys.kind("");
        let op = TxnOp::get(all.clone(), Some(range));
        let answer = self.store.txn("kinds", Txn::new().and_then([op])).await?;
        let kind = |kv: &etcd_client::KeyValue| {
            String::from_utf8(kv.key().strip_prefix(all.as_bytes())?.to_vec()).ok()
        };
        Ok(gets(&answer).iter().flat_map(|got| got.kvs()).filter_map(kind).collect())
    }

    async fn modify(&self, name: &str, what: Change<'_>, now: Now) -> Result<State> {
        if name.len() > MAX_NAME {
            return Err(missing(name));
        }
        let work = |slot: Slot<'_>, at: At<'_>, ledger: &mut Ledger| match slot {
            Slot::Sound(record) => {
                change(record, name, &what, at, ledger)?;
                shown(name, record)
            }
            Slot::Parked { reason, .. } => Err(unreadable(name, reason)),
        };
        self.store.one("modify", name, now, work).await
    }

    async fn delete(&self, name: &str, now: Now) -> Result {
        if name.len() > MAX_NAME {
            return Err(missing(name));
        }
        let work = |slot: Slot<'_>, at: At<'_>, _: &mut Ledger| {
            match slot {
                Slot::Sound(record) => delete(record, name, at)?,
                // A tombstone in the place of a record that cannot be read.
                Slot::Parked { instead, .. } => {
                    create(instead, &NewSchedule::new(name, "parked", "", None), at)?;
                    delete(instead, name, at)?;
                }
            }
            Ok(at.now)
        };
        let at = self.store.one("delete", name, now, work).await?;
        // Deleting is what makes tombstones, and so the time to clear old ones away.
        self.store.forget("delete", at).await
    }
}

impl Store {
    /// One record; a refusal changes nothing.
    async fn one<T: Send>(
        self: &Arc<Self>,
        op: &'static str,
        name: &str,
        now: Now,
        work: impl Fn(Slot<'_>, At<'_>, &mut Ledger) -> Result<T> + Send + Sync,
    ) -> Result<T> {
        let asker = Asker { op, node: OPERATOR, now };
        let work = |_, slot: Slot<'_>, at: At<'_>, ledger: &mut Ledger| {
            let hint = Some(Hint::Job(name.to_owned()));
            Done { answer: work(slot, at, ledger), hint, is_proved: false }
        };
        let answers = self.with(asker, &[name], false, work).await?;
        answers.into_iter().next().unwrap_or_else(|| Err(missing(name)))
    }

    async fn list(&self, page: Page<'_>) -> Result<Vec<State>> {
        const OP: &str = "list";
        let jobs = self.keys.job("");
        let prefix = self.keys.job(page.prefix);
        // The first key behind a name: that name and the smallest byte.
        let after = page.after.map(|after| format!("{}\0", self.keys.job(after)));
        let mut from = prefix.clone().into_bytes().max(after.unwrap_or_default().into_bytes());
        let mut states: Vec<State> = Vec::new();
        while states.len() < page.limit {
            // Without a filter, not many more than are wanted are read in vain.
            let wanted = page.kind.map_or(page.limit - states.len(), |_| AT_ONCE).min(AT_ONCE);
            let limit = i64::try_from(wanted).unwrap_or(i64::MAX);
            let range = GetOptions::new().with_range(after_all(&prefix)).with_limit(limit);
            let op = TxnOp::get(from.clone(), Some(range));
            let answer = self.txn(OP, Txn::new().and_then([op])).await?;
            let Some(rows) = gets(&answer).into_iter().next() else { break };
            let mut names = Vec::new();
            for kv in rows.kvs() {
                if states.len() + names.len() == page.limit {
                    break;
                }
                from = [kv.key(), &[0]].concat();
                let Some(Ok(name)) = kv.key().strip_prefix(jobs.as_bytes()).map(str::from_utf8)
                else {
                    continue;
                };
                let wanted = match codec::decode(kv.value()) {
                    Ok(record) => {
                        record.is_live() && page.kind.is_none_or(|kind| record.kind == kind)
                    }
                    // It has no kind that could be read.
                    Err(_) => page.kind.is_none(),
                };
                if wanted {
                    names.push(name);
                }
            }
            // What has changed meanwhile is told as it is now.
            let read = self.states(watcher(OP), &names).await?;
            let kind = |state: &State| {
                page.kind.is_none_or(|kind| state.parked.is_none() && state.kind == kind)
            };
            states.extend(read.into_iter().filter_map(|(state, _)| state).filter(kind));
            if rows.kvs().is_empty() {
                break;
            }
        }
        Ok(states)
    }

    /// Forgets tombstones whose time has come. What they guarded, the floor guards now.
    async fn forget(&self, op: &'static str, now: Time) -> Result {
        let old = now.timestamp_millis() - i64::try_from(TOMBSTONE.as_millis()).unwrap_or(i64::MAX);
        let prefix = self.keys.all_gone();
        let range = GetOptions::new().with_range(format!("{prefix}{}", digits(old)));
        let op_range = TxnOp::get(prefix.clone(), Some(range.with_keys_only().with_limit(CLEARED)));
        let answer = self.txn(op, Txn::new().and_then([op_range])).await?;
        let keys: Vec<Vec<u8>> =
            gets(&answer).iter().flat_map(|got| got.kvs()).map(|kv| kv.key().to_vec()).collect();
        for key in keys {
            self.forget_one(op, now, &prefix, key).await?;
        }
        Ok(())
    }

    async fn forget_one(&self, op: &'static str, now: Time, prefix: &str, key: Vec<u8>) -> Result {
        let Some(due) = crate::keys::Keys::read(prefix, &key) else { return Ok(()) };
        let job = self.keys.job(&due.name);
        let floor = self.keys.floor();
        let read =
            Txn::new().and_then([TxnOp::get(floor.clone(), None), TxnOp::get(job.clone(), None)]);
        let answer = self.txn(op, read).await?;
        let mut got = gets(&answer).into_iter();
        let (Some(at_floor), Some(at_job)) = (got.next(), got.next()) else { return Ok(()) };
        let (low, low_revision) = number(&at_floor);
        let revision = at_job.kvs().first().map_or(0, |kv| kv.mod_revision());
        let record = at_job.kvs().first().and_then(|kv| codec::decode(kv.value()).ok());
        let over = |record: &Record| {
            record.gone.is_some_and(|gone| saturating_add(gone, TOMBSTONE) <= now)
        };
        let mut ops = vec![TxnOp::delete(key, None)];
        if let Some(record) = record.filter(over) {
            ops.push(TxnOp::delete(job.clone(), None));
            ops.push(TxnOp::put(floor.clone(), low.max(record.fence).to_string(), None));
        }
        let txn = Txn::new()
            .when([
                Compare::mod_revision(job, CompareOp::Equal, revision),
                Compare::mod_revision(floor, CompareOp::Equal, low_revision),
            ])
            .and_then(ops);
        // Whoever was faster has done it, or the next deletion will.
        self.txn(op, txn).await?;
        self.known().remove(&due.name);
        Ok(())
    }
}

/// Somebody who only looks: the records are shown as they are.
fn watcher(op: &'static str) -> Asker<'static> {
    Asker { op, node: OPERATOR, now: Now::At(Time::UNIX_EPOCH) }
}

fn shown(name: &str, record: &Option<Record>) -> Result<State> {
    record.as_ref().map(|record| record.state(name)).ok_or_else(|| missing(name))
}

fn missing(name: &str) -> Error {
    Error::new(Kind::NotFound, format!("there is no job {name:?}"))
}

fn unreadable(name: &str, reason: &str) -> Error {
    let parked = format!("{name:?} is parked: {reason}; delete it and add it again");
    Error::new(Kind::Other, parked)
}
