//! Stored schedules: added, changed and removed, each in one transaction.

use crate::{
    Sql,
    dialect::CHUNK,
    driver::Value,
    store::{Slot, Store, again},
};
use allora_core::{
    Error, Kind, MAX_NAME, Result,
    backend::{Change, Hint, NewSchedule, Now, Page, Schedules, State},
    check_name,
    record::{At, Ledger, MAX_DATA, Record, change, create, delete},
};
use async_trait::async_trait;

/// What history shows as the node of an operator's change.
const OPERATOR: &str = "operator";

#[async_trait]
impl Schedules for Sql {
    async fn add(&self, new: &[NewSchedule<'_>], now: Now) -> Result<Vec<Result<State>>> {
        let store = &*self.store;
        let mut added = Vec::with_capacity(new.len());
        // A transaction each: one of all would keep others waiting, and be lost as a whole.
        for new in batches(new) {
            added.extend(store.add(new, now).await?);
        }
        let due = added.iter().flatten().filter_map(|state| state.due_at).min();
        if let Some(due_at) = due {
            store.tell(Hint::DueAt(due_at)).await;
        }
        Ok(added)
    }

    async fn get(&self, name: &str) -> Result<State> {
        if name.len() > MAX_NAME {
            return Err(missing(name));
        }
        let (_, rows) = self.store.look("get", self.store.dialect.rows(&[name])).await?;
        rows.first().and_then(|row| row.state()).ok_or_else(|| missing(name))
    }

    async fn list(&self, page: Page<'_>) -> Result<Vec<State>> {
        let (_, rows) = self.store.look("list", self.store.dialect.list_jobs(&page)).await?;
        Ok(rows.iter().filter_map(|row| row.state()).collect())
    }

    async fn kinds(&self) -> Result<Vec<String>> {
        self.store.kinds().await
    }

    async fn modify(&self, name: &str, what: Change<'_>, now: Now) -> Result<State> {
        if name.len() > MAX_NAME {
            return Err(missing(name));
        }
        let store = &*self.store;
        let state = store
            .one("modify", name, now, |slot, at, ledger| match slot {
                Slot::Sound(record) => {
                    change(record, name, &what, at, ledger)?;
                    shown(name, record)
                }
                Slot::Parked { reason, .. } => Err(unreadable(name, reason)),
            })
            .await?;
        store.tell(Hint::Job(name.to_owned())).await;
        Ok(state)
    }

    async fn delete(&self, name: &str, now: Now) -> Result {
        if name.len() > MAX_NAME {
            return Err(missing(name));
        }
        let store = &*self.store;
        let at = store
            .one("delete", name, now, |slot, at, _| {
                match slot {
                    Slot::Sound(record) => delete(record, name, at)?,
                    Slot::Parked { instead, .. } => bury(instead, name, at)?,
                }
                Ok(at.now)
            })
            .await?;
        store.tell(Hint::Job(name.to_owned())).await;
        // Deleting is what makes tombstones, and so the time to clear old ones away.
        store.forget("delete", at).await
    }
}

/// Parts of a batch that one transaction can bear, by number and by size.
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
    /// As many schedules as one transaction can bear.
    async fn add(&self, new: &[NewSchedule<'_>], now: Now) -> Result<Vec<Result<State>>> {
        // Names that no column has room for do not get that far.
        let checked: Vec<Result> = new.iter().map(|new| check_name(new.name)).collect();
        let good: Vec<&NewSchedule<'_>> =
            new.iter().zip(&checked).filter(|(_, ok)| ok.is_ok()).map(|(new, _)| new).collect();
        let mut added = Vec::new();
        if !good.is_empty() {
            let names: Vec<&str> = good.iter().map(|new| new.name).collect();
            let work = |i: usize, slot: Slot<'_>, at: At<'_>, _: &mut Ledger| match slot {
                Slot::Sound(record) => {
                    create(record, good[i], at)?;
                    shown(good[i].name, record)
                }
                Slot::Parked { reason, .. } => Err(unreadable(good[i].name, reason)),
            };
            added = self.with("add", &names, OPERATOR, now, work).await?.answers;
        }
        let mut added = added.into_iter();
        let answer = |(checked, new): (Result, &NewSchedule<'_>)| {
            checked.and_then(|()| added.next().unwrap_or_else(|| Err(missing(new.name))))
        };
        Ok(checked.into_iter().zip(new).map(answer).collect())
    }

    async fn kinds(&self) -> Result<Vec<String>> {
        let mut kinds: Vec<String> = Vec::new();
        // A step of the index for each kind, and none for each schedule.
        loop {
            let after = kinds.last().map_or("", String::as_str);
            let rows = again!(self, "kinds", self.driver.rows(self.dialect.kind_after(after)))?;
            let next = rows.into_iter().flatten().next().and_then(Value::into_bytes);
            match next.and_then(|kind| String::from_utf8(kind).ok()) {
                Some(kind) => kinds.push(kind),
                None => return Ok(kinds),
            }
        }
    }

    /// One record in one transaction.
    async fn one<T: Send>(
        &self,
        op: &'static str,
        name: &str,
        now: Now,
        work: impl Fn(Slot<'_>, At<'_>, &mut Ledger) -> Result<T> + Send + Sync,
    ) -> Result<T> {
        let work = |_, slot: Slot<'_>, at: At<'_>, ledger: &mut Ledger| work(slot, at, ledger);
        let done = self.with(op, &[name], OPERATOR, now, work).await?;
        done.answers.into_iter().next().unwrap_or_else(|| Err(missing(name)))
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
