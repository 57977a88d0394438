//! Stored schedules: added, changed and removed, each by a compare-and-set of its record.

use crate::{
    Redis,
    hash::ms,
    script::Call,
    store::{CHUNK, Slot, Store, Work},
};
use allora_core::{
    Error, Kind, Result, Time,
    backend::{Change, Hint, NewSchedule, Now, Page, Schedules, State},
    record::{At, Ledger, MAX_DATA, Record, change, create, delete},
};
use async_trait::async_trait;
use futures::future::try_join_all;

/// What history shows as the node of an operator's change.
const OPERATOR: &str = "operator";

#[async_trait]
impl Schedules for Redis {
    async fn add(&self, new: &[NewSchedule<'_>], now: Now) -> Result<Vec<Result<State>>> {
        let store = &*self.store;
        let mut added = Vec::with_capacity(new.len());
        // A call each: one of all would keep others waiting.
        for new in batches(new) {
            let names: Vec<&str> = new.iter().map(|new| new.name).collect();
            let work = |i: usize, slot: Slot<'_>, at: At<'_>, _: &mut Ledger| match slot {
                Slot::Sound(record) => {
                    create(record, &new[i], at)?;
                    shown(new[i].name, record)
                }
                Slot::Parked { reason, .. } => Err(unreadable(new[i].name, reason)),
            };
            added.extend(store.with("add", &names, OPERATOR, now, &Each(work)).await?.answers);
        }
        let due = added.iter().flatten().filter_map(|state| state.due_at).min();
        if let Some(due_at) = due {
            store.tell(Hint::DueAt(due_at)).await;
        }
        Ok(added)
    }

    async fn get(&self, name: &str) -> Result<State> {
        let store = &*self.store;
        let (_, read) = store.read("get", store.keys.shard_of(name), &[name]).await?;
        read.first().and_then(|stored| stored.state()).ok_or_else(|| missing(name))
    }

    async fn list(&self, page: Page<'_>) -> Result<Vec<State>> {
        let shards = self.store.keys.all().map(|(i, _)| self.store.list_in(i, page));
        let mut all: Vec<State> = try_join_all(shards).await?.into_iter().flatten().collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all.truncate(page.limit);
        Ok(all)
    }

    async fn kinds(&self) -> Result<Vec<String>> {
        let store = &*self.store;
        let shards = store.keys.all().map(|(_, shard)| async move {
            let mut members = redis::cmd("SMEMBERS");
            members.arg(shard.kinds());
            let kinds = store.link.ask::<Vec<String>>(&members).await;
            kinds.map_err(|cause| store.failed("kinds", cause))
        });
        let mut kinds: Vec<String> = try_join_all(shards).await?.into_iter().flatten().collect();
        kinds.sort_unstable();
        kinds.dedup();
        Ok(kinds)
    }

    async fn modify(&self, name: &str, what: Change<'_>, now: Now) -> Result<State> {
        let store = &*self.store;
        let work = |slot: Slot<'_>, at: At<'_>, ledger: &mut Ledger| match slot {
            Slot::Sound(record) => {
                change(record, name, &what, at, ledger)?;
                shown(name, record)
            }
            Slot::Parked { reason, .. } => Err(unreadable(name, reason)),
        };
        let state = store.one("modify", name, now, work).await?;
        store.tell(Hint::Job(name.to_owned())).await;
        Ok(state)
    }

    async fn delete(&self, name: &str, now: Now) -> Result {
        let store = &*self.store;
        let work = |slot: Slot<'_>, at: At<'_>, _: &mut Ledger| {
            match slot {
                Slot::Sound(record) => delete(record, name, at)?,
                Slot::Parked { instead, .. } => bury(instead, name, at)?,
            }
            Ok(at.now)
        };
        let at = store.one("delete", name, now, work).await?;
        store.tell(Hint::Job(name.to_owned())).await;
        // Deleting is what makes tombstones, and so the time to clear old ones away.
        store.forget("delete", name, at).await
    }
}

/// Work on records of which each is decided alone.
pub(crate) struct Each<F>(pub(crate) F);

impl<T, F> Work for Each<F>
where
    T: Send,
    F: Fn(usize, Slot<'_>, At<'_>, &mut Ledger) -> Result<T> + Sync,
{
    type Answer = Result<T>;

    fn decide(&self, i: usize, slot: Slot<'_>, at: At<'_>, ledger: &mut Ledger) -> Result<T> {
        (self.0)(i, slot, at, ledger)
    }
}

/// Parts of a batch that one call can bear, by number and by size.
fn batches<'a, 'n>(mut new: &'a [NewSchedule<'n>]) -> impl Iterator<Item = &'a [NewSchedule<'n>]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let mut fits = |new: &NewSchedule<'_>| {
            bytes += new.data.len() + new.definition.len();
            bytes <= MAX_DATA
        };
        let fit = new.iter().take(CHUNK).take_while(|new| fits(new)).count();
        let (batch, rest) = new.split_at(fit.max(1).min(new.len()));
        new = rest;
        (!batch.is_empty()).then_some(batch)
    })
}

impl Store {
    async fn one<T: Send>(
        &self,
        op: &'static str,
        name: &str,
        now: Now,
        work: impl Fn(Slot<'_>, At<'_>, &mut Ledger) -> Result<T> + Sync,
    ) -> Result<T> {
        let work = |_, slot: Slot<'_>, at: At<'_>, ledger: &mut Ledger| work(slot, at, ledger);
        let done = self.with(op, &[name], OPERATOR, now, &Each(work)).await?;
        done.answers.into_iter().next().unwrap_or_else(|| Err(missing(name)))
    }

    /// The part of a page that is in one shard.
    async fn list_in(&self, shard: u32, page: Page<'_>) -> Result<Vec<State>> {
        const OP: &str = "list";
        let mut from = match page.after {
            Some(after) if after >= page.prefix => [b"(", after.as_bytes()].concat(),
            _ => [b"[", page.prefix.as_bytes()].concat(),
        };
        // No UTF-8 has this byte: whatever begins with the prefix is before it.
        let until = [b"(", page.prefix.as_bytes(), b"\xff"].concat();
        let mut states = Vec::new();
        while states.len() < page.limit {
            let names = self.names(OP, shard, &from, &until, page.limit.min(CHUNK)).await?;
            let Some(last) = names.last() else { break };
            from = [b"(", last.as_bytes()].concat();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let (_, read) = self.read(OP, shard, &names).await?;
            let read = read.iter().filter_map(|stored| stored.state());
            states.extend(read.filter(|state| page.kind.is_none_or(|kind| state.kind == kind)));
        }
        Ok(states)
    }

    /// The first names of a range of a shard, as `ZRANGEBYLEX` takes it.
    pub(crate) async fn names(
        &self,
        op: &'static str,
        shard: u32,
        from: &[u8],
        until: &[u8],
        limit: usize,
    ) -> Result<Vec<String>> {
        let mut range = redis::cmd("ZRANGEBYLEX");
        range.arg(self.keys.shard(shard).names()).arg(from).arg(until);
        range.arg("LIMIT").arg(0).arg(limit);
        self.link.ask(&range).await.map_err(|cause| self.failed(op, cause))
    }

    /// Forgets tombstones of the name's shard whose time has come.
    pub(crate) async fn forget(&self, op: &'static str, name: &str, now: Time) -> Result {
        let shard = self.keys.shard(self.keys.shard_of(name));
        let mut call =
            Call::new(&self.scripts.forget, &[shard.state(), shard.gone(), shard.lines()]);
        call.arg(ms(now)).arg(shard.job(""));
        self.link.call(&call).await.map_err(|cause| self.failed(op, cause))?;
        Ok(())
    }
}

/// A tombstone in the place of a record that cannot be read.
fn bury(instead: &mut Option<Record>, name: &str, at: At<'_>) -> Result {
    create(instead, &NewSchedule::new(name, "parked", "", None), at)?;
    delete(instead, name, at)
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
